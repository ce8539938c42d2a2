"""fedce allocate: a budget shared to the cent, in the terminal, as JSON and as a page."""

import json
import shutil
from decimal import Decimal
from pathlib import Path

import pytest

from fedce.files import read_sealed, write_sealed
from support import open_page


def test_amounts_sum_to_the_budget_in_every_form(tiny_run: Path, tmp_path: Path, fedce):
    page = tmp_path / "allocation.html"
    arguments = ("allocate", tiny_run, "--budget", "100000.01", "--floor", "2%", "--cap", "40%", "--out", page)
    payouts = json.loads(fedce(*arguments, "--json").stdout)
    for payout in payouts.values():
        assert sum(map(Decimal, payout["amounts"].values())) == Decimal("100000.01")
        assert all(0.02 - 1e-9 <= share <= 0.40 + 1e-9 for share in payout["shares"].values())
    shown = fedce(*arguments)
    assert "100,000.01" in shown.stdout
    text = page.read_text("utf-8")
    for amount in payouts["contribution"]["amounts"].values():
        assert f"{Decimal(amount):,}" in text


def test_nobody_is_paid_by_results_that_are_not_the_ledgers(tiny_run: Path, tmp_path: Path, fedce):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    results = read_sealed(run / "results.json")
    results["contributions"]["site1"] += 0.01
    write_sealed(run / "results.json", results)
    for command in (
        ("allocate", run, "--budget", 100),
        ("publish", run, "--site", "site1"),
        ("publish", run, "--epsilon", 1),
        ("report", run),
    ):
        refused = fedce(*command)
        assert refused.exit_code == 2, command
        assert "is not what the ledger ends with" in refused.stderr


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
        (("--budget", "5", "--floor", "50%"), "more than everything"),
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
    assert fedce("allocate", tiny_run, "--budget", "1000", "--out", page).exit_code == 0
    shown, picture = open_page(chromium, page, tmp_path)
    assert '<button type="button">Amount</button>' in shown.stdout
    assert "CONSOLE" not in shown.stderr
    assert picture.stat().st_size > 10_000
