"""What every algorithm is made of: a half that runs at the site, a half that runs at the server, and a state.

An algorithm is a frozen dataclass of hyper-parameters. One round is `state = algorithm.round(state, ask)`:
everything that a later round needs is in the state or in a site's memory, so a run can be replayed and resumed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Protocol, TypeVar, cast, dataclass_transform

import numpy as np
import pydantic.dataclasses
from numpy.typing import NDArray

from fedce.messages import Evaluation, Reply, Task
from fedce.params import Params, leave_out, splice, weighted_sum

Moments = Mapping[str, NDArray[np.float32]]
Ask = Callable[[Sequence[Task]], list[Reply]]
"""Sends one task to each site; returns the usable replies, sorted by site."""


A = TypeVar("A")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def hyperparameters(cls: type[A]) -> type[A]:
    """Decorator of an algorithm's class: a frozen dataclass whose values are checked when it is made."""
    checked = pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config={"extra": "forbid"})
    return cast(type[A], checked(cls))


@dataclass(frozen=True)
class Account:
    """What a site has earned: sums over the rounds in which it was measured."""

    rounds: int = 0
    value: float = 0.0
    cos: float = 0.0
    err: float = 0.0


@dataclass(frozen=True)
class Terms:
    """What was measured of a site in one round, before any normalisation; kept in the ledger."""

    cos: float | None = None
    err: float | None = None
    """As the site claims it."""
    trust: float = 1.0
    """The part of the credit that the guard lets count; 0: nothing of the reply is used."""
    most: float | None = None
    """The largest error that the guard believes; None: any."""
    signs: Mapping[str, Any] = field(default_factory=dict)
    """What the guard saw, where there is one."""
    past: float = 1.0
    """The part of what the site earned in earlier rounds that the guard lets count from now on."""

    @property
    def believed(self) -> float | None:
        return self.err if self.err is None or self.most is None else min(self.err, self.most)

    @property
    def recorded(self) -> dict[str, Any]:
        """For the ledger."""
        found = asdict(self)
        return found if self.signs else {"cos": self.cos, "err": self.err}

    @classmethod
    def from_record(cls, facts: Mapping[str, Any]) -> "Terms":
        """From what the ledger holds of a site."""
        return cls(**{field.name: facts[field.name] for field in fields(cls) if field.name in facts})


@dataclass(frozen=True)
class State:
    """The server between two rounds."""

    sites: tuple[str, ...]
    """Everybody who may be asked in the next round; within a round, those who are."""
    params: Params
    round_no: int = 0
    """The next round's number."""
    rho: Mapping[str, float] = field(default_factory=dict)
    """The weights that built `params`; empty before the first round."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Contributions so far, of everybody ever measured; they sum to 1."""
    accounts: Mapping[str, Account] = field(default_factory=dict)
    terms: Mapping[str, Terms] = field(default_factory=dict)
    """The last round's measurements."""
    is_mean: bool = True
    """Whether `params` is the mean of the sites' models with weights rho: only then can one be left out of it."""
    models_by_site: Mapping[str, Params] = field(default_factory=dict)
    """Where the method sends each site a model of its own."""
    moments: Moments = field(default_factory=dict)
    """Where the method has an optimizer at the server."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Shapley values of the rounds so far, where they are reconstructed."""
    sketches: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """Of each site's last updates, where the method watches them."""
    suspects: tuple[str, ...] = ()
    """Sites that went against the others, and have not come back."""
    strangers: tuple[str, ...] = ()
    """Sites whose running statistics did not enter `params`, because they were far from the others'."""
    expelled: tuple[str, ...] = ()
    """Sites that the method asks no more, whether they are still connected or not."""
    draws: Mapping[str, int] = field(default_factory=dict)
    """How often each site was drawn, where not all take part in every round."""
    notes: tuple[str, ...] = ()
    """What the method has to say about the last round; kept in the ledger."""

    def tasks(self) -> list[Task]:
        return [self.task_for(site) for site in self.sites]

    def task_for(self, site: str) -> Task:
        rho = self.rho.get(site, 0.0) if self.rho and self.is_mean else None
        return Task(
            site,
            self.round_no,
            self.models_by_site.get(site, self.params),
            rho=rho,
            has_its_statistics=site not in self.strangers,
        )


