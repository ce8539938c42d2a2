"""Twenty random kills of a run or of one of its workers: nothing is lost, and the bits are the same."""

from pathlib import Path

from benchmarks.kills_local import torture


def test_twenty_kills_lose_nothing(tmp_path: Path):
    tally = torture(20, seed=1, folder=tmp_path, rounds=4)
    assert tally.kills.total() >= 20
    assert tally.runs >= 1
