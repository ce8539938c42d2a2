"""Layouts that are recognised: modalities, data sets of all sites, folds, colours; and what is said where none is."""

import json
import re
from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image

from fedce.base.errors import ConfigError, DataError
from fedce.data import load_sites
from fedce.data.sites import site_names

SHAPE = (32, 32, 4)
SITES = ("north", "south")


def volume(i: int, shape=SHAPE) -> np.ndarray:
    rng = np.random.default_rng(i)
    values = rng.normal(100, 10, shape)
    values[8:20, 10:22, 1:3] += 80
    return values.astype(np.float32)


def mask(value: int = 1) -> np.ndarray:
    values = np.zeros(SHAPE, np.uint8)
    values[8:20, 10:22, 1:3] = value
    return values


def write_volume(path: Path, values: np.ndarray, spacing=(1.0, 1.0, 3.0)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(values, np.diag([*spacing, 1.0])), path)


def write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def nnunet(folder: Path, n: int = 4, labels: dict | None = None, prefix: str = "case") -> Path:
    """An nnU-Net data set with two modalities; the second is the first one, upside down in its grey values."""
    for i in range(n):
        write_volume(folder / f"imagesTr/{prefix}_{i}_0000.nii.gz", volume(i))
        write_volume(folder / f"imagesTr/{prefix}_{i}_0001.nii.gz", -volume(i))
        write_volume(folder / f"labelsTr/{prefix}_{i}.nii.gz", np.where(np.arange(4) == 1, mask(1), mask(2)))
    labels = labels or {"background": 0, "PZ": 1, "TZ": 2}
    write_json(folder / "dataset.json", {"channel_names": {"0": "T2", "1": "ADC"}, "labels": labels})
    return folder


def test_nnunet_folders_give_channels_and_classes(tmp_path: Path):
    for site in SITES:
        nnunet(tmp_path / site)
    sites = load_sites(tmp_path)
    assert sites.recognised == "nnU-Net folders, 2 modalities (T2, ADC), 2 classes (PZ, TZ)"
    assert dict(sites.classes) == {"PZ": [1], "TZ": [2]}
    assert sites[0].images.shape == (16, 2, 32, 32)
    # Every modality has its own range: bright in the first is dark in the second.
    first, second = sites[0].images[1].astype(int)
    assert np.abs(first + second - 255).max() <= 1
    assert sites[0].masks.any(axis=(0, 2, 3)).all()


def test_a_missing_modality_is_one_line_with_case_and_modality(tmp_path: Path):
    for site in SITES:
        nnunet(tmp_path / site)
    (tmp_path / "north/imagesTr/case_2_0001.nii.gz").unlink()
    with pytest.raises(DataError, match=r"^site 'north': case 'case_2' has no modality '0001' \(ADC\)"):
        load_sites(tmp_path)


def test_modalities_by_a_pattern_each_keep_the_stated_order(tmp_path: Path):
    for site in SITES:
        for i in range(4):
            write_volume(tmp_path / site / f"P{i}_t2.nii.gz", volume(i))
            write_volume(tmp_path / site / f"P{i}_adc.nii.gz", -volume(i))
            write_volume(tmp_path / site / f"P{i}_roi.nii.gz", mask())
    patterns = {"t2": "*_t2.nii.gz", "adc": "*_adc.nii.gz"}
    one = load_sites(tmp_path, images=patterns, masks="*_roi.nii.gz")
    other = load_sites(tmp_path, images=dict(reversed(patterns.items())), masks="*_roi.nii.gz")
    assert one.recognised == "stated patterns, 2 modalities (t2, adc), 1 class (foreground)"
    assert np.array_equal(one[0].images, other[0].images[:, ::-1])
    (tmp_path / "south/P3_adc.nii.gz").unlink()
    with pytest.raises(DataError, match="site 'south': case 'P3' has no modality 'adc'"):
        load_sites(tmp_path, images=patterns, masks="*_roi.nii.gz")


def test_modalities_on_different_grids_are_refused(tmp_path: Path):
    for site in SITES:
        nnunet(tmp_path / site)
    write_volume(tmp_path / "north/imagesTr/case_1_0001.nii.gz", volume(1), spacing=(2.0, 2.0, 3.0))
    with pytest.raises(DataError, match=r"modality .*case_1_0001.nii.gz lies 31.0 mm away from its image"):
        load_sites(tmp_path)


