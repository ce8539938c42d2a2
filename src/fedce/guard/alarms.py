"""Free riders: a score that is high for them (D13), and alarms that are certain."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from fedce.core.params import SKETCH
from fedce.core.recorded import Flag, RecordedRound, RecordedSite, Rounds
from fedce.guard.evidence import SAME
from fedce.guard.sign import ZERO_UPDATE, Sign

ROUNDS_TO_BE_SURE = 3
Direction = NDArray[np.float64]


def score(similarity: float, error_next: float, error_local: float, how: str) -> float:
    """One round's score of a site: high for a free rider (D13).

    default: how far the site's update points away from the others', times how much better the site's own model does
    than the next common one on the site's validation images; literal: the paper's words, local-global similarity times
    this difference of errors.
    """
    gap = error_next - error_local
    return (1.0 - similarity) * max(0.0, gap) if how == "default" else similarity * gap


def history(rounds: Rounds, last_scores: Mapping[str, float], how: str) -> dict[str, list[float | None]]:
    """Each site's score so far (the mean over the rounds up to a round), round by round; None if it was absent.

    `rounds` are the ledger's; `last_scores` are validation scores of the final model, which no round has measured.
    """
    sites = sorted({site for done in rounds for site in done.sites})
    result: dict[str, list[float | None]] = {site: [] for site in sites}
    sums, counts = dict.fromkeys(sites, 0.0), dict.fromkeys(sites, 0)
    for done, following in zip_longest(rounds, rounds[1:]):
        scores = {site: facts.score for site, facts in following.sites.items()} if following else last_scores
        for site in sites:
            facts, next_score = done.sites.get(site), scores.get(site)
            similarity = _similarity(facts, how) if facts else None
            if facts is None or next_score is None or similarity is None or facts.score_local is None:
                result[site].append(None)
                continue
            sums[site] += score(similarity, 1 - next_score, 1 - facts.score_local, how)
            counts[site] += 1
            result[site].append(sums[site] / counts[site])
    return result


def _similarity(facts: RecordedSite, how: str) -> float | None:
    """The cosine in a score (D13): of the site's update with the others' updates, or with the common update."""
    return facts.similarity if how == "default" else facts.similarity_to_all


@dataclass(frozen=True)
class Alarm:
    """Something observed that an honest site does not do."""

    site: str
    round_no: int
    """The first round in which the sign was certain."""
    kind: str
    what: str


def alarm_text(what: str, round_no: int) -> str:
    return f"{what} since round {round_no + 1}"


@dataclass(frozen=True)
class Step:
    """What a ledger holds of a site in one round, with the directions of its earlier updates."""

    round_no: int
    facts: RecordedSite
    n_trainable: int
    direction: Direction | None
    """Direction of the site's update; None if the update has no direction."""
    earlier: Sequence[Direction]
    """Directions of all earlier updates of the site."""
    last: Direction | None
    """Direction of the site's update in the round before, if it has one."""
    back: Direction | None
    """Direction from this round's model back to the model of the site's round before."""


def alarms(rounds: Rounds, n_trainable: int) -> list[Alarm]:
    """Alarms by signs whose outcome for an honest site is known, so that a merely unusual site raises none.

    The score above is high for a free rider, but also for an honest site with images that no other site has: the score
    can't tell them apart, and raises no alarm by itself.
    """
    sites = sorted({site for done in rounds for site in done.sites})
    steps = {site: list(_steps(rounds, site, n_trainable)) for site in sites}
    return [
        Alarm(site, step.round_no, sign.flag.kind, sign.flag.text)
        for site in sites
        for sign in SIGNS
        if (step := sign.certain_at(steps[site])) is not None
    ]


def _steps(rounds: Rounds, site: str, n_trainable: int) -> Iterator[Step]:
    earlier: tuple[Direction, ...] = ()
    last: Direction | None = None
    before: RecordedRound | None = None
    for done in (done for done in rounds if site in done.sites):
        now = _direction(done.sites[site].sketch)
        yield Step(done.round_no, done.sites[site], n_trainable, now, earlier, last, _back(done, before))
        earlier = earlier if now is None else (*earlier, now)
        last, before = now, done


def _back(done: RecordedRound, before: RecordedRound | None) -> Direction | None:
    if before is None or before.sketch is None or done.sketch is None:
        return None
    return _direction((np.array(before.sketch) - np.array(done.sketch)).tolist())


def _direction(sketched: Sequence[float] | None) -> Direction | None:
    if sketched is None:
        return None
    vector = np.array(sketched)
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else None


def _repeats_one_case(step: Step) -> bool | None:
    """Bootstrap samples of several cases all give one error only if the cases are identical."""
    replicates = step.facts.err_replicates
    if not replicates:
        return None
    # An error of 0 or 1 may be common to different cases, for example before anything is learnt.
    return max(replicates) - min(replicates) < 1e-6 and 0.001 < replicates[0] < 0.999


def _sends_an_old_update(step: Step) -> bool | None:
    """Training never gives the same direction twice to five digits."""
    if (now := step.direction) is None:
        return None
    return any(float(now @ other) > SAME for other in step.earlier)


def _sends_the_last_model(step: Step) -> bool | None:
    """The update undoes the last round of all sites: it points from this round's model back to the one before."""
    if step.direction is None or step.back is None:
        return None
    return float(step.direction @ step.back) > SAME


def _sends_noise(step: Step) -> bool | None:
    """Noise is at right angles to everything: to the others' updates, and to the site's own update of the round before.

    An honest site may move at right angles to the others for some rounds, but continues in its own direction.
    """
    similarity = step.facts.similarity
    if similarity is None or step.last is None or step.direction is None:
        return None
    turned = abs(float(step.last @ step.direction))
    return abs(similarity) < 3 / sqrt(step.n_trainable) and turned < 3 / sqrt(SKETCH)


SIGNS: Sequence[Sign[Step]] = (
    Sign(Flag("repeat", "its validation cases are all the same"), _repeats_one_case, ROUNDS_TO_BE_SURE),
    Sign(Flag("zero", "sends the model back as it came"), lambda step: ZERO_UPDATE in step.facts.flags),
    Sign(Flag("replay", "sends an old update again"), _sends_an_old_update),
    Sign(Flag("echo", "sends back the global model of the round before"), _sends_the_last_model),
    Sign(Flag("noise", "its updates are noise"), _sends_noise, ROUNDS_TO_BE_SURE),
)
