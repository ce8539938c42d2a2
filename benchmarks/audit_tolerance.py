"""How far apart two machines are when a site does a drawn round again (docs/trust.md).

A run with every round drawn is trained with the processor's newest instructions, and audited in processes that may use
only older ones: sums are then rounded in another order, as on another machine. Prints the largest difference of each
kind, for the seeds by which the tolerances were chosen (even) and for the others (odd).

python -m benchmarks.audit_tolerance --store STORE --scale tiny --rounds 6 --seeds 0 1
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from fedce.base.config import load
from fedce.data import load_site
from fedce.engines.starting import execute
from fedce.questions.loading import Which, load_model
from fedce.questions.reproduce import TOLERANCES, reproduced
from fedce.record.folder import RunFolder
from fedce.site.resident import at_hospital

OLDER = {
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "SSE4.1": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
}
DATA = ("fundus6", "prostate6")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--scale", choices=("tiny", "demo"), default="demo")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--audit", type=Path, help="only audit this run, and print its differences as JSON")
    given = parser.parse_args()
    if given.audit:
        print(json.dumps(differences(RunFolder(given.audit))))
        return
    found: dict[tuple[str, int], dict[str, float]] = {}
    for data in DATA:
        for seed in given.seeds:
            run = given.store / f"{data}-{given.scale}-{given.rounds}-{seed}"
            if not (run / "results.json").exists():
                changes = {"data.source": data, "data.scale": given.scale, "rounds": given.rounds, "seed": seed}
                execute(load(None, {**changes, "audit": 1.0}), run, replace=True)
            for name, environment in OLDER.items():
                most = found.setdefault((name, seed % 2), {})
                for kind, distance in audited(run, environment).items():
                    most[kind] = max(most.get(kind, 0.0), distance)
                print(f"{data}, seed {seed}, {name}", file=sys.stderr)
    columns = " | ".join(f"{name}, {'odd' if odd else 'even'} seeds" for name, odd in found)
    print(f"| largest difference | {columns} | allowed |")
    print("|---|" + "---:|" * (len(found) + 1))
    for kind, allowed in TOLERANCES.items():
        if any(kind in most for most in found.values()):
            cells = " | ".join(f"{most.get(kind, 0.0):.2g}" for most in found.values())
            print(f"| {kind} | {cells} | {allowed:g} |")


def audited(run: Path, environment: dict[str, str]) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.audit_tolerance", "--store", str(run.parent), "--audit", str(run)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    most: dict[str, float] = json.loads(done.stdout)
    return most


def differences(run: RunFolder) -> dict[str, float]:
    """The largest difference of each kind, over all sites and rounds."""
    loaded = load_model(run, Which(device="cpu"))
    most: dict[str, float] = {}
    for site in run.ledger().sites:
        config = at_hospital(run.config, site, run.config.data.source)
        data = load_site(config.data, site)[0]
        for again in reproduced(run, config, data, loaded, run.drawn_memory_folder / site):
            for kind, distance in again.away.items():
                most[kind] = max(most.get(kind, 0.0), distance)
    return most


if __name__ == "__main__":
    main()
