"""Real file formats: what a hospital has on disk becomes the right pixels, or one clear line."""

import json
import os
import re
import struct
import zlib
from collections import Counter
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
from PIL import Image

from fedce.base.errors import DataError
from fedce.data import load_sites
from fedce.data.resizing import from_size, to_size
from fedce.data.volumes import nifti_bytes, read_nifti, sliced, unsliced
from support import write_site

SIZE = (40, 30)


def picture(i: int, top: int = 255) -> np.ndarray:
    """A ramp whose brightness tells which file it is."""
    rows = np.linspace(0, 1, SIZE[0])[:, None] * np.ones(SIZE[1])
    return np.round(rows * (top - 20 * i)).astype(np.uint16 if top > 255 else np.uint8)


def square_mask(value: int = 255, corner: int = 4) -> np.ndarray:
    mask = np.zeros(SIZE, np.uint8)
    mask[corner : corner + 8, corner : corner + 8] = value
    return mask


def write_pairs(root: Path, images: str, masks: str, n: int = 4, **save) -> Path:
    """Pairs by two patterns, for example "images/{}.png" and "masks/{}_mask.png"."""
    for site in ("north", "south"):
        for i in range(n):
            for pattern, array in ((images, picture(i + 5 * (site == "south"))), (masks, square_mask())):
                path = root / site / pattern.format(f"case{i}")
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(array).save(path, **save)
    return root


@pytest.mark.parametrize(
    ("images", "masks"),
    [
        ("images/{}.png", "masks/{}.png"),
        ("images/{}.jpg", "masks/{}.png"),
        ("images/{}.tif", "masks/{}_mask.bmp"),
        ("images/{}.png", "labels/{}.png"),
        ("imagesTr/{}.png", "labelsTr/{}.png"),
        ("{}_image.png", "{}_mask.png"),
        ("{}.png", "{}_mask.png"),
        ("{}/image.png", "{}/mask.png"),
    ],
)
def test_common_layouts_are_found_out(tmp_path: Path, images: str, masks: str):
    sites = load_sites(write_pairs(tmp_path, images, masks))
    assert sites[0].files == ("case0", "case1", "case2", "case3")
    assert sites[0].images.shape == (4, 1, *SIZE)
    assert sites[0].masks.sum() == 4 * 64
    brightest = sites[0].images.max(axis=(1, 2, 3))
    assert (np.diff(brightest.astype(int)) < 0).all(), "each image is its own, in the order of the names"


def test_a_stated_layout(tmp_path: Path):
    write_pairs(tmp_path, "scan/t2-{}.png", "drawn/{}-gland.png")
    with pytest.raises(DataError) as caught:
        load_sites(tmp_path)
    assert "found 4 .png in drawn, 4 .png in scan (such as drawn/case0-gland.png)" in str(caught.value)
    keys = dict(re.findall(r"--set data\.(images|masks)='([^']+)'", str(caught.value)))
    assert load_sites(tmp_path, **keys)[1].masks.any(), "the keys that the message names do fit"
    sites = load_sites(tmp_path, images="scan/t2-*", masks="drawn/*-gland.png")
    assert sites[1].files == ("case0", "case1", "case2", "case3")


