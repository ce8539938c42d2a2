"""What a site's running statistics do to the common model, as the other sites score it.

Batch norm's running means and variances are averaged like weights, and a site may send any. Statistics of honest sites
can be far from everybody else's: an unusual scanner is what a federation is for. So their distance only says which
sites are asked about, unless it is such that no images could give it. What decides is the validation score of the
common model with a site's statistics in it and without them, at the other sites.

A round of few steps moves running statistics only a little, so that a small push in every round adds up. What is judged
is therefore what the statistics would come to: the batch statistics that a site's steps must have seen.
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
"""Of torch's batch norms: the part of a batch's statistics that a step takes over."""
FAR = 10.0
"""Batch statistics that are this far from the round's median come from no images: they are not used, nobody is asked.
In standard deviations for means, in multiples of the median for variances; honest sites come to 2 (docs/trust.md)."""
PUSH = 0.15
"""A site is asked about if it moves a layer's common running means by more than this many standard deviations, or its
common running variances by more than this part of them (root mean square over the layer)."""
HARM = 0.1
"""A site's statistics are not used if they lower the common model's validation Dice by more than this, in the median of
the other sites. docs/trust.md says how the value was chosen."""
HARMLESS = 0.01
"""Statistics that were not used in the last round are used again when they lower the Dice by no more than this."""
VARIANCE_FLOOR = 1e-5
"""Batch norm adds this to a variance before it divides by the root."""
FEWEST_VOTERS = 2
"""With fewer other sites, nobody can say what a site's statistics do."""


@dataclass(frozen=True)
class Trial:
    """Models to be scored: first one without the statistics of `sites`, then one with those of each of them."""

    sites: tuple[str, ...]
    models: tuple[Params, ...]
    far: Mapping[str, float]
    """Sites whose statistics are not used in any case, and how far they are from the others'."""

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


def is_harmful(harm: float, was_harmful: bool) -> bool:
    """Whether a site's statistics are left out, given whether they were in the last round."""
    return harm > (HARMLESS if was_harmful else HARM)


def trial_of(replies: Sequence[Reply], starts: Mapping[str, Params], weights: Mapping[str, float]) -> Trial | None:
    """The models by which the running statistics of these replies are judged; None if none needs to be.

    `starts` are the models that the sites trained from, `weights` about those by which the replies will be averaged.
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
    # At most as many as one task can carry: those that move the model most.
    pushing = sorted(np.flatnonzero(moved > PUSH).tolist(), key=lambda i: -moved[i])
    suspects = [i for i in pushing if i not in far][: MAX_MODELS - 1]
    if not suspects and not far:
        return None
    layout = models[0].layout
    statistics = slice(layout.n_trainable, layout.n_averaged)
    common = weighted_sum(seen, rho.tolist())
    typical = _typical(seen)

    def away(i: int) -> NDArray[np.float64]:
        """What the common statistics change by if site i's are taken instead of the typical ones."""
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
    """What a site's batches must have shown on average for the running statistics to move as they did.

    After n steps running statistics hold (1 - MOMENTUM)^n of what they were. Buffers that count no batches are taken as
    they are.
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
    """How far each model's statistics are from the median of all: the largest over the layers.

    In batch norm's own measure: a mean in standard deviations of what it is the mean of, a variance as a multiple, both
    in root mean square over a layer's channels. A channel counts for at most 2 FAR: a few that are all but dead at most
    sites and alive at one must not make that site look impossible. A variance that is too small does no harm in a mean.
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
    with np.errstate(over="ignore"):  # Too large for a number is a model that scores 0.
        vector[model.layout.n_trainable : model.layout.n_averaged] = values
    return Params(model.layout, vector)
