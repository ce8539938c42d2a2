"""What goes out: a member's own view holds nobody else, and noisy shares are as private as they say."""

import json
import shutil
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedce import Result
from fedce.algorithms import FedCE, FedCERunningMeans
from fedce.algorithms.fedce import BothTerms
from fedce.base.errors import RunError
from fedce.core.credit import Credit
from fedce.present.pages.member import write_member
from fedce.present.pages.run import write_report
from fedce.record.folder import RunFolder
from fedce.record.publish import FLOOR, Noisy, member_view, noisy_shares
from fedce.record.verify import Checked
from support import made_anew, rename_site


def test_a_members_page_holds_nothing_of_the_others(tiny_run: Path, tmp_path: Path, fedce):
    made = fedce("publish", tiny_run, "--site", "site2", "--out", tmp_path / "page.html")
    assert made.exit_code == 0, made.output
    page = (tmp_path / "page.html").read_text()
    assert "site2" in page
    assert not any(f"site{i}" in page for i in (1, 3, 4, 5, 6))
    view = json.loads(fedce("publish", tiny_run, "--site", "site2", "--json").stdout)
    results = RunFolder(tiny_run).results
    assert view["share"] == results["contributions"]["site2"]
    assert len(view["by_round"]) == 4
    others = json.dumps([value for site, value in results["contributions"].items() if site != "site2"])
    assert not set(others.strip("[]").split(", ")) & set(json.dumps(view).replace(",", "").split())


def test_a_hostile_name_is_shown_and_stays_in_the_folder(tiny_run: Path, tmp_path: Path, fedce):
    run, name = tmp_path / "run", "../<script>alert(1)</script>"
    shutil.copytree(tiny_run, run)
    rename_site(run, "site2", name)
    made = fedce("publish", run, "--site", name)
    assert made.exit_code == 0, made.output
    (page,) = run.glob("member-*.html")
    text = page.read_text()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert not list(tmp_path.glob("*.html"))


def test_pages_name_a_site_whose_votes_were_not_counted(tiny_run: Path, tmp_path: Path, fedce):
    """In words, on every page that shows what sites give; a member's page does not speak of others."""

    def score_by_place(entries: list[dict]) -> None:
        for ballot in (entry["ballot"] for entry in entries if entry.get("ballot")):
            ballot["scores"]["site2"] = [0.9 if i % 2 else 0.1 for i in range(len(ballot["scores"]["site2"]))]

    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    said = "The votes of site2 on what the other sites give were not counted: its scores contradict each other."
    assert said not in write_report(RunFolder.open(run)).read_text("utf-8"), "its scores are those of its images"
    results = made_anew(RunFolder.open(run), score_by_place).results
    assert results["worth"]["not_believed"] == ["site2"]
    page = write_report(RunFolder.open(run)).read_text("utf-8")
    assert said in page
    assert "No alarm was raised" not in page
    assert said in write_member(RunFolder.open(run), "site2", tmp_path / "own.html").read_text("utf-8")
    assert "contradict" not in write_member(RunFolder.open(run), "site1", tmp_path / "other.html").read_text("utf-8")
    made = fedce("allocate", run, "--budget", 100, "--yes", "--out", tmp_path / "page.html")
    assert made.exit_code == 0, made.output
    assert said in (tmp_path / "page.html").read_text("utf-8")
    assert said in Result(run, results).sentences


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either --site NAME or --epsilon E"),
        (("--site", "site2", "--epsilon", 1), "give either --site NAME or --epsilon E"),
        (("--site", "site9"), "no site is called 'site9'"),
        (("--epsilon", 0), "--epsilon: expected a number from 0.000001 to 1000000, got 0"),
        (("--epsilon", "inf"), "--epsilon: expected a number from"),
        (("--epsilon", "nan"), "--epsilon: expected a number from"),
        (("--epsilon", 1e-300), "--epsilon: expected a number from"),
    ],
)
def test_mistakes_are_one_line(tiny_run: Path, fedce, arguments, message):
    refused = fedce("publish", tiny_run, *arguments)
    assert refused.exit_code == 2
    assert message in refused.stderr


def test_publications_are_in_the_ledger_and_add_up(tiny_run: Path, tmp_path: Path, fedce):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    for n in (1, 2):
        made = fedce("publish", run, "--epsilon", 2.5, "--json")
        assert made.exit_code == 0, made.output
        found = json.loads(made.stdout)
        assert found["epsilon_so_far"] == 2.5 * n
        assert sum(found["shares"].values()) == pytest.approx(1)
    assert fedce("ledger", "verify", run).exit_code == 0
    assert "epsilon 2.5, shares" in fedce("ledger", "show", run).output
    assert "the noise is larger than an equal share" in fedce("publish", run, "--epsilon", 0.01).stderr


def test_presence_multiplies_what_is_published(tiny_run: Path, tmp_path: Path):
    run = RunFolder(tiny_run)
    before = noisy_shares(run, 1e6).shares
    shutil.copytree(tiny_run, tmp_path / "run")
    other = RunFolder(tmp_path / "run")
    other.write_results({**run.results, "presence": {**run.results["presence"], "site1": 0.5}})
    after = noisy_shares(other, 1e6).shares
    assert after["site1"] / after["site2"] == pytest.approx(before["site1"] / before["site2"] / 2, rel=1e-3)


