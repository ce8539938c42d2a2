"""What every algorithm must hold, whatever it does; and each one's known special case."""

from pathlib import Path

import numpy as np
import pytest

from fedce import algorithms
from fedce.algorithms import ALGORITHMS, CGSV, Ditto, FedCE, FedCI, make
from fedce.core.algorithm import State
from fedce.core.params import Entry, Layout, Params
from fedce.federation.checkpoint import load_state, save_state
from fedce.site.hospital import memory_arrays, memory_from
from support import FakeFederation, FakeSite

OWN = "examples.own_algorithm:ValidationGain"
VARIANTS = {
    **{name: make(name, {}) for name in ALGORITHMS},
    "fedce estimate=site": make("fedce", {"estimate": "site"}),
    "fedce preset=nvflare": make("fedce-sum", {"preset": "nvflare"}),
    "qfedavg published": make("qfedavg", {"variant": "published"}),
    "qfedavg lipschitz": make("qfedavg", {"variant": "lipschitz"}),
    "cffl published": make("cffl", {"variant": "published"}),
    "cgsv rewards": make("cgsv", {"variant": "rewards"}),
    "cgsv published": make("cgsv", {"variant": "published"}),
    "afl published": make("afl", {"variant": "published"}),
    "fedci sampled": make("fedci", {"n_exact": 1}),
    "multi-krum": make("krum", {"n_chosen": 3}),
    "examples/own_algorithm.py": make(OWN, {}),
}
every = pytest.mark.parametrize("algorithm", VARIANTS.values(), ids=VARIANTS.keys())

# A layer, its batch norm with running variance, and a counter of batches.
LAYOUT = Layout(
    (
        Entry("w", (6,), "trainable"),
        Entry("norm.weight", (2,), "trainable", norm=True),
        Entry("norm.var", (2,), "buffer", norm=True),
        Entry("norm.count", (1,), "counter", norm=True),
    )
)
NAMES = "abcdef"


def start() -> Params:
    return Params(LAYOUT, np.array([0] * 8 + [1, 1] + [0], np.float32))


def score_of(w: Params, target) -> float:
    return float(1 / (1 + np.linalg.norm(w.trainable - target)))


def sites(names=NAMES, seed=0):
    rng = np.random.default_rng(seed)
    members = []
    for i in range(len(names)):
        target = rng.normal(size=8)
        update = np.concatenate([0.3 * target + 0.05 * rng.normal(size=8), rng.uniform(0, 0.5, 2), [3]])
        members.append(
            FakeSite(
                names[i], update, int(rng.integers(5, 50)), lambda w, t=target: score_of(w, t), rng.uniform(0.1, 0.9)
            )
        )
    return members


def federation(algorithm, names=NAMES, **changes) -> FakeFederation:
    made = FakeFederation(algorithm, sites(names), start())
    for key, value in changes.items():
        for site in made.sites.values():
            setattr(site, key, value)
    return made


def on_simplex(weights) -> None:
    assert sum(weights.values()) == pytest.approx(1)
    assert min(weights.values()) >= 0


@every
def test_weights_and_shares_lie_on_the_simplex(algorithm):
    runner = federation(algorithm)
    for _ in range(5):
        state = runner.run(1)
        on_simplex(state.rho)
        on_simplex(state.shares)
        assert state.shares.keys() == set(NAMES)


@every
def test_names_do_not_matter(algorithm):
    plain = federation(algorithm).run(4)
    turned = NAMES[::-1]
    renamed = federation(algorithm, turned).run(4)
    expected = {turned[i]: plain.shares[NAMES[i]] for i in range(6)}
    # Sampling draws its permutations by position, so its shares are equal only up to its error.
    tolerance = 0.1 if algorithm == FedCI(n_exact=1) else 1e-5
    assert dict(renamed.shares) == pytest.approx(expected, abs=tolerance)


