"""Sites from folders: strict pairs, one line for each mistake, the same split every time."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedce.base.errors import DataError
from fedce.data import load_sites
from fedce.data.splits import split
from support import write_site


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_site(tmp_path, "north")
    write_site(tmp_path, "south", n=12)
    return tmp_path


def test_a_folder_becomes_sites(folder: Path):
    sites = load_sites(str(folder))
    assert [(site.name, site.images.shape, site.masks.shape) for site in sites] == [
        ("north", (8, 3, 32, 32), (8, 1, 32, 32)),
        ("south", (12, 3, 32, 32), (12, 1, 32, 32)),
    ]
    assert sites[0].masks.sum() == 8 * 64
    assert list(sites.classes) == ["foreground"]


def test_mask_values_become_classes(folder: Path):
    for path in (folder / "north" / "masks").iterdir():
        mask = np.array(Image.open(path))
        mask[4:8, 4:8] = 128
        Image.fromarray(mask).save(path)
    sites = load_sites(str(folder), classes={"disc": [128, 255], "cup": [255]})
    assert sites[0].masks[0].sum(axis=(1, 2)).tolist() == [64, 48]


def test_grey_sites_among_colour_ones_become_colour(folder: Path):
    write_site(folder, "grey", mode="L")
    assert {site.images.shape[1] for site in load_sites(str(folder))} == {3}


def test_images_are_brought_to_one_size(folder: Path):
    write_site(folder, "large", size=(64, 48))
    with pytest.raises(DataError, match=r"bring all images to one size by --set data\.size=32"):
        load_sites(str(folder))
    assert {site.images.shape[2:] for site in load_sites(str(folder), size=32)} == {(32, 32)}


def damage_missing_mask(root):
    (root / "north" / "masks" / "3.png").unlink()


def damage_missing_image(root):
    (root / "south" / "images" / "3.png").unlink()


def damage_mask_size(root):
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(root / "north" / "masks" / "2.png")


def damage_empty_site(root):
    for part in ("images", "masks"):
        (root / "empty" / part).mkdir(parents=True)


def damage_no_masks_folder(root):
    (root / "half" / "images").mkdir(parents=True)


def damage_unreadable(root):
    (root / "south" / "images" / "1.png").write_bytes(b"not a picture")


def damage_truncated(root):
    path = root / "south" / "images" / "1.png"
    path.write_bytes(path.read_bytes()[:200])


def damage_tiny_site(root):
    write_site(root, "tiny", n=1)


def damage_mask_values(root):
    write_site(root, "odd", value=7)


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (damage_missing_mask, "site 'north': image '3.png' has no mask of the same name"),
        (damage_missing_image, "site 'south': mask '3.png' has no image of the same name"),
        (damage_mask_size, "north/masks/2.png is 16x16 pixels"),
        (damage_empty_site, "site 'empty' is empty"),
        (damage_no_masks_folder, "site 'half' is empty"),
        (damage_unreadable, "1.png"),
        (damage_truncated, "1.png"),
        (damage_tiny_site, "site 'tiny' has 1 images, which leaves none for validation"),
    ],
)
def test_a_damaged_folder_is_one_line(folder: Path, damage, line):
    damage(folder)
    with pytest.raises(DataError) as caught:
        load_sites(str(folder))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unexpected_mask_values_are_named(folder: Path):
    damage_mask_values(folder)
    with pytest.raises(DataError, match="holds the value 7, which"):
        load_sites(str(folder), classes={"a": [255]})


def test_one_site_is_no_federation(tmp_path: Path):
    write_site(tmp_path, "alone")
    with pytest.raises(DataError, match="at least two sites"):
        load_sites(str(tmp_path))


def test_no_folder_and_no_sites(tmp_path: Path):
    with pytest.raises(DataError, match="no such data folder"):
        load_sites(str(tmp_path / "none"))
    with pytest.raises(DataError, match="holds no site folders"):
        load_sites(str(tmp_path))


NAMES = [f"image{i:02d}" for i in range(41)]


def test_a_class_that_no_mask_holds_is_named(folder: Path):
    said: list[str] = []
    load_sites(str(folder), classes={"disc": [255]}, notify=said.append)
    assert not [line for line in said if line.startswith("warning")]
    load_sites(str(folder), classes={"disc": [255], "cup": [9, 10]}, notify=said.append)
    assert [line for line in said if line.startswith("warning")] == [
        "warning: no mask of any site holds the class cup (9, 10); masks hold 255. "
        "Its Dice is 1 where nothing is found; check data.classes"
    ]


def test_without_a_share_for_validation_the_training_cases_validate():
    found = split("x", ["a", "a", "b", "b"], (0.5, 0, 0.5), 0)
    assert len(found.train) == len(found.test) == 2
    assert found.validation.tolist() == found.train.tolist()
    assert sorted([*found.train, *found.test]) == [0, 1, 2, 3]
    with pytest.raises(DataError, match=r"2 cases, which leaves none for validation .*\[0\.5, 0, 0\.5\]"):
        split("x", ["a", "a", "b", "b"], (0.5, 0.25, 0.25), 0)


def test_splits_are_disjoint_complete_and_repeatable():
    a, b = (split("x", NAMES, (0.5, 0.25, 0.25), 0) for _ in range(2))
    assert sorted([*a.train, *a.validation, *a.test]) == list(range(41))
    assert [a.train.tolist(), a.test.tolist()] == [b.train.tolist(), b.test.tolist()]
    assert len(a.validation) == len(a.test) == 10
    other = split("x", NAMES, (0.5, 0.25, 0.25), 1)
    assert a.train.tolist() != other.train.tolist()


def test_some_sites_only(folder: Path):
    write_site(folder, "west")
    assert [site.name for site in load_sites(str(folder), sites=["north", "west"])] == ["north", "west"]
    write_site(folder, "broken")
    (folder / "broken" / "images" / "0.png").write_text("none")
    assert len(load_sites(str(folder), sites=["north", "west"])) == 2, "what is not chosen is not looked at"
    with pytest.raises(DataError, match=r"data\.sites names 'norht', did you mean 'north'"):
        load_sites(str(folder), sites=["norht"])
    with pytest.raises(DataError, match="at least two sites"):
        load_sites(str(folder), sites=["north"])


def test_shards_share_a_sites_images_and_keep_their_parts(folder: Path):
    whole = load_sites(str(folder))
    shards = load_sites(str(folder), shards=2)
    assert [site.name for site in shards] == ["north.1", "north.2", "south.1", "south.2"]
    for i, site in enumerate(whole):
        own = shards[2 * i : 2 * i + 2]
        for part, rows in site.split.parts.items():
            files = [shard.files[row] for shard in own for row in shard.split.parts[part]]
            assert sorted(files) == sorted(site.files[row] for row in rows)
        for shard in own:
            for row, file in enumerate(shard.files):
                assert (shard.images[row] == site.images[site.files.index(file)]).all()
    with pytest.raises(DataError, match=r"too few for data\.shards = 5"):
        load_sites(str(folder), shards=5)


def test_a_built_in_federation():
    sites = load_sites("fundus6", scale="tiny")
    assert [site.name for site in sites] == [f"site{i}" for i in range(1, 7)]
    assert list(sites.classes) == ["disc", "cup"]
    assert len(sites[5].split.train) > 5 * len(sites[0].split.train)  # 400 to 50 in the paper


def test_a_palette_only_colours_the_classes(folder: Path):
    for path in (folder / "north" / "masks").iterdir():
        indices = np.zeros((32, 32), np.uint8)
        indices[:8], indices[8:16] = 1, 2
        mask = Image.fromarray(indices).convert("P")
        mask.putpalette([0, 0, 0, 1, 0, 0, 0, 0, 1])
        mask.save(path)
    for path in (folder / "south" / "masks").iterdir():
        Image.fromarray(np.ones((32, 32), np.uint8)).save(path)
    sites = load_sites(str(folder), classes={"a": [1], "b": [2]})
    assert sites[0].masks[0].sum(axis=(1, 2)).tolist() == [256, 256]


def test_coloured_masks_are_refused(folder: Path):
    Image.fromarray(np.zeros((32, 32, 3), np.uint8) + np.array([1, 2, 3], np.uint8)).save(
        folder / "north" / "masks" / "0.png"
    )
    with pytest.raises(DataError, match="is coloured"):
        load_sites(str(folder))


def test_files_of_other_systems_are_passed_over(folder: Path):
    (folder / "north" / "images" / "._0.png").write_bytes(b"")
    (folder / "north" / "images" / ".DS_Store").write_bytes(b"")
    assert len(load_sites(str(folder))[0].images) == 8


def test_a_broken_cache_is_drawn_again(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("FEDCE_CACHE", str(tmp_path))
    before = load_sites("prostate6", scale="tiny", size=32)[0].fingerprint
    for spoil in (lambda content: content[:500], lambda content: content[:500] + b"\x07" + content[501:]):
        for part in ("images.bin", "masks.bin", "about.json"):
            for broken in tmp_path.rglob(part):
                broken.write_bytes(spoil(broken.read_bytes()))
            said = []
            assert load_sites("prostate6", scale="tiny", size=32, notify=said.append)[0].fingerprint == before
            assert sum("was changed since it was written" in line for line in said) == 6
            assert load_sites("prostate6", scale="tiny", size=32, notify=said.append) is not None
            assert len(said) == 12, "nothing more was said of a cache that is whole"


def test_a_cache_is_reused_and_gives_the_same_bits(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("FEDCE_CACHE", str(tmp_path))
    said = []
    first = load_sites("prostate6", scale="tiny", size=32, notify=said.append)
    assert len(said) == 6
    second = load_sites("prostate6", scale="tiny", size=32, notify=said.append)
    assert len(said) == 6
    assert [site.fingerprint for site in first] == [site.fingerprint for site in second]


def test_a_fingerprint_changes_with_one_pixel(folder: Path):
    before = [site.fingerprint for site in load_sites(str(folder))]
    image = np.array(Image.open(folder / "north" / "images" / "0.png"))
    image[0, 0, 0] ^= 1
    Image.fromarray(image).save(folder / "north" / "images" / "0.png")
    after = [site.fingerprint for site in load_sites(str(folder))]
    assert before[0] != after[0]
    assert before[1] == after[1]
