"""Sites that cheat, to be planted in a federation: what the detector and the guard are tried on (docs/trust.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedce.base.errors import ConfigError
from fedce.core.messages import Evaluation, Reply
from fedce.core.params import Params
from fedce.core.site import Moments, Pull, Site, Trained
from fedce.data import SiteData
from fedce.data.splits import Split
from fedce.learning.learner import Learner
from fedce.learning.metrics import DICE_ALONE, Measures
from fedce.site.hospital import Hospital, round_seed

NOISE = 1e-3
"""Standard deviation of a noise update; about what a small network's weights move in a round."""
SCALE = 10.0
SPREAD = 4.5
"""Times the running variances that were trained."""
SHIFT = 2.5
"""Standard deviations that running means are off what was trained."""
TWINS = ("copy", "sybil")
"""Kinds that several members play together: all have the images of the first of them."""


def hospital(
    sites: Sequence[SiteData],
    name: str,
    learner: Learner,
    classes: tuple[str, ...],
    seed: int,
    plant: Mapping[str, str],
    measures: Measures = DICE_ALONE,
) -> Site:
    """The site of that name, or the impostor that is planted in its place."""
    data = next(data for data in sites if data.name == name)
    kind = plant.get(name)
    if kind in TWINS:
        first = min(other for other, its in plant.items() if its == kind)
        data = next((other for other in sites if other.name == first), None) or _not_here(kind, first)
        data = replace(data, name=name) if kind == "sybil" else data
    elif kind in DATA:
        data = DATA[kind](data)
    honest = Hospital(data, learner, classes, seed, measures)
    return Impostor(honest, kind, name, _sign_of(name, plant)) if kind else honest


def _not_here(kind: str, first: str) -> SiteData:
    raise ConfigError(f"freerider.plant: {kind!r} needs the images of {first}; it is for the local engine")


def _sign_of(name: str, plant: Mapping[str, str]) -> int:
    """Colluders are pairs: every second one mirrors the one before."""
    colluders = sorted(site for site, kind in plant.items() if kind == "collude")
    return -1 if name in colluders and colluders.index(name) % 2 else 1


def with_one_image(data: SiteData) -> SiteData:
    """The paper's free rider: a site that has one image and repeats it. Its test images stay, as a measure."""
    n_train, n_copies = len(data.split.train), len(data.split.train) + len(data.split.validation)
    rows = np.concatenate([np.repeat(data.split.train[:1], n_copies), data.split.test])
    # Every copy passes for an image of its own case.
    copies = tuple(f"copy {i}" for i in range(n_copies))
    origins = [data.origins[row] for row in rows] if data.origins else []
    return replace(
        data,
        images=data.images[rows],
        masks=data.masks[rows],
        files=(*copies, *(data.files[row] for row in data.split.test)),
        cases=(*copies, *(data.cases[row] for row in data.split.test)),
        split=Split(np.arange(n_train), np.arange(n_train, n_copies), np.arange(n_copies, len(rows))),
        origins=tuple(replace(one, item=-1 - i) if i < n_copies else one for i, one in enumerate(origins)),
    )


def with_inverted_labels(data: SiteData) -> SiteData:
    """Background as foreground, in training and validation. Its test images stay, as a measure."""
    masks = 1 - data.masks
    masks[data.split.test] = data.masks[data.split.test]
    return replace(data, masks=masks)


DATA = {"repeat": with_one_image, "labels": with_inverted_labels}


