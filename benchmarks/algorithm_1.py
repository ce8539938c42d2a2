"""Algorithm 1 of the paper to the letter, compared with fedce's FedCE (D1, D3): what each line does to the shares.

python -m benchmarks.algorithm_1 [--data fundus6] [--scale demo] [--rounds 15] [--seed 0] [--store runs/store]

Line 10 subtracts this round's local update from last round's global one; line 12 subtracts this round's local model
from the model that was sent. Neither is a part of what it is subtracted from, so neither result has a meaning.
"""

import argparse
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from fedce.algorithms.fedce import FedCE
from fedce.base.config import Config, parse
from fedce.core.algorithm import Aggregated, Answers, State, hyperparameters
from fedce.core.messages import Reply, Task
from fedce.core.params import Params, Vector, cosine, leave_out
from fedce.core.site import Memory, Site, train
from fedce.questions.jobs import Store

LINES = {
    "FedCE": None,
    "line 10 to the letter": "10",
    "line 12 to the letter": "12",
    "both to the letter": "both",
}


@dataclass(frozen=True)
class Before:
    """The state that the server keeps: the model of the previous round."""

    trainable: Vector


@hyperparameters
class AlgorithmOne(FedCE):
    """FedCE with lines 10 and 12 as printed; Algorithm 1 does not define a first round, so that is FedCE's."""

    lines: Literal["10", "12", "both"] = "both"

    def initial_own(self, params: Params) -> Before:
        return Before(params.trainable)

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        if self.lines == "10":
            return super().local(site, task, memory)
        reply, after = train(site, task, memory)
        if task.rho is None or reply.params is None:
            return reply, after
        return replace(reply, error_without=1.0 - site.score(leave_out(task.params, task.rho, reply.params))), after

    def novelty(self, state: State, answers: Answers, without: Collection[str] = ()) -> dict[str, float]:
        if self.lines == "12" or not state.rho:
            return super().novelty(state, answers, without)
        common = state.params.trainable - state.own.trainable
        result = {}
        for reply in answers:
            delta = reply.params.trainable - state.params.trainable
            similarity = cosine(delta, common - np.float32(state.rho[reply.site]) * delta)
            result[reply.site] = 1.0 - (similarity or 0.0)
        return result

    def aggregate(self, state: State, answers: Answers, rho: Mapping[str, float]) -> Aggregated:
        return replace(super().aggregate(state, answers, rho), own=Before(state.params.trainable))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="fundus6")
    parser.add_argument("--scale", default="demo")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", type=Path, default=Path("runs/store"))
    options = parser.parse_args()

    def config(lines: str | None) -> Config:
        letter = {"name": "benchmarks.algorithm_1:AlgorithmOne", "lines": lines}
        return parse(
            {
                "seed": options.seed,
                "rounds": options.rounds,
                "guard": "off",
                "data": {"source": options.data, "scale": options.scale},
                "algorithm": letter if lines else {"name": "fedce"},
            }
        )

    results = Store(options.store, print).run([config(lines) for lines in LINES.values()])
    sites = list(results[0].contributions)
    print("| shares, % |", " | ".join(sites), "|\n|---|" + "--:|" * len(sites))
    for name, result in zip(LINES, results, strict=True):
        print(f"| {name} |", " | ".join(f"{100 * result.contributions[site]:.1f}" for site in sites), "|")


if __name__ == "__main__":
    main()
