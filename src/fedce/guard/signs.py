"""What tells a bad update from a new one: signs in the updates and in what a site says, each against the majority.

Every sign compares a site with itself or with the median of the others, so that no site is suspected for being rare.
docs/trust.md says what each finds, what an honest site's values are, and what can't be found.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from statistics import median, median_high

import numpy as np
from numpy.typing import NDArray

from fedce.core.params import SKETCH

Sketches = Mapping[str, NDArray[np.float32]]
"""Of each site's last updates, newest last; under "" of the models that they started from."""

STILL = 1e-3
"""A shorter update, in medians of the round's, does not move the model."""
AGAINST = -0.5
"""Median cosine with the others' updates; below this an update undoes theirs. Few and unlike honest sites come to half
of that late in a run, so it is the first rounds and sudden turns that tell more."""
TURNED = -0.25
"""Cosine with one's own last update; below this a site has turned around."""
EARLY = 5
"""In so many first rounds all honest updates agree, more or less."""
LEAST_AGREEMENT = 0.05
"""If the others' median is less, they don't."""
OPPOSED, UNRELATED, ROUNDS_TO_RELATE = -0.25, 0.03, 5
"""A site's mean agreement over them, as a part of the others': below the first it is opposed to them; below the second,
after so many rounds, it has nothing to do with them."""
BACK = 0.2
"""Median cosine above which a site that went against the others is one of them again; or it turns back."""
INCOHERENT = 0.25
"""A site goes on in its own direction less than this part as much as the others do in theirs: noise."""
LEAST_COHERENCE = 0.4
"""Where the others' own updates hardly go on in a direction, nobody can be told from noise."""
SAME = 0.99999
"""Training never gives the same direction twice to five digits."""
ALIKE, ONE = 0.9, 1.0
"""Likeness of two sites: from ALIKE on they share credit, at ONE they are one site twice. Their updates are then as
alike as a site's own are from round to round, which different images don't give."""
TWINS_FROM, ROUNDS_ALIKE = 10, 3
"""The round from which on, and the rounds in a row in which, two sites must be alike before they share: in the first
rounds all honest updates may be. Once they share, they share what they earned before as well."""
LEAST_ROOM = 0.4
"""Two sites' likeness is judged where a site's own updates stand out from the round's background by at least this part
of the way to identity."""
MOST_TWINS_NAMED = 3
LEAST_SITES_FOR_TWINS = 5
"""Among fewer, two ordinary sites beside rare ones look like twins."""
FIRST_CLAIMS = 10
"""In so many first rounds honest sites fare hardly worse without their own part in the model than its weight says."""
SLACK, LATE_SLACK = 0.1, 0.55
"""So much worse, apart from its own weight, may a site fare without its own part in the model: in the first rounds, and
for good where it claimed more then; later. With batch norm and plain SGD an honest rare site comes to 0.27 late in a
run, because the others' model does not have the statistics of its images."""
ROUNDS_OF_COHERENCE = 3
KEPT = 20
"""So many of its last updates a site may not repeat."""


@dataclass(frozen=True)
class Claim:
    """What a site says of its validation images, and what was known of it before."""

    score: float | None
    error: float | None
    replicates: tuple[float, ...]
    last_error: float | None = None
    was_uniform: bool = False
    """Whether resampled cases all gave one error in the round before, too."""
    mean_agreement: float | None = None
    """Of the rounds up to the last one."""
    rounds_alike: Mapping[str, int] = field(default_factory=dict)
    """Up to the last round."""

    @property
    def excess(self) -> float | None:
        """Its error without its part in the model less that with it."""
        return None if self.error is None or self.score is None else self.error - (1 - self.score)

    @property
    def is_uniform(self) -> bool:
        """Whether resampled cases all give one error, as those of an empty prediction do."""
        return bool(self.replicates) and max(self.replicates) - min(self.replicates) < 1e-6

    @property
    def is_of_one_case(self) -> bool:
        """Whether that error moved, and was one before: different cases don't move together."""
        if self.error is None or self.last_error is None:
            return False
        return self.is_uniform and self.was_uniform and abs(self.error - self.last_error) > 1e-6


