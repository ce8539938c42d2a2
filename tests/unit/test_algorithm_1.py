"""The benchmark of Algorithm 1 to the letter computes what its lines 10 and 12 say."""

import numpy as np
import pytest
from benchmarks.algorithm_1 import AlgorithmOne

from fedce.algorithms import FedCE
from support import FakeFederation, FakeSite

UPDATES = {"a": [1.0, 0.0], "b": [0.6, 0.8], "c": [0.0, 1.0]}
LATER = {"a": [0.5, 0.5], "b": [1.0, -0.2], "c": [-0.3, 1.0]}


def two_rounds(algorithm: FedCE) -> tuple[dict[str, dict], dict[str, list[np.ndarray]], np.ndarray, dict[str, float]]:
    """What the second round measured, the models that each site scored in it, the model sent, and rho before it."""
    scored: dict[str, list[np.ndarray]] = {name: [] for name in UPDATES}

    def remembers(name: str):
        def score(w):
            scored[name].append(w.trainable.copy())
            return 0.5

        return score

    sites = [FakeSite(name, update, 10, remembers(name)) for name, update in UPDATES.items()]
    federation = FakeFederation(algorithm, sites)
    first = federation.run(1)
    sent, rho = first.params.trainable.copy(), dict(first.rho)
    for site in sites:
        site.update = np.array(LATER[site.name], np.float32)
        scored[site.name].clear()
    return federation.run(1).measured, scored, sent, rho


def test_line_10_takes_this_rounds_update_out_of_the_last_rounds():
    measured, _, sent, rho = two_rounds(AlgorithmOne())
    for site, delta in LATER.items():
        others = sent - rho[site] * np.array(delta)  # The first model is 0, so that `sent` is also the global update.
        expected = 1 - np.dot(delta, others) / np.linalg.norm(delta) / np.linalg.norm(others)
        assert measured[site]["cos"] == pytest.approx(expected, abs=1e-6)


def test_line_12_takes_this_rounds_model_out_of_the_one_that_was_sent():
    _, scored, sent, rho = two_rounds(AlgorithmOne())
    for site, delta in LATER.items():
        expected = (sent - rho[site] * (sent + np.array(delta))) / (1 - rho[site])
        assert any(np.allclose(w, expected, atol=1e-6) for w in scored[site])


def test_each_line_can_be_had_alone():
    plain, ten, twelve = (two_rounds(rule)[0] for rule in (FedCE(), AlgorithmOne(lines="10"), AlgorithmOne(lines="12")))
    for site in UPDATES:
        assert twelve[site]["cos"] == plain[site]["cos"] != ten[site]["cos"]
