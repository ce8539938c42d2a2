"""Tells harmful updates from unusual ones: signs in a site's updates and claims, compared with the majority.

A field of `Signs` is one thing seen of a site: how it is found in a round's evidence and, if it is a sign, which values
are bad and what is then said of the site. A new sign is one more field. docs/trust.md says what each sign finds, what
an honest site's values are, and what can't be found.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, TypeVar

from fedce.core.recorded import Flag
from fedce.guard.evidence import (
    ROUNDS_ALIKE,
    ROUNDS_TO_RELATE,
    SAME,
    STILL,
    Likenesses,
    Opinions,
    Updates,
)
from fedce.guard.names import continued_by
from fedce.guard.opposites import Opposites, are_opposite
from fedce.guard.sign import ZERO_UPDATE, Sign

AGAINST, APART = -0.5, 0.5
"""Median cosine with the others' updates; below AGAINST an update undoes theirs, if it lies APART from the others' own
agreement. When a training has converged, the updates of honest sites cancel: a few unlike sites then all come to -0.5.
The first rounds and sudden turns show more."""
TURNED = -0.25
"""Cosine with the site's own last update; below this value the site has turned around."""
BACK = 0.2
"""Median cosine above which a site that went against the others is one of them again; or it turns back."""
OPPOSED, UNRELATED = -0.25, 0.03
"""A site's mean agreement divided by the others': below OPPOSED the site is opposed to them; below UNRELATED, if the
mean is over enough rounds, its updates have nothing to do with theirs."""
SHORT = 0.1
"""An update shorter than this part of the round's median need not be related to the others', and may grow or repeat. A
site with nothing but negatives has little to learn: its small steps lead elsewhere, and move the model as little."""
INCOHERENT = 0.25
"""A site that continues in its own direction less than this fraction of the others' median sends noise."""
OVERSTATED = 0.25
"""An error so much above what is believed is said to readers; honest sites come to 0.1."""
JUMP = 2.0
"""Longer than the site's usual update by this factor; honest sites come to 1.3."""
MOST_TWINS_NAMED = 3
ADVERSE = Flag("adverse", "its updates go against the others' or have nothing to do with them")
LIKE_OTHERS = Flag("twin", "its updates are nearly those of several others")
CONTRADICTION = Flag("contradiction", "it claims an error that its own score contradicts")
E = TypeVar("E", Updates, Opinions, Likenesses, Opposites)


def twin_of(site: str) -> Flag:
    return Flag("twin", "its updates are nearly those of", site)


def alias_of(site: str) -> Flag:
    return Flag("alias", "its updates continue those of a name that is never there with it:", site)


