"""What each site gives to the others: when it is measured, from what it follows, and what a vote can do."""

import shutil
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from fedce.base.config import load
from fedce.base.errors import ConfigError
from fedce.core.ballot import REFERENCE, Ballot, Ballots, carried_by, models_without
from fedce.core.decoys import DECOY
from fedce.core.params import weighted_sum
from fedce.data import load_sites
from fedce.engines.starting import execute, resume
from fedce.federation.plan import resolve
from fedce.federation.reference import reference_images
from fedce.present.worth import vote_lines
from fedce.record.folder import RunFolder
from fedce.record.ledger import Ledger
from fedce.record.results import worth_so_far
from fedce.record.verify import verify
from fedce.valuation.worth import Attendance, Held, gives, middle_of, shares_of, with_own_losses, worth_of
from support import Stopped, chained, contents_of, params, stopping_after

TINY = {
    "data.scale": "tiny",
    "rounds": 6,
    "model.channels": (4, 8),
    "engine.workers": 1,
    "engine.checkpoint_seconds": 0.0,
    "train.lr": 0.01,
    "worth.every": 2,
}
SITES = ("east", "north", "south", "west")
scores = st.floats(0.05, 1.0)


def ballot(lost: np.ndarray, base: float = 0.8, carried=(1.0, 1.0, 1.0, 1.0)) -> Ballot:
    """A ballot in which each scorer (column) loses so much by each site (row)."""
    scores = {site: (base, *(base - lost[:, j])) for j, site in enumerate(SITES)}
    return Ballot(SITES, scores, dict(zip(SITES, carried, strict=True)))


def rounds_due(ballots: Ballots, n_sites: int) -> list[int]:
    """The rounds, from 1, that hold a ballot if all sites are always there."""
    sites, n_before, found = [f"site{i}" for i in range(n_sites)], Counter[str](), []
    for n in range(ballots.n_rounds):
        if ballots.is_due(n, sites, n_before):
            n_before.update(sites)
            found.append(n + 1)
    return found


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> RunFolder:
    folder = tmp_path_factory.mktemp("worth") / "run"
    execute(load(None, TINY), folder)
    return RunFolder(folder)


def test_ballots_are_held_when_they_are_due(ran):
    assert [done.round_no + 1 for done in ran.rounds() if done.ballot] == [2, 4, 6]
    assert rounds_due(Ballots(40), 6) == [4, 8, 12, 16, 20]
    assert rounds_due(Ballots(3), 6) == [1, 2, 3]
    assert rounds_due(Ballots(10, every=1), 3) == []
    assert rounds_due(Ballots(10, every=0), 6) == []
    assert rounds_due(Ballots(10, on_reference=True), 2) == [1, 2, 3, 4, 5]


def test_a_site_that_joins_late_has_ballots_late():
    known = dict.fromkeys("abcde", 3)
    assert Ballots(40).is_due(27, list("abcdef"), known)
    assert not Ballots(40).is_due(28, list("abcdef"), known)
    assert not Ballots(40).is_due(29, list("abcde"), known), "five sites, all of which are known"
    assert not Ballots(40).is_due(27, list("abcdef"), {**known, "f": 3})
    assert not Ballots(40, draws=True).is_due(27, list("abcdef"), known)


def test_the_models_on_a_ballot_are_the_means_of_the_others():
    models = {name: params([float(i), float(i * i)]) for i, name in enumerate(SITES)}
    rho = dict(zip(SITES, (0.1, 0.2, 0.3, 0.4), strict=True))
    mean = weighted_sum(list(models.values()), list(rho.values()))
    found = models_without(mean, models, rho)
    for left in SITES:
        others = [name for name in SITES if name != left]
        weights = [rho[name] / (1 - rho[left]) for name in others]
        expected = weighted_sum([models[name] for name in others], weights)
        assert found[left].vector == pytest.approx(expected.vector, abs=1e-6)


def test_a_site_without_weight_is_not_left_out():
    models = {name: params([1.0]) for name in SITES}
    assert set(models_without(params([1.0]), models, {"east": 0.5, "north": 0.5})) == {"east", "north"}


