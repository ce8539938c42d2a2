"""What every algorithm is made of: a half that runs at the site, a half that runs at the server, and a state.

An algorithm is a frozen dataclass of hyper-parameters. One round is `state = algorithm.round(state, ask)`: everything
that a later round needs is in the state or in a site's memory, so a run can be replayed and resumed. What a round
measured goes to the ledger; credit, weights and shares are pure functions of it, so that anybody who has the ledger
can work them out again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform

import numpy as np
import pydantic.dataclasses
from numpy.typing import NDArray

from fedce.core.credit import Credit, Gains
from fedce.core.messages import Reply, Task
from fedce.core.params import Params, Vector, gram, inner_products, weighted_sum
from fedce.core.recorded import Facts
from fedce.core.site import Memory, Site, evaluate_global, train
from fedce.core.weights import normalise

Ask = Callable[[Sequence[Task]], Sequence[Reply]]
"""Sends one task to each site; returns the usable replies, sorted by site."""

A = TypeVar("A")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def hyperparameters(cls: type[A]) -> type[A]:
    """Decorator of an algorithm's class: a frozen dataclass whose values are checked when it is made."""
    checked = pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config={"extra": "forbid"})
    return cast(type[A], checked(cls))


@dataclass(frozen=True)
class Traits:
    """What the rest of the program must know of an algorithm; constant over the rounds.

    >>> Traits(personal=True).exchanges, Algorithm().traits.is_mean
    (True, True)
    """

    personal: bool = False
    """Each site ends with a model of its own."""
    exchanges: bool = True
    """Sites send their models."""
    is_mean: bool = True
    """The common model is the mean of the sites' models with weights rho: only then can a site be left out of it."""
    accumulates: bool = True
    """Credit adds up over the rounds; if not, a round's credit replaces the earlier one."""
    weighs_by_earlier_rounds: bool = False
    """A round's weights follow from the credit before the round, not from the credit after it."""
    sites_claim_novelty: bool = False
    """Eq. 2 is measured by the sites, one round later."""
    weights_are_measured: bool = False
    """Weights follow from the models, so that they can't be worked out from a ledger."""
    expels: bool = False
    """Sites may be dropped for good."""
    keeps_norms: bool = False
    """Normalisation layers stay at the sites: an experiment with this method has model.norm = "site-affine"."""


@dataclass(frozen=True)
class Terms:
    """What was measured of a site in one round; a subclass adds what its method measures."""

    n_train: int


@dataclass(frozen=True)
class Cleared:
    """Batch statistics of a site that the other sites found harmless, and the weight that they had."""

    round_no: int
    weight: float
    statistics: NDArray[np.float64]


@dataclass(frozen=True)
class State:
    """The server between two rounds.

    >>> from fedce.core.params import Entry, Layout
    >>> w = Params(Layout((Entry("w", (1,), "trainable"),)), np.zeros(1, np.float32))
    >>> state = Algorithm().begin(["north", "south"], w)
    >>> state.sites, state.round_no
    (('north', 'south'), 0)
    """

    sites: tuple[str, ...]
    """All sites that may be asked in the next round; within a round, the sites that are asked."""
    params: Params
    round_no: int = 0
    """The next round's number."""
    rho: Mapping[str, float] = field(default_factory=dict)
    """The weights that built `params`; empty before the first round."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Contributions so far of all sites that were ever measured; they sum to 1."""
    credit: Credit = field(default_factory=Credit)
    own: Any = None
    """What only this algorithm keeps, a frozen dataclass: see `Algorithm.initial_own`."""
    measured: Mapping[str, Facts] = field(default_factory=dict)
    """What the last round measured of each site; written to the ledger."""
    strangers: tuple[str, ...] = ()
    """Sites whose running statistics did not enter `params`."""
    cleared: Mapping[str, Cleared] = field(default_factory=dict)
    """Running statistics that the other sites found harmless in the last rounds."""
    shortened: tuple[str, ...] = ()
    """Sites whose update entered `params` with another length than they sent."""
    expelled: tuple[str, ...] = ()
    """Sites that the method no longer asks, whether they are still connected or not."""
    draws: Mapping[str, int] = field(default_factory=dict)
    """How often each site was drawn, if not all sites take part in every round."""
    on_ballots: Mapping[str, int] = field(default_factory=dict)
    """How many ballots so far were about each site."""
    notes: tuple[str, ...] = ()
    """What the method has to say about the last round; written to the ledger."""
    scores: tuple[float, ...] = ()
    """The sites' mean validation score of each round's first model."""
    best: Params | None = None
    """The common model of the round with the best smoothed score so far."""
    rest: Vector | None = None
    """What 16-bit numbers left out of the common model's steps so far, with pack = "fp16"."""


