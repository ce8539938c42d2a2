"""Data time: an epoch from the cache against decoding each image, and how long a training round waits for its data.

    python -m benchmarks.loading [DIR] [--size 128]

Without DIR, 240 drawn fundus photographs of 512x512 pixels as PNG files. Ratios within one run, repeated.
"""

import argparse
import os
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from benchmarks.photographs import write_sites

from fedce.base.errors import Problems
from fedce.base.tables import DataConfig, ModelConfig, TrainConfig
from fedce.data import load_sites
from fedce.data.finding import find_items
from fedce.data.pixels import FOREGROUND
from fedce.data.reader import Reading, read_frames
from fedce.learning import networks as models
from fedce.learning.batches import to_unit
from fedce.learning.learner import Learner


def decode(config: DataConfig) -> float:
    """Seconds to decode and resize every image, as an epoch without a cache does."""
    problems = Problems()
    found = find_items(config, problems)
    how = Reading(FOREGROUND, config.size, config.resize, config.intensity, config.plane)
    start = perf_counter()
    for site, files in found.items():
        for _ in read_frames(site, files.items, how, problems):
            pass
    return perf_counter() - start


def first_epoch(config: DataConfig, learner: Learner, batch_size: int) -> float:
    """Seconds to find the cache (the files are hashed), map it, and go once through all images in batches."""
    start = perf_counter()
    for site in load_sites(config):
        data = learner.batch(site.images, site.masks)
        for rows in torch.split(torch.randperm(len(data)), batch_size):
            to_unit(data.images[rows]), data.masks[rows].float()
    return perf_counter() - start


def waiting(config: DataConfig, learner: Learner, batch_size: int) -> float:
    """The share of a training round that is spent on bringing batches."""
    site = load_sites(config)[0]
    data = learner.batch(site.images[site.split.train], site.masks[site.split.train])
    learner.train(learner.params, data, 0, {})
    start = perf_counter()
    learner.train(learner.params, data, 0, {})
    whole = perf_counter() - start
    start = perf_counter()
    for rows in torch.split(torch.randperm(len(data)), batch_size):
        to_unit(data.images[rows]), data.masks[rows].float()
    return (perf_counter() - start) / whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["FEDCE_CACHE"] = temporary
        folder = arguments.folder or Path(temporary) / "photographs"
        if arguments.folder is None:
            write_sites(folder, ("site1", "site4"), 120, 512)
        config = DataConfig(source=str(folder), size=arguments.size)
        train = TrainConfig()
        network = models.build(ModelConfig(), load_sites(config).n_channels, 1, 0)
        learner = Learner(network, train, "unit", torch.device("cpu"))
        ratios, shares = [], []
        for _ in range(arguments.repeats):
            ratios.append(decode(config) / first_epoch(config, learner, train.batch_size))
            shares.append(waiting(config, learner, train.batch_size))
    print(
        f"decoding / first epoch from the cache: median {median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
    )
    print(f"waiting for data: median {100 * median(shares):.2f} % of a round (largest {100 * max(shares):.2f} %)")


if __name__ == "__main__":
    main()
