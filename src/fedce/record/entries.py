"""The ledger's lines as values: one class per kind, which checks a line when it is written and reads it back.

A line's content is kept beside its value, because hash and signature are of the line as it was written. Keys that this
version does not know are allowed and kept: other versions write more.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationError

from fedce.base.errors import RunError, first_problem
from fedce.base.ranges import Images, Loss, Replicates, Score, Seconds
from fedce.core.recorded import Facts, Flag
from fedce.record.flags import flag_of
from fedce.record.forms import Count, EvaluationFacts, Form, Heading, Number, Share, Signed, Time
from fedce.record.votes import BallotFacts


class Line(Form):
    """Any line of a ledger."""

    kind: str
    time: Time
    previous: str = ""
    """The hash of the line before."""
    signature: str | None = None
    """The coordinator's signature, if it has a key."""
    _content: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        line = cls.model_validate(content)
        line._content = content
        return line

    @property
    def content(self) -> Mapping[str, Any]:
        """Everything that the line holds, in its order."""
        return self._content

    @property
    def summary(self) -> str:
        """The line for people, in one line."""
        return ""


class DataFacts(Form):
    """What a site said of its data."""

    n_train: Images
    n_validation: Images
    n_test: Images
    n_train_cases: Images = 0
    n_validation_cases: Images = 0
    n_test_cases: Images = 0
    """0 if an earlier version did not count cases."""
    fingerprint: str

    @property
    def n_images(self) -> int:
        return self.n_train + self.n_validation + self.n_test


class Session(Line):
    """The line of a start, a resume or a continuation."""

    format: Annotated[int, Field(ge=1, strict=True)] = 1
    command: str = ""
    round_no: Annotated[Count, Field(alias="round")] = 0
    versions: Mapping[str, str] = {}
    config: str = ""
    """Digest of what may not change between a start and a resume."""
    config_file: str | None = None
    """Digest of config.toml; ledgers of format 1 don't hold it."""
    splits: str | None = None
    """Digest of splits.json, if the coordinator knows the splits."""
    run: str | None = None
    """The run's name among sites on other machines."""
    coordinator: str = ""
    """The key that signs the lines."""
    no_worth: str | None = None
    """Why it is not measured what each site gives to the others; empty: it is; None: an earlier version."""
    worth_rule: Count | None = None
    """The number of the rule by which worth follows from the ballots."""
    planned: Mapping[str, Any] = {}
    """Values that were planned from fingerprints which sites sent over a network, by key."""
    fingerprints: str | None = None
    """Digest of the file with these fingerprints, each signed by its site."""
    challenge: str | None = None
    """The hash of the secret seed that draws the rounds of an audit; None: no round is drawn."""
    presence: bool = False
    """Whether contributions are multiplied by presence; earlier versions did not."""
    sites: Mapping[str, DataFacts]

    @property
    def summary(self) -> str:
        return f"{len(self.sites)} sites; {self.command or 'no command'}"


class Start(Session):
    kind: Literal["start"]


class Resume(Session):
    kind: Literal["resume"]


class Changed(Form):
    """What a finished run goes on with."""

    rounds: Annotated[list[Count], Field(min_length=2, max_length=2)]
    """The rounds of the experiment before and from now on."""
    joined: list[str] = Field(default_factory=list)
    left: list[str] = Field(default_factory=list)
    """Members that have come and gone; credit stays. Empty if sites are on other machines: they join and leave by
    themselves."""


class Continued(Session):
    """A finished run goes on, with more rounds and perhaps other members; the end before this line stays."""

    kind: Literal["continued"]
    changed: Changed

    @property
    def summary(self) -> str:
        members = [f"; {word}: {', '.join(names)}" for word, names in self._members if names]
        return f"after round {self.round_no}, to round {self.changed.rounds[1]}{''.join(members)}; {self.command}"

    @property
    def _members(self) -> tuple[tuple[str, list[str]], ...]:
        return ("joined", self.changed.joined), ("left", self.changed.left)


class SiteFacts(Form):
    """What a round's line holds of one site. What the method measured is in `Round.facts`, for the method to read."""

    n_train: Images
    weight: Number
    share: Number
    score: Score | None
    loss: Loss | None
    err: Number | None = None
    err_replicates: Replicates
    flag_texts: Annotated[list[str], Field(alias="flags")]
    trust: Number = 1.0
    """The part of the site's gains that counts; 0: nothing of its reply was used."""
    score_local: Score | None = None
    similarity: Number | None = None
    similarity_global: Number | None = None
    sketch: list[float] | None = None
    statistics_harm: Annotated[float, Field(ge=-1, le=1)] | None = None
    statistics_distance: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    seconds: Seconds
    signed: Signed | None = None

    @property
    def similarity_to_all(self) -> float | None:
        """Cosine with the common update; earlier versions recorded only one cosine, and used it for both scores."""
        return self.similarity_global if "similarity_global" in self.model_fields_set else self.similarity

    @property
    def flags(self) -> list[Flag]:
        """What the border and the guard said of the site."""
        return [flag_of(text) for text in self.flag_texts]