def test_sites_must_have_the_same_modalities(tmp_path: Path):
    for site in SITES:
        nnunet(tmp_path / site)
    for i in range(4):
        (tmp_path / f"north/imagesTr/case_{i}_0001.nii.gz").unlink()
    (tmp_path / "north/dataset.json").unlink()
    with pytest.raises(DataError, match="site 'north' has 1 modalities or channels, site 'south' 2"):
        load_sites(tmp_path)


def test_a_decathlon_file_of_four_dimensions_holds_modalities(tmp_path: Path):
    for site in SITES:
        for i in range(4):
            both = np.stack([volume(i), -volume(i)], axis=-1)
            write_volume(tmp_path / site / f"imagesTr/p_{i}.nii.gz", both)
            write_volume(tmp_path / site / f"labelsTr/p_{i}.nii.gz", mask())
        about = {"modality": {"0": "T2", "1": "ADC"}, "labels": {"0": "background", "1": "gland"}}
        pairs = [{"image": f"./imagesTr/p_{i}.nii.gz", "label": f"./labelsTr/p_{i}.nii.gz"} for i in range(4)]
        write_json(tmp_path / site / "dataset.json", {**about, "training": pairs, "test": ["./imagesTs/p_9.nii.gz"]})
    sites = load_sites(tmp_path)
    assert sites.recognised == "Decathlon folders, 2 modalities (T2, ADC), 1 class (gland)"
    assert sites[0].images.shape[1] == 2


def test_one_data_set_is_cut_into_sites_by_a_pattern(tmp_path: Path):
    folder = nnunet(nnunet(tmp_path / "Dataset001", prefix="A"), prefix="B")
    with pytest.raises(DataError, match=r"is one site's folder or one data set \(nnU-Net folders, 8 cases\)") as caught:
        load_sites(folder)
    assert "data.site_pattern='([A-Za-z]+[A-Za-z0-9]*?)[_-].*' (which finds A 4, B 4 cases)" in str(caught.value)
    sites = load_sites(folder, site_pattern="([A-Z])_.*")
    assert {site.name: site.cases[0] for site in sites} == {"A": "A_0", "B": "B_0"}
    assert [site.name for site in load_sites(folder, shards=2)] == ["Dataset001.1", "Dataset001.2"]
    with pytest.raises(DataError, match="names no site for 'A_0'"):
        load_sites(folder, site_pattern="(B)_.*")


def test_one_data_set_is_cut_into_sites_by_a_column(tmp_path: Path):
    folder = nnunet(tmp_path / "Dataset001", n=8)
    rows = "\n".join(f"case_{i},{'east' if i % 2 else 'west'}" for i in range(8))
    (folder / "cases.csv").write_text(f"file,hospital\n{rows}\n")
    sites = load_sites(folder, site_column="hospital")
    assert [site.name for site in sites] == ["east", "west"]
    assert set(sites[0].cases) == {"case_1", "case_3", "case_5", "case_7"}


def bids(folder: Path, n: int = 4) -> None:
    for i in range(n):
        for session in ("ses-1", "ses-2"):
            stem = f"sub-{i:02d}_{session}"
            write_volume(folder / f"sub-{i:02d}/{session}/anat/{stem}_T2w.nii.gz", volume(i))
            derived = folder / f"derivatives/labels/sub-{i:02d}/{session}/anat"
            write_volume(derived / f"{stem}_space-orig_dseg.nii.gz", mask())


def test_bids_trees_by_subject_and_session(tmp_path: Path):
    for site in SITES:
        bids(tmp_path / site)
    sites = load_sites(tmp_path)
    assert sites.recognised == "BIDS tree, 1 class (foreground)"
    assert len(sites[0].images) == 4 * 2 * 4
    assert set(sites[0].cases) == {f"sub-{i:02d}" for i in range(4)}, "two sessions of a subject are one case"


def test_one_bids_tree_has_its_sites_in_its_table(tmp_path: Path):
    bids(tmp_path, n=8)
    rows = "\n".join(f"sub-{i:02d}\t{SITES[i % 2]}" for i in range(8))
    (tmp_path / "participants.tsv").write_text(f"participant_id\tsite\n{rows}\n")
    sites = load_sites(tmp_path)
    assert [site.name for site in sites] == list(SITES)
    assert set(sites[1].cases) == {"sub-01", "sub-03", "sub-05", "sub-07"}