class Impostor:
    """A site that sends something else than what it trained or found, and is honest otherwise."""

    def __init__(self, site: Site, kind: str, name: str | None = None, sign: int = 1) -> None:
        self.site, self.kind, self.sign = site, kind, sign
        self.name = name or site.name

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
        if self.kind in ("flip", "scale"):
            honest = self.site.train(params, round_no, moments, pull)
            factor = SCALE if self.kind == "scale" else -1.0
            return replace(honest, params=_moved(params, factor * (honest.params.trainable - params.trainable)))
        if self.kind in ("spread", "shift"):
            honest = self.site.train(params, round_no, moments, pull)
            return replace(honest, params=_with_wrong_statistics(honest.params, self.kind))
        if self.kind in DATA or self.kind in ("inflate", "pretend", *TWINS):
            return self.site.train(params, round_no, moments, pull)
        loss = self.site.loss(params)
        if self.kind == "zero":
            return Trained(params, loss, {})
        if self.kind == "noise":
            return Trained(_moved(params, _noise(params, self.name, round_no)), loss, {})
        if self.kind == "invent":
            # A direction that is held looks trained; some of everybody's last step looks related.
            held, wobble = _noise(params, self.name, -1), _noise(params, self.name, round_no)
            step = params.trainable - moments.get("last", params.trainable)
            part = 0.3 * np.linalg.norm(held) / max(float(np.linalg.norm(step)), 1e-12)
            kept = {"last": params.trainable.copy()}
            return Trained(_moved(params, held + 0.1 * wobble + part * step), loss, kept)
        if self.kind == "collude":
            # The same noise with opposite signs: both look new, and the mean model does not move by it.
            return Trained(_moved(params, self.sign * _noise(params, "pair", round_no)), loss, {})
        if self.kind == "echo":
            # Everybody else has moved on since the model that it sends back.
            last = moments.get("last", params.vector)
            return Trained(Params(params.layout, np.array(last)), loss, {"last": params.vector.copy()})
        if "update" in moments:
            return Trained(_moved(params, moments["update"]), loss, moments)
        honest = self.site.train(params, round_no, {}, pull)
        return replace(honest, moments={"update": honest.params.trainable - params.trainable})


def said(reply: Reply, kind: str | None) -> Reply:
    """What a liar answers in the place of what it found."""
    if kind == "pretend":  # In all that it says the model serves it half as well; its test Dice stays, as a measure.
        told = reply.evaluation
        return replace(
            reply,
            score=_half(reply.score),
            score_local=_half(reply.score_local),
            error_without=None if reply.error_without is None else 1 - (1 - reply.error_without) / 2,
            error_replicates=tuple(1 - (1 - error) / 2 for error in reply.error_replicates),
            evaluation=None if told is None else _half_as_well(told),
        )
    if kind not in ("inflate", "collude"):
        return reply
    if reply.error_without is not None:
        spread = np.random.default_rng(reply.round_no).uniform(0.9, 1.0, len(reply.error_replicates))
        reply = replace(reply, error_without=1.0, error_replicates=tuple(spread.tolist()))
    if kind == "collude":  # Everybody else's model is bad.
        reply = replace(reply, scores=(0.0,) * len(reply.scores))
    return reply


def _with_wrong_statistics(params: Params, kind: str) -> Params:
    """The trained model with batch norms that expect other images than there are."""
    vector = params.vector.copy()
    for at_mean, at_variance in params.layout.running_statistics:
        if kind == "spread":
            vector[at_variance] *= SPREAD
        else:
            vector[at_mean] += SHIFT * np.sqrt(vector[at_variance])
    return Params(params.layout, vector)


def _half_as_well(told: Evaluation) -> Evaluation:
    interval = told.validation_interval
    return replace(
        told,
        validation_dice=told.validation_dice / 2,
        validation_interval=(interval[0] / 2, interval[1] / 2) if interval else None,
    )


def _half(score: float | None) -> float | None:
    return None if score is None else score / 2


def _noise(params: Params, name: str, round_no: int) -> NDArray[np.float64]:
    return np.random.default_rng(round_seed(0, name, round_no)).normal(0, NOISE, params.layout.n_trainable)


def _moved(params: Params, update: np.ndarray[tuple[int, ...], np.dtype[np.floating]]) -> Params:
    vector = params.vector.copy()
    vector[: len(update)] += update.astype(np.float32)
    return Params(params.layout, vector)
