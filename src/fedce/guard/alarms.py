"""Free riders: the score that stands out for them (D13), and alarms that are certain."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from fedce.core.params import SKETCH
from fedce.core.recorded import RecordedRound, RecordedSite, Rounds

ROUNDS_TO_BE_SURE = 3
SAME_DIRECTION = 0.99999


def score(similarity: float, error_next: float, error_local: float, how: str) -> float:
    """One round's score of a site: high for a free rider (D13).

    default: how far its update points away from the others', times how much better its own model does than the next
    common one on its own validation images; literal: the paper's words, similarity times that difference.
    """
    gap = error_next - error_local
    return (1.0 - similarity) * max(0.0, gap) if how == "default" else similarity * gap


def history(rounds: Rounds, last_scores: Mapping[str, float], how: str) -> dict[str, list[float | None]]:
    """Each site's score so far (the mean over the rounds up to there), round by round; None where it was absent.

    `rounds` are the ledger's; `last_scores` the validation scores of the final model, which no round has measured.
    """
    sites = sorted({site for done in rounds for site in done.sites})
    result: dict[str, list[float | None]] = {site: [] for site in sites}
    sums, counts = dict.fromkeys(sites, 0.0), dict.fromkeys(sites, 0)
    for done, following in zip_longest(rounds, rounds[1:]):
        scores = {site: facts.score for site, facts in following.sites.items()} if following else last_scores
        for site in sites:
            facts, next_score = done.sites.get(site), scores.get(site)
            if facts is None or next_score is None or facts.similarity is None or facts.score_local is None:
                result[site].append(None)
                continue
            sums[site] += score(facts.similarity, 1 - next_score, 1 - facts.score_local, how)
            counts[site] += 1
            result[site].append(sums[site] / counts[site])
    return result


@dataclass(frozen=True)
class Alarm:
    """Something that an honest site does not do."""

    site: str
    round_no: int
    """The first round in which it was certain."""
    kind: str
    what: str


def alarms(rounds: Rounds, n_trainable: int) -> list[Alarm]:
    """Tests whose outcome for an honest site is known, so that they raise no alarm on one that is merely rare.

    The score above is high for a free rider, but also for an honest site whose images nobody else has: it can't tell
    them apart, and raises no alarm by itself.
    """
    found = []
    for site in sorted({site for done in rounds for site in done.sites}):
        mine = [(done, done.sites[site]) for done in rounds if site in done.sites]
        for kind, (test, what) in TESTS.items():
            if (round_no := test(mine, n_trainable)) is not None:
                found.append(Alarm(site, round_no, kind, what))
    return found


Mine = Sequence[tuple[RecordedRound, RecordedSite]]
"""A site's rounds: the whole round, and what it holds of the site."""


def _repeats_one_case(mine: Mine, n_trainable: int) -> int | None:
    """Bootstrap samples of several cases all give one error only if the cases are one and the same."""
    streak = 0
    for done, facts in mine:
        replicates = facts.err_replicates
        if not replicates:
            continue
        # An error of 0 or 1 may be common to different cases, for example before anything is learnt.
        same = max(replicates) - min(replicates) < 1e-6 and 0.001 < replicates[0] < 0.999
        streak = streak + 1 if same else 0
        if streak == ROUNDS_TO_BE_SURE:
            return done.round_no
    return None


def _sends_nothing(mine: Mine, n_trainable: int) -> int | None:
    return next((done.round_no for done, facts in mine if "zero update" in facts.flags), None)


def _sends_an_old_update(mine: Mine, n_trainable: int) -> int | None:
    """Training never gives the same direction twice to five digits."""
    earlier: list[NDArray[np.float64]] = []
    for done, facts in mine:
        now = _direction(facts.sketch)
        if now is None:
            continue
        if any(float(now @ other) > SAME_DIRECTION for other in earlier):
            return done.round_no
        earlier.append(now)
    return None


def _sends_the_last_model(mine: Mine, n_trainable: int) -> int | None:
    """Its update undoes what everybody's last round did: it points from this model back to the one before."""
    for (before, _), (done, facts) in pairwise(mine):
        now = _direction(facts.sketch)
        back = _direction((np.array(before.sketch) - np.array(done.sketch)).tolist())
        if now is not None and back is not None and float(now @ back) > SAME_DIRECTION:
            return done.round_no
    return None


def _sends_noise(mine: Mine, n_trainable: int) -> int | None:
    """Noise is at right angles to everything: to the others' updates, and to its own of the round before.

    An honest site may go at right angles to the others for some rounds, but goes on in its own direction.
    """
    streak = 0
    for (_, before), (done, facts) in pairwise(mine):
        last, now = _direction(before.sketch), _direction(facts.sketch)
        if facts.similarity is None or last is None or now is None:
            continue
        is_noise = abs(facts.similarity) < 3 / sqrt(n_trainable) and abs(float(last @ now)) < 3 / sqrt(SKETCH)
        streak = streak + 1 if is_noise else 0
        if streak == ROUNDS_TO_BE_SURE:
            return done.round_no
    return None


def _direction(sketched: Sequence[float] | None) -> NDArray[np.float64] | None:
    if sketched is None:
        return None
    vector = np.array(sketched)
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else None


TESTS: Mapping[str, tuple[Callable[[Mine, int], int | None], str]] = {
    "repeat": (_repeats_one_case, "its validation cases are all the same"),
    "zero": (_sends_nothing, "sends the model back as it came"),
    "replay": (_sends_an_old_update, "sends an old update again"),
    "echo": (_sends_the_last_model, "sends back the global model of the round before"),
    "noise": (_sends_noise, "its updates are noise"),
}
