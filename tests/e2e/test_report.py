"""The report: one file, no network, readable in a browser, safe with hostile names."""

import csv
import json
import re
import shutil
import warnings
from base64 import b64decode, b64encode
from io import StringIO
from pathlib import Path
from urllib.parse import unquote

import pytest
from rich.console import Console

from fedce.base.config import Config
from fedce.base.files import read_sealed, write_sealed
from fedce.base.tables import AlgorithmConfig, FreeRiderConfig
from fedce.data import load_sites
from fedce.pictures import plots
from fedce.present.gains import gain_sentences
from fedce.present.glance import glance
from fedce.present.pages.run import write_report
from fedce.present.results import interval_lines, results_table
from fedce.present.sentences import NO_ALARM, NOT_CHECKED
from fedce.questions.loading import Which, load_model
from fedce.record.folder import RunFolder
from fedce.record.publish import member_view
from fedce.record.verify import Checked
from support import as_recorded, made_anew, open_page, rename_site, write_site

SMALL = ("--scale", "tiny", "--workers", 1, "--set", "data.size=32", "--set", "model.channels=[4,8]", "--json")


@pytest.fixture(scope="module")
def longer_run(tmp_path_factory, fedce) -> Path:
    """With rounds enough for intervals."""
    out = tmp_path_factory.mktemp("longer") / "run"
    assert fedce("run", *SMALL, "--rounds", 14, "--out", out).exit_code == 0
    return out


def rewritten(run: Path, folder: Path, monkeypatch, **changes) -> str:
    """The page of a copy of the run, as if other results followed from its ledger."""
    shutil.copytree(run, folder / "run")
    copy = RunFolder.open(folder / "run")
    monkeypatch.setattr("fedce.present.pages.run.checked", lambda run: Checked({**copy.results, **changes}, ""))
    return write_report(copy).read_text("utf-8")