@dataclass(frozen=True)
class Memory:
    """What a site keeps between rounds."""

    round_no: int
    params: Params
    """The model that the site sent in that round."""
    received: Params | None = None
    """The global model that it started from, where the method needs it."""
    moments: Moments = field(default_factory=dict)
    """The optimizer's moments."""
    personal: Params | None = None
    """The site's own model, where the method trains one beside the common model."""
    personal_moments: Moments = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    params: Params
    loss: float
    moments: Moments


@dataclass(frozen=True)
class Pull:
    """A proximal term: strength / 2 * |w - towards|^2 is added to the loss."""

    towards: Params
    strength: float


class Site(Protocol):
    """A hospital as an algorithm sees it."""

    @property
    def name(self) -> str: ...
    @property
    def n_train(self) -> int: ...
    def train(self, params: Params, round_no: int, moments: Moments, pull: Pull | None = None) -> Trained:
        """Train for the configured epochs, starting from `params`."""

    def loss(self, params: Params) -> float:
        """Mean loss on the training split, without training."""

    def score(self, params: Params) -> float:
        """Mean Dice on the validation split."""

    def score_replicates(self, params: Params) -> tuple[float, ...]:
        """The same score on bootstrap samples of the validation cases, which are the same in every round."""

    def evaluate(self, params: Params, without: Params | None) -> Evaluation:
        """Validation and test Dice of a model, and of the model without this site."""


class Algorithm(Protocol):
    @property
    def personal(self) -> bool:
        """Whether each site ends with a model of its own."""

    @property
    def exchanges(self) -> bool:
        """Whether sites send their models."""

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        """One round at a site."""

    def evaluate(self, site: Site, task: Task, memory: Memory | None) -> Reply:
        """How the model that this site would use does on its data."""

    def round(self, state: State, ask: Ask) -> State:
        """One round at the server."""


def train(
    site: Site, task: Task, memory: Memory | None, start: Params | None = None, pull: Pull | None = None
) -> tuple[Reply, Memory]:
    """Score the received model, train it, and answer with the result: the part that all algorithms share."""
    start = start or task.params
    score = site.score(start)
    trained = site.train(start, task.round_no, memory.moments if memory else {}, pull)
    score_local = site.score(trained.params) if task.score_local else None
    reply = Reply(
        site.name,
        task.round_no,
        site.n_train,
        trained.params,
        score=score,
        loss=trained.loss,
        score_local=score_local,
    )
    return reply, Memory(task.round_no, trained.params, moments=trained.moments)