@every
def test_the_order_of_replies_does_not_matter(algorithm):
    plain, shuffled = federation(algorithm), federation(algorithm)
    ask = shuffled.ask
    mixed = lambda tasks: list(reversed(ask(list(reversed(tasks)))))  # noqa: E731
    for _ in range(3):
        plain.run(1)
        # What the round loop does with replies, whatever order they come in.
        shuffled.state = algorithm.round(shuffled.state, lambda tasks: sorted(mixed(tasks), key=lambda r: r.site))
    assert shuffled.state.params.digest == plain.state.params.digest
    assert shuffled.state.shares == plain.state.shares


@every
def test_everybody_but_one_may_be_absent(algorithm):
    runner = federation(algorithm, loss_now=0.1)
    runner.sites["c"].loss_now = 0.9
    runner.run(12)
    runner.absent = {"c"}
    on_simplex(runner.run(2).rho)
    runner.absent = set(NAMES) - {"a"}
    on_simplex(runner.run(1).rho)


@every
def test_buffers_stay_valid_and_counters_count(algorithm):
    runner = federation(algorithm)
    state = runner.run(4)
    models = [state.params, algorithm.returned(state), *(algorithm.task(state, site).params for site in state.sites)]
    models += [reply.params for name in NAMES if (reply := runner.evaluate(name)).params]
    for model in models:
        assert np.isfinite(model.vector).all()
        assert (model.vector[8:10] >= 0).all()
        assert model.vector[10] == round(float(model.vector[10]))


@every
def test_a_run_resumes_to_the_same_bits(algorithm, tmp_path: Path):
    undisturbed = federation(algorithm).run(6)
    runner = federation(algorithm)
    for _ in range(6):
        runner.run(1)
        save_state(tmp_path / "state", runner.state)
        runner.state = load_state(tmp_path / "state", algorithm.begin((), start()))
        runner.memories = {
            site: memory_from(*memory_arrays(memory), LAYOUT, algorithm.keeps)
            for site, memory in runner.memories.items()
        }
    assert runner.state.params.digest == undisturbed.params.digest
    assert algorithm.returned(runner.state).digest == algorithm.returned(undisturbed).digest
    assert runner.state.shares == undisturbed.shares
    for site in undisturbed.sites:
        ours, theirs = (algorithm.task(state, site).params.digest for state in (runner.state, undisturbed))
        assert ours == theirs


@every
def test_an_absent_site_keeps_its_share_of_the_whole(algorithm):
    runner = federation(algorithm)
    runner.run(3)
    before = runner.state.shares["c"]
    runner.absent = {"c"}
    state = runner.run(2)
    assert "c" not in state.rho
    on_simplex(state.rho)
    on_simplex(state.shares)
    assert (state.shares["c"] > 0) == (before > 0)
    runner.absent = set()
    on_simplex(runner.run(2).rho)


@every
def test_a_new_site_can_join(algorithm):
    runner = federation(algorithm)
    runner.absent = {"f"}
    runner.run(3)
    runner.absent = set()
    state = runner.run(3)
    on_simplex(state.rho)
    on_simplex(state.shares)
    assert state.shares.keys() == set(NAMES)


@every
def test_every_site_can_evaluate_the_model_that_it_would_use(algorithm):
    runner = federation(algorithm)
    runner.run(3)
    for name in NAMES:
        reply = runner.evaluate(name)
        assert 0 <= reply.evaluation.validation_dice <= 1
        assert (reply.params is not None) == algorithm.traits.personal


@every
def test_hyper_parameters_round_trip_through_their_name(algorithm):
    name = algorithms.name_of(algorithm)
    options = algorithms.settings_of(algorithm)
    assert options.keys() == algorithms.options_of(name)
    assert make(name, options) == algorithm


def same_model(a: State, b: State) -> None:
    np.testing.assert_allclose(a.params.vector, b.params.vector, rtol=1e-6, atol=1e-7)


