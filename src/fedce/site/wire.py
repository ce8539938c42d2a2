"""Tasks and replies as an engine carries them: a JSON value, and large arrays beside it. No pickle.

A message from the other side is checked here for its form (types, sizes, no unknown keys); the round loop checks what
it says. A reply is signed by its site: the signature covers the JSON value, which holds the model's digest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
)
from safetensors import SafetensorError
from safetensors.numpy import load as tensors_from_bytes
from safetensors.numpy import save as tensors_to_bytes

from fedce.base.errors import ReplyError, first_problem
from fedce.base.ranges import (
    MAX_METRICS,
    N_REPLICATES,
    Gain,
    Images,
    Loss,
    MetricValue,
    Novelty,
    Replicates,
    Score,
    Seconds,
    TrainImages,
)
from fedce.base.tables import SITE_NAME, Pack, short_enough
from fedce.core.messages import MAX_MODELS, Choice, Evaluation, Member, Reply, Task
from fedce.core.params import Layout, Params
from fedce.site.travel import Arrays, model_from, sent_as

Name = Annotated[str, Field(min_length=1, max_length=200)]
SiteName = Annotated[str, Field(pattern=SITE_NAME), AfterValidator(short_enough)]
"""A site's name, which becomes the name of a folder and of a file."""
Hex = Annotated[str, Field(max_length=128, pattern="^[0-9a-f]*$")]
Number = Annotated[float, Field(allow_inf_nan=False)]
Side = Annotated[int, Field(ge=1, le=4096)]
Channels = Annotated[int, Field(ge=1, le=64)]
MAX_ABOUT = 1_000_000
"""Most characters of a JSON value; everything large is an array."""


class NotHeldError(ReplyError):
    """A site no longer has the model that a task's model is a difference to; then it is sent whole."""


@dataclass(frozen=True, eq=False)
class Parcel:
    """What is sent over a network in one piece."""

    about: str
    """A JSON value."""
    arrays: Arrays

    def to_bytes(self) -> bytes:
        """One byte string: the JSON value's length, the value, the arrays as safetensors."""
        about = self.about.encode()
        return len(about).to_bytes(8) + about + tensors_to_bytes(dict(self.arrays))

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        end = 8 + int.from_bytes(content[:8])
        try:
            return cls(content[8:end].decode(), tensors_from_bytes(content[end:]))
        except (SafetensorError, ValueError, KeyError) as error:
            raise ReplyError(f"its message can't be read ({error})") from None


class _Form(BaseModel):
    """The form of a JSON value."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @classmethod
    def read(cls, text: str) -> Self:
        if len(text) > MAX_ABOUT:
            raise ReplyError(f"its message is {len(text)} characters long, at most {MAX_ABOUT} are read")
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ReplyError(f"its message has the wrong form ({first_problem(error)[:300]})") from None


class Hello(_Form):
    """The server asks a site to introduce itself."""

    kind: Literal["hello"] = "hello"
    run: Hex
    nonce: Hex
    """Returned with a signature, so that an old answer can't be sent again."""
    key: Annotated[str, Field(max_length=200)] = ""
    """The key that the server knows the site by; empty if it does not know which site it asks."""
    wants: Literal["member", "fingerprint"] = "member"
    planned: Annotated[str, Field(max_length=20_000)] = ""
    """The planned values of the experiment as JSON, by key; empty if the experiment left nothing to a plan."""


class TaskForm(_Form):
    kind: Literal["task"] = "task"
    run: Hex
    site: Name
    round_no: int
    action: Literal["train", "score", "evaluate"]
    rho: Number | None
    has_its_statistics: bool
    score_local: bool
    persist: bool
    shares: dict[Name, Number]
    n_channels: int
    """Channels of the network's input; a grey site among colour ones repeats its channel."""
    n_models: Annotated[int, Field(ge=0, le=MAX_MODELS)]
    key: Annotated[str, Field(max_length=200)] = ""
    """The key that the answer must be signed with."""
    drawn: tuple[Annotated[int, Field(ge=0)], ...] = ()
    base: Hex = ""
    """Digest of the model that the site was sent before, if this one comes as a difference to it."""


