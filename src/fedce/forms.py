"""What the files of a run folder must look like before anything is made of them; they may come from anybody."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedce.errors import RunError, first_problem
from fedce.ranges import DiceByClass, Images, Loss, Replicates, Score, Seconds

Time = Annotated[float, Field(ge=-1e10, le=1e11)]
"""Seconds since 1970, by whatever clock; what can't be told as a date is none."""
Number = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1 + 1e-9)]


class _Form(BaseModel):
    """More than what is needed may be there: other versions write more."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Line(_Form):
    """Any line of a ledger."""

    kind: str
    time: Time


class _DataFacts(_Form):
    n_train: Images
    n_validation: Images
    n_test: Images
    fingerprint: str


class _SiteFacts(_Form):
    n_train: Images
    weight: Number
    share: Number
    score: Score | None
    loss: Loss | None
    err_replicates: Replicates
    flags: list[str]
    seconds: Seconds


class _Start(Line):
    format: Annotated[int, Field(ge=1, strict=True)] = 1
    command: str = ""
    versions: dict[str, str] = {}
    sites: dict[str, _DataFacts]


class _Round(Line):
    round: Annotated[int, Field(ge=0)]
    seconds: Number
    mean_score: Score
    sites: dict[str, _SiteFacts]
    rejected: dict[str, str]
    notes: list[str]


class _Join(Line):
    site: str
    key: str
    member: _DataFacts


class _Event(Line):
    site: str
    what: str


class _Evaluation(_Form):
    validation_dice: Score
    test_dice_by_class: DiceByClass
    test_dice_without: Score | None


class _End(Line):
    model: str
    shares: dict[str, Share]
    files: dict[str, str] = {}
    evaluations: dict[str, _Evaluation] = {}


class _Publish(Line):
    epsilon: Number
    shares: dict[str, Share]


LINES: Mapping[str, type[Line]] = {
    "start": _Start,
    "resume": _Start,
    "round": _Round,
    "join": _Join,
    "event": _Event,
    "end": _End,
    "publish": _Publish,
}


class Results(_Form):
    algorithm: str
    data: str
    rounds: int
    seed: int
    contributions: Annotated[dict[str, Share], Field(min_length=1)]
    intervals: dict[str, Any] | None
    order_settled_from: int | None
    dice: dict[str, Score]
    dice_by_class: Annotated[dict[str, dict[str, Score]], Field(min_length=1)]
    dice_without: dict[str, Score | None]
    validation_dice: dict[str, Score]
    fairness: dict[str, Number]
    images: dict[str, int]
    train_images: dict[str, int]
    freerider: dict[str, dict[str, Any]]
    flags: dict[str, list[str]]
    n_parameters: int
    seconds: Number
    model_sha256: str
    device: str
    command: str
    versions: dict[str, str]


class ModelAbout(_Form):
    """Beside a model's tensors."""

    classes: Annotated[
        dict[str, Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(min_length=1)]], Field(min_length=1)
    ]
    shape: tuple[
        Annotated[int, Field(ge=1, le=64)], Annotated[int, Field(ge=1, le=4096)], Annotated[int, Field(ge=1, le=4096)]
    ]


def check(form: type[BaseModel], value: Any, where: str, hint: str = "was it edited?") -> None:
    """One line about the first thing that is not as it should be."""
    try:
        form.model_validate(value)
    except ValidationError as error:
        raise RunError(f"{where} has the wrong form ({first_problem(error)}); {hint}") from None


def check_line(value: Any, where: str, hint: str = "was it edited?") -> None:
    kind = value.get("kind") if isinstance(value, dict) else None
    check(LINES.get(kind, Line) if isinstance(kind, str) else Line, value, where, hint)
