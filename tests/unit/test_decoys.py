"""Decoys on a ballot: what they find, and what a scorer can find out about them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedce.core.ballot import Ballot, models_without
from fedce.core.decoys import DECOY, Drawn, contradictions
from fedce.core.params import Params, weighted_sum
from fedce.site import lies
from fedce.valuation.scorers import MOST, Scored, contradictions_of, not_believed, without_votes
from support import layout

SITES = tuple("abcdef")
N = 2000
weights = st.lists(st.floats(0.05, 1.0), min_size=4, max_size=8).map(
    lambda parts: {f"site{i}": part / sum(parts) for i, part in enumerate(parts)}
)


class Federation:
    """Site models that keep their directions more or less, and their ballots."""

    def __init__(self, seed: int) -> None:
        self.rng, self.secret = np.random.default_rng(seed), f"secret {seed}"
        self.own = self.rng.normal(size=(len(SITES), N))
        self.common = self.rng.normal(size=N)
        # As honest sites: cosines of 0.86 to 0.99 from round to round.
        self.keeps = self.rng.permutation(np.linspace(0.86, 0.99, len(SITES)))[:, None]
        self.lengths = self.rng.uniform(0.5, 2.0, len(SITES))
        self.w = Params(layout(N), np.zeros(N, np.float32))

    def ballot(self, round_no: int) -> tuple[Params, dict[str, Params], dict[str, float], Drawn, Params]:
        fresh = self.rng.normal(size=self.own.shape)
        self.own = self.keeps * self.own + np.sqrt(1 - self.keeps**2) * fresh
        updates = self.lengths[:, None] * (0.7 * self.common + self.own)
        models = {
            site: Params(self.w.layout, self.w.vector + update.astype(np.float32))
            for site, update in zip(SITES, updates, strict=True)
        }
        rho = dict(zip(SITES, self.rng.dirichlet(np.full(len(SITES), 200.0)).tolist(), strict=True))
        mean = weighted_sum(list(models.values()), list(rho.values()))
        lacking = models_without(mean, models, rho)
        drawn = Drawn.of(self.secret, round_no, rho)
        self.w = mean
        return mean, lacking, rho, drawn, drawn.decoy(mean, list(lacking.values()))


def unit(model: Params, mean: Params) -> np.ndarray:
    way = (model.vector - mean.vector).astype(float)
    return way / np.linalg.norm(way)


def held(seed: int, n_ballots: int = 4, lie=None, bend: float = 0.0) -> list[Scored]:
    """Ballots of scorers whose Dice is linear in the model, and bent a little; `lie` changes what scorer b says."""
    world, found = Federation(seed), []
    wants = {site: np.random.default_rng(i).normal(size=N) * 0.05 / N**0.5 for i, site in enumerate(SITES)}
    for n in range(n_ballots):
        mean, lacking, rho, _, decoy = world.ballot(n)
        scores, of_decoy = {}, {}
        for site in SITES:
            moved = [(m.vector - mean.vector).astype(float) for m in (mean, *lacking.values(), decoy)]
            own = [0.6 + float(wants[site] @ way) - bend * float(way @ way) / N for way in moved]
            if lie and site == "b":
                own = lie(own)
            scores[site], of_decoy[site] = own[:-DECOY], own[-DECOY]
        ballot = Ballot(tuple(lacking), scores, decoy=of_decoy, secret=world.secret)
        found.append(Scored(ballot, n, rho))
    return found


@given(weights, st.integers(0, 50))
def test_a_decoy_lacks_nobody_and_its_place_is_drawn(rho, round_no):
    drawn = Drawn.of("secret", round_no, rho)
    assert sorted(drawn.order) == list(range(len(rho) + 1 + DECOY))
    assert np.linalg.norm(drawn.direction) == pytest.approx(1)
    scores = np.random.default_rng(0).uniform(size=len(drawn.order)).tolist()
    assert drawn.in_order(drawn.as_sent(scores)) == scores
    assert drawn == replace(Drawn.of("secret", round_no, rho), direction=drawn.direction)


def test_another_secret_or_round_gives_another_order():
    rho = dict.fromkeys(SITES, 1 / 6)
    orders = {Drawn.of(secret, n, rho).order for secret in ("one", "other") for n in range(10)}
    assert len(orders) > 15
    one, again = (Drawn.of("one", n, rho).direction for n in (0, 7))
    np.testing.assert_array_equal(one, again)


@given(weights, st.integers(0, 20))
def test_a_linear_score_has_no_contradictions(rho, seed):
    """Against an independent calculation: site models as vectors, a score that is a linear function."""
    rng = np.random.default_rng(seed)
    models, gradient, c = rng.normal(size=(len(rho), 30)), rng.normal(size=30), np.array(list(rho.values()))
    mean = c @ models
    lacking = [(mean - part * model) / (1 - part) for part, model in zip(c, models, strict=True)]
    drawn = Drawn.of("secret", seed, rho)
    decoy = mean + sum(part * (model - mean) for part, model in zip(drawn.direction, lacking, strict=True))
    scores = [gradient @ model for model in (mean, *lacking)]
    assert contradictions(drawn, c.tolist(), scores, gradient @ decoy) == pytest.approx((0, 0), abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_scorers_that_look_at_their_images_are_believed(seed):
    assert not_believed(held(seed, bend=0.01)) == []


@pytest.mark.parametrize(
    "lie",
    [
        lambda own: lies.slander(0.2)(own, [2]),
        lambda own: lies.praise(0.2)(own, [2, 4]),
        lambda own: np.random.default_rng(int(1e6 * own[1])).uniform(0.4, 0.8, len(own)).tolist(),
        lambda own: [own[0], *(own[0] + (0.3 if i % 2 else -0.3) for i in range(len(own) - 1))],
        # The lies about the sites cancel, but the decoy is taken for another site.
        lambda own: [own[0], *(own[0] + (-0.5 if i == 2 else 0.1) for i in range(1, len(own)))],
    ],
    ids=["slander", "praise", "chance", "by place", "sums to nothing"],
)
@pytest.mark.parametrize("seed", range(4))
def test_scorers_that_answer_by_anything_else_are_found(lie, seed):
    assert not_believed(held(seed, lie=lie)) == ["b"]


def test_where_no_score_is_linear_nobody_is_singled_out():
    found = contradictions_of(held(0, bend=2.0))
    assert min(found.values()) > MOST
    assert not_believed(held(0, bend=2.0)) == []


def test_a_consistent_story_is_not_found():
    """Whoever solves for the plane of the models can lie linearly: the median of the votes is left (docs/worth.md)."""
    honest, world = held(1), Federation(1)
    told = []
    for n, one in enumerate(honest):
        mean, lacking, _, _, decoy = world.ballot(n)
        liked = np.random.default_rng(9).normal(size=N) * 0.2 / N**0.5
        own = [0.6 + float(liked @ (m.vector - mean.vector)) for m in (mean, *lacking.values(), decoy)]
        scores = {**one.ballot.scores, "b": own[:-DECOY]}
        told.append(replace(one, ballot=replace(one.ballot, scores=scores, decoy={**one.ballot.decoy, "b": own[-1]})))
    assert not_believed(told) == []


def test_few_ballots_judge_nobody_and_most_scorers_are_never_disbelieved():
    assert not_believed(held(0, n_ballots=2, lie=lambda own: lies.slander(0.2)(own, [2]))) == []
    bad = held(0)
    everybody = [
        replace(one, ballot=replace(one.ballot, decoy=dict.fromkeys(SITES[:4], 1.0) | dict.fromkeys(SITES[4:], 0.6)))
        for one in bad
    ]
    assert len(not_believed(everybody)) < len(SITES) / 2


def test_if_nobody_can_be_left_out_the_decoy_is_the_common_model():
    """One site has all the weight, as with Krum: what remains without it would be rounding noise."""
    drawn, w = Drawn.of("secret", 3, {}), Params(layout(N), np.ones(N, np.float32))
    assert drawn.decoy(w, []).vector.tolist() == w.vector.tolist()
    assert contradictions(drawn, [], [0.8], 0.8) == (0.0, 0.0)
    assert contradictions(drawn, [], [0.8], 0.7) == (0.0, pytest.approx(-0.1))


def test_votes_that_are_not_believed_do_not_count():
    ballots = [one.ballot for one in held(0)]
    left = without_votes(ballots, ["b"])
    assert all(set(ballot.scores) == set(SITES) - {"b"} for ballot in left)
    assert without_votes(ballots, []) == ballots


def guesses(seed: int, n_ballots: int = 6) -> dict[str, list[bool]]:
    """A scorer, site a, that hashes, compares and links models over rounds: does it name the decoy?

    It knows the common model and its own, so also the model without itself, and keeps every model that it was sent. It
    looks for a model that it has had before (hash), or nearly had (compare); for one at an odd distance from the common
    model (distance); and for one whose direction no model of the last ballot had (link).
    """
    world, before, earlier = Federation(seed), None, list[Params]()
    found: dict[str, list[bool]] = {"hash": [], "compare": [], "distance": [], "link": []}
    for n in range(n_ballots):
        mean, lacking, _, _, decoy = world.ballot(n)
        candidates = [model for site, model in lacking.items() if site != "a"] + [decoy]
        known = [mean, lacking["a"], *earlier]
        digests = {one.digest for one in known}
        earlier += [mean, *candidates]
        ways = np.array([unit(model, mean) for model in candidates])
        far = np.array([np.linalg.norm(model.vector - mean.vector) for model in candidates])
        if before is not None:
            near = [min(np.linalg.norm(model.vector - one.vector) for one in known) for model in candidates]
            found["hash"].append(decoy.digest in digests)
            found["compare"].append(near[-1] < 0.1 * np.median(far))
            found["distance"].append(int(np.argmax(np.abs(np.log(far / np.median(far))))) == len(candidates) - 1)
            found["link"].append(int(np.argmin((ways @ before.T).max(axis=1))) == len(candidates) - 1)
        before = ways
    return found


def test_a_scorer_that_hashes_compares_and_links_models_does_not_know_the_decoy():
    tried = [guesses(seed) for seed in range(20)]
    rates = {how: np.mean([hit for found in tried for hit in found[how]]) for how in tried[0]}
    # Among six candidates, chance names it once in six; 0.3 in 100 guesses would be more than chance.
    assert max(rates.values()) < 0.3, rates
    assert rates["hash"] == rates["compare"] == 0


def test_a_scorer_that_compares_angles_of_all_models_does_know_it():
    """What decoys do not hide: the decoy is a mean of the other models, and linear algebra shows it."""
    hits = []
    for seed in range(10):
        mean, lacking, _, _, decoy = Federation(seed).ballot(0)
        ways = np.array([unit(model, mean) for model in (*lacking.values(), decoy)])
        cosines = ways @ ways.T - np.eye(len(ways))
        hits.append(int(np.argmax((cosines**2).sum(axis=1))) == len(ways) - 1)
    assert np.mean(hits) > 0.5
