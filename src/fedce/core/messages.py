"""Task and Reply: the only things that cross the network. A new field is a privacy decision (docs/privacy.md)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from fedce.core.params import Params

Unit = Literal["", "mm", "px"]
MAX_MODELS = 16
"""A task brings at most this many models to be scored; engines make room for them."""


@dataclass(frozen=True)
class Member:
    """What a site says of itself when it joins; the server knows no more than this of its data.

    >>> Member("north", 30, 10, 20, shape=(3, 256, 256), classes={"disc": (255,)}, fingerprint="5f2c").n_images
    60
    """

    name: str
    n_train: int
    n_validation: int
    n_test: int
    shape: tuple[int, int, int]
    """Channels, height and width of its images."""
    classes: Mapping[str, tuple[int, ...]]
    """Mask values of each class."""
    fingerprint: str
    """A digest that changes with any pixel, label or split, and reveals nothing about them."""
    n_train_cases: int = 0
    n_validation_cases: int = 0
    n_test_cases: int = 0
    """Cases of each split; 0 if an earlier version did not send them."""
    labelled: tuple[str, ...] = ()
    """The classes that the site labels, if it labels only some of them; empty: all."""
    mask_values: tuple[int, ...] = ()
    """Values other than 0 of its training masks, so that predictions hold them too; empty for built-in images."""
    volumes: bool = False
    """Whether its files are volumes."""
    modalities: bool = False
    """Whether several channels are modalities, and not colours."""

    @property
    def scored(self) -> tuple[str, ...]:
        """The classes for which the site has scores."""
        return self.labelled or tuple(self.classes)

    @property
    def n_images(self) -> int:
        return self.n_train + self.n_validation + self.n_test


@dataclass(frozen=True)
class Task:
    """What the server asks of one site.

    >>> import numpy as np
    >>> from fedce.core.params import Entry, Layout, from_named
    >>> w = from_named(Layout((Entry("bias", (1,), "trainable"),)), {"bias": np.zeros(1)})
    >>> task = Task("north", round_no=0, params=w)
    >>> task.action, task.rho
    ('train', None)
    """

    site: str
    round_no: int
    params: Params
    """The global model w."""
    rho: float | None = None
    """The site's own weight in `params`, 0 if it did not take part in the last round; None if `params` is not a mean
    of the sites' models."""
    has_its_statistics: bool = True
    """Whether the running statistics that the site sent are in `params` too."""
    action: Literal["train", "score", "evaluate"] = "train"
    models: tuple[Params, ...] = ()
    """Models to be scored on the validation split (action "score"); all sites get the same ones."""
    score_local: bool = False
    """Also score the site's own model after training."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Contributions so far that the site may know: its own, or those of all sites if the experiment says so."""
    persist: bool = False
    """Write the site's memory to its disk before replying, so that the run can be resumed from here."""
    drawn: tuple[int, ...] = ()
    """Earlier rounds that are drawn for an audit: the site keeps the memory that it had before them."""


@dataclass(frozen=True)
class Measured:
    """The values of a metric other than Dice on one site's test cases."""

    by_class: Mapping[str, float | None]
    """Class to the mean over the cases where the metric is defined; None if it is defined in no case."""
    undefined: Mapping[str, int]
    """Class to the number of 2-D images and volumes where the metric is not defined."""
    unit: Unit = ""
    """The unit of a length: millimetres if the files state their spacing, otherwise pixels."""
    interval: tuple[float, float] | None = None
    """95 % interval, over the cases that have a value, of their mean over classes; None below five such cases."""

    @property
    def mean(self) -> float | None:
        """The mean over the classes that have a value; None if no class has one."""
        known = [value for value in self.by_class.values() if value is not None]
        return sum(known) / len(known) if known else None


Choice = Literal["common", "personal", "alone"]


@dataclass(frozen=True)
class Beside:
    """Dice, as a fraction, of further models on a site's test cases, beside the common model."""

    keeps: Choice
    """The model that the site keeps; the other numbers of its evaluation are of this model."""
    common: float
    personal: float | None = None
    """Dice after further training at the site alone; None if there was no such training."""
    alone: float | None = None
    """Dice of a model that the site trained alone, with as many steps; None if it did not."""
    alone_interval: tuple[float, float] | None = None
    gain_interval: tuple[float, float] | None = None
    """95 % interval over cases of the kept model's Dice minus that of the one trained alone; None below five cases."""


