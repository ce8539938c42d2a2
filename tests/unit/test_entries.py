"""The ledger's lines as values, and what is said of sites in them."""

import json
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from fedce.base.errors import RunError
from fedce.core.recorded import Flag
from fedce.guard.border import SEEN_AT_THE_BORDER
from fedce.guard.sign import Sign
from fedce.guard.signs import FLAGS, twin_of
from fedce.record.entries import LINES, End, Line, Round, Start, line_of
from fedce.record.flags import flag_of
from fedce.record.folder import RunFolder
from support import contents_of, made_anew


def test_a_line_is_a_value_that_keeps_what_was_written(tiny_run: Path):
    run = RunFolder(tiny_run)
    ledger = run.ledger()
    assert [json.dumps(line.content) for line in ledger] == run.lines()
    assert [type(line) for line in ledger] == [Start, *[Round] * 4, End]
    done = ledger.rounds[-1]
    assert done.sites["site1"].share == done.facts["site1"]["share"] == done.shares["site1"]
    with pytest.raises(ValidationError, match="frozen"):
        done.mean_score = 1.0


def test_what_other_versions_write_survives(tiny_run: Path, tmp_path: Path):
    shutil.copytree(tiny_run, tmp_path / "run")

    def grow(contents):
        contents[1]["weather"] = "fine"
        contents[1]["sites"]["site1"]["mood"] = 0.5
        contents.insert(2, {"kind": "holiday", "time": 1.0, "days": 3})

    run = made_anew(RunFolder(tmp_path / "run"), grow)
    first = run.rounds()[0]
    assert (first.content["weather"], first.facts["site1"]["mood"]) == ("fine", 0.5)
    holiday = run.ledger().lines[2]
    assert (type(holiday), holiday.content["days"], holiday.summary) == (Line, 3, "")
    run.check_chain()


@pytest.mark.parametrize("kind", LINES)
def test_a_line_of_another_form_is_one_clear_line(kind):
    with pytest.raises(RunError, match=r"line 7 has the wrong form .*; was it edited"):
        line_of({"kind": kind, "time": 1.0}, "line 7")


def test_the_words_of_every_flag_are_read_back():
    flags = [*FLAGS, *SEEN_AT_THE_BORDER, twin_of("north"), twin_of("of the others")]
    assert [flag_of(flag.text) for flag in flags] == flags
    assert len({flag.text for flag in flags}) == len(flags) - 1, "the border and the guard both say 'zero update'"
    unknown = flag_of("it sings {}")
    assert (unknown.kind, unknown.text, unknown.text_without_name) == ("unknown", "it sings {}", "it sings {}")
    assert twin_of("north").text_without_name == "its updates are nearly those of another site"


def test_a_sign_is_certain_when_it_was_seen_often_enough_in_a_row():
    sign = Sign(Flag("high", "it is high"), lambda value: None if value is None else value > 1, in_a_row=2)
    assert sign.certain_at([2, 0, 3, None, 4, 5]) == 4
    assert sign.certain_at([2, 0, 2, 0, None]) is None


def test_the_format_is_read_before_the_lines(tiny_run: Path, tmp_path: Path):
    """A later format may have other lines; that it is a later one is what helps."""
    run = RunFolder(tmp_path)
    first = {**contents_of(RunFolder(tiny_run))[0], "format": 9, "sites": []}
    run.ledger_file.write_text(json.dumps(first) + "\n")
    with pytest.raises(RunError, match="has format 9, and this version of fedce reads formats up to 4"):
        run.ledger()
