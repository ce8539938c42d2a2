"""Random kills of sites and of the coordinator on Flower: every run must end, and no site's credit may be lost.

    python benchmarks/kills.py --kills 20 --rounds 10

Each kill is SIGKILL to a SuperNode or to the SuperLink, with everything that it started, at a random moment; after a
random pause it is started again, as a service manager would. The coordinator's app is then submitted again.
"""

import argparse
import os
import random
import signal
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from fedce.base.config import load
from fedce.data import load_sites
from fedce.engines.flower.launch import QUIET, Federation, write_app
from fedce.engines.launching import Programs
from fedce.record.folder import RunFolder
from fedce.record.verify import verify

LIMIT = 600.0
"""A run that takes more seconds counts as hanging."""
KILLS_A_RUN = 5


class Coordinator:
    """A federation on this machine, with a keeper that starts killed programs again."""

    def __init__(self, folder: Path, changes: Mapping[str, Any]) -> None:
        self.out, self.app = folder / "run", folder / "app"
        config = load(None, {"engine.name": "flower", **changes})
        self.sites = [site.name for site in load_sites(config.data)]
        members = config.engine.members or dict.fromkeys(self.sites, "")
        engine = config.engine.model_copy(update={"members": members})
        write_app(config.model_copy(update={"engine": engine}), self.app, str(self.out), "benchmarks/kills.py")
        self.programs = Programs(folder / "logs", QUIET)
        self.federation = Federation(self.programs, folder / "engine", self.sites, config.data.source)

    @property
    def finished(self) -> bool:
        return (self.out / "results.json").exists()

    @property
    def n_rounds(self) -> int:
        return len(RunFolder(self.out).rounds())

    def wait(self, done: Callable[["Coordinator"], bool] = lambda self: self.finished) -> None:
        end = monotonic() + LIMIT
        while not done(self):
            assert monotonic() < end, f"it hangs: {self.programs.tail('superlink')}"
            sleep(0.1)

    def kill(self, name: str) -> None:
        process = self.programs.running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def restart(self, name: str) -> None:
        if name == "superlink":
            self.federation.start_superlink()
            self.federation.submit(self.app)
        else:
            self.federation.start_supernode(name.removeprefix("supernode-"))


def check_credit(run: RunFolder) -> None:
    """Every round once, weights that sum to 1, and shares that follow from the ledger's signed terms."""
    assert verify(run).problems == ()
    assert [done.round_no for done in run.rounds()] == list(range(run.results["rounds"]))
    for done in run.rounds():
        assert abs(sum(facts.weight for facts in done.sites.values()) - 1) < 1e-9


def one_run(folder: Path, changes: Mapping[str, Any], n_kills: int, rng: random.Random) -> tuple[list[str], int]:
    """A run with `n_kills` kills; returns what was killed when, and in how many rounds a site was missing."""
    made = Coordinator(folder, changes)
    killed = []
    with made.programs:
        made.federation.start()
        made.federation.submit(made.app)
        n_rounds = load(made.app / "fedce_app" / "experiment.toml").n_rounds
        for i in range(n_kills):
            # Spread over the run, at any moment of a round.
            made.wait(lambda self, i=i: self.finished or self.n_rounds > i * n_rounds // (n_kills + 1))
            sleep(rng.uniform(0, 6))
            name = rng.choice(["superlink", *(f"supernode-{site}" for site in made.sites)])
            if made.finished:
                break
            killed.append(f"{name} after round {made.n_rounds}")
            made.kill(name)
            sleep(rng.uniform(0, 5))
            made.restart(name)
        made.wait()
    run = RunFolder(made.out)
    check_credit(run)
    return killed, sum(len(done.sites) < len(made.sites) for done in run.rounds())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(10**6)
    rng, n_killed, n_runs = random.Random(seed), 0, 0
    changes = {"data.scale": "tiny", "data.sites": ["site1", "site2", "site3"], "rounds": given.rounds}
    print(f"seed {seed}")
    while n_killed < given.kills:
        with tempfile.TemporaryDirectory() as folder:
            began = monotonic()
            n_kills = min(KILLS_A_RUN, given.kills - n_killed)
            killed, n_short = one_run(Path(folder), changes, n_kills, rng)
            n_killed, n_runs = n_killed + len(killed), n_runs + 1
            seconds = monotonic() - began
            print(f"run {n_runs}: {len(killed)} kills, {seconds:.0f} s, {n_short} rounds with absent sites", flush=True)
            print("  " + "; ".join(killed), flush=True)
    print(f"{n_killed} kills in {n_runs} runs of {given.rounds} rounds: all ended, no credit was lost or doubled")


if __name__ == "__main__":
    main()
