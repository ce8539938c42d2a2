"""Sites that train alone beside the federation, personalise, and keep the model that serves them best."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedce.base.config import load
from fedce.core.messages import Evaluation, Reply, Task
from fedce.core.site import Memory, Solo
from fedce.engines.starting import execute, resume
from fedce.learning.schedule import Schedule
from fedce.present.gains import MODELS
from fedce.record.folder import RunFolder
from fedce.record.verify import verify
from fedce.site.own import ForItself, with_own_models
from support import FakeSite, Stopped, params, stopping_after

TINY = {
    "data.scale": "tiny",
    "rounds": 3,
    "model.channels": (4, 8),
    "engine.workers": 1,
    "engine.checkpoint_seconds": 0.0,
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> dict[str, RunFolder]:
    folder = tmp_path_factory.mktemp("own")
    runs = {
        "plain": {},
        "alone": {"alone": True},
        "standalone": {"algorithm.name": "standalone"},
        "personal": {"alone": True, "personalise": 2, "model.norm": "site"},
    }
    for name, changes in runs.items():
        execute(load(None, {**TINY, **changes}), folder / name)
    return {name: RunFolder(folder / name) for name in runs}


def test_the_federation_is_the_same_with_sites_that_train_alone_too(ran):
    plain, alone = ran["plain"].results, ran["alone"].results
    assert alone["model_sha256"] == plain["model_sha256"]
    assert alone["contributions"] == plain["contributions"]
    assert alone["dice"] == plain["dice"]
    assert "alone" not in plain


def test_alone_is_what_standalone_reaches_to_the_last_bit(ran):
    assert ran["alone"].results["alone"] == ran["standalone"].results["dice"]
    assert ran["alone"].results["alone_interval"] == ran["standalone"].results["dice_interval"]


def test_gain_is_the_difference_and_lies_in_its_interval(ran):
    results = ran["alone"].results
    for site, gain in results["gain"].items():
        assert gain == results["dice"][site] - results["alone"][site]
        if (ends := results["gain_interval"][site]) is not None:
            assert ends[0] <= gain + 1e-9
            assert gain <= ends[1] + 1e-9
        else:
            assert results["test_cases"][site] < 5


def test_a_site_keeps_one_of_the_three_and_the_rest_of_the_run_knows_it(ran):
    results = ran["personal"].results
    named = {"common": "dice_common", "personal": "dice_personal", "alone": "alone"}
    for site, kept in results["keeps"].items():
        assert results["dice"][site] == pytest.approx(results[named[kept]][site], abs=1e-12)
        model = load_file(ran["personal"].site_model_file(site))
        common = load_file(ran["personal"].model_file)
        is_shared = all(np.array_equal(model[name], common[name]) for name in common if name.endswith("weight"))
        assert is_shared == (kept == "common")


def test_the_ledgers_are_sound(ran):
    for run in ran.values():
        assert verify(run).problems == ()


def test_a_members_page_says_what_it_gains_and_keeps(ran, tmp_path: Path, fedce):
    results = ran["personal"].results
    site, kept = next((site, kept) for site, kept in results["keeps"].items() if kept != "common")
    made = fedce("publish", ran["personal"].path, "--site", site, "--out", tmp_path / "page.html")
    assert made.exit_code == 0, made.output
    page = (tmp_path / "page.html").read_text()
    assert f"{site} {results['gain'][site]:+.3f} (" in page
    assert f"By its own validation cases, {site} keeps {MODELS[kept]}." in page
    assert f"{MODELS[kept]} reaches a Dice of {results['dice'][site]:.3f}" in page
    assert f"The common model reaches {results['dice_common'][site]:.3f}; without" in page
    rows = re.findall(r'<th scope="row">([^<]*)</th><td class="wide most">([0-9.]+)', page)
    named = {"Together: ": "dice_common", "Together, ": "dice_personal", "Alone": "alone", "Without": "dice_without"}
    assert len(rows) == 4
    for (text, dice), (start, key) in zip(rows, named.items(), strict=True):
        assert text.startswith(start)
        assert dice == f"{results[key][site]:.3f}"
    assert [text for text, _ in rows if ", which it keeps" in text] == [rows[list(MODELS).index(kept)][0]]
    assert not any(other in page for other in results["keeps"] if other != site)


def test_killed_and_resumed_with_two_workers_the_bits_are_the_same(ran, tmp_path: Path):
    changes = {**TINY, "alone": True, "personalise": 2, "model.norm": "site", "engine.workers": 2}
    with pytest.raises(Stopped):
        execute(load(None, changes), tmp_path / "run", observer=stopping_after(1))
    again, whole = resume(tmp_path / "run").values, ran["personal"].results
    for key in ("model_sha256", "dice", "alone", "gain", "gain_interval", "keeps"):
        assert again[key] == whole[key]


def site_that_prefers(value: float) -> FakeSite:
    """Scores a model by how near its first number is to a value; training adds one to it."""
    return FakeSite("a", [1.0, 0.0], score=lambda w: 1 / (1 + abs(float(w.vector[0]) - value)))


@pytest.mark.parametrize(("value", "kept", "model"), [(0, "common", 0), (2, "personal", 2), (7, "alone", 7)])
def test_the_best_by_validation_is_kept(value, kept, model):
    site, task = site_that_prefers(value), Task("a", 5, params([0.0, 0.0]), action="evaluate")
    memory = Memory(4, params([9.0, 9.0]), solo=Solo(params([7.0, 0.0])))
    reply = Reply("a", 5, 10, evaluation=Evaluation(0.5, {"a": 0.5}, 0.4))
    found = with_own_models(site, task, memory, reply, ForItself(alone=True, personalise=2))
    assert found.evaluation.beside.keeps == kept
    assert found.params.vector[0] == model
    assert found.evaluation.test_dice_without == 0.4


def test_among_equals_the_common_model_is_kept():
    site, task = FakeSite("a", [1.0]), Task("a", 5, params([0.0]), action="evaluate")
    reply = Reply("a", 5, 10, evaluation=Evaluation(0.5, {"a": 0.5}, None))
    found = with_own_models(site, task, Memory(4, params([0.0])), reply, ForItself(personalise=1))
    assert found.evaluation.beside.keeps == "common"


class _Cases(FakeSite):
    """Scores a model by its first number times what each case gains by it; replicates resample the cases."""

    def __init__(self, gains: list[float]) -> None:
        super().__init__("a", [1.0], score=lambda w: 0.5 + float(np.mean(gains)) * float(w.vector[0]))
        self.gains = np.array(gains)
        samples = np.random.default_rng(0).integers(len(gains), size=(20, len(gains)))
        self.means = self.gains[samples].mean(axis=1)

    def score_replicates(self, w):
        return tuple(0.5 + self.means * float(w.vector[0]))


@pytest.mark.parametrize(
    ("gains", "kept"),
    [
        ([0.02, 0.03, 0.01, 0.02, 0.02, 0.03], "personal"),  # Small, and the same in every case.
        ([0.30, -0.25, 0.02, -0.20, 0.28, -0.06], "common"),  # As large on average, by a lucky case or two.
        ([-0.1, -0.1, -0.1, -0.1, -0.1, -0.1], "common"),
    ],
)
def test_a_site_leaves_the_common_model_only_for_one_that_its_cases_show_to_be_better(gains, kept):
    task, reply = (
        Task("a", 5, params([0.0]), action="evaluate"),
        Reply("a", 5, 10, evaluation=Evaluation(0.5, {"a": 0.5}, None)),
    )
    found = with_own_models(_Cases(gains), task, Memory(4, params([0.0])), reply, ForItself(personalise=1))
    assert found.evaluation.beside.keeps == kept


def test_without_personalising_nothing_is_chosen():
    site, task = site_that_prefers(7), Task("a", 5, params([0.0, 0.0]), action="evaluate")
    memory = Memory(4, params([0.0, 0.0]), solo=Solo(params([7.0, 0.0])))
    reply = Reply("a", 5, 10, evaluation=Evaluation(0.5, {"a": 0.5}, None))
    found = with_own_models(site, task, memory, reply, ForItself(alone=True))
    assert found.evaluation.beside.keeps == "common"
    assert found.params is None
    assert found.evaluation.beside.alone == 1.0


def test_what_a_site_says_of_its_own_models_is_read_back():
    site, task = site_that_prefers(2), Task("a", 5, params([0.0, 0.0]), action="evaluate")
    reply = Reply("a", 5, 10, evaluation=Evaluation(0.5, {"a": 0.5}, None))
    told = with_own_models(site, task, None, reply, ForItself(personalise=2)).evaluation
    assert Evaluation.recorded(told.entry) == told
    assert "beside" not in replace(told, beside=None).entry


@pytest.mark.parametrize("kind", ["constant", "cosine", "poly", "late"])
def test_a_schedule_falls_from_one_and_never_rises(kind):
    rates = [Schedule(kind, 50).rate(round_no) for round_no in range(50)]
    assert rates[0] == 1.0
    assert all(0 < after <= before for before, after in pairwise(rates))
    assert (rates[-1] == 1.0) == (kind == "constant")
    assert Schedule(kind, 50).rate(60) == rates[-1]
    own = [Schedule(kind, 50, n_after=10).rate(round_no) for round_no in range(50, 60)]
    assert own == [Schedule(kind, 10).rate(round_no) for round_no in range(10)]


def test_a_schedule_changes_the_training_and_the_first_round_not(tmp_path: Path, ran):
    execute(load(None, {**TINY, "train.schedule": "cosine"}), tmp_path / "run", report=False)
    falling, constant = (run.rounds() for run in (RunFolder(tmp_path / "run"), ran["plain"]))
    losses = [[done.sites["site1"].loss for done in rounds] for rounds in (falling, constant)]
    assert losses[0][0] == losses[1][0]
    assert losses[0][2] != losses[1][2]
