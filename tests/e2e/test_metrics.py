"""Metrics beside Dice, from the experiment file to every place that shows them."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from examples.own_metric import AREA_ERROR

from fedce.base import registry
from fedce.learning.metrics import METRICS
from fedce.record.folder import RunFolder

OWN = "examples.own_metric:AREA_ERROR"
NAMES = ["dice", *METRICS, OWN]
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
    for name, metric in {**METRICS, OWN: AREA_ERROR}.items():
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
    for metric in (*METRICS.values(), AREA_ERROR):
        direction = "higher" if metric.higher_is_better else "lower"
        assert f">{metric.title}{', px' * metric.is_length} ({direction} is better)<" in page


def test_a_page_runs_no_code_of_the_metrics(measured_run: Path, fedce, monkeypatch):
    """What a run names may be anybody's code; its titles and directions are in the record."""
    monkeypatch.setattr(registry, "load_object", None)
    for command in (["report", measured_run], ["report", measured_run.parent], ["ledger", "verify", measured_run]):
        assert fedce(*command).exit_code in (0, 3)
    assert ">Area error (lower is better)<" in (measured_run / "report.html").read_text("utf-8")


def test_a_members_page_shows_its_own_metrics_alone(measured_run: Path, tmp_path: Path, fedce):
    page = tmp_path / "member.html"
    assert fedce("publish", measured_run, "--site", "site3", "--out", page).exit_code == 0
    results = json.loads((measured_run / "results.json").read_text())
    text = page.read_text("utf-8")
    assert ">HD95, px (lower is better)<" in text
    assert f">{results['metrics']['iou']['site3']:.3f}<" in text
    assert all(site not in text for site in SITES - {"site3"})


def test_a_folders_page_shows_them(measured_run: Path, fedce):
    assert fedce("report", measured_run.parent).exit_code == 0
    page = (measured_run.parent / "report.html").read_text("utf-8")
    assert ">HD95, px (lower is better)<" in page
    values = json.loads((measured_run / "results.json").read_text())["metrics"]["iou"].values()
    assert f">{sum(values) / len(values):.3f}<" in page


def test_an_audit_checks_every_metric(measured_run: Path, tmp_path: Path, fedce):
    audit = ("ledger", "audit", "--site", "site1", "--data", "fundus6", "--json", "--trust-code")
    honest = fedce(*audit, measured_run)
    assert honest.exit_code == 0, honest.output
    facts = json.loads(honest.stdout)["facts"]
    for metric in (*METRICS.values(), AREA_ERROR):
        assert any(fact.startswith(f"{metric.title}{', px' * metric.is_length} (") for fact in facts)
    run = RunFolder.open(shutil.copytree(measured_run, tmp_path / "run"))
    lines = run.ledger_file.read_text("utf-8").splitlines()
    end = json.loads(lines[-1])
    end["evaluations"]["site1"]["metrics"]["iou"]["by_class"]["cup"] = 0.999
    run.ledger_file.write_text("\n".join([*lines[:-1], json.dumps(end)]) + "\n")
    lied = fedce(*audit, run.path)
    assert lied.exit_code == 1
    (problem,) = json.loads(lied.stdout)["problems"]
    assert problem.startswith("IoU (higher is better) of cup on its test cases: site1 said 0.9990, and its images")
    refused = fedce(*audit[:-1], measured_run)
    assert refused.exit_code == 2
    assert f"metrics.{len(METRICS) + 1} = examples.own_metric:AREA_ERROR); add --trust-code" in refused.output


def test_metrics_change_nothing_else(measured_run: Path, tmp_path: Path, fedce):
    done = fedce("run", "--scale", "tiny", "--rounds", 2, "--workers", 2, "--out", tmp_path / "plain")
    assert done.exit_code == 0, done.output
    plain, measured = (json.loads((run / "results.json").read_text()) for run in (tmp_path / "plain", measured_run))
    added = {"metrics", *(f"metrics_{key}" for key in ("by_class", "undefined", "unit", "interval", "shown"))}
    assert measured.keys() - plain.keys() == added
    varies = {"seconds", "command", "digest"}
    assert {key: plain[key] for key in plain.keys() - varies} == {key: measured[key] for key in plain.keys() - varies}
    end = json.loads((tmp_path / "plain" / "ledger.jsonl").read_text().splitlines()[-1])
    assert all("metrics" not in told for told in end["evaluations"].values())


def test_a_comparison_and_a_study_show_them(tmp_path: Path, fedce):
    asked = ("--set", 'metrics=["dice","iou","hd95"]', "--seeds", 1, "--store", tmp_path / "store")
    out = tmp_path / "compare"
    done = fedce("compare", "--scale", "tiny", "--rounds", 1, "--algorithms", "fedce,fedavg", *asked, "--out", out)
    assert done.exit_code == 0, done.output
    title = "HD95, px (lower is better), on the test cases"
    assert title in done.stdout
    assert title in (out / "compare.md").read_text("utf-8")
    header, *lines = (out / "compare-iou.csv").read_text("utf-8").splitlines()
    assert header == f"method,{','.join(sorted(SITES))},Avg."
    assert [line.partition(",")[0] for line in lines] == ["fedce", "fedavg"]
    for row in json.loads((out / "compare.json").read_text())["rows"]:
        assert 0 <= row["metrics"]["iou"] <= 1
        assert row["metrics_by_site"]["hd95"]["heading"]["higher_is_better"] is False
    study = ("study", "performance", "--set", "data.scale=tiny", "--rounds", 1, "--methods", "fedce,fedavg", *asked)
    done = fedce(*study, "--out", tmp_path / "study")
    assert done.exit_code == 0, done.output
    table = json.loads((tmp_path / "study" / "study.json").read_text())["outcomes"][0]["tables"]["hd95"]
    assert table["title"].startswith(title)
    assert [row[0] for row in table["rows"]] == ["FedCE (Multi.)", "FedAvg"]
    assert "HD95, px (lower is better)" in (tmp_path / "study" / "report.html").read_text("utf-8")


def test_an_unknown_metric_is_one_line(tmp_path: Path, fedce):
    done = fedce("run", "--scale", "tiny", "--set", 'metrics=["dice","recal"]', "--out", tmp_path / "run")
    assert done.exit_code == 2
    assert "metrics: unknown metric 'recal', did you mean 'recall'?" in done.output
    assert not (tmp_path / "run").exists()


def test_a_run_writes_every_test_case(measured_run: Path):
    rows = list(csv.DictReader((measured_run / "cases.csv").read_text().splitlines()))
    results = RunFolder.open(measured_run).results
    assert {"site", "case", "class", "dice", *METRICS} <= rows[0].keys()
    for site, dice in results["dice"].items():
        own = [row for row in rows if row["site"] == site]
        assert len(own) == results["test_cases"][site] * len(results["dice_by_class"][site])
        assert sum(float(row["dice"]) for row in own) / len(own) == pytest.approx(dice)
        undefined = sum(row["hd95"] == "" for row in own)
        assert undefined == sum(results["metrics_undefined"]["hd95"][site].values())
    ended = RunFolder.open(measured_run).ledger().end
    assert "cases.csv" in ended.files
    assert "cases" not in ended.content["evaluations"]["site1"]