def test_everything_unmatched_is_listed(tmp_path: Path):
    write_pairs(tmp_path, "images/{}.png", "masks/{}.png", n=6)
    (tmp_path / "north/masks/case1.png").unlink()
    (tmp_path / "south/images/case2.png").unlink()
    (tmp_path / "south/masks/case4.png").unlink()
    Image.fromarray(picture(0)).save(tmp_path / "north/images/case3.jpg")
    with pytest.raises(DataError) as caught:
        load_sites(tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("4 problems in ")
    assert lines[1:] == [
        "- site 'north': image 'case1.png' has no mask of the same name",
        "- site 'north': 'case3.jpg' and 'case3.png' have the same name; remove or rename one",
        "- site 'south': image 'case4.png' has no mask of the same name",
        "- site 'south': mask 'case2.png' has no image of the same name",
    ]


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_sixteen_bits_are_scaled_by_a_stated_policy(tmp_path: Path, ending: str):
    write_pairs(tmp_path, "images/{}.png", "masks/{}.png")
    for path in tmp_path.glob("*/images/*.png"):
        values = picture(0, top=4000)
        values[0, 0] = 60000  # One hot pixel must not darken the rest.
        path.unlink()
        Image.fromarray(values).save(path.with_suffix(f".{ending}"))
    by_percentile = load_sites(tmp_path)[0].images[0, 0]
    assert by_percentile.min() == 0
    assert (by_percentile == 255).mean() > 0.02
    assert load_sites(tmp_path, intensity="minmax")[0].images[0, 0, 1:].max() == 17
    window = load_sites(tmp_path, intensity=[0, 8000])[0].images[0, 0]
    assert window[-1, 0] == 128
    assert window[0, 0] == 255


def test_sixteen_bit_masks_keep_their_values(tmp_path: Path):
    write_pairs(tmp_path, "images/{}.png", "masks/{}.png")
    for path in tmp_path.glob("*/masks/*.png"):
        Image.fromarray(square_mask(3).astype(np.uint16)).save(path)
    assert load_sites(tmp_path, classes={"a": [3]})[0].masks.sum() == 4 * 64
    Image.fromarray(square_mask(3).astype(np.uint16) * 200).save(tmp_path / "north/masks/case0.png")
    assert load_sites(tmp_path)[0].masks.sum() == 4 * 64, "without a table every value above 0 is foreground"
    with pytest.raises(DataError, match=r"case0.png holds the value 600, which data.classes gives to no class"):
        load_sites(tmp_path, classes={"a": [3]})


def test_a_jpeg_mask_goes_back_to_its_values(tmp_path: Path):
    write_pairs(tmp_path, "images/{}.png", "masks/{}.jpg", quality=90)
    assert load_sites(tmp_path)[0].masks.sum() == 4 * 64
    for path in tmp_path.glob("*/masks/*.jpg"):
        mask = square_mask(128)
        mask[6:10, 6:10] = 255
        Image.fromarray(mask).save(path, quality=95)
    sites = load_sites(tmp_path, classes={"disc": [128, 255], "cup": [255]})
    assert np.abs(sites[0].masks[0].sum(axis=(1, 2)).astype(int) - [64, 16]).max() <= 4


@pytest.mark.parametrize("how", ["stretch", "pad", "crop"])
@pytest.mark.parametrize("shape", [(48, 64), (51, 37), (100, 80), (33, 64), (64, 33)])
def test_a_mask_comes_back_from_any_resizing(how: str, shape: tuple[int, int]):
    mask = np.zeros((1, *shape), np.uint8)
    mask[0, shape[0] // 2 - 6 : shape[0] // 2 + 7, shape[1] // 2 - 5 : shape[1] // 2 + 8] = 1
    small = to_size(mask, (96, 96), how, is_mask=True)
    assert small.shape == (1, 96, 96)
    assert (from_size(small, shape, how) != mask).mean() < 0.01


def test_resizing_keeps_or_gives_up_the_proportions():
    wide = np.full((1, 20, 40), 200, np.uint8)
    wide[:, :, :10] = 100
    assert to_size(wide, (40, 40), "stretch")[0, :, 0].tolist() == [100] * 40
    padded = to_size(wide, (40, 40), "pad")[0]
    assert (padded[:10] == 0).all()
    assert (padded[30:] == 0).all()
    assert padded[20, 0] == 100
    assert (to_size(wide, (20, 20), "crop") == 200).all()


# ---- volumes ----


def head(direction: str = "LPS", spacing=(1.0, 1.0, 3.0)) -> tuple[sitk.Image, sitk.Image]:
    """A volume whose voxels tell where they are in the patient, and a mask; stored in any orientation."""
    z, y, x = np.mgrid[:6, : SIZE[0], : SIZE[1]]
    values = (x + 50 * z + 2 * y).astype(np.int16)  # Brighter to the left, to the back, to the head.
    mask = np.zeros(values.shape, np.uint8)
    mask[2:4, 5:15, 5:10] = 1
    images = []
    for array in (values, mask):
        image = sitk.GetImageFromArray(array)
        image.SetSpacing(spacing)
        image.SetOrigin((-10.0, 20.0, 30.0))
        images.append(sitk.DICOMOrient(image, direction))
    return images[0], images[1]


def write_volumes(root: Path, ending: str = ".nii.gz", n: int = 4, direction: str = "LPS") -> Path:
    for site in ("north", "south"):
        for i in range(n):
            for part, image in zip(("images", "masks"), head(direction), strict=True):
                path = root / site / part / f"P{i}{ending}"
                path.parent.mkdir(parents=True, exist_ok=True)
                sitk.WriteImage(image, str(path))
    return root


def write_series(image: sitk.Image, folder: Path, uid: str = "1.2.3") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    writer = sitk.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    direction = image.GetDirection()
    for z in range(image.GetDepth()):
        slice_ = image[:, :, z]
        tags = {
            "0008|0060": "MR",
            "0020|000e": uid,
            "0020|000d": "1.2",
            "0008|0018": f"{uid}.{z}",
            "0020|0013": str(z),
            "0020|0032": "\\".join(map(str, image.TransformIndexToPhysicalPoint((0, 0, z)))),
            "0020|0037": "\\".join(str(direction[i]) for i in (0, 3, 6, 1, 4, 7)),
            "0018|0050": str(image.GetSpacing()[2]),
        }
        for key, value in tags.items():
            slice_.SetMetaData(key, value)
        # Names against the order of the slices: positions decide, not names.
        writer.SetFileName(str(folder / f"im{image.GetDepth() - z:03d}.dcm"))
        writer.Execute(slice_)


@pytest.mark.parametrize("direction", ["LPS", "RAS", "PIR", "ASL"])
def test_orientation_is_the_patients_not_the_files(tmp_path: Path, direction: str):
    sites = load_sites(write_volumes(tmp_path, direction=direction))
    assert sites[0].images.shape == (24, 1, *SIZE), "six slices of four volumes"
    assert sites[0].files[2:4] == ("P0#002", "P0#003")

    assert sites[0].shown[:2].tolist() == [2, 3], "two slices of a volume have something marked"
    image = sites[0].images[2, 0].astype(int)
    assert (np.diff(image, axis=0) >= 0).all(), "rows run to the patient's back"
    assert (np.diff(image, axis=1) >= 0).all(), "columns run to the patient's left"
    assert sites[0].masks[2, 0, 5:15, 5:10].all()
    assert sites[0].masks[2].sum() == 50
    assert not sites[0].masks[0].any()
    assert sites[0].origins[0].spacing == (1.0, 1.0)
    assert sites[0].origins[0].voxel == (3.0, 1.0, 1.0)
    resized = load_sites(tmp_path, size=64)[0].origins[0]
    assert (resized.spacing, resized.voxel) == ((1.0, 1.0), (3.0, SIZE[0] / 64, SIZE[1] / 64))


@pytest.mark.parametrize("ending", [".nii", ".mha", ".mhd", ".nrrd"])
def test_other_volume_formats(tmp_path: Path, ending: str):
    sites = load_sites(write_volumes(tmp_path, ending), slices="all")
    assert len(sites[0].images) == 4 * 6
    assert sites[0].cases[:6] == ("P0",) * 6


def test_planes(tmp_path: Path):
    write_volumes(tmp_path)
    coronal = load_sites(tmp_path, plane="coronal")[0]
    assert coronal.images.shape == (4 * SIZE[0], 1, 6, SIZE[1])
    assert len(coronal.shown) == 4 * 10
    assert (np.diff(coronal.images[0, 0].astype(int), axis=0) <= 0).all(), "head up"
    assert coronal.origins[0].spacing == (3.0, 1.0)
    sagittal = load_sites(tmp_path, plane="sagittal")[0]
    assert sagittal.images.shape == (4 * SIZE[1], 1, 6, SIZE[0])
    assert len(sagittal.shown) == 4 * 5


def test_dicom_series_are_ordered_by_position(tmp_path: Path):
    image, mask = head()
    for site in ("north", "south"):
        for i in range(4):
            write_series(image, tmp_path / site / "images" / f"P{i}")
            (tmp_path / site / "masks").mkdir(exist_ok=True)
            sitk.WriteImage(mask, str(tmp_path / site / "masks" / f"P{i}.nii.gz"))
    from_dicom = load_sites(tmp_path)
    nifti = load_sites(write_volumes(tmp_path / "nifti"))
    assert (from_dicom[0].images == nifti[0].images).all()
    assert (from_dicom[0].masks == nifti[0].masks).all()


def test_dicom_files_named_by_uid_are_a_series(tmp_path: Path):
    image, mask = head()
    for site in ("north", "south"):
        for i in range(4):
            folder = tmp_path / site / "images" / f"P{i}"
            write_series(image, folder)
            for n, path in enumerate(sorted(folder.iterdir())):
                path.rename(folder / f"1.2.840.{n}")
            (tmp_path / site / "masks").mkdir(exist_ok=True)
            sitk.WriteImage(mask, str(tmp_path / site / "masks" / f"P{i}.nii.gz"))
        stray = tmp_path / site / "images" / "notes"
        stray.mkdir()
        (stray / "LICENSE").write_text("no series")
    assert len(load_sites(tmp_path)[0].images) == 24


def test_what_cant_be_read_is_not_just_missing(tmp_path: Path):
    write_pairs(tmp_path, "images/{}.png", "masks/{}.png")
    for part in ("images", "masks"):
        folder = tmp_path / "north" / part
        (folder / "gone.png").symlink_to(tmp_path / "elsewhere.png")
        (folder / "old.gif").write_bytes(b"GIF89a")
        (folder / "P9").mkdir()
        Image.fromarray(picture(0)).save(folder / "P9" / "x.png")
    (tmp_path / "south" / "images" / "Thumbs.db").write_bytes(b"")
    with pytest.raises(DataError) as caught:
        load_sites(tmp_path)
    text = str(caught.value)
    assert text.startswith("3 problems")
    for line in ("2 links lead nowhere", "2 .gif files are not read", "2 folders are not read"):
        assert f"site 'north': {line}; for example, site 'north': " in text


def test_two_series_in_one_folder_are_refused(tmp_path: Path):
    image, mask = head()
    for site in ("north", "south"):
        write_series(image, tmp_path / site / "images" / "P0")
        (tmp_path / site / "masks").mkdir()
        sitk.WriteImage(mask, str(tmp_path / site / "masks" / "P0.nii.gz"))
    second = tmp_path / "second"
    write_series(image, second, uid="1.2.4")
    for path in second.iterdir():
        path.rename(tmp_path / "south" / "images" / "P0" / f"b{path.name}")
    with pytest.raises(DataError, match="P0 holds 2 DICOM series, expected one"):
        load_sites(tmp_path)


def test_slices_of_one_patient_stay_together(tmp_path: Path):
    site = load_sites(write_volumes(tmp_path, n=8))[0]
    parts = [{site.cases[row] for row in rows} for rows in site.split.parts.values()]
    assert [len(part) for part in parts] == [4, 2, 2]
    assert sum(len(part) for part in parts) == len(set.union(*parts))


def test_only_training_looks_at_marked_slices_alone(tmp_path: Path):
    """Of each volume's six slices two are marked."""
    write_volumes(tmp_path, n=8)
    for options, n_train in (
        ({"empty_slices": 0.0}, 8),
        ({}, 8 + 2),  # A tenth of 16 empty slices.
        ({"empty_slices": 0.5}, 8 + 8),
        ({"empty_slices": 1.0}, 24),
        ({"slices": "all"}, 24),
    ):
        site = load_sites(tmp_path, **options)[0]
        assert [len(rows) for rows in site.split.parts.values()] == [n_train, 12, 12]
        marked = {row for row in site.split.train.tolist() if site.masks[row].any()}
        assert len(marked) == 8


def test_empty_slices_are_spread_over_all_training_volumes(tmp_path: Path):
    write_volumes(tmp_path, n=8)
    site = load_sites(tmp_path, empty_slices=0.5)[0]
    empty = [row for row in site.split.train.tolist() if not site.masks[row].any()]
    assert sorted(Counter(site.cases[row] for row in empty).values()) == [2, 2, 2, 2]


def test_a_volume_without_marks_is_a_negative_case(tmp_path: Path):
    write_volumes(tmp_path, n=8)
    _, mask = head()
    for i in range(8):
        sitk.WriteImage(mask * 0, str(tmp_path / f"north/masks/P{i}.nii.gz"))
    with pytest.raises(DataError, match="site 'north': nothing is marked in any of its training masks") as caught:
        load_sites(tmp_path)
    assert "\n" not in str(caught.value)
    site = load_sites(write_volumes(tmp_path, n=8))[0]
    trained = site.cases[site.split.train[0]]
    sitk.WriteImage(mask * 0, str(tmp_path / f"north/masks/{trained}.nii.gz"))
    negative = load_sites(tmp_path)[0]
    assert len(negative.images) == 48
    assert trained not in {negative.cases[row] for row in (*negative.split.validation, *negative.split.test)}
    # Where nothing of a negative volume is trained on, it is in no shard.
    assert load_sites(tmp_path, empty_slices=0.0, shards=2)[0].n_cases_by_part["train"] in (1, 2)


# ---- cases, groups ----


def test_a_pattern_names_the_case(tmp_path: Path):
    for site in ("north", "south"):
        write_site(tmp_path, site, n=24)
        for path in (*tmp_path.glob(f"{site}/images/*"), *tmp_path.glob(f"{site}/masks/*")):
            path.rename(path.with_name(f"P{int(path.stem) % 8}_{path.name}"))
    site = load_sites(tmp_path, case_pattern="(P[0-9]+)_.*")[0]
    assert sorted(set(site.cases)) == [f"P{i}" for i in range(8)]
    assert [len(rows) for rows in site.split.parts.values()] == [12, 6, 6]
    with pytest.raises(DataError, match="names no case for 'P0_0'"):
        load_sites(tmp_path, case_pattern="(Q[0-9]+)_.*")


def test_a_column_names_the_case(tmp_path: Path):
    for site in ("north", "south"):
        folder = write_site(tmp_path, site, n=8)
        rows = "\n".join(f"{i}.png,patient{i // 2}" for i in range(8))
        (folder / "cases.csv").write_text(f"file,patient\n{rows}\n")
    assert load_sites(tmp_path, case_column="patient")[0].cases[:3] == ("patient0", "patient0", "patient1")
    (tmp_path / "north" / "cases.csv").write_text("name,patient\n0.png,a\n")
    with pytest.raises(DataError, match="expected the columns 'file' and 'patient'"):
        load_sites(tmp_path, case_column="patient")


def test_near_duplicates_stay_together(tmp_path: Path):
    for name in ("north", "south"):
        write_site(tmp_path, name, n=12)
    pairs = [[f"north/{i}.png", f"north/{i + 1}"] for i in range(0, 12, 2)]
    north, south = load_sites(tmp_path, groups=pairs)
    assert len(set(north.cases)) == 6
    assert len(set(south.cases)) == 12
    chained = load_sites(tmp_path, groups=[["0", "1"], ["2", "1"], ["3.png", "2"]])[0]
    assert len({chained.cases[chained.files.index(str(i))] for i in range(4)}) == 1
    with pytest.raises(DataError, match=r"data\.groups names 'north/99', which no site has"):
        load_sites(tmp_path, groups=[["north/0", "north/99"]])


# ---- datalists ----


def write_lists(root: Path, sections: dict[str, list[int]], **extra) -> Path:
    write_pairs(root / "files", "images/{}.png", "masks/{}.png", n=8)
    for site in ("north", "south"):
        lists = {
            name: [
                {
                    "image": f"files/{site}/images/case{i}.png",
                    "label": f"files/{site}/masks/case{i}.png",
                    **{key: value(i) for key, value in extra.items()},
                }
                for i in rows
            ]
            for name, rows in sections.items()
        }
        (root / f"client_{site}.json").write_text(json.dumps(lists))
    (root / "client_All.json").write_text("{}")
    return root


def test_a_datalist_states_its_split(tmp_path: Path):
    write_lists(tmp_path, {"training": [0, 1, 2, 7], "validation": [3, 4], "testing": [5, 6]})
    sites = load_sites(tmp_path)
    assert [site.name for site in sites] == ["north", "south"]
    named = {part: [sites[0].files[row][-1] for row in rows] for part, rows in sites[0].split.parts.items()}
    assert named == {"train": ["0", "1", "2", "7"], "validation": ["3", "4"], "test": ["5", "6"]}


def test_a_datalist_without_a_split_is_split_by_case(tmp_path: Path):
    write_lists(tmp_path, {"training": list(range(8))}, patient=lambda i: f"p{i // 2}")
    site = load_sites(tmp_path, case_column="patient")[0]
    assert [len(rows) for rows in site.split.parts.values()] == [4, 2, 2]
    assert len(set(site.cases)) == 4


def test_a_case_in_two_parts_is_found(tmp_path: Path):
    write_lists(
        tmp_path,
        {"training": [0, 1, 2, 3], "validation": [4, 5], "testing": [6, 7]},
        patient=lambda i: "same" if i in (1, 6) else f"p{i}",
    )
    with pytest.raises(DataError, match="case 'same' is in train and in test"):
        load_sites(tmp_path, case_column="patient")


def test_lists_may_not_leave_their_folder(tmp_path: Path):
    inside = write_lists(tmp_path / "data", {"training": list(range(8))})
    entry = {"image": "../secret.png", "label": "files/north/masks/case0.png"}
    loop = inside / "loop.png"
    loop.symlink_to(loop)
    away = inside / "away.png"
    away.symlink_to(tmp_path / "secret.png")
    Image.fromarray(picture(0)).save(tmp_path / "secret.png")
    bad = [entry, {**entry, "image": "/etc/hosts"}, {**entry, "image": "loop.png"}, {**entry, "image": "away.png"}]
    bad += [{**entry, "image": "none.png"}, {"image": 3}, {**entry, "image": "a" * 5000}]
    (inside / "client_north.json").write_text(json.dumps({"training": bad}))
    with pytest.raises(DataError) as caught:
        load_sites(inside)
    text = str(caught.value)
    assert text.startswith("4 problems")
    assert "3 files are not in the data folder" in text
    assert "2 files can't be opened" in text
    for part in ("training[2]: image 'loop.png' can't be opened", "'none.png' does not exist", 'expected {"image"'):
        assert part in text


def test_a_root_for_the_paths_of_lists(tmp_path: Path):
    write_lists(tmp_path, {"training": list(range(8))})
    moved = tmp_path / "lists"
    moved.mkdir()
    for path in tmp_path.glob("client_*.json"):
        path.rename(moved / path.name)
    with pytest.raises(DataError, match="does not exist"):
        load_sites(moved)
    assert len(load_sites(moved, root=str(tmp_path))[0].images) == 8


def test_half_a_split_is_refused(tmp_path: Path):
    write_lists(tmp_path, {"training": [0, 1, 2], "validation": [3, 4]})
    with pytest.raises(DataError, match="lists training and validation but no testing"):
        load_sites(tmp_path)


# ---- bad files ----


def spoil_nan(root: Path):
    image, _ = head()
    values = sitk.GetArrayFromImage(image).astype(np.float32)
    values[1, 1, 1:4] = np.nan
    spoilt = sitk.GetImageFromArray(values)
    spoilt.CopyInformation(image)
    sitk.WriteImage(spoilt, str(root / "north/images/P1.nii.gz"))


def spoil_affine(root: Path):
    _, mask = head()
    mask.SetOrigin((90.0, 20.0, 30.0))
    sitk.WriteImage(mask, str(root / "north/masks/P1.nii.gz"))


def spoil_spacing(root: Path):
    _, mask = head(spacing=(1.0, 1.0, 4.0))
    sitk.WriteImage(mask, str(root / "north/masks/P1.nii.gz"))


def spoil_size(root: Path):
    _, mask = head()
    sitk.WriteImage(mask[:, :, :4], str(root / "north/masks/P1.nii.gz"))


def spoil_truncated(root: Path):
    path = root / "north/images/P1.nii.gz"
    path.write_bytes(path.read_bytes()[:300])


def spoil_text(root: Path):
    (root / "north/images/P1.nii.gz").write_text("no volume")


def spoil_label(root: Path):
    _, mask = head()
    sitk.WriteImage(mask * 9, str(root / "north/masks/P1.nii.gz"))


def spoil_four_dimensions(root: Path):
    image, _ = head()
    sitk.WriteImage(sitk.JoinSeries([image, image]), str(root / "north/images/P1.nii.gz"))


def spoil_emptied(root: Path):
    nibabel.save(nibabel.Nifti1Image(np.zeros((30, 40, 0), np.uint8), np.eye(4)), root / "north/images/P1.nii.gz")


def spoil_no_channel(root: Path):
    nibabel.save(nibabel.Nifti1Image(np.zeros((30, 40, 6, 0), np.uint8), np.eye(4)), root / "north/images/P1.nii.gz")


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (spoil_emptied, "P1.nii.gz has no voxels (30x40x0)"),
        (spoil_no_channel, "P1.nii.gz has 4 dimensions, expected 2 or 3"),
        (spoil_nan, "P1.nii.gz holds 3 values that are not numbers"),
        (spoil_affine, "lies 100.0 mm away from its image P1.nii.gz"),
        (spoil_spacing, "mm away from its image P1.nii.gz"),
        (spoil_size, "P1.nii.gz is 30x40x4 voxels, its image P1.nii.gz 30x40x6"),
        (spoil_truncated, "can't read the volume"),
        (spoil_text, "can't read the volume"),
        (spoil_label, "P1.nii.gz holds the value 9, which data.classes gives to no class"),
        (spoil_four_dimensions, "'P1#000' has 2 modalities, 'P0#000' of the same site has 1"),
    ],
)
def test_a_bad_volume_is_one_line(tmp_path: Path, monkeypatch, spoil, line):
    monkeypatch.setenv("FEDCE_CACHE", str(tmp_path / "cache"))
    write_volumes(tmp_path / "data")
    spoil(tmp_path / "data")
    with pytest.raises(DataError) as caught:
        load_sites(tmp_path / "data", classes={"gland": [1]})
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "north" in str(caught.value)