@dataclass(frozen=True)
class Signs:
    """What is looked at in one site's reply; None where there is too little to compare with."""

    length: float
    """Of its update, in medians of the round's."""
    agreement: float | None = None
    """Median cosine with the others' updates."""
    mean_agreement: float | None = None
    """Over all rounds so far, in the first rounds of a run."""
    relation: float | None = None
    """That, as a part of the others' median of the same."""
    is_settled: bool = False
    """Whether that is over enough rounds not to be near nothing by chance."""
    novelty: float | None = None
    """Eq. 2 as the server measures it, where sites measure it themselves."""
    turn: float | None = None
    """Cosine with its own last update."""
    suspected: bool = False
    """It went against the others or itself before, and had not come back."""
    coherence: float | None = None
    """Mean cosine of its last updates with the one before each, as a part of the others' median."""
    repetition: float | None = None
    """Highest cosine with an older update of its own, with everybody's last step, and with the way back."""
    likeness: float | None = None
    """The most alike site's cosine, from the round's median cosine of two sites (0) to what a site's own updates have
    from round to round (1)."""
    rounds_alike: Mapping[str, int] = field(default_factory=dict)
    """Sites that it is alike, and for how many rounds in a row."""
    twins: Mapping[str, float] = field(default_factory=dict)
    """Sites whose updates are alike, and how much: 1 is the same site twice."""
    uniform: bool = False
    """Whether its resampled validation cases all gave one error."""
    one_case: bool = False
    """Whether its validation images are one, repeated."""
    excess: float | None = None
    """Its error without its part in the model less that with it."""
    weight: float = 0.0
    """Its part in the model."""
    slack: float = SLACK
    """By how much more than its weight its error may exceed what its own score says."""

    @property
    def is_bad(self) -> bool:
        return bool(self._bad)

    @property
    def is_adverse(self) -> bool:
        if self.agreement is not None and self.agreement < AGAINST:
            return True
        if self.relation is not None and (self.relation < OPPOSED or (self.is_settled and self.relation < UNRELATED)):
            return True
        turned = self.turn is not None and self.turn < TURNED
        is_back = turned or (self.agreement is not None and self.agreement > BACK)
        return not is_back if self.suspected else turned

    @property
    def contradicts_itself(self) -> bool:
        return self.excess is not None and self.excess > self.slack + self.weight

    @property
    def trust(self) -> float:
        """The part of its credit that counts."""
        return 0.0 if self.is_bad else 1.0 / (1 + sum(self.twins.values()))

    @property
    def past(self) -> float:
        """The part of what it earned before that counts: less in the round in which it becomes known as a twin."""
        return self.trust if ROUNDS_ALIKE in self.rounds_alike.values() and self.trust > 0 else 1.0

    @property
    def _bad(self) -> list[str]:
        found = {
            "zero update": self.length < STILL,
            "its updates go against the others' or have nothing to do with them": self.is_adverse,
            "its updates are noise": self.coherence is not None and self.coherence < INCOHERENT,
            "it sent an old update again": self.repetition is not None and self.repetition > SAME,
            "its validation cases are all the same": self.one_case,
        }
        return [what for what, is_so in found.items() if is_so]

    @property
    def faults(self) -> list[str]:
        """For people."""
        alike = [f"its updates are nearly those of {site}" for site, much in self.twins.items() if much >= 0.5]
        if len(alike) > MOST_TWINS_NAMED:
            alike = ["its updates are nearly those of several others"]
        lie = ["it claims an error that its own score contradicts"] if self.contradicts_itself else []
        return [*self._bad, *alike, *lie]


