"""The robustness study: what is compared with what."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fedce.base.config import Config, parse
from fedce.studies import Context, robustness
from fedce.studies.robustness import Case, contributions_of, effect, has_worth, worth_of

NAMES = [f"site{i}" for i in range(1, 7)]
HONEST = dict(zip(NAMES, (0.1, 0.2, 0.1, 0.2, 0.3, 0.1), strict=True))


def context_of(attacked: dict[str, float], worth: dict[str, float] | None) -> Context:
    """Results without trainings: an honest run, and one with these shares if anybody cheats."""

    def result(config: Config) -> Any:
        is_honest = not config.freerider.plant
        values = {"worth": worth and {"share": HONEST if is_honest else worth}}
        contributions = HONEST if is_honest else attacked
        return SimpleNamespace(contributions=contributions, dice=dict.fromkeys(NAMES, 0.5), values=values)

    return cast(Context, SimpleNamespace(config=parse({}), seeds=[0, 1], names=NAMES, result=result))


def test_worth_is_compared_with_worth_and_contributions_with_contributions():
    richer = {**HONEST, "site2": 0.3, "site5": 0.2}
    poorer = {**HONEST, "site2": 0.1, "site5": 0.4}
    context, case = context_of(richer, poorer), Case("slander", ("site2",))
    guarded = robustness.methods()["guarded"]
    shares, gives = (effect(context, guarded, case, of) for of in (contributions_of, worth_of))
    assert (shares.gain, shares.kept) == pytest.approx((0.5, 2 / 3))
    assert (gives.gain, gives.kept) == pytest.approx((-0.5, 4 / 3))
    titles = robustness.evaluate(context).tables[0].header
    assert [title for title in titles if title.startswith("Worth")] == [
        f"Worth, guarded: {what}" for what in ("gain", "rare keeps", "Dice")
    ]


def test_each_column_is_held_against_its_own_aim():
    fifth = {**HONEST, "site2": 0.24, "site4": 0.24, "site5": 0.22}
    said = " ".join(robustness.evaluate(context_of(fifth, fifth)).findings)
    n = len(robustness.cases(NAMES))
    assert f"Worth, guarded: 0 of {n} attacks gain at most 10 %" in said
    assert f"Of worth, 0 of {n} attacks gain at most 15 % with any seed; the most is +20 %" in said
    assert "FedCE, guarded: " in said
    assert said.count("attacks gain at most 25 %") == len(robustness.methods())
    assert "keeps at least 95 %" in said


def test_of_a_clone_it_is_shown_what_its_victim_keeps():
    context = context_of({**HONEST, "site1": 0.05, "site2": 0.25}, HONEST)
    guarded = robustness.methods()["guarded"]
    assert effect(context, guarded, Case("clone", ("site2",))).kept == pytest.approx(0.5)
    assert effect(context, guarded, Case("drift", ("site2",))).kept == pytest.approx(1.0)


def test_without_ballots_there_is_no_column_of_worth():
    context = context_of(HONEST, None)
    assert not has_worth(context, robustness.cases(NAMES))
    assert not any("Worth" in title for title in robustness.evaluate(context).tables[0].header)


def test_only_guarded_runs_hold_ballots():
    every = {config.guard: config.worth.every for config in robustness.trainings(context_of(HONEST, HONEST))}
    assert every == {"off": 0, "standard": None}
