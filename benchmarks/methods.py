"""A round of FedCE, FedCI, CGSV and q-FedAvg over one of FedAvg, which validates the received model too.

CPU seconds of the median round of a run with one worker; all methods take turns in this process, so that the machine's
load cancels. FedCI scores the models of all coalitions, 2^6 - 1, in every round: that is its method, and its figure is
the price.

    python -m benchmarks.methods [--repeats 3]
"""

import tempfile
from itertools import islice
from pathlib import Path
from statistics import median
from time import process_time

import torch
from benchmarks.figures import Figure, main

from fedce import algorithms
from fedce.base.config import parse
from fedce.data import load_sites
from fedce.engines.local import LocalEngine
from fedce.federation.loop import rounds
from fedce.federation.plan import Participants

METHODS = {"fedavg": 7, "fedce": 7, "fedci": 2, "cgsv": 7, "qfedavg": 7}
"""Rounds that are measured, after the first, which has no earlier model to compare with."""


def round_seconds(participants: Participants, name: str) -> float:
    algorithm = algorithms.make(name, {"local_lr": 1e-3} if name == "qfedavg" else {})
    participants.algorithm = algorithm
    seconds = []
    with tempfile.TemporaryDirectory() as folder, LocalEngine(participants, Path(folder), 1) as engine:
        start = process_time()
        for _ in islice(rounds(algorithm, participants.initial_state(), engine, METHODS[name] + 1), METHODS[name] + 1):
            seconds.append(process_time() - start)
            start = process_time()
    return median(seconds[1:])


def measure(repeats: int) -> list[Figure]:
    torch.set_num_threads(1)
    config = parse({"data": {"source": "fundus6", "scale": "demo"}})
    participants = Participants(config, load_sites(config.data))
    round_seconds(participants, "fedavg")
    found = [{name: round_seconds(participants, name) for name in METHODS} for _ in range(repeats)]
    goals = {"fedce": 1.05}
    return [
        Figure(f"{name} / fedavg, a round", [one[name] / one["fedavg"] for one in found], at_most=goals.get(name))
        for name in METHODS
        if name != "fedavg"
    ]


if __name__ == "__main__":
    main(__doc__, measure, repeats=5)