def look(
    sites: Sequence[str],
    products: NDArray[np.float64],
    kept: Sketches,
    claims: Mapping[str, Claim],
    weights: Mapping[str, float],
    suspects: Container[str] = (),
    round_no: int = TWINS_FROM,
    doubted: Container[str] = (),
) -> dict[str, Signs]:
    """The signs of a round, from the updates' inner products and from sketches, this round's among them."""
    lengths = np.sqrt(np.diag(products))
    # Two sites have no median, and where most stand still it is 0: there, whatever moves is long enough.
    middle = float(np.median(lengths)) if len(sites) > 2 else 0.0
    relative = [float(length) / middle if middle > 0 else float(length > 0) for length in lengths]
    moved = [i for i, length in enumerate(relative) if length >= STILL]
    cosines = products / np.maximum(np.outer(lengths, lengths), np.finfo(float).tiny)
    own = {site: _coherence(kept[site]) for site in sites}
    signs: dict[str, Signs] = {}
    for i, site in enumerate(sites):
        coherence = _relative(own[site], [value for other, value in own.items() if other != site])
        signs[site] = Signs(
            length=relative[i],
            turn=_turn(kept[site]) if coherence is not None else None,
            suspected=site in suspects,
            coherence=coherence,
            repetition=_repetition(kept[site], kept.get("")),
            uniform=claims[site].is_uniform,
            one_case=claims[site].is_of_one_case,
            excess=claims[site].excess,
            weight=weights[site],
            slack=slack_of(site in doubted, round_no),
        )
    # Who is known to be bad has no voice in what the others agree on: the honest would in time be outvoted.
    voices = [i for i in moved if not signs[sites[i]].is_bad]
    agreements = {site: _agreement(cosines, voices, i) if i in moved else None for i, site in enumerate(sites)}
    means = {site: _mean_so_far(claims[site].mean_agreement, agreements[site], round_no) for site in sites}
    heard = {sites[i]: means[sites[i]] for i in voices}
    for site in sites:
        signs[site] = replace(
            signs[site],
            agreement=agreements[site],
            mean_agreement=means[site],
            relation=_relation(means[site], [value for other, value in heard.items() if other != site]),
            is_settled=round_no >= ROUNDS_TO_RELATE - 1,
        )
    return _with_twins(sites, cosines, own, signs, claims if round_no >= TWINS_FROM else None)


def slack_of(is_doubted: bool, round_no: int) -> float:
    return SLACK if is_doubted or round_no <= FIRST_CLAIMS else LATE_SLACK


