"""How long a user waits: for the command line's help, for the import, and for the first round of the demo.

Measured in turns: a bare interpreter, `import numpy`, `import fedce`, `fedce --help`, a run of one round, and the
imports that this run needs (torch, MONAI's network and loss, an optimizer).

    python -m benchmarks.startup [--repeats 7]
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from benchmarks.figures import Figure, main

NEEDED = """
import torch
from monai.losses import DiceLoss
from monai.networks.nets import UNet
network = UNet(2, 3, 2, (16, 32, 64, 128), (2, 2, 2), norm="batch")
torch.optim.Adam(network.parameters())
"""


def seconds(arguments: Sequence[str], cwd: Path) -> float:
    start = perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=cwd, env=dict(os.environ))
    return perf_counter() - start


def measure(repeats: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = ["-m", "fedce", "run", "--scale", "tiny", "--set", "rounds=1", "--set", "recipe=small"]
        run += ["--out", "run", "--replace"]
        commands = {
            "python": ["-c", "pass"],
            "numpy": ["-c", "import numpy"],
            "import": ["-c", "import fedce"],
            "help": ["-m", "fedce", "--help"],
            "needed": ["-c", NEEDED],
            "run": run,
        }
        for command in commands.values():  # Compiled files and caches are there from the second time on.
            seconds(command, folder)
        found = [{key: seconds(command, folder) for key, command in commands.items()} for _ in range(repeats)]
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
        Figure("a run of one round with its report (6 sites, tiny)", [one["run"] for one in found], "s"),
        Figure("that run / what it needs: torch, MONAI, one optimizer", [one["run"] / one["needed"] for one in found]),
    ]


if __name__ == "__main__":
    main(__doc__, measure, repeats=7)
