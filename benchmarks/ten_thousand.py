"""Ten thousand sites on one server, a hundred drawn for each round: seconds and memory of the real loop.

The sites are cheap (benchmarks/cheap.py) and made when they are asked, so that the memory is the server's: the
common model, a round's replies, and what the loop, the guard and FedCE keep of every site that they have met. Each site
is asked at least once. State is what a checkpoint holds after the last round.

    python -m benchmarks.ten_thousand [--repeats 1]
"""

import resource
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from benchmarks.cheap import CheapSite
from benchmarks.figures import Figure, main
from benchmarks.participation import RARE, Cheap

from fedce.algorithms import FedCE
from fedce.core.draw import Draw
from fedce.core.params import Entry, Layout, Params
from fedce.federation.asking import Rules
from fedce.federation.checkpoint import save_state
from fedce.federation.loop import rounds
from fedce.guard import Guarded

N_SITES, N_DRAWN, N_ROUNDS, N_WEIGHTS = 10_000, 100, 150, 100_000
LAYOUT = Layout((Entry("w", (N_WEIGHTS,), "trainable"),))


def sites_of(seed: int) -> Callable[[str], CheapSite]:
    """Sites that are made when they are asked."""
    common = np.random.default_rng(seed).normal(0, 1, N_WEIGHTS)

    def made(name: str) -> CheapSite:
        rng = np.random.default_rng([seed, int(name)])
        own = rng.normal(0, 1.0 if int(name) % RARE == 0 else rng.uniform(0.2, 0.6), N_WEIGHTS)
        return CheapSite(name, (common + own).astype(np.float32), seed)

    return made


def measure(repeats: int) -> list[Figure]:
    seconds, sizes = [], []
    for seed in range(repeats):
        engine = Cheap(Guarded(FedCE()), sites_of(seed))
        names = tuple(f"{i:05d}" for i in range(N_SITES))
        state = engine.algorithm.begin(names, Params(LAYOUT, np.zeros(N_WEIGHTS, np.float32)))
        taken = []
        for done in rounds(engine.algorithm, state, engine, N_ROUNDS, Rules(draw=Draw(N_DRAWN, seed))):
            state = done.state
            taken.append(done.seconds)
        assert min(state.draws.values()) >= 1, "every site was asked"
        with TemporaryDirectory() as folder:
            save_state(Path(folder) / "state", state)
            sizes.append(sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6)
        seconds.append(median(taken))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Figure("10,000 sites, 100 drawn: peak memory of the process", [peak], "MB", at_most=4096),
        Figure("a round, the cheap sites' own time included", seconds, "s"),
        Figure("the state that a checkpoint holds", sizes, "MB"),
    ]


if __name__ == "__main__":
    main(__doc__, measure, repeats=1)