def test_measuring_changes_nothing_in_the_training(ran, tmp_path):
    without = execute(load(None, {**TINY, "worth.every": 0}), tmp_path / "run")
    assert without.values["model_sha256"] == ran.results["model_sha256"]
    assert without.values["contributions"] == ran.results["contributions"]
    assert without.values["worth"]["reason"] == "worth.every is 0"


def test_two_workers_measure_the_same_bits(ran, tmp_path):
    found = execute(load(None, {**TINY, "engine.workers": 2}), tmp_path / "run")
    assert found.values["worth"] == ran.results["worth"]


def test_a_killed_run_measures_the_same_after_it_is_resumed(ran, tmp_path):
    with pytest.raises(Stopped):
        execute(load(None, TINY), tmp_path / "run", observer=stopping_after(3))
    found = resume(tmp_path / "run")
    assert found.values["worth"] == ran.results["worth"]


def test_a_sound_ledger_names_its_ballots(ran):
    verdict = verify(ran)
    assert verdict.sound
    assert "3 ballots, each held when it was due" in verdict.facts


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda line: line.pop("ballot"), "a ballot is missing"),
        (lambda line: line["ballot"]["scores"]["site1"].__setitem__(1, 0.0), "results.json gives worth"),
        (
            lambda line: [
                line["ballot"]["scores"].__setitem__("stranger", [0.5] * 7),
                line["ballot"]["decoy"].__setitem__("stranger", 0.5),
            ],
            "stranger scored",
        ),
        (lambda line: line["ballot"].__setitem__("secret", "mine"), "not drawn from the secret"),
        (lambda line: line["ballot"]["decoy"].pop("site1"), "the decoy was not scored by the scorers"),
        (
            lambda line: [line["ballot"][what].pop("site1") for what in ("scores", "decoy")],
            "the votes of site1 are missing, without a reason",
        ),
        (
            lambda line: [
                line["ballot"]["carried"].pop(line["ballot"]["without"].pop()),
                *(own.pop() for own in line["ballot"]["scores"].values()),
            ],
            "not about the sites that had a weight",
        ),
        (lambda line: line["ballot"]["carried"].pop("site1"), "carried and without are not of the same sites"),
        (lambda line: line["ballot"]["carried"].__setitem__("site1", 9.0), "results.json gives worth"),
        (lambda line: line["ballot"]["scores"]["site1"].pop(), "gave 6 scores for 7 models"),
    ],
)
def test_a_changed_ballot_is_found(ran, tmp_path, change, problem):
    for file in ran.path.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    entries = contents_of(ran)
    change(next(entry for entry in entries if entry.get("round") == 1))
    (tmp_path / "ledger.jsonl").write_text("".join(f"{line}\n" for line in chained(entries)))
    assert any(problem in found for found in verify(RunFolder(tmp_path)).problems)


def test_worth_by_another_rule_is_not_worked_out_again(ran, tmp_path):
    for file in ran.path.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    entries = contents_of(ran)
    entries[0]["worth_rule"] = 0
    (tmp_path / "ledger.jsonl").write_text("".join(f"{line}\n" for line in chained(entries)))
    verdict = verify(RunFolder(tmp_path))
    assert not any("worth" in problem for problem in verdict.problems)
    assert any(line.startswith("worth in results.json") for line in verdict.unchecked)


def test_too_few_sites_or_another_kind_of_model_give_a_reason(tmp_path):
    three = {**TINY, "data.sites": ("site1", "site2", "site3"), "rounds": 3}
    found = execute(load(None, three), tmp_path / "three").values["worth"]
    assert found["share"] is None
    assert "3 sites take part" in found["reason"]
    own = execute(load(None, {**TINY, "algorithm.name": "ditto", "rounds": 3}), tmp_path / "own").values["worth"]
    assert "not a mean" in own["reason"]
    short = execute(load(None, {**TINY, "rounds": 2}), tmp_path / "short").values["worth"]
    assert "1 ballot was held, and at least 3" in short["reason"]
    drawn = {**TINY, "sites_per_round": 3, "freerider.detect": False, "rounds": 1}
    few = execute(load(None, drawn), tmp_path / "drawn").values["worth"]
    assert "sites_per_round is 3" in few["reason"]
    assert "set it to at least 4, or set worth.reference" in few["reason"]


