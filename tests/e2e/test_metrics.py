"""Metrics beside Dice, from the experiment file to every place that shows them."""

import json
from pathlib import Path

import pytest

from fedce.learning.metrics import METRICS

NAMES = ["dice", *METRICS]
SITES = {f"site{i}" for i in range(1, 7)}


@pytest.fixture(scope="module")
def measured_run(tmp_path_factory, fedce) -> Path:
    out = tmp_path_factory.mktemp("metrics") / "run"
    asked = f"metrics={json.dumps(NAMES)}"
    done = fedce("run", "--scale", "tiny", "--rounds", 2, "--workers", 2, "--set", asked, "--out", out)
    assert done.exit_code == 0, done.output
    return out


def test_results_hold_every_metric_by_site_and_class(measured_run: Path):
    found = json.loads((measured_run / "results.json").read_text())
    assert found["metrics"].keys() == found["metrics_by_class"].keys() == set(NAMES)
    assert found["metrics"]["dice"] == found["dice"]
    assert found["metrics_by_class"]["dice"] == found["dice_by_class"]
    for name, metric in METRICS.items():
        assert found["metrics"][name].keys() == found["metrics_undefined"][name].keys() == SITES
        assert set(found["metrics_unit"][name].values()) == ({"px"} if metric.is_length else {""})
        for site, value in found["metrics"][name].items():
            by_class = [one for one in found["metrics_by_class"][name][site].values() if one is not None]
            assert value == (pytest.approx(sum(by_class) / len(by_class)) if by_class else None)
            assert all(one in metric.bounds for one in by_class)


def test_the_record_is_sound_and_the_report_shows_the_columns(measured_run: Path, fedce):
    checked = fedce("ledger", "verify", measured_run, "--json")
    assert checked.exit_code in (0, 3), checked.output
    assert json.loads(checked.stdout)["problems"] == []
    assert fedce("report", measured_run).exit_code == 0
    page = (measured_run / "report.html").read_text("utf-8")
    for metric in METRICS.values():
        assert f">{metric.title}" in page


def test_metrics_change_nothing_else(measured_run: Path, tmp_path: Path, fedce):
    done = fedce("run", "--scale", "tiny", "--rounds", 2, "--workers", 2, "--out", tmp_path / "plain")
    assert done.exit_code == 0, done.output
    plain, measured = (json.loads((run / "results.json").read_text()) for run in (tmp_path / "plain", measured_run))
    added = {"metrics", "metrics_by_class", "metrics_undefined", "metrics_unit"}
    assert measured.keys() - plain.keys() == added
    varies = {"seconds", "command", "digest"}
    assert {key: plain[key] for key in plain.keys() - varies} == {key: measured[key] for key in plain.keys() - varies}
    end = json.loads((tmp_path / "plain" / "ledger.jsonl").read_text().splitlines()[-1])
    assert all("metrics" not in told for told in end["evaluations"].values())


def test_a_comparison_shows_them(tmp_path: Path, fedce):
    out = tmp_path / "compare"
    asked = ("--set", 'metrics=["dice","iou"]', "--seeds", 1, "--store", tmp_path / "store", "--out", out)
    done = fedce("compare", "--scale", "tiny", "--rounds", 1, "--algorithms", "fedce,fedavg", *asked)
    assert done.exit_code == 0, done.output
    assert "IoU" in (out / "compare.md").read_text()
    assert all(0 <= row["metrics"]["iou"] <= 1 for row in json.loads((out / "compare.json").read_text())["rows"])


def test_an_unknown_metric_is_one_line(tmp_path: Path, fedce):
    done = fedce("run", "--scale", "tiny", "--set", 'metrics=["dice","recal"]', "--out", tmp_path / "run")
    assert done.exit_code == 2
    assert "metrics: unknown metric 'recal', did you mean 'recall'?" in done.output
    assert not (tmp_path / "run").exists()
