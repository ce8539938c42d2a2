"""The report: one file, no network, readable in a browser, safe with hostile names."""

import json
import re
import shutil
from pathlib import Path

from fedce.record import RunFolder
from fedce.report import summary, write_report
from support import open_page


def test_it_stands_alone(tiny_run: Path):
    page = (tiny_run / "report.html").read_text("utf-8")
    outside = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?!#|data:)[\w/:]""", page)
    assert not outside
    assert page.count("<svg") == 3
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
    assert all(word in page for word in ("Fairness", "Jain", "Settings", "Versions"))


def test_writing_it_again_gives_the_same_page(tiny_run: Path, fedce):
    before = (tiny_run / "report.html").read_text("utf-8")
    assert fedce("report", tiny_run).exit_code == 0
    assert (tiny_run / "report.html").read_text("utf-8") == before


def test_hostile_names_are_shown_not_run(tiny_run: Path, tmp_path: Path):
    copy = tmp_path / "<script>alert(1)</script>"
    shutil.copytree(tiny_run, copy)
    evil = "<img src=x onerror=alert(1)>"
    (copy / "results.json").write_text((copy / "results.json").read_text("utf-8").replace("site1", evil))
    entries = json.loads(json.dumps(RunFolder(copy).ledger()).replace("site1", evil))
    (copy / "ledger.jsonl").unlink()
    run = RunFolder.open(copy)
    for entry in entries:
        run.append(entry)
    page = write_report(run).read_text("utf-8")
    assert page.count("<script") == 1, "ours, whose digest the policy names"
    assert "<img" not in page
    assert "&lt;img" in page


def test_the_summary_tells_who_is_served_badly():
    results = {
        "contributions": {"a": 0.5, "b": 0.3, "c": 0.2},
        "dice": {"a": 0.9, "b": 0.88, "c": 0.3},
        "fairness": {"mean": 0.69, "std": 0.34},
        "rounds": 5,
        "algorithm": "fedce",
        "flags": {"c": ["zero update in round 2"]},
        "intervals": None,
        "order_settled_from": 3,
    }
    text = " ".join(summary(results))
    assert "a contributed most: 50.0 % where an equal share is 33.3 %" in text
    assert "c is served worst, with a Dice of 0.300, well below the others" in text
    assert "1 alarm: c: zero update in round 2" in text


def test_it_opens_in_chromium(tiny_run: Path, tmp_path: Path, chromium):
    shown, picture = open_page(chromium, tiny_run / "report.html", tmp_path)
    assert "Contributions over the rounds" in shown.stdout
    assert shown.stdout.count("</svg>") == 3
    assert "CONSOLE" not in shown.stderr
    assert picture.stat().st_size > 20_000
