"""What a site's running statistics do to the common model, as the other sites score it.

Batch norm's running means and variances are averaged like weights, and a site may send any. Statistics of honest sites
can be far from everybody else's: an unusual scanner is what a federation is for. So their distance only says which
sites are asked about. What decides is the validation score of the common model with a site's statistics in it and
without them, at the other sites.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from fedce.algorithms.base import models_of
from fedce.messages import MAX_MODELS, Reply
from fedce.params import Params, weighted_sum

PUSH = 0.15
"""A site is asked about if it moves a layer's common running means by more than this many standard deviations, or its
common running variances by more than this part of them (root mean square over the layer)."""
HARM = 0.1
"""A site's statistics are not used if they lower the common model's validation Dice by more than this, in the median of
the other sites. docs/trust.md says how the value was chosen."""
VARIANCE_FLOOR = 1e-5
"""Batch norm adds this to a variance before it divides by the root."""
FEWEST_VOTERS = 2
"""With fewer other sites, nobody can say what a site's statistics do."""


@dataclass(frozen=True)
class Trial:
    """Models to be scored: first one without the statistics of `sites`, then one with those of each of them."""

    sites: tuple[str, ...]
    models: tuple[Params, ...]

    def harms(self, scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """By how much each site's statistics lower the score at the other sites, in their median.

        `scores` holds what each site scored the models with. A site whose statistics have too few voters is left out.
        """
        found = {}
        for n, site in enumerate(self.sites, 1):
            votes = [given[0] - given[n] for voter, given in scores.items() if voter != site]
            if len(votes) >= FEWEST_VOTERS:
                found[site] = median(votes)
        return found


def trial_of(replies: Sequence[Reply], weights: Mapping[str, float]) -> Trial | None:
    """The models by which the running statistics of these replies are judged; None if none needs to be.

    `weights` are about those by which the replies will be averaged.
    """
    models = models_of(replies)
    if len(models) <= FEWEST_VOTERS:
        return None
    rho = np.array([weights[reply.site] for reply in replies])
    moved = pushes(models, rho)
    # At most as many as one task can carry: those that move the model most.
    suspects = sorted(np.flatnonzero(moved > PUSH).tolist(), key=lambda i: -moved[i])[: MAX_MODELS - 1]
    if not suspects:
        return None
    layout = models[0].layout
    statistics = slice(layout.n_trainable, layout.n_averaged)
    common = weighted_sum(models, rho.tolist())
    typical = _typical(models)

    def away(i: int) -> NDArray[np.float64]:
        """What the common statistics change by if site i's are taken instead of the typical ones."""
        change: NDArray[np.float64] = rho[i] * (models[i].vector[statistics].astype(np.float64) - typical)
        return change

    without = common.vector[statistics] - sum((away(i) for i in suspects), np.zeros(len(typical)))
    candidates = [without, *(without + away(i) for i in suspects)]
    return Trial(
        sites=tuple(replies[i].site for i in suspects),
        models=tuple(_with_statistics(common, values) for values in candidates),
    )


def pushes(models: Sequence[Params], rho: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far each model moves the common running statistics: the largest over the layers.

    In batch norm's own measure: a mean in standard deviations of what it is the mean of, a variance as a ratio. A
    variance that is too small does no harm in a mean.
    """
    moved = np.zeros(len(models))
    for at_mean, at_variance in models[0].layout.running_statistics:
        means = np.array([model.vector[at_mean] for model in models], np.float64)
        variances = np.array([model.vector[at_variance] for model in models], np.float64) + VARIANCE_FLOOR
        usual = np.median(variances, axis=0)
        shifts = np.sqrt(((means - np.median(means, axis=0)) ** 2 / usual).mean(axis=1))
        spreads = np.sqrt((np.maximum(variances / usual - 1.0, 0.0) ** 2).mean(axis=1))
        moved = np.maximum(moved, rho * np.maximum(shifts, spreads))
    return moved


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
    with np.errstate(over="ignore"):  # Too large for a number is a model that scores 0.
        vector[model.layout.n_trainable : model.layout.n_averaged] = values
    return Params(model.layout, vector)
