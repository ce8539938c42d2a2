"""Pairs of sites whose own directions cancel."""

from types import SimpleNamespace

import numpy as np
import pytest

from fedce.guard.evidence import Updates
from fedce.guard.opposites import MOST_UNEQUAL, Opposites, inverse_of, partial_correlations

SITES = tuple("abcdef")


def updates(rows: np.ndarray) -> Updates:
    claims = {site: SimpleNamespace(opposites={}) for site in SITES}
    return Updates(SITES, rows @ rows.T, {}, claims, dict.fromkeys(SITES, 1 / 6))


def pair(factor: float) -> np.ndarray:
    """Updates with much in common; a and b also have one direction with opposite signs, b `factor` times as long."""
    rng = np.random.default_rng(0)
    common, own = rng.normal(size=400), rng.normal(size=(6, 400))
    held = rng.normal(size=400)
    rows = common + 0.3 * own
    rows[0] += 2 * held
    rows[1] = factor * (rows[1] - 2 * held)
    return rows


def test_partial_correlations_are_those_of_what_the_others_do_not_explain():
    rows = np.random.default_rng(1).normal(size=(6, 40))
    cosines = np.corrcoef(rows)  # Rows have a mean near 0; the calculation below uses the same matrix.
    found = partial_correlations(inverse_of(cosines))
    root = np.linalg.cholesky(cosines)  # Vectors with exactly these cosines.
    for i, j in ((0, 1), (2, 5)):
        others = np.delete(root, [i, j], axis=0).T
        rest = [v - others @ np.linalg.lstsq(others, v, rcond=None)[0] for v in (root[i], root[j])]
        cosine = rest[0] @ rest[1] / np.linalg.norm(rest[0]) / np.linalg.norm(rest[1])
        assert found[i, j] == pytest.approx(cosine, abs=1e-4)


@pytest.mark.parametrize("factor", [1.0, 2.0, 0.5])
def test_directions_of_like_length_cancel(factor):
    found = Opposites(updates(pair(factor)), SITES)
    assert set(found.of("a")) == {"b"}
    assert set(found.of("b")) == {"a"}


@pytest.mark.parametrize("factor", [2 * MOST_UNEQUAL, 0.5 / MOST_UNEQUAL])
def test_what_is_much_longer_is_not_cancelled(factor):
    """Honest sites of very unequal size may pull against each other; the shorter one can't undo the longer one."""
    assert Opposites(updates(pair(factor)), SITES).of("a") == {}
