"""The form that the files of a run folder must have before they are used; they may come from anybody.

The ledger's lines are in `entries`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedce.base.errors import RunError, first_problem
from fedce.base.ranges import MAX_METRICS, DiceByClass, Gain, Images, MetricValue, Score
from fedce.core.messages import Choice, Evaluation

Time = Annotated[float, Field(ge=-1e10, le=1e11)]
"""Seconds since 1970; only values that can be shown as a date."""
Number = Annotated[float, Field(ge=-1e15, le=1e15)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Share = Annotated[float, Field(ge=0, le=1 + 1e-9)]
Interval = Annotated[list[Score], Field(min_length=2, max_length=2)]
"""Low and high end."""


class Form(BaseModel):
    """Unknown keys are allowed: other versions write more.

    Strict, because checked values are used as they are: a text is not a number, even if it could be read as one.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


class Heading(Form):
    """How a metric is shown."""

    title: str
    higher_is_better: bool
    digits: Annotated[int, Field(ge=0, le=12)]


class _Intervals(Form):
    level: Share
    low: dict[str, Share | None]
    high: dict[str, Share | None]
    sentences: list[str]
    indistinguishable: list[list[str]] = []
    """Pairs whose order is decided by chance."""
    reasons: dict[str, str] = {}
    """Why a site has no interval."""

    @model_validator(mode="after")
    def _of_the_same_sites(self) -> "_Intervals":
        _check_sites("high", self.high, "low", self.low)
        return self


class _Band(Form):
    """The intervals from all rounds up to one."""

    round: Count
    low: dict[str, Share | None]
    high: dict[str, Share | None]


class _Fairness(Form):
    mean: Number
    std: Number
    worst: Number
    best: Number
    jain: Number
    gini: Number


class _Alarm(Form):
    site: str
    round_no: Count
    what: str


class _Watched(Form):
    """What the free-rider detector found for a site."""

    scores: list[Number | None]
    alarms: list[_Alarm]


class _Worth(Form):
    """What each site gives to the others; everything but the reason is null if it was not measured."""

    share: dict[str, Share] | None
    low: dict[str, Share] | None
    high: dict[str, Share] | None
    value: dict[str, Number] | None
    carried: dict[str, Share] | None
    all: dict[str, Share] | None
    matrix: dict[str, dict[str, Number]] | None
    signal: Share | None
    ballots: Count | None
    not_believed: list[str] = Field(default_factory=list)
    """Scorers whose scores contradict each other, so that their votes do not count."""
    no_votes: dict[str, Count] = Field(default_factory=dict)
    """Sites that were asked and gave no votes, and in how many ballots."""
    unmeasured: list[str] = Field(default_factory=list)
    """Sites that took part, and that no ballot is about."""
    reason: str | None

    @model_validator(mode="after")
    def _whole_or_a_reason(self) -> "_Worth":
        if (self.share is None) != (self.reason is not None):
            raise ValueError("worth has shares, or a reason why it has none")
        for name in ("low", "high", "value", "carried", "all", "matrix") if self.share is not None else ():
            _check_sites(f"worth.{name}", getattr(self, name) or {}, "worth.share", self.share or {})
        return self


class Results(Form):
    algorithm: str
    data: str
    rounds: Count
    seed: Count
    contributions: Annotated[dict[str, Share], Field(min_length=1)]
    intervals: _Intervals | None
    no_intervals: str | None = None
    intervals_over_rounds: list[_Band] = []
    order_settled_from: Count | None
    presence: dict[str, Share] = {}
    """Empty in runs of an earlier version, and if the guard is off."""
    worth: _Worth | None = None
    """None in runs of an earlier version."""
    reconstruction: dict[str, Number] = {}
    banzhaf: dict[str, Number] | None = None
    dice: dict[str, Score]
    dice_by_class: Annotated[dict[str, Annotated[dict[str, Score], Field(min_length=1)]], Field(min_length=1)]
    dice_without: dict[str, Score | None]
    dice_interval: dict[str, Interval | None] = {}
    metrics: dict[str, dict[str, MetricValue | None]] = {}
    metrics_by_class: dict[str, dict[str, dict[str, MetricValue | None]]] = {}
    metrics_undefined: dict[str, dict[str, dict[str, Count]]] = {}
    metrics_unit: dict[str, dict[str, str]] = {}
    metrics_interval: dict[str, dict[str, Annotated[list[MetricValue], Field(min_length=2, max_length=2)] | None]] = {}
    metrics_shown: dict[str, Heading] = {}
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
    best_round: Count | None = None
    best_score: Score | None = None
    device: str
    command: str
    versions: dict[str, str]

    @model_validator(mode="after")
    def _of_the_same_sites(self) -> "Results":
        """Every site has a share; a site that was absent at the end has no Dice of any kind."""
        for name in ("images", "train_images"):
            _check_sites(name, getattr(self, name), "contributions", self.contributions)
        for name in ("dice_by_class", "dice_without", "validation_dice"):
            _check_sites(name, getattr(self, name), "dice", self.dice)
        if unknown := self.dice.keys() - self.contributions.keys():
            raise ValueError(f"dice has the site {min(unknown)!r}, which is not in contributions")
        if len({len(watched.scores) for watched in self.freerider.values()}) > 1:
            raise ValueError("freerider must have the same number of scores for all sites")
        return self


