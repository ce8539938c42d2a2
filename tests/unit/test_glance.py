"""The top of a page: too early to tell where it is, what each number means, and the terms behind a contribution."""

import re
from pathlib import Path

import pytest

from fedce.base.config import Config, parse
from fedce.present import meanings as texts
from fedce.present.glance import TOO_EARLY, glance, verdict
from fedce.present.meanings import meanings, meanings_of_amounts
from fedce.present.terms import relative, terms_in_words
from fedce.record.folder import RunFolder
from support import as_recorded

TOLD = {
    "algorithm": "fedce",
    "data": "ours",
    "rounds": 12,
    "contributions": {"a": 0.6, "b": 0.4},
    "initial_dice": {"a": 0.1, "b": 0.1},
    "validation_interval": {"a": [0.3, 0.5], "b": [0.05, 0.5]},
    "worth": {"share": {"a": 0.7, "b": 0.3}, "low": {"a": 0.6, "b": 0.1}, "high": {"a": 0.8, "b": 0.5}, "signal": 1e9},
    "dice": {"a": 0.9, "b": 0.8},
    "fairness": {"mean": 0.85},
    "flags": {},
    "intervals": None,
    "order_settled_from": 3,
}


def test_a_run_that_can_tell_says_so_first():
    assert verdict(TOLD) == (
        "At 1 of 2 sites the model is shown to be better than before the training; the sites differ by more than noise "
        "in what they give."
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"initial_dice": {"a": 0.3, "b": 0.3}}, "at no site is the model shown to be better than before the training"),
        (
            {"validation_interval": {"a": None, "b": None}},
            "at no site is the model shown to be better than before the training, because none has 5 validation cases",
        ),
        ({"worth": {**TOLD["worth"], "signal": 0.0}}, "in what they give, the sites differ by no more than noise"),
        (
            {"worth": {**TOLD["worth"], "low": {"a": 0.0, "b": 0.0}, "high": {"a": 1.0, "b": 0.5}}},
            "the 95 % intervals of what the sites give all overlap",
        ),
        ({"rounds": 1}, "1 round is too few for intervals of what each site needs"),
        ({"rounds": 9}, "9 rounds are too few for intervals of what each site needs"),
    ],
)
def test_too_early_to_tell_is_the_first_line_where_it_is(changes, reason):
    said = glance({**TOLD, **changes}, Config()).verdict
    assert said == f"{TOO_EARLY}: {reason}. Do not decide anything by the shares on this page."


def test_validation_on_training_cases_is_said():
    config = parse({"data": {"split": [0.5, 0, 0.5]}})
    assert any("used the training cases" in said for said in dict(glance(TOLD, config).rows)["What was not checked"])


def test_every_question_of_a_board_is_answered():
    rows = dict(glance(TOLD, Config(), measured=[]).rows)
    assert list(rows) == [
        "What was trained",
        "Is it good?",
        "What each site gives",
        "What each site needs",
        "How sure is that?",
        "Alarms",
        "What was not checked",
    ]
    assert rows["What was not checked"] == [
        "The guard checked every update; the free-rider detector was off.",
        "The shares were not compared with trainings without each site ('fedce value' does that).",
        "What a site reaches alone was not measured (--alone measures it).",
        "The model was tested on cases of these sites alone, and in no clinical study.",
    ]


@pytest.mark.parametrize("number", [value for value in vars(texts).values() if isinstance(value, tuple)])
def test_every_number_is_defined_in_two_sentences(number):
    _, text = number
    assert len(re.findall(r"\.(?: |$)", text)) == 2, text


def test_numbers_that_a_page_does_not_show_are_not_defined():
    names = [name for name, _ in meanings({"algorithm": "fedavg"}, gives=False)]
    assert names == ["Contribution", "Dice", "95 % interval"]
    names = [name for name, _ in meanings({"algorithm": "fedce", "alone": {"a": 0.5}}, gives=True)]
    assert names == ["Gives", "Needs (contribution)", "Dice", "Alone and gain", "95 % interval"]
    kept = {"algorithm": "fedce", "keeps": {"a": "personal"}, "dice_without": {"a": 0.5}}
    names = [name for name, _ in meanings(kept, gives=False)]
    assert names == ["Needs (contribution)", "Dice", "Keeps", "Dice without it", "95 % interval"]
    assert len(meanings(kept, gives=False, beside=["alone"])) == 3
    names = [name for name, _ in meanings_of_amounts({"algorithm": "fedce"}, gives=True, intervals=False)]
    assert names == ["Share and amount", "Gives", "Needs (contribution)"]


def recorded(**terms: list[tuple[float | None, float | None]]):
    """Rounds with the terms (novelty, error) of each site."""
    n = len(next(iter(terms.values())))
    facts = [{site: {"cos": of[i][0], "err": of[i][1], "trust": 1.0} for site, of in terms.items()} for i in range(n)]
    return as_recorded([{"round": i, "sites": sites} for i, sites in enumerate(facts)])


def test_terms_are_means_over_the_rounds_as_multiples_of_the_average_site():
    rounds = recorded(a=[(0.2, None), (0.4, 0.6)], b=[(0.1, None), (0.1, 0.2)])
    assert relative(rounds, "cos") == pytest.approx({"a": 0.3 / 0.2, "b": 0.1 / 0.2})
    assert relative(rounds, "err") == pytest.approx({"a": 0.6 / 0.4, "b": 0.2 / 0.4})
    found = terms_in_words("fedce", rounds)
    assert found.by_site == {
        "a": "Its updates are newer than average (1.5 times), and the others' model errs more on its cases than on "
        "average (1.5 times).",
        "b": "Its updates are less new than average (0.5 times), and the others' model errs less on its cases than on "
        "average (0.5 times).",
    }


def test_an_ablation_has_one_term_and_other_methods_have_none():
    rounds = recorded(a=[(0.2, 0.5)], b=[(0.2, 0.5)])
    assert terms_in_words("fedce-cos", rounds).by_site["a"] == "Its updates are as new as on average (1.0 times)."
    assert "errs on the site's cases" not in terms_in_words("fedce-cos", rounds).about
    assert terms_in_words("fedavg", rounds) is None
    assert terms_in_words("my.module:Own", rounds) is None


def test_a_page_says_the_terms_of_every_site_and_a_members_page_its_own(tiny_run: Path, tmp_path: Path, fedce):
    found = terms_in_words("fedce", RunFolder(tiny_run).rounds())
    page = (tiny_run / "report.html").read_text("utf-8").replace("&#39;", "'")
    for site, sentence in found.by_site.items():
        assert f"<strong>{site}</strong>: {sentence}" in page
    assert fedce("publish", tiny_run, "--site", "site2", "--out", tmp_path / "page.html").exit_code == 0
    own = (tmp_path / "page.html").read_text("utf-8").replace("&#39;", "'")
    assert found.by_site["site2"] in own
    assert TOO_EARLY in own.split("<h2")[0], "four rounds"
    assert own.count("<tr>") < 6, "a curve, and no row for each round"


def test_a_members_curve_has_its_band(tmp_path: Path, fedce):
    small = ("--set", "data.size=32", "--set", "model.channels=[4,8]")
    made = fedce("run", "--scale", "tiny", "--rounds", 12, "--workers", 1, *small, "--out", tmp_path / "run", "--json")
    assert made.exit_code == 0, made.output
    assert fedce("publish", tmp_path / "run", "--site", "site6", "--out", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "its 95 % interval" in page
    assert page.count('id="FillBetweenPolyCollection_1"') == 2, "for a screen and for a phone"