class Answers(Sequence[Reply]):
    """The usable replies of a round, sorted by site, and results computed from their models once."""

    def __init__(self, replies: Sequence[Reply], starts: Mapping[str, Params]) -> None:
        self.replies = tuple(replies)
        self.starts = starts
        """The model that each site started from."""
        self._found: dict[str, Any] = {}

    def __getitem__(self, i: Any) -> Any:
        return self.replies[i]

    def __len__(self) -> int:
        return len(self.replies)

    def __iter__(self) -> Iterator[Reply]:
        return iter(self.replies)

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(reply.site for reply in self.replies)

    @property
    def models(self) -> list[Params]:
        return models_of(self.replies)

    @property
    def products(self) -> NDArray[np.float64]:
        """Inner products of the updates: trainable entries of each model minus those of the model it started from."""
        return self.once("products", self._products)

    def _products(self) -> NDArray[np.float64]:
        starts = [self.starts[site] for site in self.sites]
        if all(start is starts[0] for start in starts):
            return gram(self.models, starts[0])
        return inner_products([m.trainable - start.trainable for m, start in zip(self.models, starts, strict=True)])

    def once(self, what: str, work: Callable[[], A]) -> A:
        """The result of `work`, computed when `what` is first asked for and kept under this name."""
        if what not in self._found:
            self._found[what] = work()
        return cast(A, self._found[what])

    def with_replies(self, replies: Sequence[Reply]) -> "Answers":
        """Some of the replies, perhaps with other claims; computed results are kept if no reply is missing."""
        chosen = Answers(replies, self.starts)
        if len(replies) == len(self.replies):
            chosen._found = self._found
        return chosen


@dataclass(frozen=True)
class Aggregated:
    """The outcome of a round's replies."""

    params: Params
    own: Any = None
    notes: tuple[str, ...] = ()