def test_no_model_is_shown_where_few_sites_have_a_weight(tmp_path):
    """Multi-Krum's mean of two: the model without one of them is the other's."""
    krum = {**TINY, "algorithm.name": "krum", "algorithm.n_chosen": 2, "guard": "off"}
    run = execute(load(None, krum), tmp_path / "run")
    assert not any(done.ballot for done in RunFolder(run.folder).rounds())
    assert "fewer than 4 sites had a weight in the common model" in run.values["worth"]["reason"]
    assert verify(RunFolder(run.folder)).sound


def with_ballots(run: RunFolder, folder, change) -> Ledger:
    """The run's ledger with changed ballots."""
    entries = contents_of(run)
    for entry in entries:
        if entry.get("ballot"):
            change(entry["ballot"])
    (folder / "ledger.jsonl").write_text("".join(f"{line}\n" for line in chained(entries)))
    return RunFolder(folder).ledger()


def refusing(*sites: str):
    def change(held) -> None:
        # Without decoys nobody is disbelieved: in so small a run that depends on the coordinator's key.
        held["decoy"] = {}
        for site in sites:
            del held["scores"][site]
        held["no_vote"] = dict.fromkeys(sites, "no reply")

    return change


def test_sites_that_do_not_vote_are_named_and_can_not_raise_anybody(ran, tmp_path):
    """Votes about some sites alone would not be comparable: a site could then gain by refusing."""
    before = ran.results["worth"]
    two = worth_so_far(ran.config, with_ballots(ran, tmp_path, refusing("site1", "site2")))["worth"]
    assert two["no_votes"] == {"site1": 3, "site2": 3}
    assert two["share"].keys() == before["share"].keys()
    for silent in (("site1", "site2", "site3"), tuple(before["share"])):
        few = worth_so_far(ran.config, with_ballots(ran, tmp_path, refusing(*silent)))["worth"]
        assert few["share"] is None
        assert "3 of 3 ballots have fewer than 3 votes about some site" in few["reason"]
        lines = vote_lines({"worth": few})
        assert [line.split()[0] for line in lines[:5]] == list(silent)[:5]
    assert lines[5] == "1 more of the sites that were asked did not say it in some ballots."


def test_a_site_that_no_ballot_is_about_has_no_worth(ran, tmp_path):
    def late(held) -> None:
        held["decoy"], at = {}, held["without"].index("site6")
        del held["without"][at], held["carried"]["site6"]
        for own in held["scores"].values():
            del own[at + 1]

    found = worth_so_far(ran.config, with_ballots(ran, tmp_path, late))["worth"]
    assert found["unmeasured"] == ["site6"]
    assert "site6" not in found["share"]
    assert sum(found["share"].values()) == pytest.approx(1)
    assert vote_lines({"worth": found})[-1].startswith("What site6 gives was not measured: no ballot was held")


def test_a_site_that_takes_no_part_has_no_worth(tmp_path):
    run = execute(load(None, {**TINY, "leave_out": ["site4"]}), tmp_path / "run")
    assert "site4" not in run.values["worth"]["share"]


def test_only_the_named_scorers_are_asked(tmp_path):
    chosen = ["site1", "site2", "site3", "site4"]
    run = execute(load(None, {**TINY, "rounds": 2, "worth.scorers": chosen}), tmp_path / "run")
    held = RunFolder(run.folder).rounds()[1].ballot
    assert sorted(held.scores) == chosen
    assert len(held.without) == 6
    with pytest.raises(ConfigError, match="no site is called 'site9'"):
        execute(load(None, {**TINY, "worth.scorers": ["site9"]}), tmp_path / "none")
    for keys, words in (
        ({"worth.scorers": chosen[:2]}, r"worth\.scorers names 2 sites, and at least 4"),
        ({"worth.scorers": ["site1"] * 4}, r"worth\.scorers names 1 sites, and at least 4"),
        ({"worth.scorers": chosen, "leave_out": ["site1"]}, r"names 3 sites that take part, and at least 4"),
        ({"worth.scorers": chosen, "worth.reference": "there"}, r"no use with worth\.reference.*remove one"),
    ):
        with pytest.raises(ConfigError, match=words):
            execute(load(None, {**TINY, **keys}), tmp_path / "none")


