"""Task and Reply: the only things that cross the network. A new field is a privacy decision (docs/privacy.md)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from fedce.core.params import Params

MAX_MODELS = 16
"""So many models a task may bring to be scored; engines make room for them."""


@dataclass(frozen=True)
class Member:
    """What a site tells of itself when it joins; all that the server knows of its data."""

    name: str
    n_train: int
    n_validation: int
    n_test: int
    shape: tuple[int, int, int]
    """Channels, height and width of its images."""
    classes: Mapping[str, tuple[int, ...]]
    """Mask values of each class."""
    fingerprint: str
    """Changes with any pixel, label or split; tells nothing about them."""
    n_train_cases: int = 0
    n_validation_cases: int = 0
    n_test_cases: int = 0
    """Cases of each split; 0 where an earlier version did not tell."""

    @property
    def n_images(self) -> int:
        return self.n_train + self.n_validation + self.n_test


@dataclass(frozen=True)
class Task:
    """What the server asks of one site."""

    site: str
    round_no: int
    params: Params
    """The global model w."""
    rho: float | None = None
    """The site's own weight in `params`, 0 if it did not take part in the last round; None if `params` is no mean of
    the sites' models."""
    has_its_statistics: bool = True
    """Whether the running statistics that the site sent are in `params` too."""
    action: Literal["train", "score", "evaluate"] = "train"
    models: tuple[Params, ...] = ()
    """Models to be scored on the validation split (action "score"), the same for all sites."""
    score_local: bool = False
    """Also score the site's own model after training."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Contributions so far that the site may know: its own, or everybody's if the experiment says so."""
    persist: bool = False
    """Write the site's memory to its disk before replying, so that the run can be resumed from here."""


@dataclass(frozen=True)
class Measured:
    """What a metric beside Dice gives on one site's test cases."""

    by_class: Mapping[str, float | None]
    """Mean over the cases where the metric is defined; None where it is defined in no case."""
    undefined: Mapping[str, int]
    """Class to the number of 2-D images and volumes where the metric is not defined."""
    unit: Literal["", "mm", "px"] = ""
    """Of a length: millimetres where the files state their spacing, otherwise pixels."""

    @property
    def mean(self) -> float | None:
        """Over the classes that have a value; None where none has one."""
        known = [value for value in self.by_class.values() if value is not None]
        return sum(known) / len(known) if known else None


Choice = Literal["common", "personal", "alone"]


@dataclass(frozen=True)
class Beside:
    """What other models than the common one reach on a site's test cases; Dice as a fraction."""

    keeps: Choice
    """The model that the site keeps, and that the rest of its evaluation is of."""
    common: float
    personal: float | None = None
    """After the site trained on by itself; None where it did not."""
    alone: float | None = None
    """Of a model that the site trained alone, with as many steps; None where it did not."""
    alone_interval: tuple[float, float] | None = None
    gain_interval: tuple[float, float] | None = None
    """95 % interval over cases of the kept model's Dice minus that of the one trained alone; None below five cases."""


@dataclass(frozen=True)
class Evaluation:
    """How a model does on one site's data; Dice as a fraction."""

    validation_dice: float
    test_dice_by_class: Mapping[str, float]
    test_dice_without: float | None
    """Test Dice of the model built from all other sites; None where there is no such model."""
    validation_interval: tuple[float, float] | None = None
    test_interval: tuple[float, float] | None = None
    """95 % intervals over the site's cases; None where it has too few, or in runs of an earlier version."""
    metrics: Mapping[str, Measured] = field(default_factory=dict)
    """Metrics beside Dice that the experiment asks for, by name."""
    beside: Beside | None = None
    """Where sites train alone as well, or personalise."""

    @classmethod
    def recorded(cls, entry: Mapping[str, Any]) -> "Evaluation":
        """As the ledger's end has it, with a signature beside it; tuples have become lists there."""
        known: dict[str, Any] = {field.name: entry[field.name] for field in fields(cls) if field.name in entry}
        known |= {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
        metrics = {name: Measured(**told) for name, told in known.get("metrics", {}).items()}
        beside = _beside(known["beside"]) if known.get("beside") else None
        return cls(**{**known, "metrics": metrics, "beside": beside})

    @property
    def entry(self) -> dict[str, Any]:
        """As it is sent and recorded. What was not asked for is left out, so it is as earlier versions wrote it."""
        told = asdict(self)
        return {name: value for name, value in told.items() if value or name not in ("metrics", "beside")}

    @property
    def test_dice(self) -> float:
        return sum(self.test_dice_by_class.values()) / len(self.test_dice_by_class)


def _beside(told: Mapping[str, Any]) -> Beside:
    known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
    return Beside(**known)


@dataclass(frozen=True)
class Reply:
    """What a site answers. Scores are in [0, 1], higher is better; error = 1 - score."""

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
    """The same error on resampled validation cases (bootstrap), for the intervals of the contributions; none where the
    site has too few cases."""
    novelty: float | None = None
    """Eq. 2 as measured by the site itself, about the previous round (estimate="site")."""
    loss: float | None = None
    """Mean training loss."""
    loss_before: float | None = None
    """Training loss of the received model, where the method weighs by it."""
    score_local: float | None = None
    """Validation score of the site's own model after training, if asked for."""
    scores: tuple[float, ...] = ()
    """Validation scores of the models in a task "score"."""
    evaluation: Evaluation | None = None
    seconds: float = 0.0
    signed: Mapping[str, str] | None = None
    """The answer as the site signed it (content, signature), where it came over a network; kept in the ledger."""
