"""Commands that only read a record start without torch: an auditor or a treasurer may not even have it."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from click.testing import CliRunner
from fedce.cli import main
done = CliRunner().invoke(main, sys.argv[1:])
heavy = [name for name in ("torch", "monai", "scipy", "matplotlib", "SimpleITK") if name in sys.modules]
print(done.output)
print("ended with", done.exit_code, "and imported", *heavy)
"""


@pytest.mark.parametrize(
    "command",
    [
        ("ledger", "verify", "RUN"),
        ("ledger", "show", "RUN"),
        ("allocate", "RUN", "--budget", "1000", "--rule", "contribution", "--yes", "--out", "OUT/amounts.html"),
        ("keys", "new", "OUT/key.pem"),
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_reading_a_record_needs_no_torch(tiny_run: Path, tmp_path: Path, command):
    arguments = [part.replace("RUN", str(tiny_run)).replace("OUT", str(tmp_path)) for part in command]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "ended with 0 and imported", done.stdout