def test_a_reference_set_scores_instead_of_the_sites(tmp_path):
    folder = tmp_path / "reference"
    site = load_sites("fundus6", scale="tiny", sites=["site4", "site5"])[0]
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    for i, (image, mask) in enumerate(zip(site.images, site.masks, strict=True)):
        Image.fromarray(image.transpose(1, 2, 0)).save(folder / "images" / f"{i}.png")
        Image.fromarray(np.where(mask[1], 255, np.where(mask[0], 128, 0)).astype(np.uint8)).save(
            folder / "masks" / f"{i}.png"
        )
    two = {**TINY, "data.sites": ("site1", "site2"), "worth.reference": str(folder), "model.norm": "site"}
    run = execute(load(None, {**two, "data.scale": "tiny"}), tmp_path / "run")
    assert run.values["worth"]["reason"] is None
    assert set(run.values["worth"]["matrix"]["site1"]) == {"reference"}
    assert verify(RunFolder(run.folder)).sound
    with pytest.raises(ConfigError, match=r"worth\.reference: expected a folder"):
        execute(load(None, {**two, "worth.reference": str(tmp_path / "none")}), tmp_path / "other")
    assert not (tmp_path / "other").exists()
    # The classes are the sites' own, in their order; a folder of several sites is not one reference set.
    config = resolve(load(None, {**two, "data.scale": "tiny"}))
    images = reference_images(config, (3, 48, 48), site_classes := {"disc": (128, 255), "cup": (255,)})
    assert images.masks.shape[1] == len(site_classes)
    assert images.masks.sum(axis=(0, 2, 3)).tolist() == site.masks.sum(axis=(0, 2, 3)).tolist()
    (tmp_path / "sites").mkdir()
    for name in ("one", "two"):
        shutil.copytree(folder, tmp_path / "sites" / name)
    with pytest.raises(ConfigError, match=r"holds several sites \(one, two\); name the folder of one of them"):
        execute(load(None, {**two, "worth.reference": str(tmp_path / "sites")}), tmp_path / "other")


@given(arrays(np.float64, (3, 4, 4), elements=st.floats(-0.2, 0.2)), st.floats(-0.5, 0.19))
def test_a_site_can_do_nothing_about_its_own_share(lost, own):
    """A site's scores enter neither what it gives, nor any vote about it."""
    changed = lost.copy()
    changed[:, 1, 1] = own
    before, after = (
        gives(Held.of([ballot(one) for one in some], SITES), "middle of others")[:, 1] for some in (lost, changed)
    )
    assert after == pytest.approx(before)


@given(arrays(np.float64, (1, 5), elements=st.floats(-1, 1)), st.lists(st.floats(-10, 10), min_size=2, max_size=2))
def test_two_liars_of_five_voters_can_not_leave_the_range_of_the_others(votes, lies):
    lied = votes.copy()
    lied[0, :2] = lies
    assert votes[0, 2:].min() <= middle_of(lied)[0] <= votes[0, 2:].max()
    assert middle_of(votes)[0] == np.median(votes)


def test_two_votes_are_none_and_missing_votes_do_not_count():
    known = np.array([[0.1, np.nan, 0.3, np.nan], [0.1, 0.2, np.nan, 0.6], [np.nan] * 4, [0.1, 0.2, 0.3, 0.6]])
    np.testing.assert_allclose(middle_of(known), [np.nan, 0.2, np.nan, 0.25])


def test_a_reference_set_is_believed_and_a_vote_without_others_is_not():
    asked, alone = (
        Held.of([Ballot(("north", "south"), {scorer: (0.8, 0.6, 0.8)})], ("north", "south"))
        for scorer in ("reference", "east")
    )
    assert gives(asked, "middle of others")[0].tolist() == pytest.approx([np.log(0.8 / 0.6), 0])
    assert gives(alone, "middle of others")[0].tolist() == [0, 0]
    assert gives(alone, "all")[0].tolist() == pytest.approx([np.log(0.8 / 0.6), 0])


