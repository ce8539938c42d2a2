"""FedCE by hand: small cases whose numbers were worked out on paper."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from fedce.algorithms import FedCE, FedCEAtSites
from fedce.algorithms.fedce import BothTerms, combined, gamma_cos, normalised, rho_of
from fedce.algorithms.fedce_at_sites import gamma_cos_at_site
from fedce.core.credit import Credit
from fedce.core.params import gram, weighted_sum
from support import FakeFederation, FakeSite, params, rounded


def cos_of(updates, c):
    products = gram([params(update) for update in updates], params([0.0] * len(updates[0])))
    return gamma_cos(products, np.array(c))


def test_eq_2_by_hand():
    # Updates east, east and north, weights 1/3: seen from north the others point east (cosine 0);
    # seen from one east the others point north-east (cosine 1/sqrt 2).
    assert cos_of([[1, 0], [1, 0], [0, 1]], [1 / 3] * 3) == pytest.approx([1 - 1 / sqrt(2), 1 - 1 / sqrt(2), 1.0])


def test_eq_2_weighs_the_others_by_the_previous_rho():
    # Seen from the first, the others are 0.25 east + 0.5 north.
    c = [0.25, 0.25, 0.5]
    assert cos_of([[1, 0], [1, 0], [0, 1]], c)[0] == pytest.approx(1 - 0.25 / sqrt(0.25**2 + 0.5**2))


def test_a_zero_update_has_no_novelty():  # D5
    assert cos_of([[0, 0], [1, 0], [0, 1]], [1 / 3] * 3)[0] == 0.0


def test_whoever_moves_alone_is_new():
    assert cos_of([[1, 0], [0, 0]], [0.5, 0.5]) == [1.0, 0.0]


def test_parallel_updates_share_alike():  # D6: not 1, 0, 0 by rounding
    cos = cos_of([[1, 1], [2, 2], [3, 3]], [1 / 3] * 3)
    assert normalised(dict(zip("abc", cos, strict=True))) == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})


def test_the_site_measures_the_same_as_the_server():
    w_prev = params([1.0, 2.0, 3.0])
    updates = np.array([[1, 0, 2], [0.5, 1, 0], [-1, 0.5, 1]], np.float32)
    models = [params(w_prev.vector + update) for update in updates]
    rho = [0.2, 0.3, 0.5]
    w = weighted_sum(models, rho)
    for i, expected in enumerate(cos_of(updates, rho)):
        assert gamma_cos_at_site(w_prev, models[i], w, rho[i]) == pytest.approx(expected, abs=1e-5)


def test_eq_4_combinations_by_hand():
    cos, err = {"a": 1.0, "b": 3.0}, {"a": 0.2, "b": 0.2}
    assert combined("product", cos, err) == pytest.approx({"a": 0.125, "b": 0.375})
    assert combined("sum", cos, err) == pytest.approx({"a": 0.75, "b": 1.25})
    assert combined("cos", cos, err) == pytest.approx({"a": 0.25, "b": 0.75})
    assert combined("err", cos, err) == pytest.approx({"a": 0.5, "b": 0.5})


def test_an_error_that_was_not_measured_counts_as_average():  # D9
    assert normalised({"a": None, "b": None}) == {"a": 0.5, "b": 0.5}
    assert normalised({"a": 0.1, "b": 0.3, "c": None}) == pytest.approx({"a": 1 / 6, "b": 1 / 2, "c": 1 / 3})


def test_eq_5_caps_the_largest_share_and_keeps_the_ratio_of_the_others():  # D11
    assert rho_of({"a": 90.0, "b": 6.0, "c": 4.0}, 0.8) == pytest.approx({"a": 0.8, "b": 0.12, "c": 0.08})
    assert rho_of({"a": 1.0, "b": 1.0}, 0.3) == pytest.approx({"a": 0.5, "b": 0.5})
    assert rho_of({"a": 5.0, "b": 4.0, "c": 1.0}, 0.4) == pytest.approx({"a": 0.4, "b": 0.4, "c": 0.2})


def test_a_reported_contribution_has_no_cap():  # D11
    credit = Credit().plus({"a": (90.0,), "b": (6.0,), "c": (4.0,)})
    assert FedCE().weigh(credit, dict.fromkeys("abc", BothTerms(1)))["a"] == pytest.approx(0.8)
    assert FedCE().shares(credit) == pytest.approx({"a": 0.9, "b": 0.06, "c": 0.04})


def three_sites(scores=(0.9, 0.8, 0.5)):
    updates = ([1, 0], [1, 0.5], [0, 1])
    return [
        FakeSite(name, update, 10, lambda w, s=s: s) for name, update, s in zip("abc", updates, scores, strict=True)
    ]


def test_two_rounds_of_the_product_by_hand():
    federation = FakeFederation(FedCE(), three_sites())
    cos = cos_of([[1, 0], [1, 0.5], [0, 1]], [1 / 3] * 3)
    first = {name: value / sum(cos) / 3 for name, value in zip("abc", cos, strict=True)}
    assert federation.run(1).rho == pytest.approx({name: 3 * value for name, value in first.items()})
    again = cos_of([[1, 0], [1, 0.5], [0, 1]], [3 * first[name] for name in "abc"])
    err = {"a": 0.1, "b": 0.2, "c": 0.5}
    second = {name: value / sum(again) * err[name] / 0.8 for name, value in zip("abc", again, strict=True)}
    total = sum(first[name] + second[name] for name in "abc")
    expected = {name: (first[name] + second[name]) / total for name in "abc"}
    assert federation.run(1).rho == pytest.approx(expected)
    assert federation.state.shares == federation.state.rho


def test_the_error_is_of_the_mean_of_the_others():  # D3, Eq. 3
    seen = []
    sites = three_sites()
    sites[0].score_of = lambda w: seen.append(w.vector.copy()) or 0.5
    federation = FakeFederation(FedCE(), sites)
    rho = federation.run(1).rho
    seen.clear()
    federation.run(1)
    others = (rho["b"] * np.array([1, 0.5]) + rho["c"] * np.array([0, 1])) / (rho["b"] + rho["c"])
    np.testing.assert_allclose(seen[0], others, rtol=1e-5)


def test_no_error_in_the_first_round():
    federation = FakeFederation(FedCE(), three_sites())
    federation.run(1)
    assert [reply.error_without for reply in federation.replies] == [None, None, None]
    federation.run(1)
    assert [reply.error_without for reply in federation.replies] == pytest.approx([0.1, 0.2, 0.5])


def test_estimate_site_knows_its_weights_before_the_round():  # D1
    federation = FakeFederation(FedCEAtSites(max_share=1.0), three_sites())
    equal = dict.fromkeys("abc", 1 / 3)
    assert federation.run(1).rho == equal
    assert federation.run(1).rho == equal
    before = federation.state.shares
    assert before != equal
    assert federation.run(1).rho == before


def test_estimate_site_reports_last_rounds_novelty():
    federation = FakeFederation(FedCEAtSites(), three_sites())
    federation.run(1)
    assert [reply.novelty for reply in federation.replies] == [None] * 3
    federation.run(1)
    expected = cos_of([[1, 0], [1, 0.5], [0, 1]], [1 / 3] * 3)
    assert [reply.novelty for reply in federation.replies] == pytest.approx(expected, abs=1e-5)


def test_start_by_samples():  # D2
    sites = three_sites()
    for site, n in zip(sites, (10, 20, 70), strict=True):
        site.n_train = n
    federation = FakeFederation(FedCEAtSites(start="samples"), sites)
    assert rounded(federation.run(1).rho) == {"a": 0.1, "b": 0.2, "c": 0.7}


def test_an_absent_site_keeps_its_credit_and_weights_sum_to_one():  # D10
    federation = FakeFederation(FedCE(), three_sites())
    federation.run(2)
    share = federation.state.shares["c"]
    federation.absent = {"c"}
    federation.run(2)
    assert "c" not in federation.state.rho
    assert sum(federation.state.rho.values()) == pytest.approx(1)
    assert sum(federation.state.shares.values()) == pytest.approx(1)
    assert federation.state.credit["c"].rounds == 2
    assert federation.state.shares["c"] == pytest.approx(share, abs=0.15)
    federation.absent = set()
    federation.run(1)
    returned = next(reply for reply in federation.replies if reply.site == "c")
    assert returned.error_without == 0.5  # Its last model is not in w: w is the others' model.


def test_who_took_no_part_is_measured_on_the_model_as_it_is():  # D10
    seen = []
    sites = [*three_sites(), FakeSite("d", [1, 1], 10, lambda w: seen.append(w) or 0.6)]
    federation = FakeFederation(FedCE(), sites)
    federation.absent = {"d"}
    federation.run(1)
    federation.absent = set()
    model = federation.state.params
    federation.run(1)
    newcomer = next(reply for reply in federation.replies if reply.site == "d")
    assert newcomer.error_without == pytest.approx(0.4)
    assert all(scored is model for scored in seen)
    assert federation.state.credit["d"].rounds == 1


def test_absence_of_one_does_not_pay_the_others():  # D10
    # Twins who are measured alike keep equal shares, although one misses rounds in which fewer sites share.
    twin = lambda w: 0.7  # noqa: E731
    sites = [FakeSite("a", [1, 0], 10, twin), FakeSite("b", [1, 0], 10, twin), FakeSite("c", [0, 1], 10, twin)]
    federation = FakeFederation(FedCE(combine="err"), sites)
    federation.run(3)
    federation.absent = {"b"}
    federation.run(3)
    assert federation.state.shares["a"] == pytest.approx(federation.state.shares["b"])


def test_a_newcomer_starts_as_an_average_member():
    federation = FakeFederation(FedCEAtSites(), three_sites())
    federation.absent = {"c"}
    federation.run(3)
    federation.absent = set()
    rho = federation.run(1).rho
    assert rho["c"] == pytest.approx(1 / 3)
    assert sum(rho.values()) == pytest.approx(1)


def test_hyper_parameters_are_checked():
    with pytest.raises(ValueError, match="max_share"):
        FedCE(max_share=1.5)
    with pytest.raises(ValueError, match="combine"):
        FedCE(combine="times")
    assert replace(FedCE(), max_share=0.5).max_share == 0.5