def test_a_pattern_may_have_several_stars(tmp_path: Path):
    for site in SITES:
        bids(tmp_path / site)
    stated = {
        "images": "sub-*/ses-*/anat/*_T2w.nii.gz",
        "masks": "derivatives/labels/sub-*/ses-*/anat/*_space-orig_dseg.nii.gz",
    }
    sites = load_sites(tmp_path, **stated)
    assert sites[0].file_of(0) == "00/1/sub-00_ses-1"
    with pytest.raises(ConfigError, match=r"images '\*/\*_T2w' and masks '\*_mask' need the same number of \*"):
        load_sites(tmp_path, images="*/*_T2w", masks="*_mask")


@pytest.mark.parametrize("names", [("image", "mask"), ("{}_flair", "{}_seg"), ("scan of {}", "{} roi")])
def test_a_folder_for_each_patient(tmp_path: Path, names: tuple[str, str]):
    for site in SITES:
        for i in range(4):
            for name, values in zip(names, (volume(i), mask()), strict=True):
                write_volume(tmp_path / site / f"P{i}" / f"{name.format(f'P{i}')}.nii.gz", values)
    sites = load_sites(tmp_path)
    assert sites.recognised == "a folder a patient, 1 class (foreground)"
    assert set(sites[0].cases) == {"P0", "P1", "P2", "P3"}


def test_a_folder_for_each_patient_may_hold_modalities(tmp_path: Path):
    for site in SITES:
        for i in range(4):
            for name, values in (("flair", volume(i)), ("t1", -volume(i)), ("seg", mask())):
                write_volume(tmp_path / site / f"P{i}/P{i}_{name}.nii.gz", values)
    assert load_sites(tmp_path).recognised == "a folder a patient, 2 modalities (flair, t1), 1 class (foreground)"
    (tmp_path / "south/P2/P2_t1.nii.gz").unlink()
    with pytest.raises(DataError, match="site 'south': case 'P2' has no modality 't1'"):
        load_sites(tmp_path)


def datalist(folder: Path, n: int = 10, n_folds: int = 5, **more: object) -> Path:
    entries = []
    for i in range(n):
        write_volume(folder / f"scans/{i}.nii.gz", volume(i))
        write_volume(folder / f"rois/{i}.nii.gz", mask())
        site = SITES[i * 2 // n]
        entries.append(
            {"image": f"scans/{i}.nii.gz", "label": f"rois/{i}.nii.gz", "fold": i % n_folds, "site": site, **more}
        )
    write_json(folder / "dataset_folds.json", {"training": entries, "testing": [{"image": "scans/99.nii.gz"}]})
    return folder / "dataset_folds.json"


@pytest.mark.parametrize(("fold", "validated", "tested"), [(0, "0", "1"), (4, "4", "0")])
def test_one_fold_validates_and_the_next_one_tests(tmp_path: Path, fold: int, validated: str, tested: str):
    path = datalist(tmp_path)
    for source in (path, tmp_path):
        sites = load_sites(str(source), fold=fold)
        assert sites.recognised == "datalist with 5 folds, 1 class (foreground)"
        north = sites[0]
        parts = {name: {north.cases[row] for row in rows} for name, rows in north.split.parts.items()}
        assert parts["validation"] == {f"scans/{validated}"}
        assert parts["test"] == {f"scans/{tested}"}
        assert len(parts["train"]) == 3


def test_a_fold_that_does_not_exist_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match=r"has the folds \[0, 1, 2, 3, 4\]; data.fold = 7 must be one of them"):
        load_sites(str(datalist(tmp_path)), fold=7)


def test_a_list_may_name_a_file_for_each_modality(tmp_path: Path):
    path = datalist(tmp_path)
    content = json.loads(path.read_text())
    for entry in content["training"]:
        entry["image"] = [entry["image"], entry["image"]]
    write_json(path, content)
    assert load_sites(str(path))[0].images.shape[1] == 2


def colour_pairs(root: Path, end: str = "png") -> Path:
    for site in SITES:
        for i in range(4):
            drawn = np.zeros((32, 32, 3), np.uint8)
            drawn[4:20, 4:20] = (0, 255, 0)
            drawn[8:12, 8:12] = (0, 0, 255)
            pixels = np.random.default_rng(i).integers(0, 255, (32, 32, 3), np.uint8)
            for folder, values, ending in (("images", pixels, "png"), ("masks", drawn, end)):
                path = root / site / folder / f"{i}.{ending}"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(values).save(path)
    return root