@given(arrays(np.float64, (4, 4), elements=st.floats(-0.1, 0.1)))
def test_shares_are_shares(lost):
    found = worth_of([ballot(lost), ballot(lost), ballot(lost / 2)], SITES, reached=0.9, seed=0)
    for shares in (found.share, found.whole):
        assert sum(shares.values()) == pytest.approx(1)
        assert min(shares.values()) >= 0
    for site in SITES:
        assert found.low[site] <= found.share[site] <= found.high[site]


UNLIKE = (0.5, 1.0, 1.5, 1.0)
"""What the sites carry, if they differ."""


def test_the_site_whose_absence_hurts_the_others_gives_most():
    lost = np.full((4, 4), 0.01)
    lost[2] = 0.2
    lost[3, 3] = 0.6  # west needs itself, which says nothing about what it gives
    some = [ballot(lost * part, carried=UNLIKE) for part in (1.0, 1.1, 0.9)]
    found = worth_of(some, SITES, reached=0.9, seed=0)
    assert max(found.share, key=found.share.__getitem__) == "south"
    assert found.share["west"] == pytest.approx(found.share["north"], rel=0.05)
    assert found.whole["west"] > 2 * found.whole["north"]
    assert found.matrix["south"]["west"] == pytest.approx(0.2)
    assert found.value["south"] == pytest.approx(0.2)
    assert found.carried["south"] == pytest.approx(1.5 / 4)
    assert found.signal > 0.5


def test_own_losses_count_by_their_part_in_all_losses():
    """By hand: the others lose 0.3 in all, the sites themselves 0.1, half of it west; a gain counts as no loss."""
    lost = np.zeros((4, 4))
    lost[0, 1:] = 0.1
    lost[1, 1], lost[2, 2], lost[3, 3] = 0.03, 0.02, 0.05
    lost[0, 0] = -0.5
    share = np.array([0.4, 0.3, 0.2, 0.1])
    found = with_own_losses(share, Held.of([ballot(lost)] * 2, SITES), 0.8)
    assert found == pytest.approx(0.8 * share + 0.2 * np.array([0, 0.3, 0.2, 0.5]))
    assert with_own_losses(share, Held.of([ballot(lost)] * 2, SITES), 0.0) == pytest.approx(share)


def test_nobody_s_own_loss_is_known_from_a_reference_set():
    held = Held.of([Ballot(SITES, {REFERENCE: (0.8, 0.7, 0.8, 0.8, 0.6)})], SITES)
    share = np.array([0.4, 0.3, 0.2, 0.1])
    assert with_own_losses(share, held, 1.0).tolist() == share.tolist()


def test_sites_that_differ_in_nothing_get_equal_shares():
    found = worth_of([ballot(np.full((4, 4), 0.02))] * 4, SITES, reached=0.9, seed=0)
    assert found.signal == 0
    assert list(found.share.values()) == pytest.approx([0.25] * 4)
    assert min(found.high.values()) > 0.25 > max(found.low.values())


def test_votes_that_contradict_each_other_count_little():
    """Where votes are noise, what is carried decides."""
    rng = np.random.default_rng(0)
    some = [[ballot(rng.normal(0, 0.05, (4, 4)), carried=UNLIKE) for _ in range(8)] for _ in range(40)]
    shares = [worth_of(one, SITES, reached=0.9, seed=0).share for one in some]
    mean = {site: np.mean([share[site] for share in shares]) for site in SITES}
    assert mean["south"] > mean["north"] > mean["east"]
    assert mean["north"] == pytest.approx(mean["west"], abs=0.05)


def test_a_site_is_paid_for_the_rounds_in_which_it_took_part():
    lost = np.full((4, 4), 0.05)
    held = [ballot(lost)] * 3
    always = worth_of(held, SITES, 0.9, 0)
    half = worth_of(held, SITES, 0.9, 0, Attendance([SITES] * 3, {"west": 0.5}, {}))
    odds = {name: half.share[name] / always.share[name] for name in SITES}
    assert odds["west"] / odds["east"] == pytest.approx(0.5)
    assert sum(half.share.values()) == pytest.approx(1)
    assert all(half.low[name] <= half.share[name] <= half.high[name] for name in SITES)


