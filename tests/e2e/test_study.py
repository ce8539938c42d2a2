"""fedce study: every table and figure from trainings that are shared, kept and resumable."""

import csv
import json
import random
import re
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from fedce import studies
from fedce.base import registry
from fedce.base.config import parse
from fedce.base.files import read_sealed, write_sealed
from fedce.present.tables import study_tables
from fedce.questions import compare as comparing
from fedce.questions.jobs import Store
from fedce.studies import Context, Outcome, Study, Table, in_all, robustness, wanted
from fedce.studies.convergence import smoothed
from fedce.studies.free_rider import rounds_shown
from fedce.studies.shift import renormalised
from layout import layouts, problems
from processes import Started
from support import open_page, write_site

SITES = ("east", "north", "south")
SMALL = ("--set", "model.channels=[4,8]", "--rounds", 5, "--seeds", "0,1", "--methods", "standalone,fedavg,fedce")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    for i, site in enumerate(SITES):
        write_site(root, site, n=12 + 4 * i)
    return root


@pytest.fixture(scope="module")
def everything(tmp_path_factory, data: Path, fedce) -> Path:
    folder = tmp_path_factory.mktemp("study")
    run = fedce("study", "all", "--data", data, *SMALL, "--store", folder / "store", "--out", folder / "out")
    assert run.exit_code == 0, run.output
    return folder


def outcomes(folder: Path) -> dict[str, dict]:
    content = json.loads((folder / "out" / "study.json").read_text())
    return {outcome["study"]: outcome for outcome in content["outcomes"]}


def test_all_studies_are_there(everything: Path):
    found = outcomes(everything)
    assert list(found) == in_all()
    assert all(outcome["findings"] for outcome in found.values())
    page = (everything / "out" / "study.md").read_text()
    for path in (everything / "out").glob("*.svg"):
        assert path.name in page
    assert page.startswith("```\nfedce")
    assert page.split("```\n")[2].startswith("\nRecipe small: 3 sites, ")


def test_the_page_opens_in_a_browser(everything: Path, tmp_path: Path, chromium: str):
    page = everything / "out" / "report.html"
    shown, picture = open_page(chromium, page, tmp_path)
    assert "CONSOLE" not in shown.stderr
    assert shown.stdout.count("<svg") == 8
    assert shown.stdout.count("<figcaption") == 9
    assert picture.stat().st_size > 50_000
    for name in re.findall(r'href="([^"#]+\.csv)"', shown.stdout):
        assert (everything / "out" / name).exists()


def test_the_page_fits_a_phone_and_a_sheet(everything: Path, tmp_path: Path, chromium: str):
    assert problems(layouts(chromium, (everything / "out" / "report.html").read_text("utf-8"), tmp_path)) == {}


def test_the_page_is_written_again_from_its_folder_alone(everything: Path, tmp_path: Path, fedce):
    copy = tmp_path / "moved"
    shutil.copytree(everything / "out", copy)
    page = (copy / "report.html").read_bytes()
    assert page.count(b"currentColor") > 100, "figures take the page's ink"
    (copy / "report.html").unlink()
    written = fedce("report", copy)
    assert written.exit_code == 0, written.output
    assert (copy / "report.html").read_bytes() == page
    study = read_sealed(copy / "study.json")
    study["outcomes"][0]["findings"] = ["Nothing <b>new</b>."]
    write_sealed(copy / "study.json", study)
    assert fedce("report", copy).exit_code == 0
    assert b"Nothing &lt;b&gt;new&lt;/b&gt;." in (copy / "report.html").read_bytes()


def test_every_figure_of_a_study_has_its_numbers(everything: Path):
    pictures = [picture for outcome in outcomes(everything).values() for picture in outcome["pictures"]]
    assert len(pictures) == 9
    assert all(picture["table"] for picture in pictures)


@pytest.mark.parametrize("content", ["[]", '{"data": "x", "outcomes": [{"study": "shift", "tables": {}}]}'])
def test_a_study_without_all_of_its_page_is_refused(tmp_path: Path, fedce, content):
    (tmp_path / "study.json").write_text(content)
    refused = fedce("report", tmp_path)
    assert refused.exit_code == 2
    assert "conduct the study again" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert "is not a run; --no-examples" in fedce("report", tmp_path, "--no-examples").stderr


def test_each_thing_is_trained_once(everything: Path):
    """Methods 3 x 2, leave-one-out and ablation 3 x 2 more each, 3 free riders and an honest run, 7 of shards, 2 cut
    short."""
    assert len(list((everything / "store").iterdir())) == 6 + 6 + 6 + 4 + 7 + 2


def test_a_store_holds_no_pages_and_no_images(everything: Path):
    found = {path.suffix for path in (everything / "store").rglob("*") if path.is_file()}
    assert not found & {".html", ".png"}