def _agreement(cosines: NDArray[np.float64], voices: Sequence[int], i: int) -> float | None:
    """Of an even number of others the higher of the middle two: their mean is one that an attacker could move."""
    others = np.sort(cosines[i, [j for j in voices if j != i]])
    return float(others[len(others) // 2]) if len(others) > 1 else None


def _mean_so_far(before: float | None, now: float | None, round_no: int) -> float | None:
    """Of a site that was there from the beginning, as long as that is not long ago."""
    if now is None or round_no >= EARLY or (round_no and before is None):
        return None
    return ((before or 0.0) * round_no + now) / (round_no + 1)


def _relation(own: float | None, others: Sequence[float | None]) -> float | None:
    known = [value for value in others if value is not None]
    if own is None or len(known) < 2 or (middle := median_high(known)) < LEAST_AGREEMENT:
        return None
    return own / middle


def _with_twins(
    sites: Sequence[str],
    cosines: NDArray[np.float64],
    own: Mapping[str, float | None],
    signs: Mapping[str, Signs],
    claims: Mapping[str, Claim] | None,
) -> dict[str, Signs]:
    """Twins are looked for among the others: noise and reversed updates would shift the median.

    `own` is how coherent each site's updates are from round to round. `claims` say who was alike before; None: it is
    too early to tell twins from honest sites.
    """
    good = [i for i, site in enumerate(sites) if not signs[site].is_bad and signs[site].coherence is not None]
    if len(good) < LEAST_SITES_FOR_TWINS:
        return dict(signs)
    pairs = cosines[np.ix_(good, good)][np.triu_indices(len(good), 1)]
    background = min(float(np.median(pairs)), 1 - 1e-9)
    # Of a pair the higher one: a site that wavers is no reason to take it for another.
    itself = np.array([own[site] or 0.0 for site in sites])
    room = np.maximum.outer(itself, itself) - background
    is_good = np.isin(np.arange(len(sites)), good)
    is_compared = np.outer(is_good, is_good) & ~np.eye(len(sites), dtype=bool)
    is_judged = is_compared & (room >= LEAST_ROOM * (1 - background))
    likeness = np.where(is_judged, (cosines - background) / np.where(is_judged, room, 1.0), -np.inf)
    is_copy = is_compared & (cosines > SAME)
    likeness = np.where(is_copy, np.maximum(likeness, ONE), likeness)
    alike = np.clip((likeness - ALIKE) / (ONE - ALIKE), 0.0, 1.0)
    found = dict(signs)
    for i in np.flatnonzero(np.isfinite(likeness).any(axis=1)).tolist():
        before = claims[sites[i]].rounds_alike if claims else {}
        now = [sites[j] for j in np.flatnonzero(alike[i] > 0).tolist() if claims or is_copy[i, j]]
        # Training never gives two sites one update, so a copy need not be seen again.
        rounds_alike = {
            site: max(before.get(site, 0) + 1, ROUNDS_ALIKE if is_copy[i, sites.index(site)] else 0) for site in now
        }
        twins = {site: float(alike[i, sites.index(site)]) for site, n in rounds_alike.items() if n >= ROUNDS_ALIKE}
        found[sites[i]] = replace(
            signs[sites[i]], likeness=float(likeness[i].max()), rounds_alike=rounds_alike, twins=twins
        )
    return found


def _coherence(sketches: NDArray[np.float32]) -> float | None:
    """Of a site's last updates, each with the one before; one pair alone says too little."""
    last = sketches[-ROUNDS_OF_COHERENCE - 1 :]
    found = [value for before, now in pairwise(last) if (value := _cosine(before, now)) is not None]
    return sum(found) / len(found) if len(found) > 1 else None


def _turn(sketches: NDArray[np.float32]) -> float | None:
    return _cosine(sketches[-2], sketches[-1]) if len(sketches) > 1 else None


def _relative(value: float | None, others: Sequence[float | None]) -> float | None:
    known = [other for other in others if other is not None]
    if value is None or not known or (middle := median(known)) < LEAST_COHERENCE:
        return None
    return value / middle


def _repetition(own: NDArray[np.float32], models: NDArray[np.float32] | None) -> float | None:
    earlier = list(own[:-1])
    if models is not None and len(models) > 1:
        step = models[-1] - models[-2]
        earlier += [step, -step]
    found = [value for other in earlier if (value := _cosine(own[-1], other)) is not None]
    return max(found, default=None)


def _cosine(a: NDArray[np.float32], b: NDArray[np.float32]) -> float | None:
    x, y = a.astype(np.float64), b.astype(np.float64)
    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / norms if 0 < norms < inf else None


def sketches_with(
    kept: Sketches, updates: Mapping[str, Sequence[float]], model: Sequence[float]
) -> dict[str, NDArray[np.float32]]:
    """The sketches kept so far, and this round's: directions of the updates, and the model that they started from."""
    result = dict(kept)
    for name, sketched, most in (*((site, _unit(own), KEPT) for site, own in updates.items()), ("", model, 2)):
        before = kept.get(name, np.empty((0, SKETCH), np.float32))
        result[name] = np.concatenate([before, np.array([sketched], np.float32)])[-most:]
    return result


def _unit(sketched: Sequence[float]) -> NDArray[np.float64]:
    """To a length of 1; what has no direction, or is too long for one, to 0."""
    vector = np.array(sketched)
    length = float(np.linalg.norm(vector))
    return vector / length if 0 < length < inf else np.zeros(len(vector))