SPECIAL_CASES = [
    ("qfedavg", {"q": 0}, "uniform", {}),
    ("fedprox", {"mu": 0}, "fedavg", {}),
    ("afl", {"step": 0}, "uniform", {}),
    ("krum", {"n_chosen": 6}, "uniform", {}),
    ("trimmed-mean", {"n_trimmed": 0}, "uniform", {}),
    (OWN, {"floor": 1e9}, "uniform", {}),
]


@pytest.mark.parametrize(("name", "options", "other", "others"), SPECIAL_CASES)
def test_special_cases(name, options, other, others):
    same_model(federation(make(name, options)).run(4), federation(make(other, others)).run(4))


def test_ditto_without_pull_is_standalone():
    ditto, standalone = (
        federation(make(name, options)) for name, options in (("ditto", {"lam": 0}), ("standalone", {}))
    )
    ditto.run(4)
    standalone.run(4)
    for name in NAMES:
        np.testing.assert_array_equal(ditto.evaluate(name).params.vector, standalone.evaluate(name).params.vector)


KEPT = {
    f"{name}, {stays}": (algorithm, stays, n_exchanged)
    for name, algorithm in VARIANTS.items()
    for stays, n_exchanged in (("statistics", 8), ("norms", 6))
    # Where sites measure their own novelty, norm layers that stay are refused before round 1.
    if not (algorithm.traits.sites_claim_novelty and stays == "norms")
}


@pytest.mark.parametrize(("algorithm", "stays", "n_exchanged"), KEPT.values(), ids=KEPT.keys())
def test_what_stays_at_the_sites_is_each_sites_own(algorithm, stays, n_exchanged):
    """No algorithm knows of it: the server never sees these entries, and each site goes on from its own."""
    runner = FakeFederation(algorithm, sites(), start(), stays)
    runner.run(3)
    assert runner.state.params.layout.size == n_exchanged
    assert all(reply.params is None or reply.params.layout.size == n_exchanged for reply in runner.replies)
    own = {name: runner.evaluate(name).params for name in NAMES}
    for name, model in own.items():
        assert model.layout == LAYOUT
        kept = runner.memories[name]
        last = kept.own.params if isinstance(algorithm, Ditto) else kept.params
        np.testing.assert_array_equal(model.vector[n_exchanged:], last.vector[n_exchanged:])
    assert len({model.vector[n_exchanged:].tobytes() for model in own.values()}) == len(NAMES)


def test_fedbn_is_fedavg_whose_norm_layers_stay():
    bn, average = (FakeFederation(make(name, {}), sites(), start(), "norms") for name in ("fedbn", "fedavg"))
    same_model(bn.run(4), average.run(4))
    assert make("fedbn", {}).traits.keeps_norms


def test_equal_scores_are_uniform_for_cffl():
    runner = federation(make("cffl", {}), score_of=lambda w: 0.7)
    same_model(runner.run(3), federation(make("uniform", {})).run(3))


def test_equal_sites_are_uniform_for_fedci():
    members = [FakeSite(name, [1, 2], 10, lambda w: 0.4 + 0.01 * float(w.vector[0])) for name in NAMES]
    state = FakeFederation(FedCI(), members).run(2)
    assert dict(state.rho) == pytest.approx(dict.fromkeys(NAMES, 1 / 6))


def test_generous_rewards_are_the_same_model_for_all():  # beta to infinity
    state = federation(CGSV(variant="rewards", beta=1e6)).run(4)
    assert len({model.digest for model in state.own.models.values()}) == 1
    stingy = federation(CGSV(variant="rewards", beta=0.1)).run(4)
    assert len({model.digest for model in stingy.own.models.values()}) > 1


def test_fedce_with_equal_terms_is_uniform():
    same_model(federation(FedCE(combine="err"), score_of=lambda w: 0.5).run(3), federation(make("uniform", {})).run(3))
