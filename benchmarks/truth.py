"""Leave-one-out and exact Shapley values over as many separate trainings.

A separate training is `fedce run`, one command after another on all cores, timed before and after.
`fedce value` forks all coalitions from one warmed process, one core each, and trains their common first round once.
Four sites of fundus6, tiny, ten rounds: leave-one-out needs 5 trainings, Shapley 16 (with the empty coalition).

    python -m benchmarks.truth [--repeats 3]
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from time import perf_counter

from benchmarks.figures import Figure, main

SITES = ["site1", "site2", "site3", "site4"]
EXPERIMENT = f"""
rounds = 10
[data]
source = "fundus6"
scale = "tiny"
sites = {SITES}
"""


def seconds(folder: Path, arguments: Sequence[str]) -> float:
    start = perf_counter()
    command = [sys.executable, "-m", "fedce", *arguments]
    subprocess.run(command, check=True, capture_output=True, cwd=folder, env=dict(os.environ))
    return perf_counter() - start


def measure(repeats: int) -> list[Figure]:
    found = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "four.toml").write_text(EXPERIMENT)
            before = seconds(folder, ["run", "four.toml", "--out", "before"])
            times = {
                method: seconds(folder, ["value", "four.toml", "--method", method, "--store", method])
                for method in ("loo", "shapley")
            }
            one = mean([before, seconds(folder, ["run", "four.toml", "--out", "after"])])
        n = {"loo": len(SITES) + 1, "shapley": 2 ** len(SITES)}
        found.append({method: times[method] / (n[method] * one) for method in times} | {"one": one})
    return [
        Figure("leave-one-out / 5 separate trainings", [run["loo"] for run in found]),
        Figure("exact Shapley values / 16 separate trainings", [run["shapley"] for run in found]),
        Figure("a separate training", [run["one"] for run in found], "s"),
    ]


if __name__ == "__main__":
    main(__doc__, measure, repeats=3)
