"""Free riders: impostors to plant, and the score that finds them (D13)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from statistics import median
from typing import Any

import numpy as np

from fedce.algorithms.base import Moments, Pull, Site, Trained
from fedce.data import SiteData
from fedce.messages import Evaluation
from fedce.params import Params
from fedce.site import round_seed

Rounds = Sequence[Mapping[str, Any]]
FACTOR = 5.0
SMALLEST_SCORE = 0.01
"""A site whose own model is no better than the common one rides on nobody."""
NOISE = 1e-3
"""Standard deviation of a noise update; about what a small network's weights move in a round."""


def with_one_image(data: SiteData) -> SiteData:
    """The paper's free rider: a site that has one image and repeats it. Its test images stay, as a measure."""
    first = data.split.train[:1]
    split = replace(
        data.split,
        train=np.repeat(first, len(data.split.train)),
        validation=np.repeat(first, len(data.split.validation)),
    )
    return SiteData(data.name, data.images, data.masks, data.files, split)


class Impostor:
    """A site that sends something else than what it trained, and answers honestly otherwise."""

    def __init__(self, site: Site, kind: str) -> None:
        self.site, self.kind = site, kind

    @property
    def name(self) -> str:
        return self.site.name

    @property
    def n_train(self) -> int:
        return self.site.n_train

    def loss(self, params: Params) -> float:
        return self.site.loss(params)

    def score(self, params: Params) -> float:
        return self.site.score(params)

    def score_replicates(self, params: Params) -> tuple[float, ...]:
        return self.site.score_replicates(params)

    def evaluate(self, params: Params, without: Params | None) -> Evaluation:
        return self.site.evaluate(params, without)

    def train(self, params: Params, round_no: int, moments: Moments, pull: Pull | None = None) -> Trained:
        loss = self.site.loss(params)
        if self.kind == "zero":
            return Trained(params, loss, {})
        if self.kind == "noise":
            rng = np.random.default_rng(round_seed(0, self.name, round_no))
            return Trained(_moved(params, rng.normal(0, NOISE, params.layout.n_trainable)), loss, {})
        if self.kind == "echo":
            # Everybody else has moved on since the model that it sends back.
            last = moments.get("last", params.vector)
            return Trained(Params(params.layout, np.array(last)), loss, {"last": params.vector.copy()})
        if "update" in moments:
            return Trained(_moved(params, moments["update"]), loss, moments)
        honest = self.site.train(params, round_no, {}, pull)
        return replace(honest, moments={"update": honest.params.trainable - params.trainable})


def _moved(params: Params, update: np.ndarray[tuple[int, ...], np.dtype[np.floating]]) -> Params:
    vector = params.vector.copy()
    vector[: len(update)] += update.astype(np.float32)
    return Params(params.layout, vector)


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
    sites = sorted({site for entry in rounds for site in entry["sites"]})
    result: dict[str, list[float | None]] = {site: [] for site in sites}
    sums, counts = dict.fromkeys(sites, 0.0), dict.fromkeys(sites, 0)
    for entry, following in zip_longest(rounds, rounds[1:]):
        next_scores = (
            last_scores if following is None else {site: facts["score"] for site, facts in following["sites"].items()}
        )
        for site in sites:
            facts = entry["sites"].get(site)
            if facts is None or site not in next_scores:
                result[site].append(None)
                continue
            sums[site] += score(facts["similarity"], 1 - next_scores[site], 1 - facts["score_local"], how)
            counts[site] += 1
            result[site].append(sums[site] / counts[site])
    return result


def flagged_from(scores: Mapping[str, Sequence[float | None]], factor: float = FACTOR) -> dict[str, int]:
    """The round from which on a site's score stands out to the end: above `factor` times the others' median."""
    n_rounds = max((len(values) for values in scores.values()), default=0)
    first: dict[str, int] = {}
    candidates = set(scores)
    for round_no in reversed(range(n_rounds)):
        now = {site: value for site, values in scores.items() if (value := values[round_no]) is not None}
        candidates = {site for site in candidates if stands_out(site, now, factor)}
        first |= dict.fromkeys(candidates, round_no)
    return first


def stands_out(site: str, scores: Mapping[str, float], factor: float) -> bool:
    others = [value for other, value in scores.items() if other != site]
    return site in scores and len(others) >= 2 and scores[site] > max(factor * median(others), SMALLEST_SCORE)