def test_nobody_but_the_coordinator_publishes(tiny_run: Path, tmp_path: Path, fedce, monkeypatch):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    monkeypatch.setenv("FEDCE_KEY", str(tmp_path / "other.pem"))
    refused = fedce("publish", run, "--epsilon", 1)
    assert refused.exit_code == 2
    assert "belongs to the coordinator" in refused.stderr
    assert fedce("ledger", "verify", run).exit_code == 3


def test_a_twin_is_not_named(tiny_run: Path, tmp_path: Path, monkeypatch):
    shutil.copytree(tiny_run, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    alarm = {"site": "site2", "round_no": 2, "kind": "noise", "what": "its updates are noise"}
    results = {**run.results, "freerider": {"site2": {"scores": [], "alarms": [alarm]}}}
    monkeypatch.setattr("fedce.record.publish.checked", lambda run: Checked(results, ""))

    def flag(contents):
        for content in contents[2:5]:
            content["sites"]["site2"]["flags"] = ["its updates are nearly those of site4"]
        contents[1]["sites"]["site2"]["flags"] = ["zero update"]

    assert member_view(made_anew(run, flag, results=False), "site2")["flags"] == [
        "zero update in round 1",
        "its updates are nearly those of another site in 3 rounds from 2 on",
        "its updates are noise since round 3",
    ]


def test_only_fedces_shares_are_known_well_enough(tmp_path: Path, fedce):
    out = tmp_path / "run"
    assert fedce("run", "--scale", "tiny", "--rounds", 1, "--algorithm", "fedavg", "--out", out).exit_code == 0
    with pytest.raises(RunError, match="was not run with FedCE"):
        noisy_shares(RunFolder(out), 1.0)


def test_the_noise_is_laplace_of_the_stated_scale(tiny_run: Path):
    run = RunFolder(tiny_run)
    exact = noisy_shares(run, 1e6).shares
    random = Random(0)
    drawn = [noisy_shares(run, 1000.0, random) for _ in range(400)]
    deviations = [abs(found.shares["site1"] - exact["site1"]) for found in drawn]
    # Adding up to 1 again takes away a sixth of a site's own noise and adds some of the others'.
    assert np.mean(deviations) == pytest.approx(drawn[0].scale, rel=0.25)


ERRORS = st.lists(st.floats(FLOOR, 1), min_size=4, max_size=4)


@given(
    st.sampled_from(["product", "sum", "cos", "err"]),
    st.sampled_from(["paper", "nvflare"]),
    st.sampled_from([0.3, 0.5, 0.8, 1.0]),
    st.lists(st.tuples(ERRORS, st.lists(st.floats(0.05, 2), min_size=4, max_size=4)), min_size=1, max_size=5),
    st.integers(2, 200),
    st.data(),
)
def test_one_case_moves_shares_no_further_than_stated(combine, preset, max_share, rounds, n, data):
    """The bound against the arithmetic itself: any site's error moves by up to 1/n in every round."""
    algorithm = (FedCE if preset == "paper" else FedCERunningMeans)(combine=combine, max_share=max_share)

    def shares(change):
        credit = Credit()
        for k, (errors, cosines) in enumerate(rounds):
            terms = {
                str(i): BothTerms(10, cosines[i], max(min(error + (change[k] if i == 0 else 0), 1), FLOOR))
                for i, error in enumerate(errors)
            }
            credit = algorithm.earn(credit, terms)
        return algorithm.shares(credit)

    moved = data.draw(st.lists(st.floats(-1 / n, 1 / n), min_size=len(rounds), max_size=len(rounds)))
    before, after = shares([0.0] * len(rounds)), shares(moved)
    r = 1 / (n * FLOOR)
    assert sum(abs(before[i] - after[i]) for i in before) <= 2 * r / (2 + r) + 1e-9


def test_the_noise_rests_on_validation_cases(tiny_run: Path, tmp_path: Path):
    """The smallest site has two validation cases, however many images each may have."""
    r = 1 / (2 * FLOOR)
    assert noisy_shares(RunFolder(tiny_run), 1.0).sensitivity == pytest.approx(2 * r / (2 + r))
    copy = tmp_path / "run"
    shutil.copytree(tiny_run, copy)
    ledger = copy / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"n_validation": 2', '"n_validation": 2000'))
    assert noisy_shares(RunFolder(copy), 1.0).sensitivity == pytest.approx(2 * r / (2 + r))
    ledger.write_text(ledger.read_text().replace('"n_validation_cases"', '"n_unknown"'))
    with pytest.raises(RunError, match="names no validation cases of"):
        noisy_shares(RunFolder(copy), 1.0)


def test_the_view_is_a_value(tiny_run: Path):
    assert member_view(RunFolder(tiny_run), "site1")["n_sites"] == 6
    assert Noisy({}, 2.0, 0.5).scale == 0.25


def test_a_site_without_an_interval_has_a_page_too(tiny_run: Path, monkeypatch):
    ends = {"low": {"site1": 0.1, "site2": None}, "high": {"site1": 0.2, "site2": None}}
    results = {**RunFolder(tiny_run).results, "intervals": ends}
    monkeypatch.setattr("fedce.record.publish.checked", lambda run: Checked(results, ""))
    found = [member_view(RunFolder(tiny_run), f"site{i}")["interval"] for i in (1, 2, 3)]
    assert found == [[0.1, 0.2], None, None]