def test_masks_in_colours_by_a_table(tmp_path: Path):
    colour_pairs(tmp_path)
    with pytest.raises(DataError, match=r"data.colors='\{class_1 = \[0, 0, 255\], class_2 = \[0, 255, 0\]\}'"):
        load_sites(tmp_path)
    sites = load_sites(tmp_path, colors={"disc": [[0, 255, 0], [0, 0, 255]], "cup": [0, 0, 255]})
    assert sites[0].masks.sum(axis=(0, 2, 3)).tolist() == [4 * 256, 4 * 16]
    with pytest.raises(DataError, match=r"has the colour \[0, 0, 255\], which data.colors gives to no class"):
        load_sites(tmp_path, colors={"disc": [0, 255, 0]})


def test_blurred_colours_become_the_nearest_known(tmp_path: Path):
    colour_pairs(tmp_path, "jpg")
    sites = load_sites(tmp_path, colors={"disc": [[0, 255, 0], [0, 0, 255]], "cup": [0, 0, 255]})
    disc, cup = sites[0].masks.sum(axis=(0, 2, 3)) / 4
    assert abs(disc - 256) < 40
    assert abs(cup - 16) < 16


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"colors": {"a": [0, 0, 0]}}, "black, \\[0, 0, 0\\], is the background"),
        ({"colors": {"a": [0, 0, 300]}}, "colors.a.0.2: input should be less than or equal to 255"),
        ({"colors": {"a": [1, 2, 3]}, "classes": {"a": [1]}}, "set classes .* or colors .*, not both"),
        ({"images": {"a": "x"}, "masks": "*"}, "at least one \\*"),
        ({"site_pattern": "(", "source": "x"}, "is not a regular expression"),
        ({"site_pattern": "(.)", "site_column": "x"}, "set site_pattern or site_column, not both"),
    ],
)
def test_keys_that_make_no_sense(tmp_path: Path, keys: dict, line: str):
    source = keys.pop("source", str(tmp_path))
    with pytest.raises(ConfigError, match=line):
        load_sites(source, **keys)


def test_where_nothing_fits_the_message_says_what_was_found(tmp_path: Path):
    for site in SITES:
        for i in range(4):
            write_volume(tmp_path / site / f"scans/day{i}/T2-{i}.nii.gz", volume(i))
            write_volume(tmp_path / site / f"drawn contours/{i}.nii.gz", mask())
        (tmp_path / site / "notes.txt").write_text("hello")
    with pytest.raises(DataError) as caught:
        load_sites(tmp_path)
    line = str(caught.value)
    assert "4 .nii.gz in drawn contours, 4 .nii.gz in scans/day*, 1 .txt in ." in line
    assert "--set data.images='scans/day*/T2-*.nii.gz' --set data.masks='drawn contours/*.nii.gz'" in line


def write_pair(images: Path, masks: Path, name: str, i: int = 0) -> None:
    """A grey image and its mask as PNG files."""
    for folder, values in ((images, volume(i)[:, :, 1]), (masks, mask(255)[:, :, 1])):
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values.astype(np.uint8)).save(folder / f"{name}.png")


PARTS = {"train": 4, "val": 2, "test": 3}


@pytest.mark.parametrize("where", ["{part}/{kind}", "{kind}/{part}"])
def test_folders_of_train_val_and_test_are_the_split(tmp_path: Path, where: str):
    for site in SITES:
        for part, n in PARTS.items():
            for i in range(n):
                folders = [tmp_path / site / where.format(part=part, kind=kind) for kind in ("images", "masks")]
                write_pair(*folders, str(i), i)
    sites = load_sites(tmp_path)
    assert sites.recognised.startswith("images and masks in folders of train, validation and test")
    for site in sites:
        named = {part: [site.files[row] for row in rows] for part, rows in site.split.parts.items()}
        assert named == {
            "train": [f"train/{i}" for i in range(4)],
            "validation": ["val/0", "val/1"],
            "test": [f"test/{i}" for i in range(3)],
        }


