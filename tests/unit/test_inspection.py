"""What the data look like, on data whose numbers are worked out by hand."""

import tomllib
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from fedce.base.tables import DataConfig
from fedce.data import SiteData, Sites
from fedce.data.cache import Origin
from fedce.data.duplicates import Duplicate, Picture, find_duplicates, groups_with
from fedce.data.inspection import distance, grey_values, inspect_sites, site_facts
from fedce.data.remarks import summary
from fedce.data.splits import stated
from fedce.pictures.examples import example
from fedce.present.facts import facts_table
from fedce.present.pages.inspection import groups_lines, picture
from fedce.present.tables import inspection_table

PARTS = ("train", "train", "validation", "test")


def site(name: str, images, masks=None, cases=None, parts=PARTS, origins=()) -> SiteData:
    """Images (n, height, width) with masks of the same shape, in one channel and one class."""
    images = np.asarray(images, np.uint8)[:, None]
    masks = np.ones_like(images) if masks is None else np.asarray(masks, np.uint8)[:, None]
    files = tuple(f"{name}{i}" for i in range(len(images)))
    return SiteData(name, images, masks, files, tuple(cases or files), stated(parts), origins)


def federation(*members: SiteData, **options) -> Sites:
    return Sites(DataConfig(source="somewhere", **options), {"organ": [255]}, members)


def pairs_of(*members: SiteData) -> tuple[Duplicate, ...]:
    return find_duplicates(federation(*members)).pairs


