"""What a round shows of its sites: their updates and claims, how they compare with the others, which sites are alike.

Every comparison is of a site with itself or with the others' median, so that no site is suspected for being rare.
"""

from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import inf, sqrt
from statistics import fmean, median, median_high, pstdev

import numpy as np
from numpy.typing import NDArray

from fedce.core.params import SKETCH

Sketches = Mapping[str, NDArray[np.float32]]
"""Sketches of each site's last updates, newest last; under "" those of the models that the updates started from."""

STILL = 1e-5
"""An update shorter than this part of the round's median length counts as no update: it is lost in rounding. A
site with nothing but negatives comes to 0.001."""
EARLY, LATEST = 5, 10
"""During the first rounds, EARLY of them, honest updates roughly agree. A site that was away in some of them is judged
by its own first five, up to the tenth round: else staying away once would be enough not to be judged."""
LEAST_AGREEMENT = 0.05
"""If the others' median agreement is less than this, they don't agree."""
ROUNDS_TO_RELATE = 5
"""After this many rounds, a mean agreement is not near zero by chance."""
LEAST_COHERENCE = 0.4
"""If the others' updates continue in their own directions less than this, no site can be told from noise."""
SAME = 0.99999
"""Training never gives the same direction twice to five digits."""
ALIKE, ONE = 0.9, 1.0
"""Likeness of two sites: from ALIKE on they share credit, at ONE they count as one site twice. At ONE their updates
are as alike as a site's own are from round to round, which different images don't give."""
TWINS_FROM, ROUNDS_ALIKE = 10, 3
"""From round TWINS_FROM on, two sites share credit after ROUNDS_ALIKE alike rounds in a row: in the first rounds all
honest updates may be alike. Once two sites share, they also share what they earned before."""
LEAST_ROOM = 0.4
"""Two sites' likeness is judged if a site's own updates stand out from the round's background by at least this part of
the way to identity."""
LEAST_SITES_FOR_TWINS = 5
"""Among fewer sites, two ordinary ones beside rare ones look like twins."""
FAR_OFF, ROUNDED = 6.0, 0.002
"""The mean of resampled errors lies within so many standard errors, and rounding, of the error."""
ROUNDS_OF_LENGTHS = 5
"""After this many rounds it is known how long a site's updates usually are."""
ROUNDS_OF_COHERENCE = 3
KEPT = 20
"""The last 20 updates of a site are kept; sending one of them again is a sign."""


@dataclass(frozen=True)
class Related:
    """How far a site's updates agreed with the others' in its first rounds."""

    n_rounds: int = 0
    mean: float = 0.0


@dataclass(frozen=True)
class Claim:
    """What a site claims about its validation images, and what was known of the site before."""

    score: float | None
    error: float | None
    replicates: tuple[float, ...]
    last_error: float | None = None
    was_uniform: bool = False
    """Whether resampled cases also gave one single error in the round before."""
    related: Related = Related()
    """The site's agreement with the others in its first rounds, up to the last one."""
    rounds_alike: Mapping[str, int] = field(default_factory=dict)
    """Sites alike this one, and for how many rounds in a row, up to the last round."""
    opposites: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Sites whose own direction cancels this one's, for how many rounds in a row up to the last one, and how much."""

    @property
    def excess(self) -> float | None:
        """The site's error without its part in the model, minus its error with it."""
        return None if self.error is None or self.score is None else self.error - (1 - self.score)

    @property
    def is_supported(self) -> bool:
        """Whether an error is claimed, and the errors on resampled cases vary around it."""
        if self.error is None or not self.replicates:
            return self.error is not None
        n = len(self.replicates)
        return abs(fmean(self.replicates) - self.error) <= FAR_OFF * pstdev(self.replicates) / sqrt(n) + ROUNDED

    @property
    def is_uniform(self) -> bool:
        """Whether resampled cases all give one error, as they do for an empty prediction."""
        return bool(self.replicates) and max(self.replicates) - min(self.replicates) < 1e-6

    @property
    def is_of_one_case(self) -> bool:
        """Whether the one error of all resampled cases moved: different cases don't move together."""
        if self.error is None or self.last_error is None:
            return False
        return self.is_uniform and self.was_uniform and abs(self.error - self.last_error) > 1e-6


