"""What FedCI's coalitions cost beyond their validation passes: building 2^N - 1 models and carrying them to the sites.

A FedCI round scores 63 coalition models at 6 sites. The figure is (FedCI round - FedAvg round) over the time that 63
bare validation passes over all sites take, in one process and one run.

    python benchmarks/fedci.py [--repeats 3]
"""

import argparse
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from fedce.algorithms import FedAvg, FedCI
from fedce.base.config import parse
from fedce.data import load_sites
from fedce.engines.local import LocalEngine
from fedce.federation.loop import rounds
from fedce.federation.plan import Participants


def round_seconds(participants: Participants, algorithm) -> float:
    participants.algorithm = algorithm
    with tempfile.TemporaryDirectory() as folder, LocalEngine(participants, Path(folder), 1) as engine:
        *_, last = rounds(algorithm, participants.initial_state(), engine, 2)
    return last.seconds


def validation_seconds(participants: Participants, n_models: int) -> float:
    """Seconds of bare passes over all sites; a new model each time, because a site remembers its last scores."""
    params = participants.initial_state().params
    hospitals = [participants.hospital(site) for site in participants.work_by_site]
    start = perf_counter()
    for _ in range(n_models):
        model = replace(params)
        for hospital in hospitals:
            hospital.score(model)
    return perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = parse({"data": {"source": "fundus6", "scale": "demo"}})
    participants = Participants(config, load_sites(config.data))
    validation_seconds(participants, 2)
    ratios = []
    for repeat in range(options.repeats):
        extra = round_seconds(participants, FedCI()) - round_seconds(participants, FedAvg())
        bare = validation_seconds(participants, 63)
        ratios.append(extra / bare)
        print(
            f"{repeat + 1}: coalitions {extra:.2f} s, 63 bare passes {bare:.2f} s, ratio {ratios[-1]:.3f}", flush=True
        )
    print(f"coalitions / bare passes: median {statistics.median(ratios):.3f} (largest {max(ratios):.3f})")


if __name__ == "__main__":
    main()
