"""A round of the local engine over a plain PyTorch loop that does the same work, with one worker and with two.

The loop is FedCE as one would write it in a script (benchmarks/contestants/bare_loop.py): networks and optimizers of
each site, state dicts, the same batches, the same two validations a round, no records. fundus6, whose sites are as
unequal as the paper's. All runs take turns in this process, so that the machine's load cancels; a run's figure is its
median round, ledger and checkpoints included.

The largest site limits what two workers can reach: a round can't end before its largest site.

    python -m benchmarks.overhead [--repeats 5]
"""

import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from benchmarks.contestants.bare_loop import Loop
from benchmarks.contestants.work import Part, Site
from benchmarks.figures import Figure, main
from monai.networks.nets import UNet

import fedce
from fedce.federation.session import Observer
from fedce.record.folder import RunFolder

N_ROUNDS = 10


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


def loop(sites: fedce.Sites, n_workers: int) -> float:
    made = Loop(sites_of(sites), lambda: network_for(sites), n_workers)
    return median(made.run(N_ROUNDS)[1:])  # The first round warms caches and has no second validation.


def engine(sites: fedce.Sites, n_workers: int) -> tuple[float, float]:
    """Seconds of a round; and the most that two workers could gain over one, by the seconds of each site."""
    ends: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        observer = Observer(start=lambda *_: ends.append(perf_counter()), round=lambda _: ends.append(perf_counter()))
        settings = {"recipe": "small", "engine.workers": n_workers}
        fedce.run(sites, rounds=N_ROUNDS, out=out, progress=observer, settings=settings)
        rounds = [[facts.seconds for facts in done.sites.values()] for done in RunFolder(out).rounds()]
    possible = median(sum(seconds) / max(sum(seconds) / 2, max(seconds)) for seconds in rounds[1:])
    return median(after - before for before, after in pairwise(ends[1:])), possible


def measure(repeats: int) -> list[Figure]:
    torch.set_num_threads(1)
    sites = fedce.load_sites("fundus6", scale="demo")
    engine(sites, 1)
    found: list[dict[str, float]] = []
    for _ in range(repeats):
        one, possible = engine(sites, 1)
        found.append(
            {
                "loop 1": loop(sites, 1),
                "engine 1": one,
                "loop 2": loop(sites, 2),
                "engine 2": engine(sites, 2)[0],
                "possible": possible,
            }
        )

    def ratio(above: str, below: str) -> list[float]:
        return [run[above] / run[below] for run in found]

    return [
        Figure("engine / plain loop, one worker", ratio("engine 1", "loop 1"), at_most=1.03),
        Figure("engine / plain loop in two processes, two workers", ratio("engine 2", "loop 2"), at_most=1.10),
        Figure("one worker / two workers, unequal sites", ratio("engine 1", "engine 2"), at_least=1.8),
        Figure("the most that could be, by the sites' own seconds", [run["possible"] for run in found]),
        Figure("plain loop: one process / two", ratio("loop 1", "loop 2")),
        Figure("a round of the engine, one worker", [run["engine 1"] for run in found], "s"),
    ]


if __name__ == "__main__":
    main(__doc__, measure, repeats=5)
