"""What the files of a run folder must look like before anything is made of them; they may come from anybody."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedce.base.errors import RunError, first_problem
from fedce.base.ranges import MAX_METRICS, DiceByClass, Images, Loss, MetricValue, Replicates, Score, Seconds

Time = Annotated[float, Field(ge=-1e10, le=1e11)]
"""Seconds since 1970, by whatever clock; what can't be told as a date is none."""
Number = Annotated[float, Field(ge=-1e15, le=1e15)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Share = Annotated[float, Field(ge=0, le=1 + 1e-9)]
Interval = Annotated[list[Score], Field(min_length=2, max_length=2)]
"""Low and high end."""


class _Form(BaseModel):
    """More than what is needed may be there: other versions write more.

    Strict, because what was checked is then used as it is: a text is no number, even if it could be read as one.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


class Line(_Form):
    """Any line of a ledger."""

    kind: str
    time: Time


class _DataFacts(_Form):
    n_train: Images
    n_validation: Images
    n_test: Images
    n_train_cases: Images = 0
    n_validation_cases: Images = 0
    n_test_cases: Images = 0
    fingerprint: str


class _SiteFacts(_Form):
    n_train: Images
    weight: Number
    share: Number
    score: Score | None
    loss: Loss | None
    err_replicates: Replicates
    flags: list[str]
    statistics_harm: Annotated[float, Field(ge=-1, le=1)] | None = None
    statistics_distance: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    seconds: Seconds


class _Start(Line):
    format: Annotated[int, Field(ge=1, strict=True)] = 1
    command: str = ""
    versions: dict[str, str] = {}
    sites: dict[str, _DataFacts]


class _Round(Line):
    round: Count
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


class _Measured(_Form):
    by_class: Annotated[dict[str, MetricValue | None], Field(min_length=1)]
    undefined: dict[str, Images]
    unit: Literal["", "mm", "px"]


class _Evaluation(_Form):
    validation_dice: Score
    test_dice_by_class: DiceByClass
    test_dice_without: Score | None
    validation_interval: Interval | None = None
    test_interval: Interval | None = None
    metrics: Annotated[dict[str, _Measured], Field(max_length=MAX_METRICS)] = {}


class _Heading(_Form):
    """How a metric is shown."""

    title: str
    higher_is_better: bool
    digits: Annotated[int, Field(ge=0, le=12)]


class _End(Line):
    model: str
    shares: dict[str, Share]
    files: dict[str, str] = {}
    evaluations: dict[str, _Evaluation] = {}
    metrics: dict[str, _Heading] = {}


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


class _Intervals(_Form):
    level: Share
    low: dict[str, Share | None]
    high: dict[str, Share | None]
    sentences: list[str]
    indistinguishable: list[list[str]] = []
    """Pairs whose order chance decides."""
    reasons: dict[str, str] = {}
    """Why a site has no interval."""

    @model_validator(mode="after")
    def _of_the_same_sites(self) -> "_Intervals":
        _check_sites("high", self.high, "low", self.low)
        return self


class _Band(_Form):
    """The intervals by the rounds up to one."""

    round: Count
    low: dict[str, Share | None]
    high: dict[str, Share | None]


class _Fairness(_Form):
    mean: Number
    std: Number
    worst: Number
    best: Number
    jain: Number
    gini: Number


class _Alarm(_Form):
    site: str
    round_no: Count
    what: str


class _Watched(_Form):
    """What the free-rider detector found of a site."""

    scores: list[Number | None]
    alarms: list[_Alarm]


class Results(_Form):
    algorithm: str
    data: str
    rounds: Count
    seed: Count
    contributions: Annotated[dict[str, Share], Field(min_length=1)]
    intervals: _Intervals | None
    no_intervals: str | None = None
    intervals_over_rounds: list[_Band] = []
    order_settled_from: Count | None
    reconstruction: dict[str, Number] = {}
    dice: dict[str, Score]
    dice_by_class: Annotated[dict[str, Annotated[dict[str, Score], Field(min_length=1)]], Field(min_length=1)]
    dice_without: dict[str, Score | None]
    dice_interval: dict[str, Interval | None] = {}
    metrics: dict[str, dict[str, MetricValue | None]] = {}
    metrics_by_class: dict[str, dict[str, dict[str, MetricValue | None]]] = {}
    metrics_undefined: dict[str, dict[str, dict[str, Count]]] = {}
    metrics_unit: dict[str, dict[str, str]] = {}
    metrics_shown: dict[str, _Heading] = {}
    validation_dice: dict[str, Score]
    validation_interval: dict[str, Interval | None] = {}
    validation_cases: dict[str, Count] = {}
    test_cases: dict[str, Count] = {}
    example_dice: dict[str, Score] = {}
    fairness: _Fairness
    images: dict[str, Count]
    train_images: dict[str, Count]
    train_images_used: dict[str, Count] = {}
    initial_dice: dict[str, Score | None] = {}
    freerider: dict[str, _Watched]
    flags: dict[str, list[str]]
    rounds_unused: dict[str, Count] = {}
    n_parameters: Count
    seconds: Annotated[Number, Field(ge=0)]
    megabytes: Number = 0.0
    model_sha256: str
    device: str
    command: str
    versions: dict[str, str]

    @model_validator(mode="after")
    def _of_the_same_sites(self) -> "Results":
        """Every site has a share; one that was absent at the end has no Dice of any kind."""
        for name in ("images", "train_images"):
            _check_sites(name, getattr(self, name), "contributions", self.contributions)
        for name in ("dice_by_class", "dice_without", "validation_dice"):
            _check_sites(name, getattr(self, name), "dice", self.dice)
        if unknown := self.dice.keys() - self.contributions.keys():
            raise ValueError(f"dice has the site {min(unknown)!r}, which contributions has not")
        if len({tuple(by_class) for by_class in self.dice_by_class.values()}) > 1:
            raise ValueError("dice_by_class has not the same classes for all sites")
        if len({len(watched.scores) for watched in self.freerider.values()}) > 1:
            raise ValueError("freerider has not as many scores for all sites")
        return self


def _check_sites(name: str, given: Mapping[str, Any], other: str, known: Mapping[str, Any]) -> None:
    if different := given.keys() ^ known.keys():
        raise ValueError(f"{name} and {other} are not of the same sites: {min(different)!r} is only in one of them")


class _Agreement(_Form):
    pearson: Number | None
    pearson_p: Number | None
    spearman: Number | None

    @model_validator(mode="after")
    def _all_or_none(self) -> "_Agreement":
        if len({value is None for value in (self.pearson, self.pearson_p, self.spearman)}) > 1:
            raise ValueError("pearson, pearson_p and spearman are all numbers, or all null")
        return self


class Value(_Form):
    """What 'fedce value' writes."""

    method: Literal["loo", "shapley", "reconstruction"]
    values: dict[str, Number]
    shares: dict[str, Share]
    clipped: list[str]
    estimate: dict[str, Share]
    agreement: _Agreement

    @model_validator(mode="after")
    def _of_the_same_sites(self) -> "Value":
        for name in ("shares", "estimate"):
            _check_sites(name, getattr(self, name), "values", self.values)
        return self


FileName = Annotated[str, Field(pattern=r"^[^/\\\x00]+\.(csv|svg|png)$")]
"""Of a file beside a study's page, and nowhere else."""


class _Table(_Form):
    title: str
    header: list[str]
    rows: list[list[str | Number | None]]
    digits: Annotated[int, Field(ge=0, le=12)]
    file: FileName


class _Picture(_Form):
    file: FileName
    caption: str
    table: str | None
    sha256: str = ""


class _Outcome(_Form):
    study: str
    title: str
    findings: list[str]
    tables: dict[str, _Table]
    shown: list[str]
    pictures: list[_Picture]

    @model_validator(mode="after")
    def _has_its_tables(self) -> "_Outcome":
        for name in (*self.shown, *(picture.table for picture in self.pictures)):
            if name is not None and name not in self.tables:
                raise ValueError(f"there is no table {name!r}")
        return self


class Study(_Form):
    """What a study's page is made of."""

    command: str
    data: str
    size: str
    versions: dict[str, str]
    outcomes: Annotated[list[_Outcome], Field(min_length=1)]


class ModelAbout(_Form):
    """Beside a model's tensors."""

    classes: Annotated[
        dict[str, Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(min_length=1)]], Field(min_length=1)
    ]
    shape: Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=3, max_length=3)]
    """Channels, height and width."""


def check(form: type[BaseModel], value: Any, where: str, hint: str = "was it edited?") -> None:
    """One line about the first thing that is not as it should be."""
    try:
        form.model_validate(value)
    except ValidationError as error:
        raise RunError(f"{where} has the wrong form ({first_problem(error)}); {hint}") from None


def check_line(value: Any, where: str, hint: str = "was it edited?") -> None:
    kind = value.get("kind") if isinstance(value, dict) else None
    check(LINES.get(kind, Line) if isinstance(kind, str) else Line, value, where, hint)
