"""How long a user waits: for the command line's help, for the import, for a run of one round, and for one prediction.

Measured in turns: a bare interpreter, `import numpy`, `import fedce`, `fedce --help`, `import monai.networks.nets`, a
run of one round with its report (6 sites, tiny), and `fedce predict` of one image. All values are CPU seconds of a
command and its processes, because other work on the machine changes them little.

    python -m benchmarks.startup [--repeats 7]
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import numpy as np
from benchmarks.figures import Figure, main
from PIL import Image

NETS, MASKS = "import monai.networks.nets", "masks"


def cpu_seconds(arguments: Sequence[str], cwd: Path) -> float:
    shutil.rmtree(cwd / MASKS, ignore_errors=True)
    before = _used()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=cwd, env=dict(os.environ))
    return _used() - before


def _used() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(repeats: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "new.png")
        run = ["-m", "fedce", "run", "--scale", "tiny", "--set", "rounds=1", "--set", "recipe=small"]
        run += ["--out", "run", "--replace"]
        commands = {
            "python": ["-c", "pass"],
            "numpy": ["-c", "import numpy"],
            "import": ["-c", "import fedce"],
            "help": ["-m", "fedce", "--help"],
            "nets": ["-c", NETS],
            "run": run,
            "predict": ["-m", "fedce", "predict", "run", "new.png", "--out", MASKS],
        }
        for command in commands.values():  # Compiled files and caches are there from the second time on.
            cpu_seconds(command, folder)
        found = [{key: cpu_seconds(command, folder) for key, command in commands.items()} for _ in range(repeats)]
    return [
        Figure("`fedce --help`", [one["help"] for one in found], "s", at_most=0.3),
        Figure(
            "`import fedce`, the interpreter's own start left out",
            [one["import"] - one["python"] for one in found],
            "s",
            at_most=0.2,
        ),
        Figure(
            "`import fedce` / `import numpy`, with the interpreter", [one["import"] / one["numpy"] for one in found]
        ),
        Figure("`import numpy`", [one["numpy"] for one in found], "s"),
        Figure(f"`{NETS}`", [one["nets"] for one in found], "s"),
        Figure("a run of one round with its report (6 sites, tiny)", [one["run"] for one in found], "s"),
        Figure(f"that run / `{NETS}`", [one["run"] / one["nets"] for one in found], at_most=1.25),
        Figure("`fedce predict` of one image", [one["predict"] for one in found], "s"),
        Figure(f"that prediction / `{NETS}`", [one["predict"] / one["nets"] for one in found], at_most=1.3),
    ]


if __name__ == "__main__":
    main(__doc__, measure, repeats=7)