def test_folders_without_one_part_of_the_split_are_refused_with_keys_that_work(tmp_path: Path):
    for site in SITES:
        for part in ("Train", "Test"):
            for i in range(3):
                write_pair(tmp_path / site / part / "images", tmp_path / site / part / "labels", str(i), i)
    with pytest.raises(DataError, match="has folders for test and train but none for validation") as refused:
        load_sites(tmp_path)
    images, masks = (str(refused.value).split(f"data.{key}='")[1].split("'")[0] for key in ("images", "masks"))
    sites = load_sites(tmp_path, images=images, masks=masks)
    assert [len(site.files) for site in sites] == [6, 6]


def test_train_val_and_test_are_not_taken_for_hospitals(tmp_path: Path):
    for part, n in PARTS.items():
        for i in range(2 * n):
            write_pair(tmp_path / part / "images", tmp_path / part / "masks", f"{SITES[i % 2]}_{i}", i)
    with pytest.raises(DataError, match=r"is one site's folder or one data set .*18 cases"):
        load_sites(tmp_path)
    sites = load_sites(tmp_path, site_pattern="([a-z]+)_.*")
    assert {site.name: len(site.split.test) for site in sites} == {"north": 3, "south": 3}


def test_files_that_are_not_read_get_no_keys_that_would_not_help(tmp_path: Path):
    for site in SITES:
        for kind in ("images", "masks"):
            (tmp_path / site / kind).mkdir(parents=True)
            np.save(tmp_path / site / kind / "0.npy", mask())
    with pytest.raises(DataError, match=r"1 \.npy in images.*\.npy files are not read; save them as PNG") as refused:
        load_sites(tmp_path)
    assert "data.images" not in str(refused.value)
    assert "data.format=package.module:NAME" in str(refused.value)


def test_keys_are_proposed_for_all_parts_of_a_split(tmp_path: Path):
    for site in SITES:
        for part in PARTS:
            for i in range(3):
                write_pair(tmp_path / site / part / "scans", tmp_path / site / part / "outlines_gt", f"{part}{i}", i)
    with pytest.raises(DataError, match=r"data\.images='\*/scans/\*\.png' --set data\.masks='\*/outlines_gt/\*\.png'"):
        load_sites(tmp_path)
    sites = load_sites(tmp_path, images="*/scans/*.png", masks="*/outlines_gt/*.png")
    assert [len(site.files) for site in sites] == [9, 9]


def test_an_empty_site_is_called_empty(tmp_path: Path):
    for site in SITES:
        nnunet(tmp_path / site)
    (tmp_path / "west").mkdir()
    with pytest.raises(DataError, match=r"^site 'west' is empty: there is no file in"):
        site_names(load_sites(tmp_path, sites=list(SITES)).config.model_copy(update={"sites": ()}))


@pytest.mark.parametrize(
    ("labels", "line"),
    [
        ({"background": 0, "PZ": 300}, "expected whole numbers from 0 to 255"),
        ([1, 2], '"labels" should be a table'),
    ],
)
def test_a_broken_dataset_json_is_one_line(tmp_path: Path, labels: object, line: str):
    for site in SITES:
        nnunet(tmp_path / site)
    write_json(tmp_path / "south/dataset.json", {"labels": labels})
    with pytest.raises(DataError, match=line):
        load_sites(tmp_path)


def test_regions_of_nnunet_may_overlap(tmp_path: Path):
    for site in SITES:
        nnunet(tmp_path / site, labels={"background": 0, "whole": [1, 2], "TZ": 2})
    sites = load_sites(tmp_path)
    whole, inner = sites[0].masks.sum(axis=(0, 2, 3)).tolist()
    assert whole == 2 * inner > 0


def write_pairs(root: Path, image: str, mask_name: str, n: int = 4) -> Path:
    """At each of two sites, n images and masks; {i} in a name is their number."""
    for site in SITES:
        for i in range(n):
            for name, values in ((image, volume(i)[..., 1]), (mask_name, 255 * mask()[..., 1])):
                path = root / site / name.format(i=i)
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(np.clip(values, 0, 255).astype(np.uint8)).save(path)
    return root


@pytest.mark.parametrize(
    ("image", "mask_name", "recognised"),
    [
        ("Images/{i}.PNG", "Masks/{i}.PNG", "Images/*.PNG with Masks/*.PNG"),
        ("Original/{i}.tif", "Ground Truth/{i}.tif", "Original/*.tif with Ground Truth/*.tif"),
        ("imgs/a{i}.png", "gt/a{i}_gt.png", "imgs/a*.png with gt/a*_gt.png"),
        ("x/{i}.png", "y/{i}_seg.png", "x/*.png with y/*_seg.png"),
    ],
)
def test_two_folders_whose_files_all_fit_need_no_keys(tmp_path: Path, image: str, mask_name: str, recognised: str):
    sites = load_sites(write_pairs(tmp_path, image, mask_name))
    assert sites.recognised == f"{recognised}, 1 class (foreground)"
    assert [len(site.images) for site in sites] == [4, 4]
    assert sites[0].masks[:, 0, 10, 12].all()


