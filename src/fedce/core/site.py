"""The half of an algorithm that runs at a hospital: what it can use there, and what most methods do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedce.core.messages import Evaluation, Reply, Task
from fedce.core.params import Params, Vector, leave_out, splice

Moments = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Solo:
    """A model that the site trains alone, and the moments of its optimizer."""

    params: Params
    moments: Moments = field(default_factory=dict)


@dataclass(frozen=True)
class Memory:
    """What a site keeps between rounds.

    >>> from fedce.core.params import Entry, Layout
    >>> layout = Layout((Entry("bias", (1,), "trainable"),))
    >>> common, own = Params(layout, np.float32([2])), Params(layout, np.float32([3]))
    >>> without_site(Task("north", 5, common, rho=0.5), Memory(round_no=4, params=own)).vector
    array([1.], dtype=float32)
    """

    round_no: int
    params: Params
    """The model that the site sent in round `round_no`."""
    moments: Moments = field(default_factory=dict)
    """The optimizer's moments."""
    own: Any = None
    """What only this algorithm keeps at a site: see `Algorithm.keeps`."""
    solo: Solo | None = None
    """Set if the site also trains alone."""
    rest: Vector | None = None
    """What 16-bit numbers left out of the updates so far, with pack = "fp16"."""


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


@dataclass(frozen=True)
class Compared:
    """A model compared with another one on a site's test cases."""

    other: float | None = None
    """Dice of the other model; None if there is no other model."""
    other_interval: tuple[float, float] | None = None
    gain: tuple[float, float] | None = None
    """95 % interval of the paired differences over cases; None if there are too few cases."""


class Site(Protocol):
    """A hospital as an algorithm sees it.

    >>> class Still:
    ...     name, n_train, score = "north", 30, lambda self, params: 0.5
    ...     train = lambda self, params, round_no, moments, pull: Trained(params, 0.1, moments)
    >>> from fedce.core.params import Entry, Layout
    >>> w = Params(Layout((Entry("bias", (1,), "trainable"),)), np.float32([2]))
    >>> train(Still(), Task("north", 0, w), memory=None)[0].score
    0.5
    """

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

    def scores(self, models: Sequence[Params]) -> tuple[float, ...]:
        """Mean Dice of each model on the validation split, in one pass over the images.

        A site keeps what it found until the next call, so that `score` and `score_replicates` of these models need no
        further pass.
        """

    def score_replicates(self, params: Params) -> tuple[float, ...]:
        """Mean Dice on bootstrap samples of the validation cases; the samples are the same in every round."""

    def evaluate(self, params: Params, without: Params | None) -> Evaluation:
        """Validation and test Dice of a model, and of the model without this site."""

    def test_dice(self, params: Params) -> float:
        """Mean Dice on the test split."""

    def compare(self, params: Params, other: Params | None) -> Compared:
        """Dice of another model on the test split, and by how much `params` exceeds it."""

    def adapted(self, params: Params) -> Params:
        """The model with running statistics of this site's training images; the masks are not used."""


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


def without_site(task: Task, memory: Memory | None) -> Params | None:
    """The received model without this site's part in it; None if it can't be worked out.

    Uses the model that the site sent in the previous round: only then is the result exactly the weighted mean of the
    others' models (D3). If no model of this site entered, the received model is already that of the others (D10).
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
    """Evaluate the site's own model, and send it along."""
    return Reply(site.name, task.round_no, site.n_train, params=own, evaluation=site.evaluate(own, without))


def round_seed(seed: int, site: str, round_no: int) -> int:
    """A seed of its own for each site and round, so that no random state has to be kept."""
    return int.from_bytes(sha256(f"{seed}/{site}/{round_no}".encode()).digest()[:8]) >> 1
