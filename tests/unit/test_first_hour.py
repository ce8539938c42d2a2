"""What the guides print of the whole way on one machine is what benchmarks/first_hour.py runs and counts."""

import subprocess
from pathlib import Path

import pytest
from benchmarks.first_hour import commands_in, script_of

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("guide", ["flower.md", "nvflare.md"])
def test_the_guides_commands_are_a_script(guide: str):
    script = script_of(DOCS / guide)
    assert script.startswith("fedce new heart data --server localhost:")
    subprocess.run(["bash", "-n", "-c", script], check=True)


def test_commands_are_counted_and_not_what_surrounds_them():
    trace = [
        "cd heart",
        "fedce new heart",
        "sed -i x",
        "port=9094",
        "kits/a/startup/start.sh",
        "sleep 15",
        "flwr run app",
    ]
    assert commands_in("".join(f"+ {line}\n" for line in trace)) == [
        "fedce new heart",
        "kits/a/startup/start.sh",
        "flwr run app",
    ]