def test_a_second_call_trains_nothing(everything: Path, data: Path, fedce):
    before = (everything / "out" / "study.json").read_text()
    run = fedce("study", "all", "--data", data, *SMALL, "--store", everything / "store", "--out", everything / "out")
    assert "31 trainings, 31 of them already done" in run.stderr
    tables = json.loads((everything / "out" / "study.json").read_text())["outcomes"]
    assert tables == json.loads(before)["outcomes"]


def test_killed_at_random_moments_it_ends_with_the_same_tables(everything: Path, data: Path, tmp_path: Path):
    command = ["study", "contribution", "--data", data, *SMALL]
    command = [str(part) for part in (*command, "--store", tmp_path / "store", "--out", tmp_path / "out")]
    n_killed = 0

    def n_trained() -> int:
        return len(list((tmp_path / "store").glob("*/results.json")))

    for _ in range(3):
        process = Started(command, tmp_path / "errors")
        enough, limit = n_trained() + random.randint(0, 2), time.monotonic() + 300
        while process.poll() is None and n_trained() < enough:
            assert time.monotonic() < limit
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.5))
        n_killed += process.poll() is None
        process.kill()
        assert process.wait() in (0, -signal.SIGKILL)
    assert n_killed
    assert Started(command, tmp_path / "errors").wait(300) == 0, (tmp_path / "errors").read_text()
    assert outcomes(tmp_path)["contribution"]["tables"] == outcomes(everything)["contribution"]["tables"]


def test_tables_follow_from_the_runs(everything: Path):
    """The averages of the table against the runs' own results, read here without any of the study's code."""
    header, *rows = csv.reader((everything / "out" / "performance-dice.csv").read_text().splitlines())
    assert header == ["method", *SITES, "Avg.", "Std.", "worst"]
    runs = [json.loads(path.read_text()) for path in (everything / "store").glob("*-fedavg-*/results.json")]
    assert len(runs) == 2
    by_site = {site: np.mean([100 * run["dice"][site] for run in runs]) for site in SITES}
    fedavg = next(row for row in rows if row[0] == "FedAvg")
    assert float(fedavg[4]) == pytest.approx(np.mean(list(by_site.values())), abs=0.005)
    assert float(fedavg[5]) == pytest.approx(np.std(list(by_site.values()), ddof=1), abs=0.005)
    assert fedavg[1].startswith(f"{by_site['east']:.2f} ± ")


def test_leave_one_out_shares_sum_to_one_hundred(everything: Path):
    table = outcomes(everything)["contribution"]["tables"]["leave-one-out"]
    column = table["header"].index("share, %")
    assert sum(row[column] for row in table["rows"]) == pytest.approx(100)