class Algorithm:
    """A method; without overrides it is FedAvg.

    A round is: ask, measure, earn, weigh, aggregate. `measure` sees the models, and its result goes to the ledger;
    `gains`, `weigh` and `shares` are pure functions of what the ledger holds.

    >>> terms = {"north": Terms(n_train=30), "south": Terms(n_train=10)}
    >>> credit = Algorithm().earn(Credit(), terms)
    >>> Algorithm().weigh(credit, terms)
    {'north': 0.75, 'south': 0.25}
    """

    terms: ClassVar[type[Terms]] = Terms
    """What `measure` returns for a site; its fields are written to the ledger."""

    @property
    def traits(self) -> Traits:
        return Traits()

    @property
    def keeps(self) -> type | None:
        """The class of what a site keeps beside its model (`Memory.own`), a frozen dataclass; None for nothing."""
        return None

    @property
    def uses_errors(self) -> bool:
        """Whether shares follow from the sites' validation errors (Eq. 3)."""
        return False

    def initial_own(self, params: Params) -> Any:
        """What only this algorithm keeps at the server, before the first round; a frozen dataclass, or None."""
        return None

    def begin(self, sites: Sequence[str], params: Params) -> State:
        """The server before the first round."""
        return State(sites=tuple(sites), params=params, own=self.initial_own(params))

    # At the site.

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        """One round at a site."""
        return train(site, task, memory)

    def evaluate(self, site: Site, task: Task, memory: Memory | None) -> Reply:
        """Evaluate, on the site's data, the model that the site would use."""
        return evaluate_global(site, task, memory)

    # At the server.

    def task(self, state: State, site: str) -> Task:
        """What the server sends to a site."""
        # A site can't subtract from the model what it did not send.
        own = 0.0 if site in state.shortened else state.rho.get(site, 0.0)
        rho = own if state.rho and self.traits.is_mean else None
        known = site not in state.strangers
        return Task(site, state.round_no, state.params, rho=rho, has_its_statistics=known)

    def measure(self, state: State, answers: Answers, ask: Ask) -> dict[str, Any]:
        """The terms of each site whose reply counts."""
        return {reply.site: self.terms(reply.n_train) for reply in answers}

    def gains(self, credit: Credit, terms: Mapping[str, Any]) -> Gains:
        """What each site earns in a round with these terms."""
        return {site: (float(term.n_train),) for site, term in terms.items()}

    def earn(self, credit: Credit, terms: Mapping[str, Any]) -> Credit:
        """The credit after a round."""
        gains = self.gains(credit, terms)
        return credit.plus(gains) if self.traits.accumulates else credit.replaced(gains)

    def weigh(self, credit: Credit, terms: Mapping[str, Any]) -> dict[str, float]:
        """rho: the weights of the sites in `terms`; they sum to 1."""
        return normalise({site: credit[site].value for site in terms})

    def shares(self, credit: Credit, n_rounds: Mapping[str, int] | None = None) -> dict[str, float]:
        """Contributions so far of all sites that were ever measured; they sum to 1.

        `n_rounds` says in how many rounds a site was measured, if the credit covers only some rounds of a run.
        """
        return normalise(self.earned(credit))

    def earned(self, credit: Credit) -> dict[str, float]:
        """What each site has earned: the mean over its rounds if credit accumulates, otherwise the last value."""
        if self.traits.accumulates:
            return {site: account.means[0] for site, account in credit.items()}
        return {site: account.value for site, account in credit.items()}

    def aggregate(self, state: State, answers: Answers, rho: Mapping[str, float]) -> Aggregated:
        """The next common model: the mean of the sites' models (Eq. 6)."""
        return Aggregated(weighted_sum(answers.models, [rho[site] for site in answers.sites]), state.own)

    def dropped(self, credit: Credit, terms: Mapping[str, Any]) -> dict[str, str]:
        """Sites that are no longer asked from now on, each with a sentence for the ledger."""
        return {}

    def returned(self, state: State) -> Params:
        """The common model that the method returns after the last round; most methods return the last one."""
        return state.params

    def round(self, state: State, ask: Ask) -> State:
        """One round at the server."""
        tasks = [self.task(state, site) for site in state.sites]
        answers = Answers(ask(tasks), {task.site: task.params for task in tasks})
        terms = self.measure(state, answers, ask)
        credit, rho, shares = self.follow(state.credit, terms)
        after = self.aggregate(state, answers, rho)
        dropped = self.dropped(credit, terms)
        return replace(
            state,
            sites=tuple(site for site in state.sites if site not in dropped),
            round_no=state.round_no + 1,
            params=after.params,
            rho=rho,
            shares=shares,
            credit=credit,
            own=after.own,
            measured={site: self.recorded(term) for site, term in terms.items()},
            notes=(*after.notes, *dropped.values()),
        )

    def follow(self, before: Credit, terms: Mapping[str, Any]) -> tuple[Credit, dict[str, float], dict[str, float]]:
        """Credit, weights and shares after a round: everything that follows from what was measured."""
        credit = self.earn(before, terms)
        rho = self.weigh(before if self.traits.weighs_by_earlier_rounds else credit, terms)
        return credit, rho, self.shares(credit) if credit else rho

    # The record.

    def recorded(self, term: Any) -> dict[str, Any]:
        """What the ledger holds of a site's terms; what the site itself reported is recorded apart from this."""
        return {name: value for name, value in asdict(term).items() if name not in SAID}

    def read(self, sites: Mapping[str, Facts]) -> dict[str, Any]:
        """A round's terms from what the ledger holds; a LookupError if an earlier version did not record them."""
        names = [one.name for one in fields(self.terms)]
        return {site: self.terms(**{name: facts[name] for name in names}) for site, facts in sites.items()}

    def signed(self, said: Any, before: Facts) -> dict[str, Any]:
        """Terms that the ledger must hold by the site's signed answer; `before`: its facts of the round before."""
        return {}

    def lasting(self, rounds: Sequence[Mapping[str, Any]], site: str) -> list[float]:
        """For each of these rounds, the part of what the site earned in it that still counts after the last of them."""
        return [1.0] * len(rounds)

    def smoothed(self, facts: Facts) -> Facts:
        """The facts, adjusted so that a small change of a site's error changes its credit only a little."""
        return facts

    def replay(self) -> "Replayer":
        """A check of a ledger's rounds, one after the other."""
        return Replayer(self)


class Replayer:
    """Computes credit, weights and shares again, from what a ledger holds of each round."""

    is_guarded = False
    is_of_earlier_rules = False
    """Whether the guard that judged these rounds had other rules than today's."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.credit = Credit()

    def round(self, sites: Mapping[str, Facts]) -> tuple[dict[str, float], dict[str, float], list[tuple[str, str]]]:
        """Weights and shares after a round, and contradictions in the ledger: pairs of a site and a sentence."""
        self.credit, rho, shares = self.algorithm.follow(self.credit, self.algorithm.read(sites))
        return (
            rho,
            shares,
            []
            if self.is_guarded
            else [
                (site, "the guard is off, but the ledger holds a verdict of the guard")
                for site, facts in sites.items()
                if "trust" in facts
            ],
        )


SAID = ("n_train", "err", "score_local", "loss_before", "weight")
"""Terms that the ledger holds under these names for every method: what a site reports, and its weight."""


def models_of(replies: Sequence[Reply]) -> list[Params]:
    return [reply.params for reply in replies if reply.params is not None]