def _check_sites(name: str, given: Mapping[str, Any], other: str, known: Mapping[str, Any]) -> None:
    if different := given.keys() ^ known.keys():
        raise ValueError(f"{name} and {other} are not of the same sites: {min(different)!r} is only in one of them")


class _Agreement(Form):
    pearson: Number | None
    pearson_p: Number | None
    spearman: Number | None

    @model_validator(mode="after")
    def _all_or_none(self) -> "_Agreement":
        if len({value is None for value in (self.pearson, self.pearson_p, self.spearman)}) > 1:
            raise ValueError("pearson, pearson_p and spearman are all numbers, or all null")
        return self


class Value(Form):
    """The file that 'fedce value' writes."""

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
"""The name of a file beside a study's page, and in no other folder."""


class _Table(Form):
    title: str
    header: list[str]
    rows: list[list[str | Number | None]]
    digits: Annotated[int, Field(ge=0, le=12)]
    file: FileName


class _Picture(Form):
    file: FileName
    caption: str
    table: str | None
    sha256: str = ""


class _Outcome(Form):
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


class Study(Form):
    """The content of a study's page."""

    command: str
    data: str
    size: str
    versions: dict[str, str]
    outcomes: Annotated[list[_Outcome], Field(min_length=1)]


_ValuesByClass = Annotated[
    dict[str, Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(min_length=1)]], Field(min_length=1)
]


class ModelAbout(Form):
    """The description beside a model's tensors."""

    classes: _ValuesByClass
    written: _ValuesByClass | None = None
    """The values of each class that a predicted mask holds; files of earlier versions do not say it."""
    volumes: bool | None = None
    """Whether the sites have volumes; files of earlier versions do not say it."""
    modalities: bool | None = None
    """Whether several channels are modalities, and not colours; files of earlier versions do not say it."""
    shape: Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=3, max_length=4)]
    """Channels, and height and width of the images or slices, rows and columns of a patch."""


def check(form: type[BaseModel], value: Any, where: str, hint: str = "was it edited?") -> None:
    """Check a value against a form; a RunError names the first thing that is not as it should be."""
    try:
        form.model_validate(value)
    except ValidationError as error:
        raise RunError(f"{where} has the wrong form ({first_problem(error)}); {hint}") from None


class Signed(Form):
    """A site's answer as the site signed it."""

    content: str
    signature: str


class MeasuredFacts(Form):
    by_class: Annotated[dict[str, MetricValue | None], Field(min_length=1)]
    undefined: Mapping[str, Images]
    unit: Literal["", "mm", "px"]
    interval: Annotated[list[MetricValue], Field(min_length=2, max_length=2)] | None = None


class BesideFacts(Form):
    """Dice of further models at a site, beside the common one, and the model that the site keeps."""

    keeps: Choice
    common: Score
    personal: Score | None
    alone: Score | None
    alone_interval: Interval | None
    gain_interval: Annotated[list[Gain], Field(min_length=2, max_length=2)] | None


class EvaluationFacts(Form):
    """What a site said of the final model."""

    validation_dice: Score
    test_dice_by_class: DiceByClass
    test_dice_without: Score | None
    validation_interval: Interval | None = None
    test_interval: Interval | None = None
    metrics: Annotated[Mapping[str, MeasuredFacts], Field(max_length=MAX_METRICS)] = {}
    beside: BesideFacts | None = None
    signed: Signed | None = None

    @property
    def evaluation(self) -> Evaluation:
        return Evaluation.recorded(self.model_dump())