def noise(seed: int, n: int = 4, size: int = 64) -> np.ndarray:
    """Scenes with details of every size, each another one."""
    rng = np.random.default_rng(seed)
    coarse = np.kron(rng.integers(0, 200, (n, 8, 8)), np.ones((size // 8, size // 8)))
    return coarse + rng.integers(0, 55, (n, size, size))


def test_grey_values_of_a_known_image():
    half = np.zeros((4, 8, 8))
    half[:, :, 4:] = 200
    grey = site_facts(site("a", half), ("organ",)).grey
    assert grey.mean == pytest.approx([100])
    assert grey.std == pytest.approx([100])
    assert grey.percentiles.tolist() == [[0, 0, 0, 200, 200]]
    assert grey.histogram.shape == (1, 64)
    assert grey.histogram[0, [0, 50]] == pytest.approx([0.5, 0.5])
    assert grey.histogram.sum() == pytest.approx(1)


def test_grey_values_are_those_of_numpy(monkeypatch):
    monkeypatch.setattr("fedce.data.site.CHUNK_BYTES", 1000)
    images = np.random.default_rng(0).integers(0, 256, (7, 3, 20, 30)).astype(np.uint8)
    grey = grey_values(images)
    assert grey.mean == pytest.approx(images.mean(axis=(0, 2, 3)))
    assert grey.std == pytest.approx(images.std(axis=(0, 2, 3)))
    expected = np.percentile(images, (1, 25, 50, 75, 99), axis=(0, 2, 3), method="inverted_cdf")
    assert grey.percentiles.tolist() == expected.T.tolist()


def test_sites_of_grey_10_and_30_are_20_levels_apart():
    dark, bright = np.full((4, 8, 8), 10), np.full((4, 8, 8), 30)
    found = inspect_sites(federation(site("dark", dark), site("bright", bright), site("night", dark)))
    assert found.distances.tolist() == [[0, 20, 0], [20, 0, 20], [0, 20, 0]]
    assert found.mean_distances.tolist() == [10, 20, 10]
    assert (
        "bright looks most different: its grey values lie 20.0 levels of 255 from those of the other sites"
        in summary(found)[1]
    )
    assert [one.grey.std.tolist() for one in found.sites] == [[0], [0], [0]]


def test_the_distance_is_scipys():
    one, other = (
        np.random.default_rng(seed).integers(0, top, (5, 3, 9, 9)).astype(np.uint8) for seed, top in ((1, 256), (2, 90))
    )
    expected = [wasserstein_distance(one[:, channel].ravel(), other[:, channel].ravel()) for channel in range(3)]
    assert distance(grey_values(one), grey_values(other)) == pytest.approx(np.mean(expected))


def test_mask_areas_and_empty_masks():
    masks = np.zeros((4, 10, 10))
    masks[1, 0, :1] = masks[2, 0, :10] = masks[3, :5] = 1
    facts = site_facts(site("a", noise(0, size=16)[:, :10, :10], masks), ("organ",))
    assert facts.areas["organ"] == pytest.approx([0, 0.01, 0.1, 0.5])
    assert facts.n_empty == {"organ": 1}
    assert facts.as_dict()["area"]["organ"] == pytest.approx({"min": 0, "median": 0.055, "max": 0.5})
    assert facts.examples == (0, 2, 3)
    found = inspect_sites(federation(site("a", noise(0), np.zeros((4, 64, 64))), site("b", noise(1))))
    assert "Masks that mark nothing: 4 of 4 at a." in summary(found)


def test_counts_sizes_and_spacing():
    origins = tuple(Origin(f"v#{i}", 0, 100 * i, 10, (0.5, 0.4 + i), (1,)) for i in (3, 1, 2, 4))
    facts = site_facts(site("a", noise(0), cases="vvwx", origins=origins), ("organ",))
    assert (facts.n_images, facts.n_cases, facts.n_test_cases) == (4, 3, 1)
    assert facts.n_by_part == {"train": 2, "validation": 1, "test": 1}
    assert facts.sizes == ((100, 10), (300, 10), (400, 10))
    assert facts.spacing == (0.5, 4.4)
    built_in = site_facts(site("a", noise(0)), ("organ",))
    assert built_in.sizes == ((64, 64),) * 3
    assert built_in.spacing is None


def volume_site() -> SiteData:
    """Two volumes of two slices, of which one slice is marked, a marked volume and one without marks."""
    masks = np.zeros((6, 64, 64))
    for row, side in ((1, 8), (3, 4), (4, 16)):
        masks[row, :side, :side] = 1
    items, values = (0, 0, 1, 1, 2, 3), ((), (1,), (), (1,), (1,), ())
    origins = tuple(
        Origin(f"v{item}", item, 64, 64, (1.0, 1.0), value) for item, value in zip(items, values, strict=True)
    )
    parts = ("train", "train", "validation", "validation", "test", "test")
    return site("a", noise(0, n=6), masks, cases=[f"v{item}" for item in items], parts=parts, origins=origins)


def test_empty_slices_are_counted_and_not_looked_at():
    volumes = volume_site()
    facts = site_facts(volumes, ("organ",))
    assert (facts.n_images, facts.n_shown, facts.n_marked_nothing, facts.n_empty) == (6, 3, 1, {"organ": 0})
    assert facts.areas["organ"].min() > 0
    assert set(facts.examples) <= {1, 3, 4}
    said = summary(inspect_sites(federation(volumes, site("b", noise(1)))))
    assert "Slices with something marked: 3 of 6 at a. A volume is scored on all its slices." in said
    assert "Volumes in which nothing is marked: 1 at a." in said


def test_the_example_is_the_slice_with_most_marked_of_the_first_test_case():
    volumes = volume_site()
    shown = example(
        replace(volumes, split=stated(("test",) * 4 + ("train", "validation"))), lambda images: images > 300
    )
    assert (shown.file, shown.dice) == ("a1", 0.0), "the second slice of the first volume; nothing was found in it"


def test_empty_slices_of_two_patients_are_no_near_duplicates():
    volumes = volume_site()
    images = np.array(volumes.images)
    images[2] = images[0]
    assert not pairs_of(replace(volumes, images=images), site("b", noise(1)))


def columns(*members: SiteData) -> list[str]:
    return [str(column.header) for column in inspection_table(inspect_sites(federation(*members))).columns]


def test_the_table_has_no_column_that_says_nothing():
    origins = tuple(Origin("v", 0, 64, 64, (0.5, 0.5), (1,)) for _ in range(4))
    plain = ["site", "images", "split", "size", "grey", "organ, %", "distance"]
    assert columns(site("a", noise(0)), site("b", noise(1))) == plain
    volumes = site("a", noise(0), cases="vvwx", origins=origins)
    assert columns(volumes, site("b", noise(1))) == [*plain[:2], "cases", *plain[2:4], "mm", *plain[4:]]


def test_terminal_and_page_show_the_same_facts():
    """Built once: what the terminal shows in short, the page shows in full."""
    origins = tuple(Origin("v", 0, 64, 48 + 8 * i, (0.5, 0.5 + i / 8), (1,)) for i in range(4))
    found = inspect_sites(federation(site("a", noise(0), cases="vvwx", origins=origins), site("b", noise(1))))
    short, full, areas = (facts_table(found, place) for place in ("terminal", "page", "areas"))
    shown = [
        dict(zip((name for name, _ in table.titles), table.rows[0], strict=True)) for table in (short, full, areas)
    ]
    assert [one.text for one in short.rows[0]][:6] == ["a", "4", "3", "2/1/1", "64x48 64x72", "0.50 0.88"]
    assert [one.text for one in full.rows[0]][:6] == [
        "a",
        "4",
        "3",
        "2 / 1 / 1",
        "64 x 48 to 64 x 72",
        "0.50 to 0.88 mm",
    ]
    assert shown[1]["Size"].note.text == "median 64 x 64"
    assert shown[0]["grey"].text == shown[1]["Grey"].text.replace(" ", "")
    assert shown[2]["organ"].text.startswith(f"{shown[0]['organ, %'].text} (")
    assert full.rows[1][5].text == "unknown"


def with_a_copy(seed: int, source: int, target: int, brightness: float = 1.0) -> np.ndarray:
    """Scenes of which one is another's copy, with other noise and brightness."""
    images = noise(seed)
    images[target] = brightness * (images[source] + np.random.default_rng(9).normal(0, 4, (64, 64))).clip(0, 255)
    return images


@pytest.mark.parametrize("brightness", [1.0, 0.6])
def test_a_copy_in_another_split_is_found(brightness):
    (pair,) = pairs_of(site("a", with_a_copy(0, 0, 3, brightness)), site("b", noise(1)))
    assert (pair.one.file, pair.other.file) == ("a0", "a3")
    assert (pair.one.part, pair.other.part) == ("train", "test")
    assert pair.across_splits
    assert not pair.across_sites
    assert pair.group == ("a/a0", "a/a3")
    assert 0.8 <= pair.similarity <= 1.0001


def test_a_copy_in_the_same_split_is_listed_too_because_a_new_split_may_part_them():
    (pair,) = pairs_of(site("a", with_a_copy(0, 0, 1)), site("b", noise(1)))
    assert not pair.across_splits


def test_images_of_one_case_are_not_compared():
    images = with_a_copy(0, 0, 3)
    assert not pairs_of(site("a", images, cases=("p", "q", "r", "p")), site("b", noise(1)))


def test_one_pair_is_told_of_two_cases():
    images = noise(0)
    images[2], images[3] = images[0], images[1]
    pairs = pairs_of(site("a", images, cases="ppqq"), site("b", noise(1)))
    assert len(pairs) == 1


def test_a_copy_at_another_site_is_found_and_no_group_is_advised():
    images = noise(1)
    images[2] = noise(0)[0]
    found = inspect_sites(federation(site("a", noise(0)), site("b", images)))
    (pair,) = found.duplicates
    assert pair.across_sites
    assert pair.group is None
    assert found.groups == []
    assert "1 pair of cases looks nearly the same: 1 in two sites." in summary(found)


def test_blank_images_and_blocks(monkeypatch):
    monkeypatch.setattr("fedce.data.likeness.BLOCK", 2)
    monkeypatch.setattr("fedce.data.duplicates.BLOCK", 2)
    blank = np.full((4, 64, 64), 77)
    assert not pairs_of(site("a", blank), site("b", blank))
    (pair,) = pairs_of(site("a", with_a_copy(0, 0, 3)), site("b", blank))
    assert (pair.one.file, pair.other.file) == ("a0", "a3")


def pair_of(one: str, other: str) -> Duplicate:
    return Duplicate(1.0, 1.0, False, *(Picture("s", 0, name, f"s/{name}", "train") for name in (one, other)))


def test_groups_are_toml_with_what_was_there_and_chains_as_one():
    groups = groups_with([["x", "y"]], [pair_of("a", "b"), pair_of('q"uote', "d"), pair_of("c", "b")])
    assert groups == [["x", "y"], ["s/a", "s/b", "s/c"], ['s/q"uote', "s/d"]]
    assert tomllib.loads(groups_lines(groups)) == {"groups": groups}


def test_a_slice_is_grouped_by_its_volume_and_an_image_by_its_name():
    origins = tuple(Origin("", 0, 64, 64, spacing, (1,)) for spacing in ((1.0, 1.0), (1.0, 1.0), None, None))
    images = noise(0)
    images[2:] = images[:2]
    data = site("a", images, cases="pqrs", origins=origins)
    object.__setattr__(data, "files", ("p#003", "q#012", "frame#7", "s"))
    pairs = pairs_of(data, site("b", noise(1)))
    assert {pair.group for pair in pairs} == {("a/p", "a/frame#7"), ("a/q", "a/s")}


def test_the_built_in_federations_have_no_near_duplicates():
    from fedce.data import load_sites

    for name in ("fundus6", "prostate6"):
        assert not find_duplicates(load_sites(name, scale="tiny")).pairs


def test_pictures_keep_their_proportions():
    from base64 import b64decode
    from io import BytesIO

    from PIL import Image

    for shape, size in (((3, 320, 200), (100, 160)), ((1, 20, 30), (30, 20))):
        image = np.zeros(shape, np.uint8)
        uri = picture(image, np.ones((1, *shape[1:]), np.uint8))
        assert Image.open(BytesIO(b64decode(uri.partition(",")[2]))).size == size
