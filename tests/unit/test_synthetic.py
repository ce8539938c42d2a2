"""Facts about the synthetic federations: reproducible, anatomically sound, and different by site."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage
from scipy.stats import wasserstein_distance

from fedce.data import synthetic
from fedce.data.synthetic import FEDERATIONS, SCALES, Federation, counts, drawing, fundus, generate, prostate

FLAT = [name for name, federation in FEDERATIONS.items() if federation.draw]
SITES = [(name, site) for name in FLAT for site in FEDERATIONS[name].n_train_by_site]
N = 12


@cache
def sample(name: str, site: str, size: int = 48) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    return generate(name, site, N, size, seed=7)


def n_pieces(mask: NDArray[np.uint8]) -> int:
    return int(ndimage.label(mask)[1])


@pytest.mark.parametrize(("name", "site"), SITES)
def test_a_set_is_the_prefix_of_any_larger_set_with_the_same_seed(name: str, site: str) -> None:
    for few, many in zip(generate(name, site, 3, 48, seed=7), sample(name, site), strict=True):
        assert np.array_equal(few, many[:3])


@pytest.mark.parametrize("name", FLAT)
def test_another_seed_site_or_index_gives_another_image(name: str) -> None:
    images, _ = sample(name, "site1")
    assert not np.array_equal(images[0], images[1])
    assert not np.array_equal(images[:1], generate(name, "site1", 1, 48, seed=8)[0])
    assert not np.array_equal(images[:1], generate(name, "site2", 1, 48, seed=7)[0])


@pytest.mark.parametrize(("name", "site"), SITES)
def test_arrays_are_bytes_of_the_promised_shape_and_masks_are_0_or_1(name: str, site: str) -> None:
    federation = FEDERATIONS[name]
    images, masks = sample(name, site)
    assert images.shape == (N, federation.n_channels, 48, 48)
    assert masks.shape == (N, len(federation.classes), 48, 48)
    assert images.dtype == masks.dtype == np.uint8
    assert set(np.unique(masks)) == {0, 1}


@pytest.mark.parametrize("size", [32, 48, 65])
@pytest.mark.parametrize(("name", "site"), SITES)
def test_nothing_annotated_is_ever_invisible(name: str, site: str, size: int) -> None:
    _, masks = sample(name, site, size)
    assert masks.any(axis=(2, 3)).all()


@pytest.mark.parametrize("size", [32, 48, 65])
@pytest.mark.parametrize("site", FEDERATIONS["fundus6"].n_train_by_site)
def test_each_view_has_one_disc_with_the_cup_inside(site: str, size: int) -> None:
    n_views = 2 if site == "site5" else 1
    _, masks = sample("fundus6", site, size)
    for disc, cup in masks:
        assert n_pieces(disc) == n_pieces(cup) == n_views
        assert (cup <= disc).all()
        assert cup.sum() < disc.sum()


def test_both_views_of_a_stereo_pair_show_the_same_eye() -> None:
    _, masks = sample("fundus6", "site5", 64)
    left, right = (half.sum(axis=(2, 3)).astype(float) for half in np.split(masks, 2, axis=3))
    assert left == pytest.approx(right, rel=0.25)


@pytest.mark.parametrize("site", FEDERATIONS["prostate6"].n_train_by_site)
def test_the_gland_is_one_piece(site: str) -> None:
    _, masks = sample("prostate6", site)
    assert all(n_pieces(gland) == 1 for (gland,) in masks)


@pytest.mark.parametrize(("name", "site"), SITES)
def test_size_changes_the_resolution_and_not_the_anatomy(name: str, site: str) -> None:
    coarse, fine = sample(name, site, 48)[1], generate(name, site, 4, 96, seed=7)[1]
    for small, large in zip(coarse[:4], fine, strict=True):
        halved = large.reshape(-1, 48, 2, 48, 2).mean(axis=(2, 4)) > 0.5
        dice = 2 * (small & halved).sum(axis=(1, 2)) / (small.sum(axis=(1, 2)) + halved.sum(axis=(1, 2)))
        assert (dice > 0.75).all()


@pytest.mark.parametrize("federation", [FEDERATIONS[name] for name in FLAT], ids=lambda federation: federation.name)
def test_sites_differ_more_from_each_other_than_from_themselves(federation: Federation) -> None:
    greys = {site: sample(federation.name, site)[0].mean(axis=1).reshape(N, -1) for site in federation.n_train_by_site}
    within = [wasserstein_distance(grey[: N // 2].ravel(), grey[N // 2 :].ravel()) for grey in greys.values()]
    across = [
        wasserstein_distance(greys[a].ravel(), greys[b].ravel()) for a in greys for b in greys if a < b
    ]  # fmt: skip
    assert np.mean(across) > 1.5 * np.mean(within)


@pytest.mark.parametrize(
    ("name", "n_train"),
    [("fundus6", [50, 98, 47, 230, 80, 400]), ("prostate6", [381, 238, 278, 242, 389, 814])],
)
def test_the_whole_share_is_twice_the_papers_training_images(name: str, n_train: list[int]) -> None:
    for share in (1.0, SCALES["paper"].share):
        assert list(counts(FEDERATIONS[name], share).values()) == [2 * n for n in n_train]


@pytest.mark.parametrize(("scale", "low", "high"), [("tiny", 60, 70), ("demo", 260, 280)])
@pytest.mark.parametrize("federation", [FEDERATIONS[name] for name in FLAT], ids=lambda federation: federation.name)
def test_smaller_scales_keep_the_papers_proportions(federation: Federation, scale: str, low: int, high: int) -> None:
    share = SCALES[scale].share[federation.name]
    n_by_site = counts(federation, SCALES[scale].share)
    assert n_by_site == counts(federation, share)
    assert low <= sum(n_by_site.values()) / 2 <= high
    for site, n in n_by_site.items():
        assert n >= 8
        assert n == 8 or abs(n / 2 - share * federation.n_train_by_site[site]) <= 0.5


@pytest.mark.parametrize("size", [0, 31])
def test_a_size_too_small_for_the_anatomy_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"size is {size}.*at least 32"):
        generate("fundus6", "site1", 1, size, seed=0)


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match=r"unknown federation 'fundus'; did you mean 'fundus6'\?"):
        generate("fundus", "site1", 1, 48, seed=0)
    with pytest.raises(ValueError, match=r"unknown prostate6 site 'site7'; did you mean 'site\d'\?"):
        generate("prostate6", "site7", 1, 48, seed=0)
    with pytest.raises(ValueError, match="seed is -1"):
        generate("prostate6", "site1", 1, 48, seed=-1)


@pytest.mark.parametrize("module", [synthetic, drawing, fundus, prostate], ids=lambda module: module.__name__)
def test_drawing_needs_only_numpy_and_scipy(module: ModuleType) -> None:
    nodes = list(ast.walk(ast.parse(inspect.getsource(module))))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= {"numpy", "scipy", "fedce"} | sys.stdlib_module_names
