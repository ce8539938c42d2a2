"""fedce allocate: a budget shared to the cent, in the terminal, as JSON and as a page."""

import json
import shutil
from decimal import Decimal
from pathlib import Path

import pytest

from fedce.record.folder import RunFolder
from fedce.record.results import results_of
from support import made_anew, open_page, rewrite


def test_amounts_sum_to_the_budget_in_every_form(tiny_run: Path, tmp_path: Path, fedce):
    page = tmp_path / "allocation.html"
    arguments = ("allocate", tiny_run, "--budget", "100000.01", "--floor", "2%", "--cap", "40%", "--out", page, "--yes")
    payouts = json.loads(fedce(*arguments, "--json").stdout)
    for payout in payouts.values():
        assert sum(map(Decimal, payout["amounts"].values())) == Decimal("100000.01")
        assert all(0.02 - 1e-9 <= share <= 0.40 + 1e-9 for share in payout["shares"].values())
    shown = fedce(*arguments)
    assert "100,000.01" in shown.stdout
    text = page.read_text("utf-8")
    for amount in payouts["contribution"]["amounts"].values():
        assert f"{Decimal(amount):,}" in text


def edit_results(run: RunFolder) -> None:
    results = run.results
    results["contributions"]["site1"] += 0.01
    run.write_results(results)


def edit_images(run: RunFolder) -> None:
    results = run.results
    results["train_images"]["site1"] = results["train_images_used"]["site1"] = 10**6
    run.write_results(results)


def edit_last_line(run: RunFolder) -> None:
    """The ledger's end and the results, which then follow from it, without any key."""
    *lines, last = run.lines()
    end = json.loads(last)
    end["shares"]["site1"], end["shares"]["site2"] = end["shares"]["site1"] + 0.05, end["shares"]["site2"] - 0.05
    rewrite(run, [*lines, json.dumps(end)])
    run.write_results(results_of(run.config, run.ledger(), over_rounds=True))


@pytest.mark.parametrize("edit", [edit_results, edit_images, edit_last_line])
def test_nobody_is_paid_by_an_unsound_record(tiny_run: Path, tmp_path: Path, fedce, edit):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    edit(RunFolder(run))
    assert fedce("ledger", "verify", run).exit_code == 1
    for command in (
        ("allocate", run, "--budget", 100, "--yes"),
        ("allocate", run, "--budget", 100, "--rule", "samples", "--yes"),
        ("publish", run, "--site", "site1"),
        ("publish", run, "--epsilon", 1),
        ("report", run),
    ):
        refused = fedce(*command)
        assert refused.exit_code == 2, command
        assert len(refused.stderr.splitlines()) == 1
        assert "is not sound (" in refused.stderr
        assert f"see 'fedce ledger verify {run}'" in refused.stderr


def test_samples_are_those_that_sites_took_part_with(tiny_run: Path, tmp_path: Path, fedce):
    arguments = ("--budget", 1000, "--rule", "samples", "--json", "--out", tmp_path / "page.html")
    payouts = json.loads(fedce("allocate", tiny_run, *arguments).stdout)
    used = {site: facts.n_train for site, facts in RunFolder(tiny_run).rounds()[-1].sites.items()}
    shares = payouts["samples"]["shares"]
    assert shares == pytest.approx({site: n / sum(used.values()) for site, n in used.items()})


