"""The run folder: how often its ledger is read."""

import json
from collections import Counter
from pathlib import Path

from fedce.base.config import parse
from fedce.engines.starting import execute
from fedce.record import folder
from fedce.record.folder import RunFolder


def counted(monkeypatch) -> Counter:
    """How often each line is read."""
    read: Counter[str] = Counter()
    content_of = folder.content_of

    def counting(line):
        read[line] += 1
        return content_of(line)

    monkeypatch.setattr(folder, "content_of", counting)
    return read


def test_a_run_reads_every_line_once(tmp_path: Path, monkeypatch):
    read = counted(monkeypatch)
    execute(parse({"rounds": 3, "data": {"scale": "tiny"}, "model": {"channels": [4, 8]}}), tmp_path / "run")
    assert set(read) == set(RunFolder(tmp_path / "run").lines())
    assert set(read.values()) == {1}


def test_a_ledger_that_grows_is_read_on_and_one_that_was_changed_from_its_beginning(
    tiny_run: Path, tmp_path, monkeypatch
):
    lines = RunFolder(tiny_run).lines()
    run = RunFolder(tmp_path)
    read = counted(monkeypatch)
    for n in range(1, len(lines) + 1):
        run.ledger_file.write_text("".join(f"{line}\n" for line in lines[:n]))
        assert [line.content for line in run.ledger()] == [json.loads(line) for line in lines[:n]]
        assert run.ledger() is run.ledger()
    assert set(read.values()) == {1}
    run.ledger_file.write_text(f"{lines[-1]}\n")
    assert [line.content for line in run.ledger()] == [json.loads(lines[-1])]