def test_a_slice_saved_as_nifti_keeps_its_spacing(tmp_path: Path):
    affine = np.diag([0.5, 0.25, 1.0, 1.0])
    nibabel.save(nibabel.Nifti1Image(np.zeros((30, 40), np.uint8), affine), tmp_path / "slice.nii.gz")
    image = read_nifti(tmp_path / "slice.nii.gz")
    assert image.GetSpacing() == (0.5, 0.25)
    (tmp_path / "again.nii.gz").write_bytes(nifti_bytes(image))
    assert np.array_equal(nibabel.load(tmp_path / "again.nii.gz").affine, affine)


def test_a_volume_saved_with_an_empty_fourth_axis(tmp_path: Path):
    data = write_volumes(tmp_path / "data")
    before = load_sites(data)[0].fingerprint
    for part in ("images", "masks"):
        path = data / "north" / part / "P1.nii.gz"
        volume = nibabel.load(path)
        values = np.asarray(volume.dataobj)[..., None]
        nibabel.save(nibabel.Nifti1Image(values, volume.affine), path)
        assert nibabel.load(path).shape == (30, 40, 6, 1)
    assert load_sites(data)[0].fingerprint == before


def test_an_image_bomb_is_refused_before_it_is_decoded(tmp_path: Path):
    write_pairs(tmp_path, "images/{}.png", "masks/{}.png")
    path = tmp_path / "north/images/case1.png"
    content = bytearray(path.read_bytes())
    content[16:24] = (60000).to_bytes(4) * 2
    from zlib import crc32

    content[29:33] = crc32(content[12:29]).to_bytes(4)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"case1.png"):
        load_sites(tmp_path)


