"""Volumes on the local engine. Those over Flower and NVFlare go through kills: test_flower.py and test_nvflare.py."""

from pathlib import Path

from benchmarks.bits import same

from support import VOLUMES


def test_two_workers_give_the_same_bits(tmp_path: Path, volumes: Path, fedce):
    run = fedce("run", *VOLUMES, "--workers", 2, "--out", tmp_path / "run")
    assert run.exit_code == 0, run.output
    assert same(tmp_path / "run", volumes)