def seen(by: type[E], of: Callable[[E, str], Any], sign: "Sign[Signs] | None" = None, default: Any = MISSING) -> Any:
    """A field of `Signs`: the evidence it is found in, and how; and its sign, if it is one."""
    about = {"by": by, "of": of, "sign": sign}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=about)
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class Signs:
    """What is looked at in one site's reply; None if there is too little to compare with."""

    length: float = seen(
        Updates,
        lambda updates, site: updates.lengths[site],
        Sign(ZERO_UPDATE, lambda its: its.length < STILL),
    )
    """Length of the update, divided by the round's median length."""
    jump: float | None = seen(
        Updates,
        lambda updates, site: updates.jump(site),
        Sign(
            Flag("jump", "its update is far longer than its updates before"),
            lambda its: its.jump is not None and its.jump > JUMP and its.length >= SHORT,
        ),
        default=None,
    )
    """Length of the update, divided by the median length of the site's last updates."""
    agreement: float | None = seen(
        Opinions,
        lambda others, site: others.agreements[site],
        Sign(ADVERSE, lambda its: its.is_against_the_others),
        default=None,
    )
    """Median cosine with the others' updates."""
    others_agreement: float | None = seen(Opinions, lambda others, site: others.of_the_others(site), default=None)
    """Median `agreement` of the other sites."""
    mean_agreement: float | None = seen(Opinions, lambda others, site: others.means[site], default=None)
    """Mean of `agreement` over all rounds so far; only in the first rounds of a run."""
    relation: float | None = seen(
        Opinions,
        Opinions.relation,
        Sign(ADVERSE, lambda its: its.is_unrelated),
        default=None,
    )
    """`mean_agreement` divided by the other sites' median `mean_agreement`."""
    is_settled: bool = seen(
        Updates, lambda updates, site: updates.claims[site].related.n_rounds >= ROUNDS_TO_RELATE - 1, default=False
    )
    """Whether `mean_agreement` is over enough rounds not to be near zero by chance."""
    novelty: float | None = None
    """Eq. 2 as the server measures it, if sites measure it themselves."""
    turn: float | None = seen(Updates, Updates.turn, Sign(ADVERSE, lambda its: its.has_turned), default=None)
    """Cosine of the update with the site's own last one."""
    suspected: bool = seen(Updates, lambda updates, site: site in updates.suspects, default=False)
    """Whether the site went against the others or itself before, and had not returned."""
    coherence: float | None = seen(
        Updates,
        lambda updates, site: updates.coherence[site],
        Sign(
            Flag("noise", "its updates are noise"),
            lambda its: its.coherence is not None and its.coherence < INCOHERENT,
        ),
        default=None,
    )
    """Mean cosine of the site's last updates with the one before each, divided by the other sites' median."""
    repetition: float | None = seen(
        Updates,
        Updates.repetition,
        Sign(
            Flag("replay", "it sent an old update again"),
            lambda its: its.repetition is not None and its.repetition > SAME and its.length >= SHORT,
        ),
        default=None,
    )
    """Highest cosine with an older update of the site, with the last step of the common model, or with its reverse."""
    likeness: float | None = seen(Likenesses, lambda pairs, site: pairs.of(site).likeness, default=None)
    """Cosine with the most alike site, on a scale from the round's median cosine of two sites (0) to that of a site's
    own updates from round to round (1)."""
    rounds_alike: Mapping[str, int] = seen(Likenesses, lambda pairs, site: pairs.of(site).rounds_alike, default={})
    """Sites alike this one, and for how many rounds in a row."""
    opposites: Mapping[str, tuple[float, ...]] = seen(
        Opposites,
        lambda pairs, site: pairs.of(site),
        Sign(
            Flag("opposite", "its own direction cancels that of another site"),
            lambda its: are_opposite(its.opposites),
        ),
        default={},
    )
    """Sites whose own direction cancels this one's: for how many rounds in a row, and the mean partial correlation."""
    twins: Mapping[str, float] = seen(Likenesses, lambda pairs, site: pairs.of(site).twins, default={})
    """Sites whose updates are alike, and how much: 1 is the same site twice."""
    continues: Mapping[str, tuple[float, ...]] = seen(Updates, Updates.compared, default={})
    """Names that were never there together with this one: how often its updates were compared with the last ones of
    that name, and the mean likeness. Presence pays two such names once, so this is said and costs nothing."""
    uniform: bool = seen(Updates, lambda updates, site: updates.claims[site].is_uniform, default=False)
    """Whether the site's resampled validation cases all gave one error."""
    one_case: bool = seen(
        Updates,
        lambda updates, site: updates.claims[site].is_of_one_case,
        Sign(Flag("repeat", "its validation cases are all the same"), lambda its: its.one_case),
        default=False,
    )
    """Whether the site's validation images are a single one, repeated."""
    excess: float | None = seen(Updates, lambda updates, site: updates.excess(site), default=None)
    """The site's error without its part in the model, minus its error with it."""
    weight: float = seen(Updates, lambda updates, site: updates.weights[site], default=0.0)
    """The site's weight in the model."""
    moved: float = seen(Updates, lambda updates, site: updates.distance(site), default=0.0)
    """How far the site's part moved the model that it was sent: the squared distance to the model without it."""
    most_excess: float | None = None
    """The largest excess that is believed (guard/claims.py); None if none is claimed."""
    owes_error: bool = seen(Updates, lambda updates, site: updates.owes_error(site), default=False)
    """Whether the site was asked for its error, could measure it, and sent none that its resampled cases support."""

    @property
    def bad(self) -> list[Flag]:
        """The flags by which nothing of the site's reply is used."""
        return list(dict.fromkeys(sign.flag for sign in SIGNS if sign.is_bad(self)))

    @property
    def is_bad(self) -> bool:
        return any(sign.is_bad(self) for sign in SIGNS)

    @property
    def is_adverse(self) -> bool:
        return ADVERSE in self.bad

    @property
    def is_against_the_others(self) -> bool:
        if self.agreement is None or self.others_agreement is None:
            return False
        return self.agreement < AGAINST and self.others_agreement - self.agreement > APART

    @property
    def is_unrelated(self) -> bool:
        if self.relation is None:
            return False
        return self.relation < OPPOSED or (self.is_settled and self.relation < UNRELATED and self.length >= SHORT)

    @property
    def has_turned(self) -> bool:
        turned = self.turn is not None and self.turn < TURNED
        is_back = turned or (self.agreement is not None and self.agreement > BACK)
        return not is_back if self.suspected else turned

    @property
    def overstates(self) -> bool:
        return self.excess is not None and self.most_excess is not None and self.excess > self.most_excess

    @property
    def contradicts_itself(self) -> bool:
        return self.excess is not None and self.most_excess is not None and self.excess > self.most_excess + OVERSTATED

    @property
    def trust(self) -> float:
        """The part of the site's gains that counts."""
        return 0.0 if self.is_bad else 1.0 / (1 + sum(self.twins.values()))

    @property
    def past(self) -> float:
        """The part of the site's earlier gains that counts; below 1 in the round in which it becomes a known twin."""
        return self.trust if ROUNDS_ALIKE in self.rounds_alike.values() and self.trust > 0 else 1.0

    @property
    def flags(self) -> list[Flag]:
        """All flags of the site, for people."""
        alike = [twin_of(site) for site, much in self.twins.items() if much >= 0.5]
        if len(alike) > MOST_TWINS_NAMED:
            alike = [LIKE_OTHERS]
        alike += [alias_of(name) for name in continued_by(self.continues)]
        return [*self.bad, *alike, *([CONTRADICTION] if self.contradicts_itself else [])]


