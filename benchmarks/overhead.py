"""A round of the local engine over a plain PyTorch loop that does the same work, with one worker and with two.

The loop is FedCE as one would write it in a script (benchmarks/contestants/bare_loop.py): networks and optimizers of
each site, state dicts, the same batches, the same two validations a round, no records, no guard, no ballots. The engine
does the same, and once more with the guard. fundus6, whose sites are as unequal as the paper's. All take turns, so that
the machine's load cancels. The loop has a process of its own, because the engine changes how its process keeps memory.
A run's figure is its median round, ledger and checkpoints included: seconds, and with one worker CPU seconds.

The largest site limits what two workers can reach: a round can't end before its largest site.

    python -m benchmarks.overhead [--repeats 5]
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import torch
from benchmarks.contestants.bare_loop import Loop
from benchmarks.contestants.work import Part, Site
from benchmarks.figures import Figure, main
from monai.networks.nets import UNet

import fedce
from fedce.federation.session import Observer
from fedce.record.folder import RunFolder

ROUNDS = {64: 10, 128: 4, 256: 3}
"""Rounds of a run, by the size of the images."""
SITE_NORM = {"model.norm": "site"}
"""Then no running statistics come to the server, which the guard would try out on the sites' images."""


def sites_at(size: int) -> fedce.Sites:
    return fedce.load_sites("fundus6", scale="demo", size=size)


def clock_for(n_workers: int) -> Callable[[], float]:
    """CPU seconds of one process are not those that other programs take."""
    return process_time if n_workers == 1 else perf_counter


def sites_of(sites: fedce.Sites) -> dict[str, Site]:
    """The images in the form that the loop uses."""

    def part(data, rows) -> Part:
        return Part(torch.tensor(data.images[rows]), torch.tensor(data.masks[rows]).bool())

    return {
        data.name: Site(*(part(data, getattr(data.split, name)) for name in ("train", "validation", "test")))
        for data in sites
    }


def network_for(sites: fedce.Sites):
    torch.manual_seed(0)
    return UNet(2, sites.n_channels, len(sites.classes), (16, 32, 64, 128), (2, 2, 2), norm="batch")


def looped(size: int, n_workers: int) -> float:
    """Seconds of a round of the loop in this process."""
    torch.set_num_threads(1)
    sites = sites_at(size)
    made = Loop(sites_of(sites), lambda: network_for(sites), n_workers, clock=clock_for(n_workers))
    rounds = made.run(ROUNDS[size])
    return median(rounds[1:])  # The first round warms caches and has no second validation.


def loop(size: int, n_workers: int) -> float:
    """The same in a process of its own, with the memory of any other program."""
    code = f"from benchmarks.overhead import looped; print(looped({size}, {n_workers}))"
    env = {key: value for key, value in os.environ.items() if key != "THP_MEM_ALLOC_ENABLE"}
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env).stdout
    return float(json.loads(shown.splitlines()[-1]))


def engine(size: int, n_workers: int, **settings: object) -> tuple[float, float]:
    """Seconds of a round; and the most that two workers could gain over one, by the seconds of each site."""
    ends: list[float] = []
    clock, sites = clock_for(n_workers), sites_at(size)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        observer = Observer(start=lambda *_: ends.append(clock()), round=lambda _: ends.append(clock()))
        usual = {"recipe": "small", "engine.workers": n_workers, "worth.every": 0, "guard": "off"}
        fedce.run(sites, rounds=ROUNDS[size], out=out, progress=observer, settings={**usual, **settings})
        rounds = [[facts.seconds for facts in done.sites.values()] for done in RunFolder(out).rounds()]
    possible = median(sum(seconds) / max(sum(seconds) / 2, max(seconds)) for seconds in rounds[1:])
    return median(after - before for before, after in pairwise(ends[1:])), possible


def measure(repeats: int) -> list[Figure]:
    torch.set_num_threads(1)
    engine(64, 1)
    found: list[dict[str, float]] = []
    for _ in range(repeats):
        one, possible = engine(64, 1)
        sizes = {f"{what} {size}": run(size) for size in (128, 256) for what, run in ONE_WORKER.items()}
        found.append(
            {
                "loop 1": loop(64, 1),
                "engine 1": one,
                "loop 2": loop(64, 2),
                "engine 2": engine(64, 2)[0],
                "possible": possible,
                "guarded": engine(64, 1, guard="standard")[0],
                "site norm": engine(64, 1, **SITE_NORM)[0],
                "site norm, guarded": engine(64, 1, guard="standard", **SITE_NORM)[0],
                **sizes,
            }
        )

    def ratio(above: str, below: str) -> list[float]:
        return [run[above] / run[below] for run in found]

    return [
        Figure("engine / plain loop, one worker", ratio("engine 1", "loop 1"), at_most=1.03),
        Figure("the same, images of 128x128", ratio("engine 128", "loop 128"), at_most=0.75),
        Figure("the same, images of 256x256", ratio("engine 256", "loop 256"), at_most=0.75),
        Figure("engine / plain loop in two processes, two workers", ratio("engine 2", "loop 2"), at_most=1.10),
        Figure("one worker / two workers, unequal sites", ratio("engine 1", "engine 2"), at_least=1.8),
        Figure("guard / no guard, site norm", ratio("site norm, guarded", "site norm"), at_most=1.10),
        Figure("guard / no guard, batch norm, a run's first rounds", ratio("guarded", "engine 1"), at_most=1.10),
        Figure("the most that could be, by the sites' own seconds", [run["possible"] for run in found]),
        Figure("plain loop: one process / two", ratio("loop 1", "loop 2")),
        Figure("a round of the engine, one worker", [run["engine 1"] for run in found], "s"),
    ]


ONE_WORKER = {"loop": lambda size: loop(size, 1), "engine": lambda size: engine(size, 1)[0]}


if __name__ == "__main__":
    main(__doc__, measure, repeats=5)