def test_it_stands_alone(tiny_run: Path):
    page = (tiny_run / "report.html").read_text("utf-8")
    outside = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?!#|data:)[\w/:]""", page)
    assert not outside
    assert page.count("<svg") == 2 * 4, "each figure for a screen and for a phone"
    # matplotlib names XML vocabularies by address; nothing fetches those.
    assert set(re.findall(r"https?://[^\"' <]+", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
        "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
        "http://purl.org/dc/elements/1.1/",
        "http://creativecommons.org/ns#",
        "http://purl.org/dc/dcmitype/StillImage",
    }


def test_it_says_what_the_results_say(tiny_run: Path):
    page = (tiny_run / "report.html").read_text("utf-8")
    results = json.loads((tiny_run / "results.json").read_text("utf-8"))
    for site, share in results["contributions"].items():
        assert f"{100 * share:.1f} %" in page
        assert f"{results['dice'][site]:.3f}" in page
    assert results["model_sha256"] in page
    assert all(word in page for word in ("Fairness", "Jain", "Settings", "Versions", "Model card"))
    assert "Free riders" not in page, "the detector was off"


def test_every_figure_holds_its_numbers(tiny_run: Path):
    tables = figure_tables((tiny_run / "report.html").read_text("utf-8"))
    results = json.loads((tiny_run / "results.json").read_text("utf-8"))
    assert list(tables) == ["gives-and-needs", "test-dice", "contributions", "validation-dice", "examples"]
    assert {row[0]: float(row[1]) for row in tables["gives-and-needs"][1:]} == results["worth"]["share"]
    header, *rounds = tables["contributions"]
    assert header == ["round", *results["contributions"]]
    assert [float(share) for share in rounds[-1][1:]] == list(results["contributions"].values())
    assert {site: float(dice) for site, dice, _ in tables["test-dice"][1:]} == results["dice"]
    assert tables["validation-dice"][0][-1] == "mean"


def test_contributions_have_bands_of_their_intervals(longer_run: Path):
    page = (longer_run / "report.html").read_text("utf-8")
    results = json.loads((longer_run / "results.json").read_text("utf-8"))
    assert 'id="FillBetweenPolyCollection_2"' in page
    assert "The pale band around a line is the 95 % interval" in page
    header, *rows = figure_tables(page)["contributions"]
    last = dict(zip(header, rows[-1], strict=True))
    reasons = results["intervals"]["reasons"]
    assert set(reasons) == {"site1", "site2", "site3", "site5"}, "they have fewer than five validation cases"
    assert last["site1 low"] == ""
    for site in reasons:
        assert f"no interval: {results['validation_cases'][site]} cases, 5 needed" in page
    for site, share in results["contributions"].items():
        if site in reasons:
            continue
        ends = float(last[f"{site} low"]), float(last[f"{site} high"])
        assert ends == (results["intervals"]["low"][site], results["intervals"]["high"][site])
        assert ends[0] <= share <= ends[1]
    before = dict(zip(header, rows[8], strict=True))
    assert before["round"] == "9"
    assert before["site6 low"] == "", "nine rounds are too few for an interval"


def test_each_dice_has_its_interval_or_the_reason_why_not(longer_run: Path):
    page = (longer_run / "report.html").read_text("utf-8")
    results = json.loads((longer_run / "results.json").read_text("utf-8"))
    assert results["test_cases"] == {"site1": 2, "site2": 4, "site3": 2, "site4": 8, "site5": 3, "site6": 14}
    for site, ends in results["dice_interval"].items():
        assert (ends is None) == (results["test_cases"][site] < 5)
        if ends:
            assert ends[0] <= results["dice"][site] <= ends[1]
            assert "{:.3f} to {:.3f}".format(*ends) in page
        else:
            assert f"no interval: {results['test_cases'][site]} cases, 5 needed" in page
    shown = " ".join(interval_lines(results))
    assert "site1, site2, site3 and site5 have no interval and can't be told apart from any other site" in shown
    table = Console(width=80, file=StringIO())
    table.print(results_table(results, 80, "fedce"))
    out = table.file.getvalue()
    assert "(2 cases)" in out
    assert "({}-{})".format(*(f"{end:.2f}"[1:] for end in results["dice_interval"]["site6"])) in out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_results_of_earlier_versions_are_shown_as_they_were(longer_run: Path, tmp_path: Path, monkeypatch):
    """Without intervals of the Dice, numbers of cases, or reasons."""
    results = RunFolder(longer_run).results
    for key in ("no_intervals", "dice_interval", "validation_interval", "validation_cases", "test_cases"):
        del results[key]
    ends = {end: dict.fromkeys(results["contributions"], value) for end, value in (("low", 0.1), ("high", 0.2))}
    results["intervals"] = {"level": 0.95, **ends, "sentences": ["All 6 sites can be told apart."]}
    shutil.copytree(longer_run, tmp_path / "run")
    for place in ("fedce.present.pages.run.checked", "fedce.record.publish.checked"):
        monkeypatch.setattr(place, lambda run: Checked(results, ""))
    page = write_report(RunFolder.open(tmp_path / "run")).read_text("utf-8")
    assert page.count("(10.0 to 20.0 %)") == 6
    assert "no interval" not in page
    assert "no_interval" not in str(interval_lines(results))
    assert member_view(RunFolder(tmp_path / "run"), "site1")["interval"] == [0.1, 0.2]


def test_results_without_intervals_over_rounds_still_give_a_page(longer_run: Path, tmp_path: Path):
    """As those of a store have none."""
    shutil.copytree(longer_run, tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    results = run.results
    del results["intervals_over_rounds"]
    run.write_results(results)
    page = write_report(run).read_text("utf-8")
    assert "FillBetween" not in page
    assert "pale band" not in page


def test_so_many_sites_have_no_bands(longer_run: Path, tmp_path: Path, monkeypatch, fedce):
    monkeypatch.setattr("fedce.record.results.MOST_BANDS", 5)
    monkeypatch.setattr("fedce.present.pages.run.MOST_BANDS", 5)
    assert fedce("run", *SMALL, "--rounds", 12, "--out", tmp_path / "run").exit_code == 0
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "FillBetween" not in page
    assert "sites would hide each other here" in page


@pytest.mark.parametrize("algorithm", ["fedavg", "standalone"])
def test_examples_are_each_sites_first_test_image_by_the_model_that_it_would_use(tmp_path: Path, fedce, algorithm):
    out = tmp_path / "run"
    assert fedce("run", *SMALL, "--algorithm", algorithm, "--rounds", 3, "--out", out).exit_code == 0
    run = RunFolder.open(out)
    first = {site: parts["test"][0] for site, parts in json.loads(run.splits_file.read_text("utf-8")).items()}
    shown = {site: float(dice) for site, dice in figure_tables(run.report_file.read_text("utf-8"))["examples"][1:]}
    assert list(shown) == list(first)
    for data in load_sites(run.config.data):
        learner = load_model(run, Which(data.name if algorithm == "standalone" else None)).learner
        case = data.files.index(first[data.name])
        found, truth = learner.predict(data.images[case][None])[0], data.masks[case] > 0
        assert shown[data.name] == pytest.approx(2 * (found & truth).sum() / (found.sum() + truth.sum()))


def test_the_page_holds_the_picture_in_the_run_folder_and_may_leave_it_out(tiny_run: Path, tmp_path: Path, fedce):
    copy = tmp_path / "run"
    shutil.copytree(tiny_run, copy)
    picture = b64encode((copy / "examples.png").read_bytes()).decode()
    page = (copy / "report.html").read_text("utf-8")
    assert picture in page
    assert "the Dice of this one image" in page
    assert re.search(
        r'<img [^>]*alt="An image of the first test case of each site with two outlines; Dice site1 0\.\d\d, ', page
    )
    assert fedce("report", copy, "--no-examples").exit_code == 0
    without = (copy / "report.html").read_text("utf-8")
    assert "<img" not in without
    assert "Example" not in without
    (copy / "examples.png").unlink()
    assert write_report(RunFolder.open(copy)).read_text("utf-8") == without


def test_replacing_a_run_deletes_its_examples(tiny_run: Path, tmp_path: Path):
    copy = tmp_path / "run"
    shutil.copytree(tiny_run, copy)
    RunFolder.open(copy).remove()
    assert not any(copy.iterdir())


@pytest.fixture(scope="module")
def alone(tmp_path_factory, fedce) -> Path:
    """Standalone on the data of `longer_run`."""
    out = tmp_path_factory.mktemp("alone") / "run"
    assert fedce("run", *SMALL, "--algorithm", "standalone", "--rounds", 5, "--out", out).exit_code == 0
    return out


def test_dice_stands_against_what_a_site_reaches_alone(tmp_path: Path, longer_run: Path, fedce):
    both = tmp_path / "run"
    done = fedce("run", *SMALL, "--algorithm", "fedavg", "--rounds", 3, "--alone", "--out", both)
    assert done.exit_code == 0, done.output
    page, results = (both / "report.html").read_text("utf-8"), json.loads((both / "results.json").read_text("utf-8"))
    for site, gain in results["gain"].items():
        assert gain == results["dice"][site] - results["alone"][site]
        assert f'<td class="number">{results["alone"][site]:.3f}' in page
        assert f"{gain:+.3f}" in page
    table = figure_tables(page)["test-dice"]
    assert {row[0]: float(row[3]) for row in table[1:]} == results["alone"]
    assert "than alone" in page or "from training alone" in page
    assert "trained alone" not in (longer_run / "report.html").read_text("utf-8"), "not asked for, not shown"


def test_who_is_better_off_alone_is_named_as_far_as_intervals_show_it():
    gain = {"a": -0.1, "b": 0.01, "c": 0.1, "d": 0.2}
    intervals = {"a": [-0.15, -0.05], "b": [-0.1, 0.1], "c": None, "d": [0.1, 0.3]}
    assert gain_sentences({"gain": gain, "gain_interval": intervals}) == [
        "Worse off than alone, in Dice with its 95 % interval: a -0.100 (-0.150 to -0.050).",
        "Better off than alone, in Dice with its 95 % interval: d +0.200 (+0.100 to +0.300).",
        "No difference from training alone that this run can show: b +0.010 (-0.100 to +0.100), "
        "c +0.100 (too few test cases for an interval).",
    ]
    assert gain_sentences({}) == []


@pytest.fixture
def several(longer_run: Path, alone: Path, tiny_run: Path, tmp_path: Path) -> Path:
    """A folder of runs: two on the same data, one on other, one that was stopped, and things that are no runs."""
    folder = tmp_path / "runs"
    for name, run in (("fed ce", longer_run), ("alone", alone), ("other", tiny_run), ("stopped", tiny_run)):
        shutil.copytree(run, folder / name)
    for name in ("results.json", "report.html"):
        (folder / "stopped" / name).unlink()
    lines = (folder / "stopped" / "ledger.jsonl").read_text("utf-8").splitlines(keepends=True)
    (folder / "stopped" / "ledger.jsonl").write_text("".join(lines[:3]))
    (folder / "notes").mkdir()
    (folder / "notes" / "config.toml").write_text("rounds = 1")
    (folder / "letter.txt").write_text("dear")
    return folder


def cells_of(page: str, heading: str) -> dict[str, list[str]]:
    """The rows under a heading by their first cell, without tags."""
    section = page.split(f"{heading}</h2>")[1].split("<h2")[0]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', section)
    strip = re.compile(r"<[^>]+>")
    return {strip.sub("", name): [strip.sub("", cell) for cell in cells.split("</td>")[:-1]] for name, cells in rows}


def test_runs_of_a_folder_stand_side_by_side(several: Path, fedce):
    written = fedce("report", several)
    assert written.exit_code == 0, written.output
    assert written.stdout.strip() == str(several / "report.html")
    page = (several / "report.html").read_text("utf-8")
    results = {name: json.loads((several / name / "results.json").read_text()) for name in ("alone", "fed ce", "other")}
    rows = cells_of(page, "Runs")
    assert list(rows) == list(results)
    for name, found in results.items():
        fairness, worst = found["fairness"], min(found["dice"], key=found["dice"].get)
        numbers = [f"{fairness[key]:.3f}" for key in ("mean", "std", "worst")]
        about = [found["algorithm"], "fundus6", str(found["rounds"]), "0"]
        assert rows[name][:8] == [*about, *numbers, worst]
    assert 'href="fed%20ce/report.html"' in page
    assert all((several / unquote(link)).exists() for link in re.findall(r'<a href="([^"]+)"', page))
    section = page.split("On the same fundus6</h2>")[1].split("<h2")[0]
    dice, shares = section.split("<caption>")[1:]
    dice_rows = re.findall(r'<th scope="row">(.*?)</th>', dice)
    assert dice_rows == ["alone", "fed ce"], "Standalone first, and the run on other data is not among them"
    for site, value in results["alone"]["dice"].items():
        assert f">{site}</th>" in dice
        assert f'<td class="number">{value:.3f}</td>' in dice
    assert re.findall(r'<th scope="row">(.*?)</th>', shares) == ["fed ce"], "alone, nobody contributes"
    for share in results["fed ce"]["contributions"].values():
        assert f'<td class="number">{100 * share:.1f}</td>' in shares
    assert cells_of(page, "Runs without results") == {
        "stopped": ["2 of 4 rounds are recorded", "fedce run --resume stopped"]
    }
    assert str(several.parent) not in page


def test_a_spoilt_run_does_not_hide_the_others(several: Path, fedce):
    ledger = several / "other" / "ledger.jsonl"
    ledger.write_text(ledger.read_text("utf-8").replace('"n_train": 4', '"n_train": 9', 1))
    (several / "alone" / "results.json").write_text("{")
    assert fedce("report", several).exit_code == 0
    page = (several / "report.html").read_text("utf-8")
    assert list(cells_of(page, "Runs")) == ["fed ce"]
    spoilt = cells_of(page, "Runs without results")
    assert "other is not sound (line 2 does not follow from line 1" in spoilt["other"][0]
    assert "alone/results.json is not valid JSON" in spoilt["alone"][0]
    assert str(several.parent) not in page


def test_names_of_runs_are_shown_not_run(several: Path, fedce):
    (several / "alone").rename(several / "<img src=x onerror=alert(1)>")
    assert fedce("report", several).exit_code == 0
    page = (several / "report.html").read_text("utf-8")
    assert "<img" not in page
    assert "&lt;img src=x" in page


def test_a_folder_page_opens_in_chromium(several: Path, tmp_path: Path, fedce, chromium):
    assert fedce("report", several).exit_code == 0
    shown, picture = open_page(chromium, several / "report.html", tmp_path)
    assert "Runs in runs" in shown.stdout
    assert shown.stdout.count("</button>") > 20, "tables sort"
    assert "CONSOLE" not in shown.stderr
    assert picture.stat().st_size > 20_000


def test_a_folder_without_runs_is_one_line(tmp_path: Path, several: Path, fedce):
    (tmp_path / "empty").mkdir()
    for arguments, line in (
        (("empty",), "holds no run, no study and no folders with runs"),
        (("nowhere",), "there is no folder nowhere"),
        (("runs", "--no-examples"), "is not a run; --no-examples is for the report of one"),
    ):
        refused = fedce("report", *arguments, cwd=tmp_path)
        assert refused.exit_code == 2
        assert line in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    assert not any((tmp_path / "empty").iterdir())


@pytest.fixture(scope="module")
def valued(tmp_path_factory, fedce) -> Path:
    """A run of three sites, and what they are worth."""
    folder = tmp_path_factory.mktemp("valued")
    for i, site in enumerate(("east", "north", "south")):
        write_site(folder / "data", site, n=8 + 2 * i)
    run = folder / "run"
    small = ("--set", "model.channels=[4,8]", "--rounds", 2, "--workers", 1)
    assert fedce("run", "--data", folder / "data", *small, "--out", run, "--json").exit_code == 0
    assert "Agreement with the truth" not in (run / "report.html").read_text("utf-8")
    found = fedce("value", run, "--store", folder / "store", "--workers", 1)
    assert found.exit_code == 0, found.output
    assert "report.html shows the values too" in found.stderr.replace("\n", " ")
    return run


def test_the_truth_stands_beside_the_contributions(valued: Path, fedce):
    page = (valued / "report.html").read_text("utf-8")
    value = json.loads((valued / "value-loo.json").read_text("utf-8"))
    section = page.split("Agreement with the truth</h2>")[1].split("<h2")[0]
    for site in ("east", "north", "south"):
        cells = (100 * value["values"][site], 100 * value["shares"][site], 100 * value["estimate"][site])
        row = f"{site}</th>" + "".join(
            f'<td class="number">{cell:.{digits}f}</td>' for cell, digits in zip(cells, (2, 1, 1), strict=True)
        )
        assert row in section
    assert fedce("report", valued).exit_code == 0
    assert (valued / "report.html").read_text("utf-8") == page


@pytest.mark.parametrize(
    ("pearson", "clipped", "sentences"),
    [
        (
            0.8321,
            [],
            ("with the truth is 0.83 (Pearson, p = 0.04), and that of their order is 0.50 (Spearman)",),
        ),
        (None, [], ("all sites have equal contributions or equal true values, so there is no correlation",)),
        (-0.5, ["north", "south"], ("is -0.50 (Pearson", "a negative value (north, south) counts as 0")),
    ],
)
def test_agreement_is_a_sentence(valued: Path, tmp_path: Path, pearson, clipped, sentences):
    copy = tmp_path / "run"
    shutil.copytree(valued, copy)
    value = read_sealed(copy / "value-loo.json")
    value["agreement"] |= {"pearson": pearson, "pearson_p": pearson and 0.04, "spearman": pearson and 0.5}
    write_sealed(copy / "value-loo.json", {**value, "clipped": clipped})
    page = write_report(RunFolder.open(copy)).read_text("utf-8")
    summary_of_page = page.split('aria-label="Summary"')[1].split("</section>")[0]
    assert sentences[0] in summary_of_page
    assert all(sentence in page for sentence in sentences)


def test_a_file_that_is_no_valuation_is_refused(valued: Path, tmp_path: Path, fedce):
    copy = tmp_path / "run"
    shutil.copytree(valued, copy)
    (copy / "value-mine.json").write_text("[1]")
    refused = fedce("report", copy)
    assert refused.exit_code == 2
    assert "value-mine.json has the wrong form" in refused.stderr
    assert "delete it, or value the run again" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def figure_tables(page: str) -> dict[str, list[list[str]]]:
    links = re.findall(r'download="([\w-]+)\.csv" href="data:text/csv;base64,([^"]+)"', page)
    return {name: list(csv.reader(b64decode(text).decode().splitlines())) for name, text in links}


def test_the_model_card_says_what_the_model_is_and_is_not(tiny_run: Path):
    card = (tiny_run / "report.html").read_text("utf-8").split("Model card</h2>")[1]
    results = json.loads((tiny_run / "results.json").read_text("utf-8"))
    worst = min(results["dice"], key=results["dice"].get)
    for fact in (
        f"{results['n_parameters']:,} trained parameters",
        "Images of 48 x 48 pixels and 3 channels",
        "disc, cup",
        f"{sum(results['train_images'].values())} training images of 6 sites",
        f"worst {results['fairness']['worst']:.3f} at {worst}",
        "A program drew the images",
        "No authority has approved it",
        "fewer than 10 test cases",
        results["model_sha256"],
        f"torch {results['versions']['torch']}",
    ):
        assert fact in card


@pytest.mark.parametrize("alarmed", [True, False])
def test_free_rider_scores_and_alarms_are_shown_where_there_are_some(
    tiny_run: Path, tmp_path: Path, monkeypatch, alarmed
):
    alarm = {"site": "site1", "round_no": 1, "kind": "replay", "what": "sends an old update again"}
    # A site that sent nothing that has a direction has no score, and must not spoil the figure.
    scores = {f"site{i}": {"scores": [0.1, None, 0.2, 0.3], "alarms": []} for i in range(1, 7)}
    scores["site1"] = {"scores": [None] * 4, "alarms": [alarm] * alarmed}
    page = rewritten(tiny_run, tmp_path, monkeypatch, freerider=scores)
    assert page.count("<svg") == 2 * 5
    assert figure_tables(page)["free-rider-scores"][1:3] == [["1", "", *["0.1"] * 5], ["2", *[""] * 6]]
    row = '<th scope="row">site1</th><td class="number">2</td><td>sends an old update again</td>'
    assert (row in page, "<p>No alarm was raised.</p>" in page.split("Free riders</h2>")[1]) == (alarmed, not alarmed)


def test_a_report_needs_no_model_file(tiny_run: Path, tmp_path: Path):
    copy = tmp_path / "run"
    shutil.copytree(tiny_run, copy)
    (copy / "model.safetensors").unlink()
    assert "no longer in the run folder" in write_report(RunFolder.open(copy)).read_text("utf-8")


def test_writing_it_again_gives_the_same_page(tiny_run: Path, fedce):
    before = (tiny_run / "report.html").read_text("utf-8")
    assert fedce("report", tiny_run).exit_code == 0
    assert (tiny_run / "report.html").read_text("utf-8") == before


def test_hostile_names_are_shown_not_run(tiny_run: Path, tmp_path: Path):
    copy = tmp_path / "<script>alert(1)</script>"
    shutil.copytree(tiny_run, copy)
    rename_site(copy, "site1", "<img src=x onerror=alert(1)>")
    page = write_report(RunFolder.open(copy)).read_text("utf-8")
    assert page.count("<script") == 1, "ours, whose digest the policy names"
    assert not re.findall(r"<img (?!src=\"data:)", page)
    assert page.count("<img") == 1
    assert "&lt;img" in page


def sentences_of(results: dict, config: Config) -> list[str]:
    """All answers at the top of a report."""
    return [sentence for _, answers in glance(results, config).rows for sentence in answers]


UNSURE = {
    "data": "ours",
    "contributions": {"a": 0.5, "b": 0.3, "c": 0.2},
    "dice": {"a": 0.9, "b": 0.88, "c": 0.3},
    "fairness": {"mean": 0.69, "std": 0.34},
    "rounds": 5,
    "algorithm": "fedce",
    "flags": {"c": ["zero update in round 2"]},
    "rounds_unused": {"c": 1},
    "intervals": None,
    "order_settled_from": 3,
}
SHARE_INTERVALS = {
    "low": {"a": 0.4, "b": 0.2, "c": 0.1},
    "high": {"a": 0.6, "b": 0.4, "c": 0.3},
    "indistinguishable": [["b", "c"]],
    "sentences": [],
}
DICE_INTERVALS = {"a": [0.8, 0.95], "b": [0.8, 0.95], "c": [0.2, 0.4]}


@pytest.mark.parametrize(
    ("changes", "most", "worst"),
    [
        ({}, False, False),
        ({"intervals": SHARE_INTERVALS, "dice_interval": DICE_INTERVALS}, True, True),
        ({"intervals": {**SHARE_INTERVALS, "indistinguishable": [["b", "a"]]}}, False, False),
        ({"intervals": {**SHARE_INTERVALS, "low": {"a": 0.4, "b": None, "c": 0.1}}}, False, False),
        ({"dice_interval": {**DICE_INTERVALS, "b": [0.3, 0.95]}}, False, False),
        ({"dice_interval": {**DICE_INTERVALS, "a": None}}, False, False),
    ],
)
def test_the_summary_says_who_is_first_and_last_only_where_intervals_show_it(changes, most, worst):
    text = " ".join(sentences_of({**UNSURE, **changes}, Config()))
    assert ("a contributed most: 50.0 %, compared with an equal share of 33.3 %." in text) is most
    assert ("this run can't show that it contributed more than all others" in text) is not most
    assert ("The model serves c worst, with a Dice of 0.300 (95 % interval 0.200 to 0.400)." in text) is worst
    assert ("c has the lowest Dice, 0.300; this run can't show that it is served worse than" in text) is not worst
    assert "1 alarm: c: zero update in round 2" in text
    assert "Updates with an alarm have no weight in the model and earn nothing: c in 1 of 5 rounds." in text


SERVED = {
    "data": "ours",
    "contributions": {"a": 0.6, "b": 0.4},
    "dice": {"a": 0.9, "b": 0.88},
    "fairness": {"mean": 0.89, "std": 0.01},
    "rounds": 5,
    "algorithm": "fedce",
    "flags": {},
    "intervals": None,
    "order_settled_from": 3,
}
"""What a summary is made of."""


@pytest.mark.parametrize(
    ("settled_from", "rounds", "sentence"),
    [
        (3, 5, "In this run the order of the contributions has not changed since round 3."),
        (5, 5, "In this run the order of the contributions still changed in the last round."),
        (1, 1, None),
        (None, 5, None),
    ],
)
def test_an_order_that_changed_in_the_last_round_is_not_settled(settled_from, rounds, sentence):
    said = sentences_of({**SERVED, "rounds": rounds, "order_settled_from": settled_from}, Config())
    assert [text for text in said if text.startswith("In this run the order")] == ([sentence] if sentence else [])


@pytest.mark.parametrize(
    ("algorithm", "detect", "sentence"),
    [
        ({"name": "fedce"}, False, NO_ALARM),
        ({"name": "fedce-sum"}, False, NO_ALARM),
        ({"name": "fedce", "guard": "off"}, False, NOT_CHECKED),
        ({"name": "fedce", "guard": "off"}, True, NO_ALARM),
        ({"name": "fedavg"}, False, NO_ALARM),
        ({"name": "fedavg", "guard": "off"}, False, NOT_CHECKED),
        ({"name": "fedavg"}, True, NO_ALARM),
        ({"name": "standalone"}, True, NOT_CHECKED),
    ],
)
def test_where_nobody_looked_for_cheats_no_alarm_says_nothing(algorithm, detect, sentence):
    guard = algorithm.pop("guard", "standard")
    config = Config(guard=guard, algorithm=AlgorithmConfig(**algorithm), freerider=FreeRiderConfig(detect=detect))
    said = sentences_of(SERVED, config)
    assert sentence in said
    assert len({NO_ALARM, NOT_CHECKED} & set(said)) == 1


def test_a_band_of_one_round_is_not_explained(longer_run: Path, tmp_path: Path, monkeypatch):
    results = json.loads((longer_run / "results.json").read_text("utf-8"))
    page = rewritten(longer_run, tmp_path, monkeypatch, intervals_over_rounds=results["intervals_over_rounds"][:1])
    assert "pale band" not in page


def test_there_is_no_half_a_round(tiny_run: Path):
    rounds = RunFolder(tiny_run).rounds()
    for n in (1, 2, 3, 4):
        labels = re.findall(r">([\d.]+)</text>", plots.progress(rounds[:n]).wide.split('id="matplotlib.axis_2"')[0])
        assert labels == [str(i + 1) for i in range(n)]


def test_a_marker_at_the_top_is_whole():
    """Markers have a height of 5 points, and the figure one of 245."""
    rounds = as_recorded([{"round": i, "sites": {"a": {"share": 0.501}, "b": {"share": 0.499}}} for i in range(3)])
    figure = plots.contributions_figure(rounds)
    assert 50.1 / figure.axes[0].get_ylim()[1] < 1 - 5 / 245


def test_a_mean_over_some_of_the_sites_is_said_to_be_one(longer_run: Path, tmp_path: Path, monkeypatch):
    said = "In rounds that some sites missed, the mean is over the sites that took part."
    assert said not in (longer_run / "report.html").read_text("utf-8")
    copy = tmp_path / "run"
    shutil.copytree(longer_run, copy)
    run = RunFolder.open(copy)
    made_anew(run, lambda entries: entries[3]["sites"].pop("site2"))
    monkeypatch.setattr("fedce.present.pages.run.checked", lambda run: Checked(run.results, ""))
    assert said in write_report(run).read_text("utf-8")


def test_names_that_the_font_lacks_are_no_noise():
    rounds = as_recorded([{"round": i, "sites": {"カタカナ": {"share": 1.0}}} for i in range(3)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawing = plots.contributions(rounds)
        assert "カタカナ" in drawing.wide
        assert "カタカナ" in drawing.narrow
        picture, _ = plots.contributions_figure(rounds)._repr_png_()
    assert picture.startswith(b"\x89PNG")


def test_only_runs_of_as_many_rounds_are_ranked(several: Path, fedce, monkeypatch):
    assert fedce("report", several).exit_code == 0
    page = (several / "report.html").read_text("utf-8")
    assert "highest mean" not in page, "14 rounds and 5 are no race"
    assert "<p>No check for cheating was made in: alone.</p>" in page
    assert cells_of(page, "Runs")["alone"][-1] == "not checked"
    monkeypatch.setattr("fedce.present.pages.folder.checked", lambda run: Checked({**run.results, "rounds": 14}, ""))
    assert fedce("report", several).exit_code == 0
    assert "2 runs of 14 rounds on the same fundus6: no difference that these runs can show" in (
        several / "report.html"
    ).read_text("utf-8")


def test_it_opens_in_chromium(tiny_run: Path, tmp_path: Path, chromium):
    shown, picture = open_page(chromium, tiny_run / "report.html", tmp_path)
    assert "Contributions over the rounds" in shown.stdout
    assert shown.stdout.count("</svg>") == 2 * 4
    assert "CONSOLE" not in shown.stderr
    assert picture.stat().st_size > 20_000
