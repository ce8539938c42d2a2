"""The same federated job end to end: six sites of 40 training images, 64x64, ten rounds, from a command to its end.

`fedce run` as a user calls it (records, checkpoints and report included) beside a bare loop of FedCE in two processes,
FedAvg in Flower's simulation, which is less work, and NVFlare's own FedCE in its simulator. All read the same folder
with the same network, loss and batches, on two cores; a repeat runs one after another. Then a large job, once.
Memory is the proportional share (PSS) of all processes together. Linux only; Flower's simulation needs ray==2.55.1.

    python -m benchmarks.job [--repeats 3]
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from math import ceil
from pathlib import Path
from statistics import mean
from time import monotonic

import psutil
from benchmarks.contestants.given import SITES, Given, Job
from benchmarks.figures import Figure, main
from benchmarks.photographs import write_sites

ROOT = Path(__file__).parents[1]
SMALL = Job()
LARGE = Job(size=128, channels=(32, 64, 128, 256), res_units=2, rounds=3)
BATCH = 8
N_CORES = 2
PATIENCE = 240.0
"""A contestant without a new note for this many seconds counts as hanging."""
PR_SET_CHILD_SUBREAPER = 36
Notes = Sequence[Mapping[str, float]]


class Hangs(RuntimeError):
    """A contestant that makes no progress any more."""


@dataclass(frozen=True)
class Contestant:
    """A command that does the job."""

    name: str
    command: Callable[[Given], list[str]]
    environment: Mapping[str, str]
    """{out} stands for the folder of the measurement."""
    notes: Callable[[Path], Notes]
    """Reads what the contestant's sites did, in the order of rounds."""
    attempts: int = 1


@dataclass(frozen=True)
class Measured:
    seconds: float
    megabytes: float
    """The largest sum over the contestant's processes at one time."""
    n_processes: int


def our_command(given: Given) -> list[str]:
    job = given.job
    options = [f"model.channels={list(job.channels)}", f"model.res_units={job.res_units}"]
    changes = [f"--set={option}" for option in options]
    where = ["--data", str(given.data), "--out", str(given.out)]
    return [
        sys.executable,
        "-m",
        "fedce",
        "run",
        *where,
        "--rounds",
        str(job.rounds),
        "--set",
        "recipe=small",
        *changes,
    ]


def our_notes(out: Path) -> Notes:
    ledger = [json.loads(line) for line in (out / "ledger.jsonl").read_text().splitlines()]
    sites = [site for line in ledger if line["kind"] == "round" for site in line["sites"].values()]
    rounds = [{"dice": one["score"], "loss": one["loss"], "steps": ceil(one["n_train"] / BATCH)} for one in sites]
    return [*rounds, *({"test": dice} for dice in json.loads((out / "results.json").read_text())["dice"].values())]


def script(name: str) -> Callable[[Given], list[str]]:
    return lambda _: [sys.executable, "-m", f"benchmarks.contestants.{name}"]


def notes_by_site(out: Path) -> Notes:
    by_site = [[json.loads(line) for line in (out / f"{site}.jsonl").read_text().splitlines()] for site in SITES]
    return [line for lines in zip(*by_site, strict=True) for line in lines]


ONE_THREAD = {"OMP_NUM_THREADS": "1"}
QUIET_FLOWER = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "FLWR_HOME": "{out}.flwr"}
# A cache of its own for each measurement, so that decoding is part of it.
OURS = Contestant("ours", our_command, {"FEDCE_CACHE": "{out}.cache", "FEDCE_KEY": "{out}.pem"}, our_notes)
BARE = Contestant("bare loop", script("bare_loop"), ONE_THREAD, notes_by_site)
FLOWER = Contestant("Flower's simulation", script("flower_simulation"), ONE_THREAD | QUIET_FLOWER, notes_by_site)
# NVFlare's simulator sometimes waits for ever for its own clients (1 of 11 starts).
NVFLARE = Contestant("NVFlare's simulator", script("nvflare_recipe"), ONE_THREAD, notes_by_site, attempts=3)


class Meter:
    """Measures all processes that this one has started, directly or not, until the command's process ends."""

    LOOK_SECONDS = 0.2
    # To find a process's share the kernel walks all of its pages, which takes about 10 ms. Measuring may take the first
    # part of a core while the processes grow, and the second part otherwise.
    COST_OF_GROWTH, COST_OF_REST = 0.1, 0.02
    GROWTH = 1.02

    def __init__(self) -> None:
        self.n_processes, self.kilobytes = 0, 0
        self._largest_resident = 0.0
        self._read_at = self._cost = 0.0

    def look(self) -> None:
        pids = [process.pid for process in psutil.Process().children(recursive=True)]
        resident = [n for pid in pids if (n := resident_pages(pid))]  # A process that has ended holds none.
        self.n_processes = max(self.n_processes, len(resident))
        grows = sum(resident) > self.GROWTH * self._largest_resident
        share = self.COST_OF_GROWTH if grows else self.COST_OF_REST
        if (began := monotonic()) - self._read_at >= self._cost / share:
            self._largest_resident = max(self._largest_resident, sum(resident))
            self.kilobytes = max(self.kilobytes, sum(proportional_kilobytes(pid) for pid in pids))
            self._read_at = monotonic()
            self._cost = self._read_at - began


def resident_pages(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return 0


def proportional_kilobytes(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def last_change(folder: Path) -> int:
    """The newest change of the files in the folder, in nanoseconds."""
    times = [0]
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # A file that is replaced has another name for a moment.
            times.append(path.stat().st_mtime_ns)
    return max(times)


def end_children() -> None:
    """End the processes that a contestant left behind, after they had time to end by themselves."""
    _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=5)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=5)


