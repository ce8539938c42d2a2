"""What sites wrote can't do anything to a terminal or a page."""

import shutil
from pathlib import Path

import pytest

from fedce.base.config import Config
from fedce.base.identity import coordinator
from fedce.base.tables import AlgorithmConfig
from fedce.base.words import printable
from fedce.present.progress import RunDisplay
from fedce.present.watch import Watch
from fedce.record.folder import RunFolder
from support import chained, contents_of, rewrite

HOSTILE = "south\x1b[2J\x07\r\u202e\x9b31m"


def test_only_what_can_be_printed_is_left():
    assert printable(HOSTILE) == r"south\x1b[2J\x07\r\u202e\x9b31m"
    assert printable("Köln, 東京 \ud800") == r"Köln, 東京 \ud800"
    assert printable("a\nb") == r"a\nb"
    assert printable("a\nb", kept="\n") == "a\nb"


def test_notices_and_tables(capsys, tmp_path: Path):
    display = RunDisplay(quiet=False, out=tmp_path)
    display.notice(f"{HOSTILE}: failed: {HOSTILE}")
    results = {
        **{"algorithm": HOSTILE, "data": HOSTILE, "rounds": 1, "seconds": 1.0, "contributions": {HOSTILE: 1.0}},
        **{"images": {HOSTILE: 3}, "dice": {HOSTILE: 0.5}, "dice_without": {}, "flags": {HOSTILE: [HOSTILE]}},
        **{"fairness": {"mean": 0.5, "std": 0.1, "worst": 0.5}},
        "intervals": {"low": {}, "high": {}, "sentences": [HOSTILE]},
    }
    display.finish(results, Config(algorithm=AlgorithmConfig(name=HOSTILE)))
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert r"\x1b[2J" in text.replace("\n", "")
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(text)


@pytest.mark.parametrize("command", [("ledger", "show"), ("ledger", "verify"), ("report",)])
def test_a_ledger_with_escapes(tiny_run: Path, tmp_path: Path, fedce, command):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    entries = contents_of(RunFolder(run))
    entries[1]["notes"] = [HOSTILE]
    entries[1]["rejected"] = {HOSTILE: HOSTILE}
    rewrite(RunFolder(run), chained(entries, coordinator()))
    shown = fedce(*command, run)
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(shown.output)
    page = Watch(RunFolder(run)).page().decode()
    assert r"south\x1b[2J" in page
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(page)