class FingerprintForm(_Form):
    """A site's answer to the question what its images are like, from which the experiment is planned."""

    kind: Literal["fingerprint"] = "fingerprint"
    run: Hex
    nonce: Hex
    name: SiteName
    fingerprint: Annotated[str, Field(max_length=200_000)]
    """The fingerprint (data/fingerprint.py) as JSON; empty if the site refuses to send one."""
    shape: tuple[Side, ...] | None
    """Height and width of its images, or a patch, if the plan can't choose them."""
    versions: dict[Name, Name]
    key: Name


class MemberForm(_Form):
    """A site introduces itself."""

    kind: Literal["member"] = "member"
    run: Hex
    nonce: Hex
    name: SiteName
    n_train: TrainImages
    n_validation: Images
    """0 if the training cases validate too."""
    n_test: Images
    shape: tuple[Channels, Side, Side]
    """(channels, height, width): grey, colour, or modalities."""
    classes: dict[Name, Annotated[tuple[int, ...], Field(max_length=256)]]
    fingerprint: Hex
    n_train_cases: Annotated[int, Field(ge=0, le=10**9)] = 0
    n_validation_cases: Annotated[int, Field(ge=0, le=10**9)] = 0
    n_test_cases: Annotated[int, Field(ge=0, le=10**9)] = 0
    labelled: Annotated[tuple[Name, ...], Field(max_length=256)] = ()
    mask_values: Annotated[tuple[Annotated[int, Field(ge=1, le=255)], ...], Field(max_length=255)] = ()
    volumes: bool = False
    modalities: bool = False
    versions: dict[Name, Name]
    key: Name
    """The site's public key."""

    @property
    def member(self) -> Member:
        return Member(**{field.name: getattr(self, field.name) for field in fields(Member)})


class _MeasuredForm(_Form):
    by_class: Annotated[dict[Name, MetricValue | None], Field(min_length=1)]
    undefined: dict[Name, Images]
    unit: Literal["", "mm", "px"]
    interval: tuple[MetricValue, MetricValue] | None = None


class _BesideForm(_Form):
    keeps: Choice
    common: Score
    personal: Score | None
    alone: Score | None
    alone_interval: tuple[Score, Score] | None
    gain_interval: tuple[Gain, Gain] | None