@dataclass(frozen=True)
class Updates:
    """A round's updates, claims and sketches: what can be seen of a site without the others' opinion."""

    sites: Sequence[str]
    products: NDArray[np.float64]
    """Inner products of the updates."""
    kept: Sketches
    claims: Mapping[str, Claim]
    weights: Mapping[str, float]
    """The sites' weights in the model."""
    suspects: Container[str] = ()
    """Sites that went against the others or themselves before, and have not returned."""
    round_no: int = TWINS_FROM
    moved: Mapping[str, float] = field(default_factory=dict)
    """How far each site's part moved the model that it was sent: squared distances."""
    owing: Container[str] | None = None
    """Sites that were asked for their error and can measure it: also one whose part entered the model with another
    length, for which the two errors are the same. None: those that moved the model."""
    lengths_before: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Lengths of each site's last updates, in medians of their rounds."""
    absent_names: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    """Names never there together with each site: how often their updates were compared, and the mean likeness."""

    @cached_property
    def _norms(self) -> NDArray[np.float64]:
        norms: NDArray[np.float64] = np.sqrt(np.diag(self.products))
        return norms

    @cached_property
    def lengths(self) -> dict[str, float]:
        """Lengths of the updates, divided by their median in the round."""
        # Two sites have no median, and if most sites stand still it is 0: any update that moves is then long enough.
        middle = float(np.median(self._norms)) if len(self.sites) > 2 else 0.0
        return {
            site: float(length) / middle if middle > 0 else float(length > 0)
            for site, length in zip(self.sites, self._norms, strict=True)
        }

    @cached_property
    def cosines(self) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.products / np.maximum(
            np.outer(self._norms, self._norms), np.finfo(float).tiny
        )
        return found

    @cached_property
    def own_coherence(self) -> dict[str, float | None]:
        """How far each site continues in its own direction."""
        return {site: _coherence(self.kept[site]) for site in self.sites}

    @cached_property
    def coherence(self) -> dict[str, float | None]:
        """`own_coherence` divided by the other sites' median `own_coherence`."""
        own = self.own_coherence
        known = Known.of(own)
        return {site: _relative(own[site], known.without(site)) for site in own}

    def jump(self, site: str) -> float | None:
        """How much longer the update is than the site's updates usually are."""
        before = self.lengths_before.get(site, ())
        if len(before) < ROUNDS_OF_LENGTHS or (usual := median(before)) <= 0:
            return None
        return self.lengths[site] / usual

    def turn(self, site: str) -> float | None:
        """Cosine of the site's update with its own last one."""
        kept = self.kept[site]
        return _cosine(kept[-2], kept[-1]) if self.coherence[site] is not None and len(kept) > 1 else None

    def repetition(self, site: str) -> float | None:
        return _repetition(self.kept[site], self.kept.get(""))

    def distance(self, site: str) -> float:
        return self.moved.get(site, 0.0)

    def excess(self, site: str) -> float | None:
        return self.claims[site].excess if self.claims[site].is_supported else None

    def compared(self, site: str) -> Mapping[str, tuple[float, ...]]:
        return self.absent_names.get(site, {})

    def owes_error(self, site: str) -> bool:
        return site in (self.moved if self.owing is None else self.owing) and not self.claims[site].is_supported


@dataclass(frozen=True)
class Opinions:
    """The others' view of a site. Sites known to be bad are left out: in time they could outvote the honest ones."""

    updates: Updates
    bad: Container[str]

    @cached_property
    def voices(self) -> list[int]:
        sites, lengths = self.updates.sites, self.updates.lengths
        return [i for i, site in enumerate(sites) if lengths[site] >= STILL and site not in self.bad]

    @cached_property
    def agreements(self) -> dict[str, float | None]:
        """Median cosine of each site's update with the others' updates."""
        sites, lengths = self.updates.sites, self.updates.lengths
        return {
            site: _agreement(self.updates.cosines, self.voices, i) if lengths[site] >= STILL else None
            for i, site in enumerate(sites)
        }

    def of_the_others(self, site: str) -> float | None:
        """The median agreement of the other sites that are heard."""
        known = self._heard_agreements.without(site)
        return median_high(known) if known else None

    @cached_property
    def _heard_agreements(self) -> "Known":
        return Known.of({self.updates.sites[i]: self.agreements[self.updates.sites[i]] for i in self.voices})

    @cached_property
    def _heard_means(self) -> "Known":
        return Known.of({self.updates.sites[i]: self._mean(self.updates.sites[i]) for i in self.voices})

    @cached_property
    def means(self) -> dict[str, float | None]:
        """Mean of `agreements` over all rounds so far."""
        claims, round_no = self.updates.claims, self.updates.round_no
        return {
            site: _mean_so_far(claims[site].related, agreement, round_no) for site, agreement in self.agreements.items()
        }

    def relation(self, site: str) -> float | None:
        return _relation(self.means[site], self._heard_means.without(site))

    def _mean(self, site: str) -> float | None:
        """The mean up to this round; of a site whose first rounds are over, their mean."""
        related = self.updates.claims[site].related
        return related.mean if related.n_rounds >= EARLY else self.means[site]