SIGNS: tuple[Sign[Signs], ...] = tuple(sign for one in fields(Signs) if (sign := one.metadata.get("sign")))
"""Signs by which nothing of a site's reply is used."""
FLAGS = tuple(dict.fromkeys([*(sign.flag for sign in SIGNS), LIKE_OTHERS, CONTRADICTION]))
"""Every flag of the guard, except those that name another site."""


SHOWN_BY: Mapping[type, Sequence[tuple[str, Callable[[Any, str], Any]]]] = {
    kind: [(one.name, one.metadata["of"]) for one in fields(Signs) if one.metadata.get("by") is kind]
    for kind in (Updates, Opinions, Likenesses, Opposites)
}
"""The fields that are found in each kind of evidence, and how."""


def look(updates: Updates) -> dict[str, Signs]:
    """The signs of a round: first each site by itself, then as the others see it, then which sites are alike."""
    signs = {site: Signs(**_found(updates, site)) for site in updates.sites}
    opinions = Opinions(updates, frozenset(site for site, found in signs.items() if found.is_bad))
    signs = {site: replace(found, **_found(opinions, site)) for site, found in signs.items()}
    good = (site for site, found in signs.items() if not found.is_bad and found.coherence is not None)
    known = frozenset(good)
    likenesses, opposites = Likenesses(updates, known), Opposites(updates, known)
    return {
        site: replace(found, **_found(likenesses, site), **_found(opposites, site)) for site, found in signs.items()
    }


def _found(evidence: Updates | Opinions | Likenesses | Opposites, site: str) -> dict[str, Any]:
    """What the evidence shows of a site."""
    return {name: of(evidence, site) for name, of in SHOWN_BY[type(evidence)]}