def test_nobody_is_paid_by_contributions_that_are_too_uncertain(tmp_path: Path, fedce):
    run, page = tmp_path / "run", tmp_path / "run" / "allocation.html"
    # A network that learns nothing in so few rounds.
    slow = ("--set", "model.channels=[16,32,64,128]", "--rounds", 4, "--workers", 1)
    assert fedce("run", "--scale", "tiny", *slow, "--out", run).exit_code == 0
    learnt = "at no site is the final model's validation Dice above that of the initial model"
    noise = "the sites differ by no more than noise in what they give to each other"
    for rule, doubt in (("worth", noise), ("mix", noise), ("contribution", "the contributions have no intervals")):
        refused = fedce("allocate", run, "--budget", 100, "--rule", rule)
        assert refused.exit_code == 2
        assert len(refused.stderr.splitlines()) == 1
        assert f"no site should be paid by --rule {rule} here: {doubt}" in refused.stderr
        assert learnt in refused.stderr
        assert "--yes" in refused.stderr
        assert not page.exists()
    for rule in ("samples", "equal"):
        assert fedce("allocate", run, "--budget", 100, "--rule", rule).exit_code == 0
    forced = fedce("allocate", run, "--budget", 100, "--yes")
    assert forced.exit_code == 0
    assert f"Warning, overridden by --yes: {noise}; {learnt}" in forced.stderr
    assert f"Warning, overridden by --yes: {noise}; {learnt}".replace("'", "&#39;") in page.read_text("utf-8")


def test_a_run_without_worth_names_the_rule_that_is_left(tmp_path: Path, fedce):
    settings = ("--scale", "tiny", "--rounds", 1, "--workers", 1, "--set", "model.channels=[4,8]")
    assert fedce("run", *settings, "--set", "worth.every=0", "--out", tmp_path / "run").exit_code == 0
    refused = fedce("allocate", tmp_path / "run", "--budget", 100)
    assert refused.exit_code == 2
    assert len(refused.stderr.splitlines()) == 1
    assert "was not measured (worth.every is 0); choose --rule contribution" in refused.stderr


def without_certainty(entries: list[dict]) -> None:
    """As if no site knew how sure the final model's validation Dice is."""
    for told in entries[-1]["evaluations"].values():
        told["validation_interval"] = None


def test_what_is_certain_enough_is_paid_without_a_word(tmp_path: Path, fedce):
    run = tmp_path / "run"
    settings = ("--scale", "tiny", "--rounds", 12, "--workers", 1, "--set", "model.channels=[4,8]")
    assert fedce("run", *settings, "--out", run).exit_code == 0
    paid = fedce("allocate", run, "--budget", 100, "--rule", "contribution")
    assert paid.exit_code == 0, paid.output
    assert paid.stderr == ""
    made_anew(RunFolder(run), without_certainty)
    refused = fedce("allocate", run, "--budget", 100, "--rule", "contribution")
    assert refused.exit_code == 2
    assert "no intervals" not in refused.stderr
    assert "at no site is the final model's validation Dice above" in refused.stderr


def test_the_rule_decides(tiny_run: Path, tmp_path: Path, fedce):
    page = tmp_path / "page.html"
    run = fedce("allocate", tiny_run, "--budget", "600", "--rule", "equal", "--out", page)
    assert run.exit_code == 0
    assert "amounts by equal" in run.stdout
    assert "100.00" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--budget", "0"), "--budget: expected an amount above 0"),
        (("--budget", "5", "--rule", "fair"), "--rule: unknown rule 'fair'"),
        (("--budget", "5", "--floor", "50%"), "more than the budget"),
    ],
)
def test_bad_input_is_one_line(tiny_run: Path, tmp_path: Path, fedce, arguments, line):
    run = fedce("allocate", tiny_run, *arguments, "--out", tmp_path / "page.html")
    assert run.exit_code == 2
    assert line in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert not (tmp_path / "page.html").exists()


def test_tables_sort_in_a_browser(tiny_run: Path, tmp_path: Path, fedce, chromium: str):
    """The page's own script runs under its policy: headings have become buttons."""
    page = tmp_path / "page.html"
    assert fedce("allocate", tiny_run, "--budget", "1000", "--out", page, "--yes").exit_code == 0
    shown, picture = open_page(chromium, page, tmp_path)
    assert '<button type="button">Amount</button>' in shown.stdout
    assert "CONSOLE" not in shown.stderr
    assert picture.stat().st_size > 10_000
