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

from fedce.core.algorithm import Cleared, models_of
from fedce.core.messages import MAX_MODELS, Reply
from fedce.core.params import Layout, Params, weighted_sum

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
CLEARED_ROUNDS = 5
"""For this many rounds nobody is asked about statistics that the other sites found harmless, unless they move on."""
LEAST_SCORE = 0.2
"""While the other sites' models score less than this, most harm can't be seen, and nothing is found harmless."""
FEWEST_VOTERS = 2
"""With fewer other sites, the effect of a site's statistics can't be judged."""


@dataclass(frozen=True)
class Trial:
    """Models to be scored: first one without the statistics of all `sites`, then one with those of each site."""

    sites: tuple[str, ...]
    models: tuple[Params, ...]
    far: Mapping[str, float]
    """Sites whose statistics are never used, and how far these are from the others'."""
    judged: Mapping[str, Cleared]
    """For each of `sites` the batch statistics that are judged, as they are kept if they are found harmless."""

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

    def harmless(self, harms: Mapping[str, float], scores: Mapping[str, Sequence[float]]) -> dict[str, Cleared]:
        """The judged statistics that lower the score by at most HARMLESS; none while the scores are too low to tell."""
        if not scores or median(given[0] for given in scores.values()) < LEAST_SCORE:
            return {}
        return {site: self.judged[site] for site, harm in harms.items() if harm <= HARMLESS}


def is_harmful(harm: float, was_harmful: bool) -> bool:
    """Whether a site's statistics are left out, given whether they were left out in the last round."""
    return harm > (HARMLESS if was_harmful else HARM)


def still_cleared(cleared: Mapping[str, Cleared], round_no: int) -> dict[str, Cleared]:
    """The statistics that were found harmless in the last rounds."""
    return {site: found for site, found in cleared.items() if round_no - found.round_no < CLEARED_ROUNDS}


def trial_of(
    replies: Sequence[Reply],
    starts: Mapping[str, Params],
    weights: Mapping[str, float],
    cleared: Mapping[str, Cleared],
) -> Trial | None:
    """The models by which the running statistics of these replies are judged; None if no judgement is needed.

    `starts` are the models that the sites trained from, `weights` roughly the weights of the replies in the mean. The
    other sites are asked again about statistics that were `cleared` only if these moved on by enough since then.
    """
    models = models_of(replies)
    if len(models) <= FEWEST_VOTERS or models[0].layout.n_averaged == models[0].layout.n_trainable:
        return None
    seen = [
        _with_statistics(model, batch_statistics(model, starts[reply.site]))
        for reply, model in zip(replies, models, strict=True)
    ]
    rho = np.array([weights[reply.site] for reply in replies])
    rows = np.array([_statistics(model) for model in seen])
    usual = np.median(rows, axis=0)
    layout = models[0].layout
    away_by = distances(rows, usual, usual, layout)
    far = np.flatnonzero(away_by > FAR).tolist()
    moved = rho * away_by
    for i, reply in enumerate(replies):
        if known := cleared.get(reply.site):
            more = max(float(rho[i]) - known.weight, 0.0)
            moved[i] = rho[i] * distances(rows[i : i + 1], known.statistics, usual, layout)[0]
            moved[i] += more * distances(known.statistics[None], usual, usual, layout)[0]
    # At most as many as one task can carry: the sites that move the model most.
    pushing = sorted(np.flatnonzero(moved > PUSH).tolist(), key=lambda i: -moved[i])
    suspects = [i for i in pushing if i not in far][: MAX_MODELS - 1]
    if not suspects and not far:
        return None
    common = weighted_sum(seen, rho.tolist())

    def away(i: int) -> NDArray[np.float64]:
        """The change of the common statistics if site i's are used in place of the usual ones."""
        change: NDArray[np.float64] = rho[i] * (rows[i] - usual)
        return change

    without = _statistics(common) - sum((away(i) for i in (*suspects, *far)), np.zeros(len(usual)))
    candidates = [without, *(without + away(i) for i in suspects)]
    return Trial(
        sites=tuple(replies[i].site for i in suspects),
        models=tuple(_with_statistics(common, values) for values in candidates) if suspects else (),
        far={replies[i].site: float(away_by[i]) for i in far},
        judged={replies[i].site: Cleared(replies[i].round_no, float(rho[i]), rows[i].copy()) for i in suspects},
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


def distances(
    rows: NDArray[np.float64], known: NDArray[np.float64], usual: NDArray[np.float64], layout: Layout
) -> NDArray[np.float64]:
    """How far each site's statistics (a row) are from known ones: the largest distance over the layers.

    In batch norm's own measure: a mean in usual standard deviations of its channel, a variance in usual variances, both
    in root mean square over a layer's channels. A channel counts for at most 2 FAR: a few channels that
    are all but dead at most sites and alive at one must not make this site look impossible. A variance that is too
    small does no harm in a mean.
    """
    found, n = np.zeros(len(rows)), layout.n_trainable
    for at_mean, at_variance in layout.running_statistics:
        means, variances = (slice(at.start - n, at.stop - n) for at in (at_mean, at_variance))
        shifts = np.abs(rows[:, means] - known[means]) / np.sqrt(usual[variances] + VARIANCE_FLOOR)
        grown = (rows[:, variances] - known[variances]) / (usual[variances] + VARIANCE_FLOOR)
        for away_by in (shifts, np.maximum(grown, 0.0)):
            found = np.maximum(found, np.sqrt((np.minimum(away_by, 2 * FAR) ** 2).mean(axis=1)))
    return found


def without_statistics(replies: Sequence[Reply], harmful: Sequence[str]) -> dict[str, Params]:
    """The models of these sites with the round's median statistics in place of their own."""
    if not harmful:
        return {}
    usual = np.median([_statistics(model) for model in models_of(replies)], axis=0)
    return {
        reply.site: _with_statistics(reply.params, usual)
        for reply in replies
        if reply.site in harmful and reply.params is not None
    }


def _statistics(model: Params) -> NDArray[np.float64]:
    return model.vector[model.layout.n_trainable : model.layout.n_averaged].astype(np.float64)


def _with_statistics(model: Params, values: NDArray[np.float64]) -> Params:
    vector = model.vector.copy()
    with np.errstate(over="ignore"):  # A value that overflows gives a model that scores 0.
        vector[model.layout.n_trainable : model.layout.n_averaged] = values
    return Params(model.layout, vector)
