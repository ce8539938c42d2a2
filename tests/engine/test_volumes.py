"""Volumes over real engines: the same bits as on this machine alone."""

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.bits import same

VOLUMES = (
    "--data",
    "volume6",
    "--scale",
    "tiny",
    "--rounds",
    "2",
    "--set",
    "recipe=small",
    "--set",
    "model.channels=[4,8]",
    "--set",
    "data.sites=['site2','site4','site6']",
    "--set",
    "train.augment=standard",
)
PACKAGES = {"flower": "flwr", "nvflare": "nvflare"}
LIMIT = 300.0


@pytest.fixture(scope="module")
def volumes(tmp_path_factory, fedce) -> Path:
    out = tmp_path_factory.mktemp("volumes") / "run"
    run = fedce("run", *VOLUMES, "--workers", 1, "--out", out)
    assert run.exit_code == 0, run.output
    return out


@pytest.mark.parametrize("engine", PACKAGES)
def test_volumes_give_the_same_bits(tmp_path: Path, volumes: Path, engine: str):
    pytest.importorskip(PACKAGES[engine])
    command = [sys.executable, "-m", "fedce", "run", "--engine", engine, *VOLUMES, "--set", "engine.min_sites=3"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "run")], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert same(tmp_path / "run", volumes)


def test_two_workers_give_the_same_bits(tmp_path: Path, volumes: Path, fedce):
    run = fedce("run", *VOLUMES, "--workers", 2, "--out", tmp_path / "run")
    assert run.exit_code == 0, run.output
    assert same(tmp_path / "run", volumes)