@dataclass(frozen=True)
class CaseScores:
    """One class of one test case: every metric's value, None where it is not defined."""

    case: str
    class_name: str
    values: Mapping[str, float | None]
    unit: Unit = ""
    """The unit of lengths, if a metric is one."""


@dataclass(frozen=True)
class Evaluation:
    """How well a model does on one site's data; Dice as a fraction.

    >>> Evaluation(0.8, {"disc": 0.75, "cup": 0.5}, test_dice_without=None).test_dice
    0.625
    """

    validation_dice: float
    test_dice_by_class: Mapping[str, float]
    test_dice_without: float | None
    """Test Dice of the model built from all other sites; None where there is no such model."""
    validation_interval: tuple[float, float] | None = None
    test_interval: tuple[float, float] | None = None
    """95 % intervals over the site's cases; None if the site has too few cases, and in runs of an earlier version."""
    metrics: Mapping[str, Measured] = field(default_factory=dict)
    """Metrics other than Dice that the experiment asks for, by name."""
    beside: Beside | None = None
    """Set if sites also train alone, or personalise."""
    cases: tuple[CaseScores, ...] = field(default=(), compare=False)
    """Every test case by itself. It stays where the site's process runs: `entry` leaves it out."""

    @classmethod
    def recorded(cls, entry: Mapping[str, Any]) -> "Evaluation":
        """The evaluation from the last line of a ledger, where a signature stands beside it and tuples are lists."""
        known: dict[str, Any] = {field.name: entry[field.name] for field in fields(cls) if field.name in entry}
        known |= {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
        metrics = {name: _measured(told) for name, told in known.get("metrics", {}).items()}
        beside = _beside(known["beside"]) if known.get("beside") else None
        return cls(**{**known, "metrics": metrics, "beside": beside})

    @property
    def entry(self) -> dict[str, Any]:
        """The evaluation as it is sent and recorded: no single case, and no keys that were not asked for."""
        told = asdict(replace(self, cases=()))
        del told["cases"]
        return {name: value for name, value in told.items() if value or name not in ("metrics", "beside")}

    @property
    def test_dice(self) -> float:
        return sum(self.test_dice_by_class.values()) / len(self.test_dice_by_class)


def _measured(told: Mapping[str, Any]) -> Measured:
    interval = told.get("interval")
    return Measured(**{**told, "interval": tuple(interval) if interval else None})


def _beside(told: Mapping[str, Any]) -> Beside:
    known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
    return Beside(**known)


@dataclass(frozen=True)
class Reply:
    """What a site answers. Scores are in [0, 1], higher is better; error = 1 - score.

    >>> reply = Reply("north", round_no=0, n_train=30, score=0.75)
    >>> 1 - reply.score
    0.25
    """

    site: str
    round_no: int
    n_train: int
    params: Params | None = None
    """The site's model after local training, w_i."""
    score: float | None = None
    """Validation score of the received model."""
    error_without: float | None = None
    """Validation error of the model built from all other sites (Eq. 3); None if there is no such model yet."""
    error_replicates: tuple[float, ...] = ()
    """`error_without` on resampled validation cases (bootstrap), for the intervals of the contributions; empty if the
    site has too few cases."""
    novelty: float | None = None
    """Eq. 2 as measured by the site itself, about the previous round (estimate="site")."""
    loss: float | None = None
    """Mean training loss."""
    loss_before: float | None = None
    """Training loss of the received model, if the method weighs by it."""
    score_local: float | None = None
    """Validation score of the site's own model after training, if asked for."""
    scores: tuple[float, ...] = ()
    """Validation scores of the models in a task "score"."""
    evaluation: Evaluation | None = None
    seconds: float = 0.0
    signed: Mapping[str, str] | None = None
    """The answer as the site signed it (content, signature), if it came over a network; kept in the ledger."""