def test_a_site_that_was_away_is_judged_by_its_own_ballots():
    lost = np.full((4, 4), 0.05)
    here, others = ballot(lost), tuple(name for name in SITES if name != "west")
    without = Ballot(others, {s: here.scores[s][:4] for s in others}, dict.fromkeys(others, 1.0))
    attended = Attendance([SITES, SITES, others], {}, {})
    found = worth_of([here, here, without], SITES, 0.9, 0, attended)
    assert found.carried["west"] == pytest.approx(0.25, abs=0.03)
    assert max(found.share.values()) - min(found.share.values()) < 0.08


def test_two_names_of_one_site_get_the_share_of_one():
    lost = np.full((4, 4), 0.05)
    counts = {"south": 0.5, "west": 0.5}
    held = [ballot(lost, carried=(1.0, 1.0, 0.5, 0.5))] * 3
    found = worth_of(held, SITES, 0.9, 0, Attendance([SITES] * 3, {}, counts))
    assert found.share["south"] + found.share["west"] == pytest.approx(found.share["east"])


def test_differences_below_what_another_training_changes_are_no_signal():
    lost = np.full((4, 4), 0.0001) * np.arange(1, 5)[:, None]
    found = worth_of([ballot(lost, carried=(1.0, 1.01, 1.0, 0.99))] * 5, SITES, reached=0.9, seed=0)
    assert found.signal == 0
    assert list(found.share.values()) == pytest.approx([0.25] * 4, abs=0.01)


def test_ballots_count_by_what_was_left_to_learn():
    early, late = np.full((4, 4), 0.01), np.full((4, 4), 0.01)
    early[0], late[1] = 0.1, 0.1
    some = [ballot(early, 0.4, carried=(1.0, 1.0, 0.5, 1.5)), ballot(late, 0.79, carried=(1.0, 1.0, 0.5, 1.5))] * 3
    found = worth_of(some, SITES, reached=0.8, seed=0)
    assert found.share["east"] > 1.2 * found.share["north"]


def test_what_is_carried_by_hand():
    start = params([0.0, 0.0])
    models = {"east": params([2.0, 0.0]), "north": params([1.0, 0.0]), "south": params([0.0, 2.0])}
    found = carried_by(models, start, {})
    assert found["east"] == pytest.approx(2 * 1 / np.sqrt(5), rel=1e-6)
    assert found["north"] == pytest.approx(1 * 2 / np.sqrt(8), rel=1e-6)
    assert found["south"] == pytest.approx(0, abs=1e-9)
    halved = carried_by(models, start, {"east": 0.5})
    assert halved == pytest.approx({**found, "east": found["east"] / 2})


@given(st.floats(2, 1000))
def test_a_longer_update_carries_no_more(factor):
    rng, start = np.random.default_rng(0), params([0.0] * 6)
    updates = {site: rng.normal(size=6) + 0.5 for site in "abcde"}
    updates = {site: update / np.linalg.norm(update) for site, update in updates.items()}
    before, after = (
        carried_by({site: params(own) for site, own in one.items()}, start, {})
        for one in (updates, {**updates, "a": factor * updates["a"]})
    )
    assert after == pytest.approx(before, rel=1e-4, abs=1e-6)


@given(st.integers(1, 400), st.integers(4, 12))
def test_over_a_run_a_site_scores_about_one_model_a_round(n_rounds, n_sites):
    n_held = len(rounds_due(Ballots(n_rounds), n_sites))
    assert n_held >= min(3, n_rounds)
    # The model itself is scored in any case; beside it, a ballot has a model without each site, and the decoy. With one
    # model of 0.12 rounds (benchmarks/RESULTS.md), worth costs less than 15 % of a run.
    if n_rounds >= 6 * (n_sites + 2):
        assert 0.75 <= n_held * (n_sites + DECOY) / n_rounds <= 1.05


def test_shares_of_nothing_are_equal():
    assert shares_of(np.array([[-1.0, 0.0], [1.0, 3.0]])).tolist() == [[0.5, 0.5], [0.25, 0.75]]
