"""What a round costs the server, as sites and parameters grow: seconds over one plain pass through the models, memory.

The step is everything between the last reply and the next task: checks of the replies, Eqs. 2 to 6, the guard,
aggregation. A pass is reading all replies' models once, as a sum does, at this machine's memory bandwidth. Memory is
what the process itself holds (anonymous pages): models beyond half a GiB lie in a file, whose pages the kernel may take
back. Each case is a process of its own, limited to 2 GiB of such memory if that is the goal.

    python -m benchmarks.server [--repeats 3]
"""

import json
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

import numpy as np
from benchmarks.figures import Figure, main
from scipy.optimize import nnls

from fedce.algorithms import guarded, make
from fedce.core.messages import Reply, Task
from fedce.core.params import Entry, Layout, Params
from fedce.engines.shared import Shelf
from fedce.federation.loop import rounds

MILLION = 10**6
LIMIT = 2 * 2**30
SITES = (3, 10, 30, 100, 300, 1000)
PARAMETERS = (1, 10, 100)
"""Numbers of parameters in millions, for three sites."""
PIECE = 2**16


class Replies:
    """An engine whose sites answer at once, with the sum of a common direction and one of their own."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.seconds = 0.0

    def sites(self, known: Sequence[str]) -> tuple[str, ...]:
        return tuple(known)

    def ask(self, tasks: Sequence[Task]) -> list[Reply]:
        start = perf_counter()
        self.shelf.clear()
        replies = [self._reply(task) for task in tasks]
        self.seconds += perf_counter() - start
        return replies

    def _reply(self, task: Task) -> Reply:
        rng = np.random.default_rng([task.round_no, int(task.site)])
        common = np.random.default_rng(task.round_no).normal(0, 1e-3, PIECE)
        # Repeated pieces, because drawing a billion numbers would take longer than the measurement.
        piece = (common + rng.normal(0, 1e-3, PIECE)).astype(np.float32)
        vector = task.params.vector + np.resize(piece, task.params.layout.size)
        novelty = None if task.rho is None else 1.0
        error = None if task.rho is None else 0.5
        model = Params(task.params.layout, self.shelf.keep(vector))
        return Reply(task.site, task.round_no, 40, model, score=0.5, error_without=error, novelty=novelty)


@dataclass(frozen=True)
class Case:
    n_sites: int
    n_parameters: int
    estimate: str = "server"
    guard: str = "standard"
    n_rounds: int = 2
    is_limited: bool = False


def measured(case: Case) -> tuple[float, float, float]:
    """Measured in a process of its own: the last round's seconds over a pass's, its seconds, and peak memory in MB."""
    command = [sys.executable, "-m", "benchmarks.server", "--case", json.dumps(case.__dict__)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    ratio, seconds, peak = json.loads(ended.stdout)
    return ratio, seconds, peak


def run(case: Case) -> tuple[float, float, float]:
    if case.is_limited:
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    layout = Layout((Entry("w", (case.n_parameters,), "trainable"),))
    sites = tuple(f"{i:04d}" for i in range(case.n_sites))
    algorithm = guarded(make("fedce", {"estimate": case.estimate}), case.guard)
    state = algorithm.begin(sites, Params(layout, np.zeros(layout.size, np.float32)))
    seconds = 0.0
    with tempfile.TemporaryDirectory() as folder, Shelf(Path(folder)) as shelf, _Peak() as peak:
        engine = Replies(shelf)
        for done in rounds(algorithm, state, engine, case.n_rounds):
            seconds, engine.seconds = done.seconds - engine.seconds, 0.0
        replies = engine.ask([algorithm.task(done.state, site) for site in done.state.sites])
        start = perf_counter()
        for reply in replies:
            assert reply.params is not None
            reply.params.vector.sum()
        a_pass = perf_counter() - start
    return seconds / a_pass, seconds, peak.megabytes


class _Peak:
    """The most anonymous memory that this process has held, measured fifty times a second."""

    def __enter__(self) -> "_Peak":
        self.megabytes, self._ended = 0.0, False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended = True
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended:
            status = Path("/proc/self/status").read_text()
            own = next(line for line in status.splitlines() if line.startswith("RssAnon"))
            self.megabytes = max(self.megabytes, int(own.split()[1]) / 1024)
            sleep(0.02)


TERMS = {
    "ns a site and parameter": (1e9, lambda n, d: n * d),
    "ns a pair of sites and parameter": (1e9, lambda n, d: n * n * d),
    "us a pair of sites": (1e6, lambda n, d: n * n),
    "ms a site": (1e3, lambda n, d: n),
}


def fitted(seconds: Mapping[tuple[int, int], float]) -> list[Figure]:
    """The guarded step's seconds, fitted by relative errors as a sum of non-negative terms in sites and parameters."""
    rows = np.array([[term(n, d) for _, term in TERMS.values()] for n, d in seconds], float)
    values = np.array(list(seconds.values()))
    found, _ = nnls(rows / values[:, None], np.ones(len(values)))
    worst = float(np.abs(rows @ found / values - 1).max())
    figures = [
        Figure(f"cost model of the step: {what}", [scale * value], what.split()[0])
        for (what, (scale, _)), value in zip(TERMS.items(), found.tolist(), strict=True)
    ]
    return [*figures, Figure("cost model of the step: largest relative error", [worst])]


def measure(repeats: int) -> list[Figure]:
    found = []
    guarded: dict[tuple[int, int], float] = {}

    def add(what: str, case: Case, n: int = repeats) -> list[tuple[float, float, float]]:
        runs = [measured(case) for _ in range(n)]
        if case.guard == "standard" and not case.is_limited:
            guarded[case.n_sites, case.n_parameters] = median(seconds for _, seconds, _ in runs)
        found.append(Figure(f"{what}: step / one pass through the models", [ratio for ratio, _, _ in runs]))
        found.append(Figure(f"{what}: step", [seconds for _, seconds, _ in runs], "s"))
        return runs

    add("6 sites x 7.8 million", Case(6, int(7.8 * MILLION)))
    add("6 sites x 7.8 million, guard off", Case(6, int(7.8 * MILLION), guard="off"))
    for n in SITES:
        add(f"{n} sites x 100,000", Case(n, MILLION // 10))
    for millions in PARAMETERS:
        add(f"3 sites x {millions} million", Case(3, millions * MILLION), 1)
    add("100 sites x 1 million", Case(100, MILLION), 1)
    steps: dict[str, float] = {}
    for what, guard in (("guard off", "off"), ("guarded", "standard")):
        case = Case(1000, MILLION, "site", guard, is_limited=True)
        runs = add(f"1,000 sites x 1 million, estimate at the site, {what}", case, 1)
        steps[guard] = median(seconds for _, seconds, _ in runs)
        peaks = [megabytes for _, _, megabytes in runs]
        found.append(Figure(f"the same, {what}: peak memory, limited to 2 GiB", peaks, "MB", at_most=2048))
    found.append(Figure("the same: step, guarded / guard off", [steps["standard"] / steps["off"]], at_most=2.0))
    return found + fitted(guarded)


if __name__ == "__main__":
    if "--case" in sys.argv:
        print(json.dumps(run(Case(**json.loads(sys.argv[-1])))))
    else:
        main(__doc__, measure, repeats=3)
