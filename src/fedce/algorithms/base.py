"""What every algorithm is made of: a half that runs at the site, a half that runs at the server, and a state.

An algorithm is a frozen dataclass of hyper-parameters. One round is `state = algorithm.round(state, ask)`:
everything that a later round needs is in the state or in a site's memory, so a run can be replayed and resumed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar, cast, dataclass_transform

import numpy as np
import pydantic.dataclasses
from numpy.typing import NDArray

from fedce.messages import Evaluation, Reply, Task
from fedce.params import Params, leave_out, weighted_sum

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


@dataclass(frozen=True)
class State:
    """The server between two rounds."""

    sites: tuple[str, ...]
    """Everybody who is asked in the next round."""
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

    def tasks(self) -> list[Task]:
        return [Task(site, self.round_no, self.params, rho=self.rho.get(site)) for site in self.sites]


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


@dataclass(frozen=True)
class Trained:
    params: Params
    loss: float
    moments: Moments


class Site(Protocol):
    """A hospital as an algorithm sees it."""

    @property
    def name(self) -> str: ...
    @property
    def n_train(self) -> int: ...
    def train(self, params: Params, round_no: int, moments: Moments) -> Trained:
        """Train for the configured epochs, starting from `params`."""

    def score(self, params: Params) -> float:
        """Mean Dice on the validation split."""

    def evaluate(self, params: Params, without: Params | None) -> Evaluation:
        """Validation and test Dice of a model, and of the model without this site."""


class Algorithm(Protocol):
    @property
    def personal(self) -> bool:
        """Whether each site ends with a model of its own."""

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        """One round at a site."""

    def evaluate(self, site: Site, task: Task, memory: Memory | None) -> Reply:
        """How the model that this site would use does on its data."""

    def round(self, state: State, ask: Ask) -> State:
        """One round at the server."""


def train(site: Site, task: Task, memory: Memory | None, start: Params | None = None) -> tuple[Reply, Memory]:
    """Score the received model, train it, and answer with the result: the part that all algorithms share."""
    start = start or task.params
    score = site.score(start)
    trained = site.train(start, task.round_no, memory.moments if memory else {})
    reply = Reply(site.name, task.round_no, site.n_train, trained.params, score=score, loss=trained.loss)
    return reply, Memory(task.round_no, trained.params, moments=trained.moments)


def without_site(task: Task, memory: Memory | None) -> Params | None:
    """The received model without this site's part in it, or None if the site has no part in it.

    Uses the model that the site sent in the previous round: only then is the result exactly the weighted mean
    of the others' models (D3).
    """
    if memory is None or memory.round_no != task.round_no - 1 or task.rho is None or task.rho > 1 - 1e-6:
        return None
    return leave_out(task.params, task.rho, memory.params)


def evaluate_global(site: Site, task: Task, memory: Memory | None) -> Reply:
    """Evaluate the common model."""
    evaluation = site.evaluate(task.params, without_site(task, memory))
    return Reply(site.name, task.round_no, site.n_train, evaluation=evaluation)


def aggregate(
    state: State,
    replies: Sequence[Reply],
    rho: Mapping[str, float],
    accounts: Mapping[str, Account],
    shares: Mapping[str, float],
    terms: Mapping[str, Terms] | None = None,
) -> State:
    """The state after the round: the replies' models, averaged with weights rho (Eq. 6)."""
    models = [reply.params for reply in replies if reply.params is not None]
    params = weighted_sum(models, [rho[reply.site] for reply in replies])
    return replace(
        state,
        round_no=state.round_no + 1,
        params=params,
        rho=rho,
        shares=shares,
        accounts=accounts,
        terms=terms or {},
    )


def normalise(values: Mapping[str, float]) -> dict[str, float]:
    total = sum(values.values())
    return {site: value / total for site, value in values.items()}


def capped(weights: Mapping[str, float], cap: float) -> dict[str, float]:
    """Weights none of which exceeds the cap (or 1/N); what is cut off goes to the others in proportion."""
    cap = max(cap, 1 / len(weights))
    result, full = dict(weights), set[str]()
    while over := {site for site, weight in result.items() if weight > cap and site not in full}:
        full |= over
        rest = sum(weight for site, weight in result.items() if site not in full)
        scale = (1 - cap * len(full)) / rest if rest > 0 else 0.0
        result = {site: cap if site in full else weight * scale for site, weight in result.items()}
    return result