class _EvaluationForm(_Form):
    validation_dice: Score
    test_dice_by_class: Annotated[dict[Name, Score], Field(min_length=1)]
    test_dice_without: Score | None
    validation_interval: tuple[Score, Score] | None = None
    test_interval: tuple[Score, Score] | None = None
    metrics: Annotated[dict[Name, _MeasuredForm], Field(max_length=MAX_METRICS)] = {}
    beside: _BesideForm | None = None

    @model_serializer(mode="wrap")
    def _as_before(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what was not asked for: then a site signs the same text as in versions that could not be asked."""
        told: dict[str, Any] = written(self)
        return {name: value for name, value in told.items() if value or name not in ("metrics", "beside")}

    @property
    def evaluation(self) -> Evaluation:
        return Evaluation.recorded(self.model_dump())


class ReplyForm(_Form):
    kind: Literal["reply"] = "reply"
    run: Hex
    site: Name
    round_no: int
    action: Literal["train", "score", "evaluate"]
    n_train: TrainImages
    score: Score | None
    error_without: Score | None
    error_replicates: Replicates
    novelty: Novelty | None
    loss: Loss | None
    loss_before: Loss | None
    score_local: Score | None
    scores: Annotated[list[Score], Field(max_length=MAX_MODELS)]
    evaluation: _EvaluationForm | None
    seconds: Seconds
    model: Hex
    """Digest of the model that comes with the reply; empty if there is no model."""
    received: Hex = ""
    """Digest of the model that the site was sent, so that neither side can later name another one; empty in answers of
    an earlier version."""

    @field_validator("error_replicates")
    @classmethod
    def _all_or_none(cls, replicates: list[float]) -> list[float]:
        if len(replicates) not in (0, N_REPLICATES):
            raise ValueError(f"expected {N_REPLICATES} replicates, or none")
        return replicates


class Failure(_Form):
    """A site could not do what it was asked; the details stay in its own log."""

    kind: Literal["failure"] = "failure"
    site: Name
    what: Annotated[str, Field(max_length=300)]


class Signed(_Form):
    """A site's answer as it is sent."""

    content: Annotated[str, Field(max_length=MAX_ABOUT)]
    """The JSON value that was signed, character by character."""
    signature: Annotated[str, Field(max_length=200)]


def task_parcel(
    task: Task, run: str, n_channels: int, key: str = "", arrays: Arrays | None = None, base: str = ""
) -> Parcel:
    """A task as it is sent; `arrays` are its models if they are packed, and `base` is the digest of their base."""
    form = TaskForm(
        run=run,
        site=task.site,
        round_no=task.round_no,
        action=task.action,
        rho=task.rho,
        has_its_statistics=task.has_its_statistics,
        score_local=task.score_local,
        persist=task.persist,
        shares=dict(task.shares),
        n_channels=n_channels,
        n_models=len(task.models),
        key=key,
        drawn=task.drawn,
        base=base,
    )
    return Parcel(form.model_dump_json(), task_arrays(task) if arrays is None else arrays)


def task_arrays(task: Task, pack: Pack = "none", base: Params | None = None) -> Arrays:
    """A task's models as they travel; `base` is a model that the site holds."""
    arrays = {"params": sent_as(task.params, pack, base)}
    # Models to be scored are alike: each is packed as a difference to the one before it.
    for i, (before, model) in enumerate(pairwise([task.params, *task.models])):
        arrays[f"model-{i}"] = sent_as(model, pack, before)
    return arrays


def task_from(form: TaskForm, arrays: Arrays, layout: Layout, pack: Pack = "none", held: Sequence[Params] = ()) -> Task:
    """The task in a message; `held` are the models that the site was sent before."""
    base = next((model for model in held if model.digest == form.base), None) if form.base else None
    if form.base and base is None:
        raise NotHeldError("the model came as a difference to an earlier one, which is no longer here")
    models = [model_from(arrays, "params", layout, pack, base)]
    for i in range(form.n_models):
        models.append(model_from(arrays, f"model-{i}", layout, pack, models[-1]))
    return Task(
        site=form.site,
        round_no=form.round_no,
        params=models[0],
        rho=form.rho,
        has_its_statistics=form.has_its_statistics,
        action=form.action,
        models=tuple(models[1:]),
        score_local=form.score_local,
        shares=form.shares,
        persist=form.persist,
        drawn=form.drawn,
    )


def reply_form(reply: Reply, run: str, task: Task) -> ReplyForm:
    """A reply to a task as it is sent; a reply with a number out of its range is refused before it leaves the site."""
    evaluation = reply.evaluation
    try:
        return ReplyForm(
            run=run,
            site=reply.site,
            round_no=reply.round_no,
            action=task.action,
            n_train=reply.n_train,
            score=reply.score,
            error_without=reply.error_without,
            error_replicates=list(reply.error_replicates),
            novelty=reply.novelty,
            loss=reply.loss,
            loss_before=reply.loss_before,
            score_local=reply.score_local,
            scores=list(reply.scores),
            evaluation=_EvaluationForm(**evaluation.entry) if evaluation else None,
            seconds=reply.seconds,
            model=reply.params.digest if reply.params is not None else "",
            received=task.params.digest,
        )
    except ValidationError as error:
        raise ReplyError(f"the reply of {reply.site!r} can't be sent ({first_problem(error)[:300]})") from None


def reply_from(
    form: ReplyForm, arrays: Arrays, layout: Layout, pack: Pack = "none", start: Params | None = None
) -> Reply:
    """The reply in a message; `start` is the model that the site was sent with the task."""
    params = model_from(arrays, "params", layout, pack, start) if form.model else None
    if params is not None and params.digest != form.model:
        raise ReplyError("its model is not the one that it signed")
    return Reply(
        site=form.site,
        round_no=form.round_no,
        n_train=form.n_train,
        params=params,
        score=form.score,
        error_without=form.error_without,
        error_replicates=tuple(form.error_replicates),
        novelty=form.novelty,
        loss=form.loss,
        loss_before=form.loss_before,
        score_local=form.score_local,
        scores=tuple(form.scores),
        evaluation=form.evaluation.evaluation if form.evaluation else None,
        seconds=form.seconds,
    )


class _Kind(BaseModel):
    kind: str = ""


def kind_of(about: str) -> str:
    """The kind that a JSON value states; nothing else is looked at."""
    try:
        return _Kind.model_validate_json(about[:MAX_ABOUT]).kind
    except ValidationError:
        return ""
