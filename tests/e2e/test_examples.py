"""The examples run as they are, from a copy, with the commands that they name."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedce.config import load
from fedce.experiment import resolve

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that looks as the repository's root does to an example, and whose runs/ is nobody's."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    return tmp_path


def python(script: str, root: Path) -> str:
    return subprocess.run(
        [sys.executable, "-W", "error", script], cwd=root, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_every_experiment_file_can_be_read(path: Path):
    needs_data = "--data DIR" in path.read_text("utf-8")
    resolve(load(path, {"data.source": "DIR"} if needs_data else {}))


def test_fundus6_is_make_demo():
    assert "fedce run --data fundus6 --scale demo" in (ROOT / "Makefile").read_text("utf-8")
    demo = load(changes={"data.source": "fundus6", "data.scale": "demo"})
    assert resolve(load(EXAMPLES / "fundus6.toml")) == resolve(demo)


def test_a_network_and_a_loss_of_ones_own(root: Path, fedce):
    lines = python("examples/custom_network.py", root).splitlines()
    assert [line.split(":")[0] for line in lines] == [f"site{i}" for i in range(1, 7)]
    assert load(root / "runs" / "custom-network" / "config.toml") == resolve(load(EXAMPLES / "custom_network.toml"))
    quick = fedce("run", "examples/custom_network.toml", "--rounds", 1, "--workers", 1, "--out", "runs/toml", cwd=root)
    assert quick.exit_code == 0, quick.output


def test_an_algorithm_of_ones_own(root: Path, fedce):
    name = "examples.own_algorithm:ValidationGain"
    result = fedce("run", "--algorithm", name, "--scale", "tiny", "--workers", 1, "--out", "run", "--json", cwd=root)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["algorithm"] == name
    assert (root / "run" / "report.html").exists()
