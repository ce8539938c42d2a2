"""The first hour of a federation, as a guide prints it: `python benchmarks/first_hour.py docs/flower.md`.

Runs the shell blocks of the section "The whole way on one machine" in a new folder with three small sites and a home
folder of its own; prints the minutes that they took and how many commands they were.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from time import monotonic

import numpy as np
from PIL import Image

SECTION = "The whole way on one machine"
SITES = ("north", "south", "west")
N_IMAGES, SIDE = 24, 32
PROGRAMS = r"fedce|flwr|flower-\w+|ssh-keygen|nvflare|python|\S*/start\.sh|\S*/stop_fl\.sh"
LIMIT = 1200.0
"""Seconds; a guide that takes longer hangs."""


def script_of(guide: Path) -> str:
    """The shell blocks of the section."""
    text = guide.read_text("utf-8").split(f"\n## {SECTION}\n")[1].split("\n## ")[0]
    return "\n".join(re.findall(r"```sh\n(.*?)```", text, re.S))


def write_sites(folder: Path) -> None:
    """Small images with a bright box each, which the mask marks."""
    rng = np.random.default_rng(0)
    for site in SITES:
        for part in ("images", "masks"):
            (folder / site / part).mkdir(parents=True)
        for i in range(N_IMAGES):
            mask = np.zeros((SIDE, SIDE), np.uint8)
            mask[8 : 18 + i % 6, 10:24] = 255
            image = mask // 2 + rng.integers(0, 60, mask.shape).astype(np.uint8)
            Image.fromarray(image).save(folder / site / "images" / f"{i}.png")
            Image.fromarray(mask).save(folder / site / "masks" / f"{i}.png")


def commands_in(trace: str) -> list[str]:
    """The commands of a trace of bash, without assignments, changes of folder and pauses."""
    return [line.lstrip("+ ") for line in trace.splitlines() if re.match(rf"\++ (?:{PROGRAMS})( |$)", line)]


def follow(guide: Path, folder: Path) -> tuple[float, list[str]]:
    """Run the guide in a folder; returns seconds and commands."""
    write_sites(folder / "data")
    (folder / "home").mkdir()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    environment["FEDCE_KEY"] = str(folder / "home" / "coordinator.pem")
    trace, began = folder / "trace.txt", monotonic()
    text = f"exec 9> {trace}; BASH_XTRACEFD=9; set -ex\n{script_of(guide)}"
    with subprocess.Popen(["bash", "-c", text], cwd=folder, env=environment, start_new_session=True) as shell:
        try:
            code = shell.wait(LIMIT)
            seconds = monotonic() - began
        finally:
            with suppress(ProcessLookupError):  # Whatever the guide left running.
                os.killpg(shell.pid, signal.SIGTERM)
    if code != 0:
        sys.exit(f"{guide}: a step ended with code {code}; the last ones were:\n{trace.read_text()[-2000:]}")
    return seconds, commands_in(trace.read_text("utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("guide", type=Path)
    guide: Path = parser.parse_args().guide
    with tempfile.TemporaryDirectory(prefix="first-hour-", ignore_cleanup_errors=True) as folder:
        seconds, commands = follow(guide, Path(folder))
    print(f"{guide}: {len(commands)} commands, {seconds / 60:.1f} minutes, load {os.getloadavg()[1]:.1f}")


if __name__ == "__main__":
    main()