def test_pages_are_not_guessed(tmp_path: Path):
    write_pairs(tmp_path, "images/{}.tif", "masks/{}.png")
    pages = [Image.fromarray(picture(i)) for i in range(3)]
    pages[0].save(tmp_path / "north/images/case1.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(DataError, match=r"case1.tif holds 3 pages"):
        load_sites(tmp_path)


def test_hard_names(tmp_path: Path):
    write_pairs(tmp_path, "images/{}.png", "masks/{}.png")
    for part in ("images", "masks"):
        folder = tmp_path / "north" / part
        (folder / "case0.png").rename(folder / "Kühn ñ 病.png")
        (folder / "case1.png").rename(folder / f"{'x' * 240}.png")
        (folder / "loop").symlink_to(folder)
    names = load_sites(tmp_path)[0].files
    assert "Kühn ñ 病" in names
    assert "x" * 240 in names


def test_names_that_are_no_text_are_told(tmp_path: Path):
    write_pairs(tmp_path, "images/{}.png", "masks/{}.png")
    for part in ("images", "masks"):
        folder = os.fsencode(tmp_path / "north" / part)
        os.rename(folder + b"/case1.png", folder + b"/x\xff.png")  # noqa: PTH104 (a name that is not UTF-8)
    with pytest.raises(DataError, match="can't be printed; rename it"):
        load_sites(tmp_path)


def test_site_names_become_file_names(tmp_path: Path):
    write_pairs(tmp_path, "images/{}.png", "masks/{}.png")
    (tmp_path / "south").rename(tmp_path / ("S" * 200))
    with pytest.raises(DataError, match="has 200 bytes; give it 1 to 120"):
        load_sites(tmp_path)


def test_all_bad_files_are_told_at_once(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("FEDCE_CACHE", str(tmp_path / "cache"))
    write_pairs(tmp_path / "data", "images/{}.png", "masks/{}.png")
    for path in ("north/images/case1.png", "south/masks/case2.png", "south/images/case0.png"):
        (tmp_path / "data" / path).write_text("broken")
    with pytest.raises(DataError) as caught:
        load_sites(tmp_path / "data")
    assert str(caught.value).startswith("2 problems")
    assert "site 'south': 2 images can't be read; for example, can't read the image " in str(caught.value)
    left = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert left == [], "nothing of a site with a problem is kept"


def test_a_file_is_what_its_ending_says(tmp_path: Path):
    write_pairs(tmp_path, "images/{}.png", "masks/{}.png")
    mask = tmp_path / "north/masks/case1.png"
    Image.fromarray(square_mask()).save(mask, format="JPEG")
    with pytest.raises(DataError, match=r"case1.png is a JPEG file by its content"):
        load_sites(tmp_path)


def test_a_truncated_palette_image_is_named(tmp_path: Path):
    write_pairs(tmp_path, "images/{}.png", "masks/{}.png")
    path = tmp_path / "north/images/case1.png"
    Image.fromarray(picture(0)).convert("P").save(path)
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(DataError, match=r"can't read the image .*case1.png"):
        load_sites(tmp_path)


def test_a_few_bright_pixels_do_not_vanish(tmp_path: Path):
    write_pairs(tmp_path, "images/{}.png", "masks/{}.png")
    values = np.full(SIZE, 7, np.uint16)
    values[3, 3:5] = 900
    Image.fromarray(values).save(tmp_path / "north/images/case0.png")
    assert load_sites(tmp_path)[0].images[0].max() == 255


def test_a_mask_turned_about_the_diagonal_is_elsewhere(tmp_path: Path):
    """Both ends of the diagonal stay where they are; the other corners don't."""
    write_volumes(tmp_path)
    cube = sitk.GetImageFromArray(np.random.default_rng(0).integers(0, 99, (12, 12, 12)).astype(np.int16))
    mask = sitk.GetImageFromArray(np.ones((12, 12, 12), np.uint8))
    axis, angle = np.ones(3) / np.sqrt(3), np.deg2rad(20)
    cross = np.cross(np.eye(3), axis)
    turn = np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
    mask.SetDirection(turn.ravel())
    sitk.WriteImage(cube, str(tmp_path / "north/images/P1.nii.gz"))
    sitk.WriteImage(mask, str(tmp_path / "north/masks/P1.nii.gz"))
    with pytest.raises(DataError, match=r"mm away from its image P1.nii.gz"):
        load_sites(tmp_path)


def test_sixteen_bits_a_colour_are_not_cut_unnoticed(tmp_path: Path):
    write_pairs(tmp_path, "images/{}.png", "masks/{}.png")
    rows = b"".join(b"\0" + bytes(6 * SIZE[1]) for _ in range(SIZE[0]))
    header = struct.pack(">IIBBBBB", SIZE[1], SIZE[0], 16, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    (tmp_path / "north/images/case1.png").write_bytes(content)
    with pytest.raises(DataError, match=r"case1.png has 16 bits a colour"):
        load_sites(tmp_path)


def test_one_file_under_two_spellings_is_one(tmp_path: Path):
    write_lists(tmp_path, {"training": [0, 1, 2, 3], "validation": [4, 5], "testing": [6, 7]})
    lists = json.loads((tmp_path / "client_north.json").read_text())
    lists["testing"][0] = {**lists["training"][0], "image": "files/../files/north/images/case0.png"}
    (tmp_path / "client_north.json").write_text(json.dumps(lists))
    with pytest.raises(DataError, match="lists 'files/north/images/case0' twice"):
        load_sites(tmp_path)


def test_a_tiff_that_asks_to_be_turned_is_refused(tmp_path: Path):
    write_pairs(tmp_path, "images/{}.tif", "masks/{}.png")
    Image.fromarray(picture(0)).save(tmp_path / "north/images/case1.tif", tiffinfo={274: 3})
    with pytest.raises(DataError, match=r"case1.tif has a tag that turns it"):
        load_sites(tmp_path)


def test_a_big_endian_volume(tmp_path: Path):
    write_volumes(tmp_path)
    expected = load_sites(tmp_path)[0].images[0].copy()
    for path in tmp_path.rglob("*.nii.gz"):
        image = nibabel.load(path)
        header = image.header.copy().as_byteswapped(">")
        values = np.asanyarray(image.dataobj).astype(image.get_data_dtype().newbyteorder(">"))
        nibabel.save(nibabel.Nifti1Image(values, image.affine, header), path)
    assert (load_sites(tmp_path)[0].images[0] == expected).all()


def test_a_link_that_leads_nowhere_is_no_silent_absence(tmp_path: Path):
    write_pairs(tmp_path, "images/{}.png", "masks/{}.png")
    (tmp_path / "west").symlink_to(tmp_path / "west")
    with pytest.raises(DataError, match="west is a link that leads nowhere"):
        load_sites(tmp_path)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('{"training": []}', "lists nothing"),
        ('{"training": [], "validation": 5}', "'validation' is not a list"),
        ('{"training": [{"image": "", "label": "."}]}', "expected"),
        ("[" * 100_000, "is not a JSON datalist"),
    ],
)
def test_an_odd_datalist_is_one_line(tmp_path: Path, content: str, line: str):
    write_lists(tmp_path, {"training": list(range(8))})
    (tmp_path / "client_north.json").write_text(content)
    with pytest.raises(DataError, match=line):
        load_sites(tmp_path)


# ---- the cache ----


@pytest.fixture
def cached(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("FEDCE_CACHE", str(tmp_path / "cache"))
    return write_pairs(tmp_path / "data", "images/{}.png", "masks/{}.png")


def test_files_are_decoded_once(cached: Path):
    said: list[str] = []
    first = load_sites(cached, notify=said.append)
    second = load_sites(cached, notify=said.append)
    assert said == ["reading site north: 4 images", "reading site south: 4 images"]
    assert isinstance(second[0].images, np.memmap)
    assert [site.fingerprint for site in first] == [site.fingerprint for site in second]


def test_a_changed_file_is_read_again(cached: Path):
    load_sites(cached)
    path = cached / "north/images/case1.png"
    times = path.stat()
    Image.fromarray(np.full(SIZE, 7, np.uint8)).save(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (load_sites(cached)[0].images[1] == 7).all(), "content counts, not the time of the file"


def test_changed_voxels_beside_a_header_are_read_again(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("FEDCE_CACHE", str(tmp_path / "cache"))
    data = write_volumes(tmp_path / "data", ".mhd")
    before = load_sites(data)[0].fingerprint
    voxels = data / "north/images/P0.raw"
    voxels.write_bytes(voxels.read_bytes()[::-1])
    assert load_sites(data)[0].fingerprint != before


def test_changed_voxels_of_any_name_are_read_again(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("FEDCE_CACHE", str(tmp_path / "cache"))
    data = write_volumes(tmp_path / "data", ".mhd")
    header, voxels = data / "north/images/P0.mhd", data / "north/images/voxels-of-P0.bin"
    (data / "north/images/P0.raw").rename(voxels)
    header.write_text(header.read_text().replace("P0.raw", voxels.name))
    before = load_sites(data)[0].fingerprint
    voxels.write_bytes(voxels.read_bytes()[::-1])
    assert load_sites(data)[0].fingerprint != before


def test_the_order_of_classes_has_its_own_cache(tmp_path: Path, monkeypatch):
    """The channels of the masks are in the order of the classes, whatever was cached before."""
    monkeypatch.setenv("FEDCE_CACHE", str(tmp_path / "cache"))
    data = write_pairs(tmp_path / "data", "images/{}.png", "masks/{}.png")
    classes = {"marked": [255], "nothing": [7]}
    assert load_sites(data, classes=classes)[0].masks.any(axis=(0, 2, 3)).tolist() == [True, False]
    turned = dict(reversed(classes.items()))
    assert load_sites(data, classes=turned)[0].masks.any(axis=(0, 2, 3)).tolist() == [False, True]


def test_a_cache_with_a_damaged_description_is_built_again(cached: Path, tmp_path: Path):
    before = [site.fingerprint for site in load_sites(cached)]
    for path in (tmp_path / "cache").rglob("about.json"):
        path.write_text("{}")
    assert [site.fingerprint for site in load_sites(cached)] == before


def test_other_choices_have_their_own_cache(cached: Path):
    assert load_sites(cached, size=32)[0].images.shape[-1] == 32
    assert load_sites(cached, size=64)[0].images.shape[-1] == 64


def test_a_broken_cache_is_built_again(cached: Path, tmp_path: Path):
    before = [site.fingerprint for site in load_sites(cached)]
    for path in (tmp_path / "cache").rglob("masks.bin"):
        path.write_bytes(path.read_bytes()[:100])
    assert [site.fingerprint for site in load_sites(cached)] == before


def test_a_killed_build_leaves_nothing_broken(cached: Path, tmp_path: Path):
    child = os.fork()
    if child == 0:
        from fedce.data import cache

        cache.write_sealed = lambda *args: os._exit(9)  # Killed with the pixels written and no about.json.
        load_sites(cached)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    left = list((tmp_path / "cache" / "sites").iterdir())
    assert len(left) == 1
    assert left[0].name.startswith(".")
    assert len(load_sites(cached)[0].images) == 4
    assert not [path for path in (tmp_path / "cache" / "sites").iterdir() if path.name.startswith(".")]


def test_a_cache_that_cant_be_written_is_one_line(cached: Path, tmp_path: Path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(DataError, match="set FEDCE_CACHE to a folder with room"):
        load_sites(cached)


# ---- prediction of volumes ----


@pytest.mark.parametrize("plane", ["axial", "coronal", "sagittal"])
@pytest.mark.parametrize("direction", ["LPS", "RAS", "PIR"])
def test_slices_go_back_to_their_place(plane: str, direction: str):
    image, mask = head(direction)
    values = sliced(mask, plane).values
    back = unsliced(values, image, plane)
    assert (sitk.GetArrayFromImage(back) == sitk.GetArrayFromImage(mask)).all()
    assert back.GetOrigin() == image.GetOrigin()
    assert back.GetDirection() == image.GetDirection()


def test_the_reported_dice_is_that_of_predicted_volumes(tmp_path: Path, fedce):
    """One Dice over all slices of a volume, and the mean over volumes."""
    data = write_volumes(tmp_path / "data", n=8)
    out = tmp_path / "run"
    small = ("--set", "model.channels=[4,8]", "--set", "train.lr=0.03", "--set", "data.normalize=zscore")
    trained = fedce("run", "--data", data, "--rounds", 6, "--workers", 1, "--out", out, "--json", *small)
    assert trained.exit_code == 0, trained.output
    results = json.loads((out / "results.json").read_text())
    tested = sorted({name.partition("#")[0] for name in json.loads((out / "splits.json").read_text())["north"]["test"]})
    predicted = fedce(
        "predict", out, *(data / "north/images" / f"{case}.nii.gz" for case in tested), "--out", tmp_path / "masks"
    )
    assert predicted.exit_code == 0, predicted.output
    scores = []
    for case in tested:
        found, truth = (
            sitk.GetArrayFromImage(sitk.ReadImage(str(folder / f"{case}.nii.gz"))) > 0
            for folder in (tmp_path / "masks", data / "north/masks")
        )
        scores.append(2 * (found & truth).sum() / (found.sum() + truth.sum()))
    assert 0 < results["dice"]["north"] < 1
    assert results["dice"]["north"] == pytest.approx(np.mean(scores), abs=1e-6)
    assert results["train_images"]["north"] == 10


def test_a_model_of_slices_segments_volumes(tmp_path: Path, fedce):
    data = write_volumes(tmp_path / "data", n=8)
    out = tmp_path / "run"
    small = ("--set", "model.channels=[4,8]", "--set", "data.size=32", "--set", "data.resize=pad")
    trained = fedce("run", "--data", data, "--rounds", 2, "--workers", 1, "--out", out, *small)
    assert trained.exit_code == 0, trained.output
    new = tmp_path / "new.nii.gz"
    image, _ = head("RAS")
    sitk.WriteImage(image, str(new))
    predicted = fedce("predict", out, new, "--out", tmp_path / "masks")
    assert predicted.exit_code == 0, predicted.output
    mask = sitk.ReadImage(str(tmp_path / "masks" / "new.nii.gz"))
    assert mask.GetSize() == image.GetSize()
    assert np.allclose(mask.GetDirection(), image.GetDirection())
    assert np.allclose(mask.GetOrigin(), image.GetOrigin())
    assert (tmp_path / "masks" / "new-overlay.png").exists()
    splits = json.loads((out / "splits.json").read_text())
    assert {name.partition("#")[0] for name in splits["north"]["train"]}.isdisjoint(
        name.partition("#")[0] for name in splits["north"]["test"]
    )