def test_a_part_of_a_name_is_no_word_for_masks(tmp_path: Path):
    write_pairs(tmp_path, "Detroit/{i}.png", "drawn/{i}.png")
    with pytest.raises(DataError, match="is laid out in a way that is recognised; found"):
        load_sites(tmp_path)


def test_one_file_without_its_pair_is_not_guessed_around(tmp_path: Path):
    write_pairs(tmp_path, "imgs/{i}.png", "gt/{i}_gt.png")
    (tmp_path / "north/gt/3_gt.png").unlink()
    with pytest.raises(DataError, match=r"site 'north': nothing in .* is laid out in a way that is recognised"):
        load_sites(tmp_path)


@pytest.mark.parametrize(
    ("image", "mask_name", "keys"),
    [
        ("Image_0{i}L.jpg", "Image_0{i}L_1stHO.png", ("Image_*L.jpg", "Image_*L_1stHO.png")),
        (
            "images/0{i}_training.tif",
            "1st_manual/0{i}_manual1.png",
            ("images/*_training.tif", "1st_manual/*_manual1.png"),
        ),
    ],
)
def test_where_nothing_says_which_are_the_masks_the_keys_are_printed_and_work(tmp_path: Path, image, mask_name, keys):
    write_pairs(tmp_path, image, mask_name)
    with pytest.raises(DataError) as caught:
        load_sites(tmp_path)
    assert f"--set data.images='{keys[0]}' --set data.masks='{keys[1]}'" in str(caught.value)
    assert load_sites(tmp_path, images=keys[0], masks=keys[1]).recognised.startswith("stated patterns")


def test_sites_below_the_folders_of_images_and_masks_are_named_in_the_advice(tmp_path: Path):
    for i in range(8):
        for folder, values in (("images", volume(i)[..., 1]), ("masks", 255 * mask()[..., 1])):
            path = tmp_path / folder / SITES[i % 2] / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.clip(values, 0, 255).astype(np.uint8)).save(path)
    with pytest.raises(DataError) as caught:
        load_sites(tmp_path)
    patterns = "--set data.images='images/*/*.png' --set data.masks='masks/*/*.png'"
    assert f"{patterns} (if each * folder is a site, add --set data.site_pattern='([^/]+)/.*')" in str(caught.value)
    sites = load_sites(tmp_path, images="images/*/*.png", masks="masks/*/*.png", site_pattern="([^/]+)/.*")
    assert [site.name for site in sites] == list(SITES)


def test_several_frames_of_a_patient_stay_in_one_split(tmp_path: Path):
    write_pairs(tmp_path, "P{i}/f1.png", "P{i}/f1_mask.png", n=6)
    sites = load_sites(write_pairs(tmp_path, "P{i}/f2.png", "P{i}/f2_mask.png", n=6))
    assert sites.recognised == "a folder a patient, 1 class (foreground)"
    assert [len(site.images) for site in sites] == [12, 12]
    for rows in (sites[0].split.train, sites[0].split.validation, sites[0].split.test):
        assert len(rows) == 2 * len({sites[0].cases[row] for row in rows})


def test_a_site_may_have_its_own_datalist(tmp_path: Path):
    for site in SITES:
        for i in range(5):
            write_volume(tmp_path / site / f"x/{i}.nii.gz", volume(i))
            write_volume(tmp_path / site / f"y/{i}_roi.nii.gz", mask())
        entries = [{"image": f"x/{i}.nii.gz", "label": f"y/{i}_roi.nii.gz", "fold": i} for i in range(5)]
        write_json(tmp_path / site / "datalist.json", {"training": entries})
    sites = load_sites(tmp_path)
    assert sites.recognised == "datalist with 5 folds, 1 class (foreground)"
    assert [site.name for site in sites] == list(SITES)
    with pytest.raises(DataError, match=re.escape(f"give the folder of the sites, {tmp_path}, if its other folders")):
        load_sites(tmp_path / "north" / "datalist.json")
