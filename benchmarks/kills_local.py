"""Random kills on the local engine: the resumed run gives the same bits, whatever was killed at any time.

    python benchmarks/kills_local.py --kills 200

Each kill is SIGKILL to the run's process or to one of its workers, after a random time. The run is then resumed, with
another number of workers, and killed again, until it gets to its end; a new run begins, until there were enough kills.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any

import torch

from fedce.base.config import Config, parse
from fedce.base.errors import EngineError
from fedce.core.messages import Task
from fedce.data import Sites, load_sites
from fedce.engines.shared import die_with_parent
from fedce.engines.starting import execute, resume
from fedce.federation.plan import Participants, resolve
from fedce.record.folder import RunFolder
from fedce.record.verify import verify

LIMIT = 120.0
"""A run that takes more seconds counts as hanging."""
STOPPED = 3


@dataclass
class Tally:
    """Counts of kills and runs."""

    runs: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    rounds: Counter[int] = field(default_factory=Counter)
    """Rounds in the ledger when it was killed."""


def torture(
    kills: int,
    seed: int,
    folder: Path,
    rounds: int = 6,
    model: Mapping[str, Any] = MappingProxyType({}),
    data: Mapping[str, Any] = MappingProxyType({}),
) -> Tally:
    """Kill `kills` times; an AssertionError says what was lost."""
    from benchmarks.bits import same

    torch.set_num_threads(1)
    rng = random.Random(seed)
    config = parse({"rounds": rounds, "data": {"scale": "tiny", **data}, "model": dict(model)})
    sites = load_sites(config.data)
    # Imports and a first step take seconds; processes that are forked later have them.
    warm = Participants(resolve(config), sites)
    warm.perform(Task("site1", 0, warm.learner.params), None)
    began = monotonic()
    whole = _finished(folder / "whole", config, sites)
    duration = monotonic() - began
    tally = Tally()
    while tally.kills.total() < kills:
        out = folder / f"run-{tally.runs}"
        while not RunFolder(out).results_file.exists():
            _live_and_die(out, config, sites, rng, duration, tally)
        assert same(whole, out), f"{out} differs from the run without kills"
        verdict = verify(RunFolder(out))
        assert verdict.sound, verdict.problems
        tally.runs += 1
    return tally


def _finished(out: Path, config: Config, sites: Sites) -> Path:
    process = _start(out, config, sites, 2, 20.0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    return out


def _start(out: Path, config: Config, sites: Sites, workers: int, checkpoint_seconds: float) -> int:
    """The run in a process of its own, from its beginning or from where it stopped."""
    if process := os.fork():
        return process
    code = 1
    try:
        die_with_parent()
        os.setpgid(0, 0)
        with Path(os.devnull).open("w") as quiet, redirect_stdout(quiet), redirect_stderr(quiet):
            # A folder without a complete configuration does not hold a run yet.
            if RunFolder(out).config_file.exists():
                resume(out, workers=workers, sites=sites, report=False)
            else:
                engine = {"workers": workers, "checkpoint_seconds": checkpoint_seconds}
                own = config.model_copy(update={"engine": config.engine.model_copy(update=engine)})
                execute(own, out, sites=sites, report=False)
        code = 0
    except EngineError:  # A worker of it was killed.
        code = STOPPED
    finally:
        os._exit(code)


def _live_and_die(out: Path, config: Config, sites: Sites, rng: random.Random, duration: float, tally: Tally) -> None:
    workers, interval = rng.choice([1, 2]), rng.choice([0.0, 0.1, 20.0])
    process = _start(out, config, sites, workers, interval)
    end, limit = monotonic() + rng.uniform(0, 1.5 * duration), monotonic() + LIMIT
    ended = 0
    while monotonic() < end and not ended:
        ended, status = os.waitpid(process, os.WNOHANG)
        sleep(0.001)
    if not ended:
        children = _children(process)
        victim = rng.choice([process, *children])
        tally.kills["a worker" if victim in children else "the run"] += 1
        tally.rounds[len(RunFolder(out).rounds()) if out.exists() else 0] += 1
        _kill(victim)
        while not ended:
            assert monotonic() < limit, f"{out} hangs after a kill"
            ended, status = os.waitpid(process, os.WNOHANG)
            sleep(0.001)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, STOPPED, -signal.SIGKILL), f"{out} ended with {code}"


def _children(process: int) -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):  # It may have ended already.
        os.kill(process, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    began = monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tally = torture(options.kills, options.seed, Path(folder), options.rounds)
    what = ", ".join(f"{n} of {victim}" for victim, n in sorted(tally.kills.items()))
    print(f"{tally.kills.total()} kills ({what}) in {tally.runs} runs, all resumed to the same bits, ledgers sound")
    print("rounds in the ledger when killed: " + ", ".join(f"{n}: {tally.rounds[n]}" for n in sorted(tally.rounds)))
    print(f"{monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