class Round(Line):
    kind: Literal["round"]
    round_no: Annotated[Count, Field(alias="round")]
    seconds: Number
    mean_score: Score
    n_models: Count = 0
    asked: list[str] = Field(default_factory=list)
    absent: list[str] = Field(default_factory=list)
    sketch: list[float] | None = None
    """Sketch of the model that the round started from, if free riders are looked for."""
    sites: Mapping[str, SiteFacts]
    rejected: Mapping[str, str]
    missing: Mapping[str, str] = {}
    ballot: BallotFacts | None = None
    drawn: Mapping[str, str] | None = None
    """If the round is drawn for an audit: the files that the coordinator keeps of it, with their digests."""
    notes: list[str]

    @property
    def facts(self) -> Mapping[str, Facts]:
        """Everything that is recorded of each site, as an algorithm reads it."""
        sites: Mapping[str, Facts] = self.content["sites"]
        return sites

    @property
    def shares(self) -> dict[str, float]:
        """Shares of the sites that took part."""
        return {site: facts.share for site, facts in self.sites.items()}

    @property
    def summary(self) -> str:
        rejected = "".join(f"; {site} rejected: {reason}" for site, reason in self.rejected.items())
        return f"round {self.round_no + 1}, Dice {self.mean_score:.3f}, shares {_listed(self.shares)}{rejected}"


class Join(Line):
    kind: Literal["join"]
    site: str
    key: str
    member: DataFacts

    @property
    def summary(self) -> str:
        return f"{self.site} with {self.member.n_train} training images, key {self.key}"


class Event(Line):
    """What a site did between two rounds."""

    kind: Literal["event"]
    site: str
    what: str

    @property
    def summary(self) -> str:
        return f"{self.site} {self.what}"


class SignedNotice(Signed):
    """What a site or the coordinator signed about the site's key or membership."""

    proof: str = ""
    """A new key's signature, which shows that its owner agrees."""


class Change(Line):
    """A change of a site's key or membership."""

    site: str
    key: str
    """The site's key before."""
    by: Literal["site", "coordinator"]
    signed: SignedNotice


class Rotate(Change):
    kind: Literal["rotate"]
    new: str

    @property
    def summary(self) -> str:
        return f"{self.site} changed its key to {self.new}"


class Replace(Change):
    kind: Literal["replace"]
    new: str

    @property
    def summary(self) -> str:
        return f"the coordinator, without the old key, replaced the key of {self.site} by {self.new}"


class Revoke(Change):
    kind: Literal["revoke"]

    @property
    def summary(self) -> str:
        return f"the {self.by} revoked the key of {self.site}, {self.key}"


class Withdraw(Change):
    kind: Literal["withdraw"]

    @property
    def summary(self) -> str:
        return f"{self.site} withdrew from the run"


class End(Line):
    kind: Literal["end"]
    model: str
    best_round: Count | None = None
    """After how many rounds the common model was best by its smoothed validation score; None if it has none."""
    shares: Mapping[str, Share]
    files: Mapping[str, str] = {}
    evaluations: Mapping[str, EvaluationFacts] = {}
    metrics: Mapping[str, Heading] | None = None
    """How metrics other than Dice are shown; None if none was asked for, and in ledgers of an earlier version."""
    rejected: Mapping[str, str] = {}
    missing: Mapping[str, str] = {}
    reconstruction: Mapping[str, Number] = {}
    banzhaf: Mapping[str, Number] | None = None
    """None where nothing was reconstructed, where coalitions were sampled, and in ledgers of an earlier version."""
    exchanges: bool | None = None
    """Whether the method exchanges models; not recorded before format 3."""
    n_parameters: Count = 0
    n_values: Count = 0
    device: str = ""
    example_dice: Mapping[str, Score] | None = None
    seed: str | None = None
    """The seed that drew the rounds of an audit."""

    @property
    def summary(self) -> str:
        return f"shares before presence {_listed(self.shares)}"


class Publish(Line):
    """Shares that were published with noise."""

    kind: Literal["publish"]
    epsilon: Number
    shares: Mapping[str, Share]

    @property
    def summary(self) -> str:
        return f"epsilon {self.epsilon:g}, shares {_listed(self.shares)}"


LINES: Mapping[str, type[Line]] = {
    "start": Start,
    "resume": Resume,
    "continued": Continued,
    "round": Round,
    "join": Join,
    "event": Event,
    "rotate": Rotate,
    "replace": Replace,
    "revoke": Revoke,
    "withdraw": Withdraw,
    "end": End,
    "publish": Publish,
}


def line_of(content: Any, where: str, hint: str = "was it edited?") -> Line:
    """The value of a line; a RunError names the first thing that is not as it should be."""
    kind = content.get("kind") if isinstance(content, dict) else None
    form = LINES.get(kind, Line) if isinstance(kind, str) else Line
    try:
        return form.of(content)
    except ValidationError as error:
        raise RunError(f"{where} has the wrong form ({first_problem(error)}); {hint}") from None


def _listed(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{site} {100 * share:.1f} %" for site, share in shares.items())
