"""Twenty random kills of a run or of one of its workers: nothing is lost, and the bits are the same."""

from pathlib import Path

from benchmarks import flips
from benchmarks.kills_local import torture

SMALL = {"channels": [4, 8]}
"""A network that trains in no time: what is lost or changed does not depend on it."""
THREE = {"sites": ["site1", "site2", "site3"]}


def test_twenty_kills_lose_nothing(tmp_path: Path):
    tally = torture(20, seed=1, folder=tmp_path, rounds=4, model=SMALL, data=THREE)
    assert tally.kills.total() >= 20
    assert tally.runs >= 1


def test_no_changed_bit_passes_unnoticed(tmp_path: Path, monkeypatch):
    """More of it: python benchmarks/flips.py --flips 400."""
    monkeypatch.setenv("FEDCE_CACHE", str(tmp_path / "cache"))
    tally = flips.torture(44, seed=1, folder=tmp_path, model=SMALL, data=THREE)
    assert tally.total() == 44
    assert {outcome for what, outcome in tally if "config.toml" in what or "state" in what} == {flips.SAID}
