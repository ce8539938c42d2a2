"""Records the results of every algorithm to the last bit, and compares: for changes that must not change a number.

Tiny runs of three rounds: every algorithm, guarded and not; a run that was killed and resumed; a run on each engine;
attackers, against which the guard must act as before. Bits differ between machines, so the record is made on the
machine that compares, before the change:

    make golden RECORD=1      writes .golden.json
    make golden               compares with it, and prints what differs
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import sleep
from typing import Any

from click.testing import CliRunner

from fedce.algorithms import ALGORITHMS
from fedce.cli import main as fedce
from fedce.record.folder import RunFolder

TINY = ("--scale", "tiny", "--workers", "1", "--set", "model.channels=[4,8]", "--set", "recipe=small")
READINGS: Mapping[str, Sequence[str]] = {
    "fedce at the sites": ("algorithm.estimate=site",),
    "fedce in NVFlare's order": ("algorithm.preset=nvflare",),
    "fedce by samples": ("algorithm.start=samples",),
    "qfedavg, published step": ("algorithm.name=qfedavg", "algorithm.variant=published"),
    "cffl, published": ("algorithm.name=cffl", "algorithm.variant=published"),
    "cffl that drops": ("algorithm.name=cffl", "algorithm.coef=0.9"),
    "cgsv with rewards": ("algorithm.name=cgsv", "algorithm.variant=rewards"),
    "cgsv, published": ("algorithm.name=cgsv", "algorithm.variant=published"),
    "afl, published": ("algorithm.name=afl", "algorithm.variant=published"),
    "reconstruction": ("reconstruction=true",),
    "one left out": ("leave_out=['site2']",),
    "two of six drawn": ("sites_per_round=2",),
    "free riders looked for": ("freerider.detect=true",),
    "instance norm": ("model.norm=instance",),
    "SGD": ("train.optimizer=sgd", "train.lr=0.05"),
}
ATTACKS = ("zero", "noise", "flip", "replay", "inflate", "sybil", "shift")


def cases() -> Iterator[tuple[str, list[str]]]:
    """Each run's name, and its options beside the tiny settings."""
    for guard in ("standard", "off"):
        for name in ALGORITHMS:
            yield f"{name}, guard {guard}", ["--rounds", "3", *_set(f"algorithm.name={name}", f"guard={guard}")]
        for name, settings in READINGS.items():
            yield f"{name}, guard {guard}", ["--rounds", "3", *_set(*settings, f"guard={guard}")]
    for attack in ATTACKS:
        others = ', site4="sybil"' if attack == "sybil" else ""
        plant = f'freerider.plant={{site2="{attack}"{others}}}'
        yield f"fedce against {attack}", ["--rounds", "8", *_set(plant)]


def _set(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def found_in(folder: Path) -> dict[str, Any]:
    run = RunFolder(folder)
    weights = {site: facts.weight for site, facts in run.rounds()[-1].sites.items()}
    return {"model": run.results["model_sha256"], "shares": run.results["contributions"], "weights": weights}


def trained(arguments: Sequence[str], out: Path) -> dict[str, Any]:
    done = CliRunner().invoke(fedce, ["run", *TINY, *arguments, "--out", str(out)])
    if done.exit_code != 0:
        return {"error": done.output.strip().splitlines()[-1]}
    return found_in(out)


def killed_and_resumed(out: Path) -> dict[str, Any]:
    """A run that is killed when the ledger has its second round, and then resumed."""
    arguments = ["run", *TINY, "--rounds", "8", *_set("engine.checkpoint_seconds=0"), "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-m", "fedce", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as running:
        while running.poll() is None and len(RunFolder(out).lines()) < 3:
            sleep(0.02)
        os.kill(running.pid, signal.SIGKILL)
    done = CliRunner().invoke(fedce, ["run", "--resume", str(out)])
    return found_in(out) if done.exit_code == 0 else {"error": done.output.strip()}


def on_engine(engine: str, out: Path) -> dict[str, Any]:
    arguments = ["run", *TINY, "--rounds", "3", "--engine", engine, "--out", str(out)]
    done = subprocess.run([sys.executable, "-m", "fedce", *arguments], capture_output=True, text=True, check=False)
    return found_in(out) if done.returncode == 0 else {"error": done.stderr.strip()[-500:]}


def everything(wanted: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for n, (name, arguments) in enumerate(cases()):
            if wanted in name:
                found[name] = trained(arguments, Path(folder, str(n)))
        if wanted in "killed and resumed":
            found["killed and resumed"] = killed_and_resumed(Path(folder, "killed"))
        for engine in ("flower", "nvflare"):
            if wanted in engine:
                found[engine] = on_engine(engine, Path(folder, engine))
    return found


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name, found in now.items():
        kept = before.get(name)
        if kept is None:
            yield f"{name}: new"
        elif kept != found:
            yield f"{name}: " + ", ".join(f"{key} {_apart(kept.get(key), found[key])}" for key in found)


def _apart(before: Any, now: Any) -> str:
    if before == now:
        return "same"
    if isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys():
        return f"up to {max(abs(before[key] - now[key]) for key in now):.2g} apart"
    return f"{before} -> {now}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--file", type=Path, default=Path(".golden.json"))
    given = parser.parse_args()
    found = everything(given.only)
    if given.record:
        given.file.write_text(json.dumps(found, indent=1))
        print(f"{len(found)} runs recorded in {given.file}")
        return
    different = list(differences(json.loads(given.file.read_text()), found))
    print(*different, f"{len(found) - len(different)} of {len(found)} runs are the same", sep="\n")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