@dataclass(frozen=True)
class Alike:
    """What a site's updates have in common with those of other sites."""

    likeness: float | None = None
    rounds_alike: Mapping[str, int] = field(default_factory=dict)
    twins: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Likenesses:
    """Which sites are alike, among the good ones: noise and reversed updates would shift the median."""

    updates: Updates
    good: Container[str]

    def of(self, site: str) -> Alike:
        return self._found.get(site, Alike())

    @cached_property
    def _found(self) -> dict[str, Alike]:
        sites, cosines, own = self.updates.sites, self.updates.cosines, self.updates.own_coherence
        good = [i for i, site in enumerate(sites) if site in self.good]
        if len(good) < LEAST_SITES_FOR_TWINS:
            return {}
        pairs = cosines[np.ix_(good, good)][np.triu_indices(len(good), 1)]
        background = min(float(np.median(pairs)), 1 - 1e-9)
        # The higher own coherence of a pair: a site whose direction wavers is not for this reason a twin of another.
        itself = np.array([own[site] or 0.0 for site in sites])
        room = np.maximum.outer(itself, itself) - background
        is_good = np.isin(np.arange(len(sites)), good)
        is_compared = np.outer(is_good, is_good) & ~np.eye(len(sites), dtype=bool)
        is_judged = is_compared & (room >= LEAST_ROOM * (1 - background))
        likeness = np.where(is_judged, (cosines - background) / np.where(is_judged, room, 1.0), -np.inf)
        is_copy = is_compared & (cosines > SAME)
        likeness = np.where(is_copy, np.maximum(likeness, ONE), likeness)
        judged = np.flatnonzero(np.isfinite(likeness).any(axis=1)).tolist()
        return {sites[i]: self._alike(i, likeness[i], is_copy[i]) for i in judged}

    def _alike(self, i: int, likeness: NDArray[np.float64], is_copy: NDArray[np.bool_]) -> Alike:
        sites, is_early = self.updates.sites, self.updates.round_no < TWINS_FROM
        alike = np.clip((likeness - ALIKE) / (ONE - ALIKE), 0.0, 1.0)
        # In the first rounds, honest sites can't be told from twins.
        before = {} if is_early else self.updates.claims[sites[i]].rounds_alike
        now = [j for j in np.flatnonzero(alike > 0).tolist() if is_copy[j] or not is_early]
        # Training never gives two sites one update, so a copy need not be seen again.
        rounds_alike = {sites[j]: max(before.get(sites[j], 0) + 1, ROUNDS_ALIKE if is_copy[j] else 0) for j in now}
        twins = {sites[j]: float(alike[j]) for j in now if rounds_alike[sites[j]] >= ROUNDS_ALIKE}
        return Alike(float(likeness.max()), rounds_alike, twins)


def _agreement(cosines: NDArray[np.float64], voices: Sequence[int], i: int) -> float | None:
    """Median cosine with the others; of the middle two the higher one, because an attacker could move their mean."""
    others = np.sort(cosines[i, [j for j in voices if j != i]])
    return float(others[len(others) // 2]) if len(others) > 1 else None


def _mean_so_far(before: Related, now: float | None, round_no: int) -> float | None:
    """Mean agreement over a site's first rounds; None after them, and of a site that was not there at first."""
    n = before.n_rounds
    if now is None or n >= EARLY or round_no >= LATEST or (round_no and not n):
        return None
    return (before.mean * n + now) / (n + 1)


@dataclass(frozen=True)
class Known:
    """A number of some sites, sorted once: among many sites, the others of each are looked at."""

    by_site: Mapping[str, float]
    order: Sequence[float]

    @classmethod
    def of(cls, values: Mapping[str, float | None]) -> "Known":
        known = {site: value for site, value in values.items() if value is not None}
        return cls(known, sorted(known.values()))

    def without(self, site: str) -> Sequence[float]:
        """The numbers of the others, sorted."""
        if site not in self.by_site:
            return self.order
        i = bisect_left(self.order, self.by_site[site])
        return [*self.order[:i], *self.order[i + 1 :]]


def _relation(own: float | None, known: Sequence[float]) -> float | None:
    if own is None or len(known) < 2 or (middle := median_high(known)) < LEAST_AGREEMENT:
        return None
    return own / middle


def _coherence(sketches: NDArray[np.float32]) -> float | None:
    """Mean cosine of a site's last updates, each with the one before; None for a single pair, which says too little."""
    last = sketches[-ROUNDS_OF_COHERENCE - 1 :]
    found = [value for before, now in pairwise(last) if (value := _cosine(before, now)) is not None]
    return sum(found) / len(found) if len(found) > 1 else None


def _relative(value: float | None, known: Sequence[float]) -> float | None:
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
    """The vector at length 1; a vector without a direction, or too long for one, becomes 0."""
    vector = np.array(sketched)
    length = float(np.linalg.norm(vector))
    return vector / length if 0 < length < inf else np.zeros(len(vector))
