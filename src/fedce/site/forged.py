"""What sites that cheat send instead of what they trained."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedce.core.params import Params
from fedce.core.site import Moments, Pull, Trained, round_seed
from fedce.site.impostor import Impostor, Sends

NOISE = 1e-3
"""Standard deviation of a noise update; about as much as a small network's weights move in a round."""
RIDERS_NOISE = 0.1
"""Of somebody who sends the common step again: the part of its length that is noise."""
LATE = 15
"""From this round on, a site sends longer updates."""


def changed(change: Callable[[Params, Params], Params]) -> Sends:
    """Sends a changed model; `change` gets the model that the impostor received, and the one that it trained."""

    def send(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
        honest = own.site.train(params, round_no, moments, pull)
        return replace(honest, params=change(params, honest.params))

    return send


def scaled(factor: float) -> Sends:
    return changed(lambda start, trained: _moved(start, factor * (trained.trainable - start.trainable)))


def zero(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
    return Trained(params, own.site.loss(params), {})


def sends_noise(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
    return Trained(_moved(params, _noise(params, own.name, round_no)), own.site.loss(params), {})


def invents(related: float) -> Sends:
    """A constant direction looks trained; a part of the last common step looks related."""

    def send(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
        held, wobble = _noise(params, own.name, -1), _noise(params, own.name, round_no)
        step = params.trainable - moments.get("last", params.trainable)
        part = related * np.linalg.norm(held) / max(float(np.linalg.norm(step)), 1e-12)
        kept = {"last": params.trainable.copy()}
        return Trained(_moved(params, held + 0.1 * wobble + part * step), own.site.loss(params), kept)

    return send


def rides(times: float) -> Sends:
    """The way that all went in the round before, which every member sees; noise hides that it is no new update."""

    def send(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
        step = params.trainable - moments.get("last", params.trainable)
        noise = _noise(params, own.name, round_no)
        moved = times * step + RIDERS_NOISE * (_as_long(noise, step) if step.any() else noise)
        return Trained(_moved(params, moved), own.site.loss(params), {"last": params.trainable.copy()})

    return send


def colludes(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
    """Noise with opposite signs: both sites look new, and the mean model does not move."""
    return Trained(_moved(params, own.sign * _noise(params, "pair", round_no)), own.site.loss(params), {})


def echoes(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
    """The model that it sends back is old: all other sites have moved on since."""
    last = moments.get("last", params.vector)
    return Trained(Params(params.layout, np.array(last)), own.site.loss(params), {"last": params.vector.copy()})


def replays(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
    if "update" in moments:
        return Trained(_moved(params, moments["update"]), own.site.loss(params), moments)
    honest = own.site.train(params, round_no, {}, pull)
    return replace(honest, moments={"update": honest.params.trainable - params.trainable})


def drifts(times: float) -> Sends:
    """An honest update and a held made-up direction that is `times` as long; an accomplice adds its opposite."""

    def send(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
        honest = own.site.train(params, round_no, moments, pull)
        update = honest.params.trainable - params.trainable
        held = _noise(params, "held", -1)
        return replace(honest, params=_moved(params, update + times * own.sign * _as_long(held, update)))

    return send


def rotates(turn: float) -> Sends:
    """Turns away from its honest update by this part of a right angle more in every round."""

    def send(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
        honest = own.site.train(params, round_no, moments, pull)
        update = honest.params.trainable - params.trainable
        angle = min(turn * round_no, 1.0) * np.pi / 2
        turned = np.cos(angle) * update + np.sin(angle) * _as_long(_noise(params, own.name, -1), update)
        return replace(honest, params=_moved(params, turned))

    return send


def _as_long(direction: NDArray[np.float64], update: NDArray[np.floating]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = direction * (np.linalg.norm(update) / np.linalg.norm(direction))
    return found


def longer_late(times: float) -> Sends:
    def send(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
        return scaled(times if round_no >= LATE else 1.0)(own, params, round_no, moments, pull)

    return send


def spread(times: float) -> Sends:
    """Batch norms that expect images of more contrast than the true ones."""

    def change(start: Params, trained: Params) -> Params:
        vector = trained.vector.copy()
        for _, at_variance in trained.layout.running_statistics:
            vector[at_variance] *= times
        return Params(trained.layout, vector)

    return changed(change)


def shift(deviations: float) -> Sends:
    """Batch norms that expect other images than the true ones."""

    def change(start: Params, trained: Params) -> Params:
        vector = trained.vector.copy()
        for at_mean, at_variance in trained.layout.running_statistics:
            vector[at_mean] += deviations * np.sqrt(vector[at_variance])
        return Params(trained.layout, vector)

    return changed(change)


def _noise(params: Params, name: str, round_no: int) -> NDArray[np.float64]:
    return np.random.default_rng(round_seed(0, name, round_no)).normal(0, NOISE, params.layout.n_trainable)


def _moved(params: Params, update: np.ndarray[tuple[int, ...], np.dtype[np.floating]]) -> Params:
    vector = params.vector.copy()
    vector[: len(update)] += update.astype(np.float32)
    return Params(params.layout, vector)