def train_and_tell_loss(site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
    """`train`, for methods that weigh by the training loss of the received model."""
    loss_before = site.loss(task.params)
    reply, memory = train(site, task, memory)
    return replace(reply, loss_before=loss_before), memory


def without_site(task: Task, memory: Memory | None) -> Params | None:
    """The received model without this site's part in it, or None if that can't be told.

    Uses the model that the site sent in the previous round: only then is the result exactly the weighted mean
    of the others' models (D3). Where it sent none that entered, the received model is the others' as it is (D10).
    """
    if task.rho == 0:
        return task.params
    if memory is None or memory.round_no != task.round_no - 1 or task.rho is None or task.rho > 1 - 1e-6:
        return None
    without = leave_out(task.params, task.rho, memory.params)
    return without if task.has_its_statistics else splice(without, task.params)


def evaluate_global(site: Site, task: Task, memory: Memory | None) -> Reply:
    """Evaluate the common model."""
    evaluation = site.evaluate(task.params, without_site(task, memory))
    return Reply(site.name, task.round_no, site.n_train, evaluation=evaluation)


def evaluate_own(site: Site, task: Task, own: Params, without: Params | None = None) -> Reply:
    """Evaluate the site's own model, and hand it over."""
    return Reply(site.name, task.round_no, site.n_train, params=own, evaluation=site.evaluate(own, without))


def models_of(replies: Sequence[Reply]) -> list[Params]:
    return [reply.params for reply in replies if reply.params is not None]


def aggregate(
    state: State,
    replies: Sequence[Reply],
    rho: Mapping[str, float],
    accounts: Mapping[str, Account],
    shares: Mapping[str, float],
    terms: Mapping[str, Terms] | None = None,
) -> State:
    """The state after the round: the replies' models, averaged with weights rho (Eq. 6)."""
    return replace(
        state,
        round_no=state.round_no + 1,
        params=weighted_sum(models_of(replies), [rho[reply.site] for reply in replies]),
        rho=rho,
        shares=shares,
        accounts=accounts,
        terms=terms or {},
        notes=(),
    )


def by_samples(replies: Sequence[Reply]) -> dict[str, float]:
    """FedAvg's weights: in proportion to the number of training images."""
    return normalise({reply.site: float(reply.n_train) for reply in replies})


def average_by_samples(state: State, replies: Sequence[Reply]) -> State:
    """FedAvg's round, which many methods share: weights and contributions by the number of training images."""
    accounts, shares = counted(state.accounts, {reply.site: float(reply.n_train) for reply in replies})
    return aggregate(state, replies, by_samples(replies), accounts, shares)


def counted(
    accounts: Mapping[str, Account], values: Mapping[str, float]
) -> tuple[dict[str, Account], dict[str, float]]:
    """Contributions of a method by which a site counts as its images, or all count alike: by what each last had."""
    result = {**accounts, **{site: Account(1, value) for site, value in values.items()}}
    return result, normalise({site: account.value for site, account in result.items()})


def mean_weights(
    accounts: Mapping[str, Account], rho: Mapping[str, float]
) -> tuple[dict[str, Account], dict[str, float]]:
    """Contributions of a method whose weights have no memory: the mean weight over the rounds that a site was in.

    Weights count relative to an equal share, so that rounds with fewer sites do not pay more.
    """
    result = dict(accounts)
    for site, weight in rho.items():
        old = accounts.get(site, Account())
        result[site] = Account(old.rounds + 1, old.value + len(rho) * weight)
    return result, normalise({site: account.value / account.rounds for site, account in result.items()})


def normalise(values: Mapping[str, float]) -> dict[str, float]:
    total = sum(values.values())
    return {site: value / total for site, value in values.items()}


def reputations(state: State, sites: Iterable[str]) -> dict[str, float]:
    """The reputations of these sites so far, to a sum of 1; a newcomer starts as an average member."""
    known = {site: state.accounts[site].value for site in sites if site in state.accounts}
    newcomer = sum(known.values()) / len(known) if known else 1.0
    values = {site: known.get(site, newcomer) for site in sites}
    # Where all that is left has fallen to nothing, everybody present starts again alike.
    return normalise(values if sum(values.values()) > 0 else dict.fromkeys(values, 1.0))


def remember(state: State, values: Mapping[str, float]) -> tuple[dict[str, Account], dict[str, float]]:
    """Accounts and shares after a round in which these sites' reputations became `values` (sum 1).

    Those who were absent keep their part of the whole.
    """
    before = [account.value for account in state.accounts.values()]
    newcomer = sum(before) / len(before) if before else 1.0
    part = sum(state.accounts[site].value if site in state.accounts else newcomer for site in values)
    part = part if part > 0 else newcomer * len(values)
    accounts = dict(state.accounts)
    for site, value in values.items():
        accounts[site] = Account(state.accounts.get(site, Account()).rounds + 1, value * part)
    return accounts, normalise({site: account.value for site, account in accounts.items()})


def capped(weights: Mapping[str, float], cap: float) -> dict[str, float]:
    """Weights none of which exceeds the cap (or 1/N); what is cut off goes to the others in proportion.

    N counts those that have a weight at all.
    """
    cap = max(cap, 1 / sum(weight > 0 for weight in weights.values()))
    result, full = dict(weights), set[str]()
    while over := {site for site, weight in result.items() if weight > cap and site not in full}:
        full |= over
        rest = sum(weight for site, weight in result.items() if site not in full)
        scale = (1 - cap * len(full)) / rest if rest > 0 else 0.0
        result = {site: cap if site in full else weight * scale for site, weight in result.items()}
    return result
