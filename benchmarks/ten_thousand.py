"""Ten thousand sites on one server, a hundred drawn for each round: seconds and memory of the real loop.

The sites are cheap (benchmarks/participation.py) and made when they are asked, so that the memory is the server's: the
common model, a round's replies, and what the loop, the guard and FedCE keep of every site that they have met. Each site
is asked at least once. State is what a checkpoint holds after the last round.

    python -m benchmarks.ten_thousand [--repeats 1]
"""

import resource
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from benchmarks.figures import Figure, main
from benchmarks.participation import RARE, CheapSite

from fedce.algorithms import FedCE
from fedce.core.draw import Draw
from fedce.core.messages import Reply, Task
from fedce.core.params import Entry, Layout, Params
from fedce.core.site import Memory
from fedce.federation.asking import Rules
from fedce.federation.checkpoint import save_state
from fedce.federation.loop import rounds
from fedce.guard import Guarded
from fedce.site.hospital import perform

N_SITES, N_DRAWN, N_ROUNDS, N_WEIGHTS = 10_000, 100, 150, 100_000
LAYOUT = Layout((Entry("w", (N_WEIGHTS,), "trainable"),))


class Cheap:
    """An engine whose sites are made when they are asked; only those of the last round remember their model."""

    def __init__(self, algorithm: FedCE, seed: int) -> None:
        self.algorithm, self.seed = algorithm, seed
        self.common = np.random.default_rng(seed).normal(0, 1, N_WEIGHTS)
        self.memories: dict[str, Memory | None] = {}

    def sites(self, known: Sequence[str]) -> tuple[str, ...]:
        return tuple(known)

    def here(self, sites: Sequence[str]) -> tuple[str, ...]:
        return tuple(sites)

    def ask(self, tasks: Sequence[Task]) -> list[Reply]:
        done = [perform(self.algorithm, self._site(task.site), task, self.memories.get(task.site)) for task in tasks]
        self.memories = {reply.site: memory for reply, memory in done}
        return [reply for reply, _ in done]

    def _site(self, name: str) -> CheapSite:
        rng = np.random.default_rng([self.seed, int(name)])
        own = rng.normal(0, 1.0 if int(name) % RARE == 0 else rng.uniform(0.2, 0.6), N_WEIGHTS)
        return CheapSite(name, (self.common + own).astype(np.float32), self.seed)


def measure(repeats: int) -> list[Figure]:
    seconds, sizes = [], []
    for seed in range(repeats):
        engine = Cheap(Guarded(FedCE()), seed)
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
