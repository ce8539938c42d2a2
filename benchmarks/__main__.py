"""All benchmarks, one after another, each in a process of its own; writes benchmarks/RESULTS.md.

    python -m benchmarks            (make bench)
    python -m benchmarks overhead server      only these, printed and not written down

Use a machine that does nothing else: figures are ratios within one run, but memory bandwidth is not shared fairly.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
from benchmarks.figures import Figure, table

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("RESULTS.md")
ALL = {
    "overhead": "The local engine against a plain loop",
    "roofline": "A training step against the machine",
    "volumes": "Volumes against a plain loop",
    "methods": "Methods against FedAvg",
    "job": "The same job on other engines",
    "server": "The server, as sites and parameters grow",
    "packing": "Models that travel packed",
    "truth": "Ground truth against separate trainings",
    "participation": "Fifty of a thousand sites a round",
    "ten_thousand": "Ten thousand sites on one server",
    "many_nodes": "Hundreds of sites over Flower's protocol",
    "flower_floor": "The least that a round on Flower takes",
    "startup": "Start-up",
}
PACKAGES = ("fedce", "torch", "monai", "numpy", "flwr", "ray", "nvflare")


def machine() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    cores, memory = len(os.sched_getaffinity(0)), psutil.virtual_memory().total / 2**30
    return f"{names[0] if names else platform.machine()}, {cores} cores, {memory:.0f} GiB, {platform.system()}"


def versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} is not installed")
    return ", ".join(found)


def commit() -> str:
    shown = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=ROOT)
    return shown.stdout.strip() or "unknown"


def measured(name: str) -> list[Figure]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}", "--json", file.name], check=True, cwd=ROOT)
        return [Figure(**figure) for figure in json.loads(Path(file.name).read_text())]


def page(found: dict[str, list[Figure]]) -> str:
    goals = [figure for figures in found.values() for figure in figures if figure.holds is not None]
    kept = sum(figure.holds is True for figure in goals)
    sections = []
    for name, figures in found.items():
        told = (import_module(f"benchmarks.{name}").__doc__ or "").split("\n\n    python")[0].strip()
        sections.append(f"## {ALL[name]}\n\n`python -m benchmarks.{name}`. {told}\n\n{table(figures)}\n")
    when = datetime.now(UTC).date().isoformat()
    return (
        "# Benchmarks\n\n"
        "Written by `make bench`. A figure without a unit is a ratio of two things measured beside each other; the\n"
        "median of the repeats, and their range.\n\n"
        f"- {kept} of {len(goals)} goals hold.\n- {when}, commit {commit()}\n- {machine()}\n- {versions()}\n\n"
        + "\n".join(sections)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(ALL))
    names = parser.parse_args().names
    if unknown := [name for name in names if name not in ALL]:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are: {', '.join(ALL)}")
    found = {}
    for name in names or ALL:
        print(f"\n{ALL[name]}", flush=True)
        found[name] = measured(name)
    if not names:
        PAGE.write_text(page(found))
        print(f"\nwritten to {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
