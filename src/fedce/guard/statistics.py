"""What a site's running statistics do to the common model, as the other sites score it.

Batch norm's running means and variances are averaged like weights, and a site may send any. Statistics of honest sites
can be far from those of the others: an unusual scanner is what a federation is for. So the distance only decides which
sites are asked about, unless no images could give it. What decides about use is the validation score at the other
sites, of the common model with a site's statistics and without them.

A round of few steps moves running statistics only a little, so a small push in every round adds up. Therefore the
values that the statistics are moving towards are judged: the batch statistics that a site's steps must have seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from fedce.core.algorithm import models_of
from fedce.core.messages import MAX_MODELS, Reply
from fedce.core.params import Params, weighted_sum

MOMENTUM = 0.1
"""Momentum of torch's batch norms: the part of a batch's statistics that one step takes over."""
FAR = 10.0
"""Batch statistics this far from the round's median come from no images: they are not used, and no site is asked. In
standard deviations for means, in multiples of the median for variances; honest sites come to 2 (docs/trust.md)."""
PUSH = 0.15
"""The other sites are asked about a site that moves a layer's common running means by more than this many standard
deviations, or its common running variances by more than this fraction (root mean square over the layer)."""
HARM = 0.1
"""A site's statistics are not used if they lower the common model's validation Dice by more than this, in the median of
the other sites. docs/trust.md says how the value was chosen."""
HARMLESS = 0.01
"""Statistics that were not used in the last round are used again when they lower the Dice by no more than this."""
VARIANCE_FLOOR = 1e-5
"""Batch norm adds this to a variance before it divides by the root."""
FEWEST_VOTERS = 2
"""With fewer other sites, the effect of a site's statistics can't be judged."""


@dataclass(frozen=True)
class Trial:
    """Models to be scored: first one without the statistics of all `sites`, then one with those of each site."""

    sites: tuple[str, ...]
    models: tuple[Params, ...]
    far: Mapping[str, float]
    """Sites whose statistics are never used, and how far these are from the others'."""

    def harms(self, scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """By how much each site's statistics lower the median score of the other sites.

        `scores` are those that each site gave to the models. A site whose statistics have too few voters is left out.
        """
        found = {}
        for n, site in enumerate(self.sites, 1):
            votes = [given[0] - given[n] for voter, given in scores.items() if voter != site]
            if len(votes) >= FEWEST_VOTERS:
                found[site] = median(votes)
        return found


def is_harmful(harm: float, was_harmful: bool) -> bool:
    """Whether a site's statistics are left out, given whether they were left out in the last round."""
    return harm > (HARMLESS if was_harmful else HARM)


def trial_of(replies: Sequence[Reply], starts: Mapping[str, Params], weights: Mapping[str, float]) -> Trial | None:
    """The models by which the running statistics of these replies are judged; None if no judgement is needed.

    `starts` are the models that the sites trained from, `weights` roughly the weights of the replies in the mean.
    """
    models = models_of(replies)
    if len(models) <= FEWEST_VOTERS or models[0].layout.n_averaged == models[0].layout.n_trainable:
        return None
    seen = [
        _with_statistics(model, batch_statistics(model, starts[reply.site]))
        for reply, model in zip(replies, models, strict=True)
    ]
    rho = np.array([weights[reply.site] for reply in replies])
    away_by = distances(seen)
    far = np.flatnonzero(away_by > FAR).tolist()
    moved = rho * away_by
    # At most as many as one task can carry: the sites that move the model most.
    pushing = sorted(np.flatnonzero(moved > PUSH).tolist(), key=lambda i: -moved[i])
    suspects = [i for i in pushing if i not in far][: MAX_MODELS - 1]
    if not suspects and not far:
        return None
    layout = models[0].layout
    statistics = slice(layout.n_trainable, layout.n_averaged)
    common = weighted_sum(seen, rho.tolist())
    typical = _typical(seen)

    def away(i: int) -> NDArray[np.float64]:
        """The change of the common statistics if site i's are used in place of the typical ones."""
        change: NDArray[np.float64] = rho[i] * (seen[i].vector[statistics].astype(np.float64) - typical)
        return change

    without = common.vector[statistics] - sum((away(i) for i in (*suspects, *far)), np.zeros(len(typical)))
    candidates = [without, *(without + away(i) for i in suspects)]
    return Trial(
        sites=tuple(replies[i].site for i in suspects),
        models=tuple(_with_statistics(common, values) for values in candidates) if suspects else (),
        far={replies[i].site: float(away_by[i]) for i in far},
    )


def batch_statistics(model: Params, start: Params) -> NDArray[np.float64]:
    """The mean statistics of a site's batches that explain how its running statistics moved.

    After n steps running statistics hold (1 - MOMENTUM)^n of their old values. Buffers without a count of batches are
    taken as they are.
    """
    layout = model.layout
    statistics, counters = slice(layout.n_trainable, layout.n_averaged), slice(layout.n_averaged, None)
    n_steps = float((model.vector[counters] - start.vector[counters]).max(initial=0))
    kept = (1 - MOMENTUM) ** n_steps if n_steps > 0 else 0.0
    after, before = (params.vector[statistics].astype(np.float64) for params in (model, start))
    seen: NDArray[np.float64] = (after - kept * before) / (1 - kept)
    for _, at_variance in layout.running_statistics:
        own = slice(at_variance.start - layout.n_trainable, at_variance.stop - layout.n_trainable)
        seen[own] = np.maximum(seen[own], 0.0)
    return seen


def distances(models: Sequence[Params]) -> NDArray[np.float64]:
    """How far each model's statistics are from the median of all models: the largest distance over the layers.

    In batch norm's own measure: a mean in standard deviations of its channel, a variance as a multiple, both in root
    mean square over a layer's channels. A channel counts for at most 2 FAR: a few channels that are all but dead at
    most sites and alive at one must not make this site look impossible. A too small variance does no harm in a mean.
    """
    found = np.zeros(len(models))
    for at_mean, at_variance in models[0].layout.running_statistics:
        means = np.array([model.vector[at_mean] for model in models], np.float64)
        variances = np.array([model.vector[at_variance] for model in models], np.float64) + VARIANCE_FLOOR
        usual = np.median(variances, axis=0)
        shifts = np.abs(means - np.median(means, axis=0)) / np.sqrt(usual)
        spreads = np.maximum(variances / usual - 1.0, 0.0)
        for away_by in (shifts, spreads):
            found = np.maximum(found, np.sqrt((np.minimum(away_by, 2 * FAR) ** 2).mean(axis=1)))
    return found


def without_statistics(replies: Sequence[Reply], harmful: Sequence[str]) -> dict[str, Params]:
    """The models of these sites with the round's median statistics in place of their own."""
    if not harmful:
        return {}
    typical = _typical(models_of(replies))
    return {
        reply.site: _with_statistics(reply.params, typical)
        for reply in replies
        if reply.site in harmful and reply.params is not None
    }


def _typical(models: Sequence[Params]) -> NDArray[np.float64]:
    layout = models[0].layout
    statistics = slice(layout.n_trainable, layout.n_averaged)
    return np.median(np.array([model.vector[statistics] for model in models], np.float64), axis=0)


def _with_statistics(model: Params, values: NDArray[np.float64]) -> Params:
    vector = model.vector.copy()
    with np.errstate(over="ignore"):  # A value that overflows gives a model that scores 0.
        vector[model.layout.n_trainable : model.layout.n_averaged] = values
    return Params(model.layout, vector)
