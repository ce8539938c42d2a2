"""The guard around every algorithm: honest sites lose no bit, a cheat that is found is not there."""

from dataclasses import replace

import numpy as np
import pytest

from fedce.algorithms import ALGORITHMS, make
from fedce.base.ranges import N_REPLICATES
from fedce.core.params import Params
from fedce.core.site import Trained
from fedce.guard import Guarded
from support import FakeFederation, FakeSite, layout

N = 3000
NAMES = "abcdef"
CHEAT = "b"
N_ROUNDS = 12
EXCHANGING = {
    **{name: make(name, {}) for name in ALGORITHMS if make(name, {}).traits.exchanges},
    "fedce estimate=site": make("fedce", {"estimate": "site"}),
    "fedce preset=nvflare": make("fedce-sum", {"preset": "nvflare"}),
    "qfedavg published": make("qfedavg", {"variant": "published"}),
    "qfedavg lipschitz": make("qfedavg", {"variant": "lipschitz"}),
    "cffl published": make("cffl", {"variant": "published"}),
    "cgsv rewards": make("cgsv", {"variant": "rewards"}),
    "cgsv published": make("cgsv", {"variant": "published"}),
    "afl published": make("afl", {"variant": "published"}),
    "examples/own_algorithm.py": make("examples.own_algorithm:ValidationGain", {}),
}
every = pytest.mark.parametrize("algorithm", EXCHANGING.values(), ids=EXCHANGING.keys())


class Drifting(FakeSite):
    """Its updates are of a common direction and one of its own that turns slowly, as those of training are."""

    def __init__(self, name: str, cheat: str | None = None) -> None:
        super().__init__(name, np.zeros(N), n_train=10 + 5 * NAMES.index(name), score=self.score_now)
        self.cheat, self.kept = cheat, None
        self.rng = np.random.default_rng(NAMES.index(name))
        self.common, self.own = np.random.default_rng(99).normal(size=N), self.rng.normal(size=N)

    def score_now(self, w: Params) -> float:
        """Better the further the model has come, and different at every site."""
        way = float(w.trainable @ self.common) / N
        return 0.1 + 0.8 * way / (way + 0.5 + 0.1 * NAMES.index(self.name)) if way > 0 else 0.1

    def score_replicates(self, w: Params) -> tuple[float, ...]:
        return tuple(self.score_now(w) * factor for factor in np.linspace(0.9, 1.1, N_REPLICATES))

    def train(self, w, round_no, moments, pull=None):
        self.own = 0.97 * self.own + 0.24 * self.rng.normal(size=N)
        honest = 0.1 * (0.8 * 0.95**round_no * self.common + 0.3 * self.own + 0.1 * self.rng.normal(size=N))
        if self.kept is None:
            self.kept = honest
        sent = {
            None: honest,
            "noise": 0.1 * self.rng.normal(size=N),
            "zero": np.zeros(N),
            "flip": -honest,
            "replay": self.kept,
        }[self.cheat]
        return Trained(Params(w.layout, w.vector + sent.astype(np.float32)), 0.1, {})


def federation(algorithm, cheat=None) -> FakeFederation:
    sites = [Drifting(name, cheat if name == CHEAT else None) for name in NAMES]
    return FakeFederation(algorithm, sites, Params(layout(N), np.zeros(N, np.float32)))


@every
def test_honest_sites_lose_no_bit(algorithm):
    plain, guarded = federation(algorithm), federation(Guarded(algorithm))
    for _ in range(N_ROUNDS):
        without, within = plain.run(1), guarded.run(1)
        assert within.params.digest == without.params.digest
        assert guarded.algorithm.returned(within).digest == algorithm.returned(without).digest
        assert (dict(within.rho), dict(within.shares)) == (dict(without.rho), dict(without.shares))
        assert all(verdict.trust == 1 for verdict in within.own.verdicts.values())


@every
@pytest.mark.parametrize("cheat", ["noise", "zero", "flip", "replay"])
def test_a_cheat_that_is_found_is_not_there(algorithm, cheat):
    """From the round on in which it is first flagged the model is what it would be without it."""
    guarded = Guarded(algorithm)
    runner = federation(guarded, cheat)
    flagged_from = None
    for n in range(N_ROUNDS):
        before, memories = runner.state, dict(runner.memories)
        after = runner.run(1)
        if after.own.verdicts[CHEAT].trust == 0:
            flagged_from = n if flagged_from is None else flagged_from
            inner = replace(before, own=before.own.inner, sites=tuple(site for site in NAMES if site != CHEAT))
            trained = [reply for reply in runner.replies if reply.site != CHEAT]
            again = algorithm.round(inner, lambda tasks, trained=trained: answer(runner, algorithm, tasks, trained))
            assert after.params.digest == again.params.digest
            assert after.rho[CHEAT] == 0
        else:
            assert flagged_from is None, "a cheat that was found is found again"
        assert memories.keys() <= runner.memories.keys()
    assert flagged_from is not None
    assert flagged_from <= 3
    assert after.shares[CHEAT] == 0
    assert all(verdict.trust == 1 for site, verdict in after.own.verdicts.items() if site != CHEAT)


def answer(runner, algorithm, tasks, trained):
    """What the others sent, or how they score what is asked of them."""
    if tasks[0].action == "train":
        return trained
    return [reply for reply in runner.ask(tasks) if reply.site != CHEAT]