def test_the_curve_ends_with_the_final_model(everything: Path):
    """The last point is the validation at the end of the runs, read here without any of the study's code."""
    header, *rows = csv.reader((everything / "out" / "convergence-convergence.csv").read_text().splitlines())
    assert [row[0] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    runs = [json.loads(path.read_text()) for path in (everything / "store").glob("*-fedavg-*/results.json")]
    end = np.mean([list(run["validation_dice"].values()) for run in runs])
    assert float(rows[-1][header.index("FedAvg")]) == pytest.approx(end, abs=5e-5)


def test_the_correlation_with_standalone_has_its_p(everything: Path):
    """Of three sites: p = 1 - (2 / pi) asin |r|, by Student's distribution with one degree of freedom."""
    tables = outcomes(everything)["fairness"]["tables"]["fairness"]
    for row in tables["rows"]:
        values = dict(zip(tables["header"], row, strict=True))
        r = values["Pearson, %"] / 100
        assert float(values["p"]) == pytest.approx(1 - 2 / np.pi * np.arcsin(abs(r)), rel=0.06)


def test_the_ablation_is_drawn_with_every_seed(everything: Path):
    outcome = outcomes(everything)["ablation"]
    seeds, table = (outcome["tables"][name]["rows"] for name in ("ablation-seeds", "ablation"))
    for (_, *by_seed), (_, average, *_) in zip(seeds, table, strict=True):
        assert len(by_seed) == 2
        assert np.mean(by_seed) == pytest.approx(average)


def test_free_riders_are_planted_one_by_one(everything: Path):
    table = outcomes(everything)["free-rider"]["tables"]["alarms"]
    assert [row[0] for row in table["rows"]] == list(SITES)
    heat = outcomes(everything)["free-rider"]["tables"]["heat"]
    assert len(heat["rows"]) == 5 * len(SITES)


def test_some_studies_alone(tmp_path: Path, data: Path, everything: Path, fedce):
    run = fedce(
        "study", "shift,data", "--data", data, *SMALL, "--store", everything / "store", "--out", tmp_path, "--json"
    )
    assert run.exit_code == 0, run.output
    assert [outcome["study"] for outcome in json.loads(run.stdout)["outcomes"]] == ["shift", "data"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("convergense",), "unknown study 'convergense', did you mean 'convergence'?"),
        (("shift", "--seeds", "a"), "--seeds: expected whole numbers"),
        (("shift", "--methods", "fedvag"), "fedavg"),
        (
            ("shift", "--scale", "paper"),
            "--scale: 'paper' is called 'full' for a study, got 'paper'; for the size of the data, --set data.scale",
        ),
        (("shift", "--scale", "tiny"), "--scale: expected quick or full, got 'tiny'; for the size of the data, --set"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, fedce, arguments, line):
    run = fedce("study", *arguments, "--store", tmp_path / "store", "--out", tmp_path / "out")
    assert run.exit_code == 2
    assert line in run.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_any_methods_can_be_compared(everything: Path, data: Path, tmp_path: Path, fedce):
    """What a study rests on is trained beside them."""
    arguments = ("--data", data, *SMALL[:-2], "--store", everything / "store", "--out", tmp_path / "out")
    for methods in ("fedavg,fedce", "fedavg,standalone"):
        run = fedce("study", "fairness,contribution", *arguments, "--methods", methods)
        assert run.exit_code == 0, run.output
        assert "what the sites reach alone (Euclid)" in run.stdout
    assert wanted("performance,all") == in_all()


def test_smoothing_keeps_a_cubic_and_short_curves():
    cubic = np.linspace(-1, 1, 60) ** 3
    assert np.allclose(smoothed(cubic), cubic)
    assert smoothed(np.array([0.1, 0.5])).tolist() == [0.1, 0.5]
    noisy = cubic + np.random.default_rng(0).normal(0, 0.1, 60)
    assert np.abs(smoothed(noisy) - cubic).mean() < np.abs(noisy - cubic).mean()


def test_six_rounds_are_shown():
    assert rounds_shown(200) == [1, 10, 25, 50, 100, 200]
    assert len(rounds_shown(60)) == 6
    assert rounds_shown(60)[-1] == 60
    assert rounds_shown(3) == [1, 2, 3]


def test_shares_of_those_who_stay():
    assert renormalised({"a": 0.5, "b": 0.3, "c": 0.2}, "a") == pytest.approx({"b": 0.6, "c": 0.4})


def test_robustness_sets_every_attack_beside_the_honest_run(data: Path, tmp_path: Path, fedce):
    small = ("--set", "model.channels=[4,8]", "--rounds", 3, "--seeds", "0", "--store", tmp_path / "store")
    run = fedce("study", "robustness", "--data", data, *small, "--out", tmp_path / "out", "--json")
    assert run.exit_code == 0, run.output
    outcome, _ = json.loads(run.stdout)["outcomes"]
    attacks, absent = outcome["tables"]["attacks"], outcome["tables"]["absent"]
    # Three sites: one attacker is a minority, two are none.
    assert [row[:2] for row in attacks["rows"]] == [[kind, "1"] for kind in robustness.SINGLE]
    assert [row[0] for row in outcome["tables"]["kinds"]["rows"]] == list(robustness.SINGLE)
    titles = [method.title for method in robustness.methods().values()]
    assert len(attacks["header"]) == 2 + 3 * len(titles)
    assert [row[0] for row in absent["rows"]] == ["nobody", "north"]
    guarded = {row[0]: row[-3] for row in attacks["rows"]}
    assert guarded["zero"] == pytest.approx(-100)
    assert guarded["leave"] == pytest.approx(0)  # It leaves after three rounds, and there are no more.
    assert [sentence.split(":")[0] for sentence in outcome["findings"][: len(titles)]] == titles
    assert any("Not detectable" in sentence for sentence in outcome["findings"])


@pytest.mark.parametrize(("named", "expected"), [({}, "off"), ({"guard": "standard"}, "standard")])
def test_the_papers_studies_run_every_method_without_the_guard(named, expected, tmp_path: Path):
    context = Context(parse({"data": {"source": "fundus6", "scale": "tiny"}, **named}), [0], Store(tmp_path))
    compared = comparing.plan(context.to_the_letter, context.methods, context.seeds)
    assert {config.guard for config in (*context.trainings(context.methods), *compared)} == {expected}


def test_two_attackers_where_they_are_a_minority():
    names = [f"site{i}" for i in range(1, 7)]
    found = robustness.cases(names)
    assert {case.attackers for case in found} == {("site2",), ("site2", "site4")}
    assert {case.kind for case in found if case.absent} == {"sybil", "copy", "turns", "halves"}
    assert len(found) == 2 * len(robustness.SINGLE) + len(robustness.PAIRED)


def test_numbers_stay_whole_in_a_narrow_terminal(capsys):
    header = ["round", "eta", "L", "eta L", "|d|", "|grad F|", "bound", "change of the loss", "eta L >= 1", "bound < 0"]
    numbers = [1.2345, 0.1387, 0.3409, 0.4303, 0.1776, -0.0016, -0.0408]
    tables = [
        Table("convergence", "A title.", header, [["1", *numbers, "no", "yes"]], digits=4),
        Table("kinds", "Long text.", ["kind", "what it does"], [["drift", "goes its own way " * 10]]),
        Table("alarms", "No row.", ["site", "alarm"], []),
    ]
    for width in (40, 80, 200):
        for shown in study_tables([Outcome("theory", "Theory", ["A finding."], tables)], width):
            Console(width=width).print(shown)
        out = capsys.readouterr().out
        assert "…" not in out
        assert all(f"{number:.4f}" in out for number in numbers)
        assert max(map(len, out.splitlines())) <= width
        assert out.count("goes") == 10
    assert " change of the loss " in out, "where there is room, a header is one line"


def test_some_of_the_papers_sites_have_no_numbers_of_the_paper_beside_them(tmp_path: Path, fedce):
    small = ("--set", "model.channels=[4,8]", "--rounds", 2, "--seeds", "0", "--methods", "fedavg,fedce")
    some = ("--data", "fundus6", "--set", "data.scale=tiny", "--set", 'data.sites=["site2","site3"]')
    found: dict[str, dict] = {}
    for study in ("performance", "contribution", "fairness"):
        run = fedce("study", study, *some, *small, "--store", tmp_path / "store", "--out", tmp_path / study, "--json")
        assert run.exit_code == 0, run.output
        outcome, glance = json.loads(run.stdout)["outcomes"]
        headers = [name for table in outcome["tables"].values() for name in table["header"]]
        assert not any("paper" in name for name in headers)
        assert (glance["study"], [picture["table"] for picture in glance["pictures"]]) == ("data", ["histograms"])
        found |= outcome["tables"]
    # Disc and cup have the mean that the appendix's table has for both.
    worth, by_class = (found[name]["rows"] for name in ("leave-one-out", "leave-one-out-by-class"))
    assert found["leave-one-out-by-class"]["header"][1::2] == ["disc without it", "cup without it"]
    for row, (_, disc, _, cup, _) in zip(worth, by_class, strict=True):
        assert (disc + cup) / 2 == pytest.approx(row[1])


def test_studies_are_found_by_listing_the_folder():
    folder = Path(studies.__file__).parent
    having_one = {path.stem.replace("_", "-") for path in folder.glob("*.py") if "\nSTUDY = " in path.read_text()}
    assert set(studies.built_in()) == having_one
    assert in_all()[:3] == ["performance", "fairness", "contribution"]
    assert having_one - set(in_all()) == {"norms", "robustness", "worth"}


def test_a_study_of_ones_own_by_its_path_and_by_a_packages_name(tmp_path: Path, data: Path, fedce, monkeypatch):
    path = "examples.own_study:LEARNING_RATES"
    offered = [SimpleNamespace(value=path)]
    monkeypatch.setattr(registry, "entry_points", lambda group, name: offered if name == "rates" else [])
    small = ("--data", data, "--set", "model.channels=[4,8]", "--rounds", 1, "--store", tmp_path / "store")
    for name in (path, "rates"):
        done = fedce("study", name, *small, "--out", tmp_path / "out")
        assert done.exit_code == 0, done.output
        found = json.loads((tmp_path / "out" / "study.json").read_text())
        assert found["studies"] == [path], "whose code it was is on record"
    assert [row[0] for row in found["outcomes"][0]["tables"]["rates"]["rows"]] == ["0.0001", "0.001"]
    assert (tmp_path / "out" / "learning-rates-rates.csv").exists()
    assert fedce("report", tmp_path / "out").exit_code == 0


@pytest.mark.parametrize(
    ("own", "line"),
    [
        (print, "study: expected here:MINE to be of class Study, got builtin_function_or_method"),
        (Study("A", lambda context: [], lambda context: Outcome("../a", "A", [])), "such as my-study, got '../a'"),
        (Study("A", lambda context: [], lambda context: None), "study here:MINE: expected an Outcome"),
    ],
)
def test_a_study_that_can_not_be_used_is_one_line(own, line, tmp_path: Path, data: Path, fedce, monkeypatch):
    monkeypatch.setattr(registry, "load_object", lambda path, key: own)
    done = fedce("study", "here:MINE", "--data", data, "--store", tmp_path / "store", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert line in done.output