def watched(command: Sequence[str], environment: Mapping[str, str], out: Path, log: Path) -> Measured:
    """Run a command to its end; nothing that it started outlives this."""
    meter = Meter()
    with log.open("wb") as file:
        began = last_news = monotonic()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, cwd=log.parent
        )
        try:
            newest = last_change(out)
            while process.poll() is None:
                meter.look()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(Meter.LOOK_SECONDS)
                if (latest := last_change(out)) != newest:
                    newest, last_news = latest, monotonic()
                if monotonic() - last_news > PATIENCE:
                    raise Hangs(f"nothing new in {PATIENCE:.0f} s")
            seconds = monotonic() - began
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            end_children()
    if process.returncode != 0:
        end = log.read_text(errors="replace")[-3000:]
        raise RuntimeError(f"{' '.join(command[1:4])} ended with code {process.returncode}:\n{end}")
    return Measured(seconds, meter.kilobytes / 1024, meter.n_processes)


def adopt_orphans() -> None:
    """Adopt processes whose parent ends, so that background processes are counted, and ended."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def check(job: Job, notes: Notes) -> str:
    """Raise unless all of the work was done; returns a summary."""
    n_steps, dice, loss, test = (
        [line[key] for line in notes if key in line] for key in ("steps", "dice", "loss", "test")
    )
    n, n_tasks = len(SITES), job.rounds * len(SITES)
    expected = n_tasks * ceil(job.images / BATCH)
    if (sum(n_steps), len(dice)) != (expected, n_tasks):
        raise RuntimeError(f"{sum(n_steps)} steps and {len(dice)} validations, expected {expected} and {n_tasks}")
    first, last = mean(loss[:n]), mean(loss[-n:])
    if last >= first:
        raise RuntimeError(f"it did not learn: the loss went from {first:.3f} to {last:.3f}")
    dice_of = f"Dice {mean(dice[:n]):.3f} to {mean(dice[-n:]):.3f}" + (f", test {mean(test):.3f}" if test else "")
    return f"{expected} steps, loss {first:.3f} to {last:.3f}, {dice_of}"


def run(contestant: Contestant, job: Job, data: Path, folder: Path) -> Measured:
    """Measure one contestant; a start that hangs is repeated, and only the one that ends counts."""
    for attempt in count(1):
        out = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
        given = Given(job, data, out)
        own = {key: value.format(out=out) for key, value in contestant.environment.items()}
        paths = {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        }
        try:
            measured = watched(
                contestant.command(given), {**os.environ, **paths, **own, **given.environment}, out, Path(f"{out}.log")
            )
            break
        except Hangs as error:
            print(f"{contestant.name}, attempt {attempt}: {error}", file=sys.stderr)
            if attempt == contestant.attempts:
                raise
    result = check(job, contestant.notes(out))
    print(
        f"{job.size}x{job.size}, {contestant.name}: {measured.seconds:.1f} s, {measured.megabytes:.0f} MB, "
        f"{measured.n_processes} processes; {result}",
        file=sys.stderr,
        flush=True,
    )
    return measured


def repeated(job: Job, contestants: Sequence[Contestant], repeats: int, folder: Path) -> list[dict[str, Measured]]:
    """Measure all contestants in each repeat, one after another."""
    data = folder / f"data{job.size}"
    write_sites(data, SITES, 2 * job.images, job.size)  # Half of them train, as in fedce's default split.
    return [{one.name: run(one, job, data, folder) for one in contestants} for _ in range(repeats)]


def ratio(repeats: Sequence[Mapping[str, Measured]], above: Contestant, below: Contestant) -> list[float]:
    """Ratios of two contestants' seconds, within each repeat."""
    return [one[above.name].seconds / one[below.name].seconds for one in repeats]


def measure(repeats: int) -> list[Figure]:
    adopt_orphans()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:N_CORES])  # Whatever is started inherits it.
    rivals = [FLOWER, NVFLARE]
    if find_spec("ray") is None:
        print("Flower's simulation is left out: ray can't be imported (pip install ray==2.55.1)", file=sys.stderr)
        rivals.remove(FLOWER)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        small = repeated(SMALL, [OURS, BARE, *rivals], repeats, Path(folder))
        large = repeated(LARGE, [OURS, *rivals], 1, Path(folder))
    figures = [Figure("ours / bare two-process loop", ratio(small, OURS, BARE), at_most=1.15)]
    goals = {FLOWER.name: 2.5, NVFLARE.name: 5.0}
    figures += [Figure(f"{one.name} / ours", ratio(small, one, OURS), at_least=goals[one.name]) for one in rivals]
    figures += [Figure(f"{one.name} / ours, large job", ratio(large, one, OURS), at_least=1) for one in rivals]
    for done, suffix in ((small, ""), (large, ", large job")):
        for name in done[0]:
            of_one = [one[name] for one in done]
            at_most = 800 if name == OURS.name and done is small else None
            megabytes = [one.megabytes for one in of_one]
            figures += [
                Figure(f"{name}, peak memory{suffix}", megabytes, "MB", at_most=at_most),
                Figure(f"{name}, wall time{suffix}", [one.seconds for one in of_one], "s"),
                Figure(f"{name}, most at a time{suffix}", [one.n_processes for one in of_one], "processes"),
            ]
    return figures


if __name__ == "__main__":
    main(__doc__, measure, repeats=3)
