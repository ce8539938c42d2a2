"""What a planned training takes: minutes and memory, by counted operations and tensors."""

from dataclasses import dataclass
from math import prod

import torch
from torch.utils.flop_counter import FlopCounterMode

from fedce.base.config import Config
from fedce.data.fingerprint import Fingerprints
from fedce.data.shape import patch_of
from fedce.learning import networks
from fedce.learning import planning_volumes as volumes

CORES = 2
OPERATIONS_A_SECOND = 2.0e10
"""Operations that one core makes in convolutions of a few channels; an assumption, not a measurement."""
SECONDS_AN_IMAGE = 0.0005
"""Time that an image takes beside the network's operations; an assumption too."""
BACKWARD_TOO = 3
"""A step of training takes about three forward passes."""
PROCESS_BYTES = 500e6


@dataclass(frozen=True)
class Cost:
    """What a training takes, by counted operations; nothing is timed, so that a plan is the same everywhere."""

    minutes: float
    gigabytes: float

    @property
    def sentence(self) -> str:
        return f"About {self.minutes:g} minutes on {CORES} cores without a GPU, and {self.gigabytes:g} GB of memory."


def cost_of(config: Config, known: Fingerprints) -> Cost:
    """Minutes and gigabytes of a training on two cores without a GPU."""
    first = known.sites[0]
    size, patch = config.data.size, patch_of(config.data)
    seen: tuple[int, ...] = patch or ((size, size) if size else known.shape or (first.heights[1], first.widths[1]))
    n_channels, n_classes = max(site.n_channels for site in known.sites), len(first.every_class)
    network = networks.build(config.model, n_channels, n_classes, 0, patch).eval()
    fit = networks.fitted(network, n_channels, seen)
    with FlopCounterMode(display=False) as counted, torch.inference_mode():
        network(fit.padded(torch.zeros(1, n_channels, *seen)))
    n_train, n_scored, n_kept = _seen_by(config, known)
    n_rounds_trained = config.n_rounds * (2 if config.alone else 1) + config.personalise
    passes = n_rounds_trained * BACKWARD_TOO * n_train + config.n_rounds * n_scored
    seconds = passes * (counted.get_total_flops() / OPERATIONS_A_SECOND + SECONDS_AN_IMAGE) / CORES
    by_level = (c * prod(seen) / 2 ** (len(seen) * level) for level, c in enumerate(config.model.channels))
    activations = 4 * max(config.model.res_units, 1) * sum(by_level)
    at_a_time = max(config.train.batch_size, 1 if patch else 16)
    n_bytes = n_kept * (n_channels + n_classes) * prod(seen) + CORES * (PROCESS_BYTES + 4 * at_a_time * activations)
    return Cost(round(seconds / 60, 1), round(n_bytes / 1e9, 1))


def _seen_by(config: Config, known: Fingerprints) -> tuple[float, float, float]:
    """Images or patches that are trained on in a round, that are scored in a round, and that are kept in all."""
    sites, patch = known.sites, patch_of(config.data)
    n_train = config.train.epochs * sum(site.n_train for site in sites)
    if patch is None:
        # The model, and the one without the site.
        n_twice = 2 * sum(site.n_validation for site in sites)
        return n_train, n_twice, sum(site.n_train + site.n_validation + site.n_test for site in sites)
    counted = [(site, site.volumes) for site in sites if site.volumes]
    windows = {site.site: volumes.n_windows(site, config.data, patch) for site, _ in counted}
    n_patches = config.train.epochs * config.train.patches * sum(its.n_train for _, its in counted)
    n_scored = 2 * sum(its.n_validation * windows[site.site] for site, its in counted)
    n_kept = sum((its.n_train + its.n_validation + its.n_test) * windows[site.site] for site, its in counted)
    return n_patches, n_scored, n_kept
