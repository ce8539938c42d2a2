"""From a folder to a finished run by one command, without an experiment file: ten layouts."""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
import pydicom
import pytest
import SimpleITK as sitk
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from fedce.data.dicom import read_series
from fedce.data.dicom_seg import read_on

SITES = ("north", "south")
N = 4
SHAPE = (32, 32, 3)


def drawn(i: int, shape: tuple[int, ...] = SHAPE, value: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """An image or volume with a bright square, and its mask."""
    mask = np.zeros(shape, np.uint8)
    mask[8:20, 10 : 18 + i % 3] = value
    image = np.random.default_rng(i).normal(90, 15, shape) + 90 * (mask > 0)
    return image.clip(0, 255).astype(np.uint8), mask


def save(path: Path, values: np.ndarray, spacing: tuple[float, ...] = (1.0, 1.0, 3.0)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        Image.fromarray(values).save(path)
    else:
        nibabel.save(nibabel.Nifti1Image(values.astype(np.int16), np.diag([*spacing, 1.0])), path)


def numbered() -> list[tuple[str, int]]:
    return [(site, i) for site in SITES for i in range(N)]


def png_pairs(root: Path) -> None:
    for site, i in numbered():
        for folder, values in zip(("images", "masks"), drawn(i, (32, 32), 255), strict=True):
            save(root / site / folder / f"{i}.png", values)


def mixed_sizes(root: Path) -> None:
    for site, i in numbered():
        image, mask = drawn(i, (32 + 4 * i, 40), 255)
        save(root / site / f"{i}.png", image)
        save(root / site / f"{i}_mask.png", mask)


def decathlon(root: Path) -> None:
    for site, i in numbered():
        image, mask = drawn(i)
        save(root / site / f"imagesTr/p_{i}.nii.gz", np.stack([image, 255 - image], axis=-1))
        save(root / site / f"labelsTr/p_{i}.nii.gz", mask)
        about = {"modality": {"0": "T2", "1": "ADC"}, "labels": {"0": "background", "1": "gland"}, "training": []}
        (root / site / "dataset.json").write_text(json.dumps(about))


def nnunet(root: Path) -> None:
    for site, i in numbered():
        image, mask = drawn(i)
        mask[10:14, 12:16] = 2
        save(root / site / f"imagesTr/p_{i}_0000.nii.gz", image)
        save(root / site / f"imagesTr/p_{i}_0001.nii.gz", 255 - image)
        save(root / site / f"labelsTr/p_{i}.nii.gz", mask)
        about = {"channel_names": {"0": "T2", "1": "ADC"}, "labels": {"background": 0, "PZ": 1, "TZ": 2}}
        (root / site / "dataset.json").write_text(json.dumps(about))


def bids(root: Path) -> None:
    subjects = [(f"sub-{2 * i + j:02d}", site, i) for i in range(N) for j, site in enumerate(SITES)]
    for subject, _, i in subjects:
        image, mask = drawn(i)
        save(root / f"{subject}/ses-1/anat/{subject}_ses-1_T2w.nii.gz", image)
        save(root / f"derivatives/manual/{subject}/ses-1/anat/{subject}_ses-1_label-gland_mask.nii.gz", mask)
    with (root / "participants.tsv").open("w", newline="") as file:
        csv.writer(file, delimiter="\t").writerows([("participant_id", "site"), *(row[:2] for row in subjects)])


def dicom_series(root: Path) -> None:
    for site, i in numbered():
        image, mask = drawn(i)
        save(root / site / f"masks/P{i}.nii.gz", mask.transpose(1, 0, 2), (-1.0, -1.0, 3.0))
        series, frame = generate_uid(), generate_uid()
        for z in range(SHAPE[2]):
            meta = FileMetaDataset()
            meta.TransferSyntaxUID, meta.MediaStorageSOPInstanceUID = ExplicitVRLittleEndian, generate_uid()
            meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.4"
            one = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
            one.SOPClassUID, one.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
            one.SeriesInstanceUID, one.StudyInstanceUID, one.Modality = series, "1.2.3", "MR"
            one.FrameOfReferenceUID, one.PatientID, one.PatientName, one.StudyID = frame, f"P{i}", "", ""
            one.PatientBirthDate, one.PatientSex, one.StudyDate, one.StudyTime = "", "", "", ""
            one.AccessionNumber, one.ReferringPhysicianName, one.SeriesNumber = "", "", 1
            one.ImagePositionPatient, one.ImageOrientationPatient = [0, 0, 3.0 * z], [1, 0, 0, 0, 1, 0]
            one.PixelSpacing, one.SliceThickness, one.InstanceNumber = [1, 1], 3, z + 1
            one.Rows = one.Columns = SHAPE[0]
            one.SamplesPerPixel, one.PhotometricInterpretation, one.PixelRepresentation = 1, "MONOCHROME2", 0
            one.BitsAllocated, one.BitsStored, one.HighBit = 16, 16, 15
            one.PixelData = np.ascontiguousarray(image[..., z]).astype(np.uint16).tobytes()
            path = root / site / f"images/P{i}/{z}.dcm"
            path.parent.mkdir(parents=True, exist_ok=True)
            pydicom.dcmwrite(path, one, enforce_file_format=True)


def datalist(root: Path) -> None:
    entries = []
    for site in SITES:
        for i in range(5):
            for folder, values in zip(("scans", "rois"), drawn(i), strict=True):
                save(root / folder / f"{site}{i}.nii.gz", values)
            paths = {"image": f"scans/{site}{i}.nii.gz", "label": f"rois/{site}{i}.nii.gz"}
            entries.append({**paths, "fold": i, "site": site})
    (root / "folds.json").write_text(json.dumps({"training": entries}))


def colours(root: Path) -> None:
    for site, i in numbered():
        image, mask = drawn(i, (32, 32))
        save(root / site / f"images/{i}.png", image)
        save(root / site / f"masks/{i}.png", mask[..., None] * np.array([255, 0, 0], np.uint8))


def patients(root: Path) -> None:
    for site, i in numbered():
        image, mask = drawn(i)
        for name, values in (("flair", image), ("t1", 255 - image), ("seg", mask)):
            save(root / site / f"P{i}/P{i}_{name}.nii.gz", values)


def anisotropic(root: Path) -> None:
    for site, i in numbered():
        spacing = (0.6, 0.6, 3.0) if site == "north" else (1.0, 1.2, 6.0)
        for folder, values in zip(("images", "masks"), drawn(i, (32 + 8 * (i % 2), 32, 3)), strict=True):
            save(root / site / folder / f"P{i}.nii.gz", values, spacing)


@dataclass(frozen=True)
class Layout:
    write: Callable[[Path], None]
    recognised: str
    options: tuple[str, ...] = ()


TEN = [
    Layout(png_pairs, "images and masks in folders, 1 class (foreground)"),
    Layout(mixed_sizes, "images and masks by suffix, 1 class (foreground)"),
    Layout(decathlon, "Decathlon folders, 2 modalities (T2, ADC), 1 class (gland)"),
    Layout(nnunet, "nnU-Net folders, 2 modalities (T2, ADC), 2 classes (PZ, TZ)"),
    Layout(bids, "BIDS tree, 1 class (foreground)"),
    Layout(dicom_series, "images and masks in folders, 1 class (foreground)"),
    Layout(datalist, "datalist with 5 folds, 1 class (foreground)"),
    Layout(
        colours,
        "images and masks in folders, 1 class (polyp)",
        ("--set", "data.colors={polyp = [255, 0, 0]}"),
    ),
    Layout(patients, "a folder a patient, 2 modalities (flair, t1), 1 class (foreground)"),
    Layout(anisotropic, "images and masks in folders, 1 class (foreground)"),
]
# The plan's network would take minutes for ten runs; nothing about the data is stated.
SMALL = (
    *("--rounds", "1", "--workers", "1", "--set", "recipe=plan", "--set", "model.channels=[4, 8]"),
    *("--set", "personalise=0", "--set", "train.batch_size=4"),
)


@pytest.mark.parametrize("layout", TEN, ids=lambda layout: layout.write.__name__)
def test_one_command_from_a_folder_to_a_run(tmp_path: Path, fedce, layout: Layout):
    layout.write(tmp_path / "data")
    out = tmp_path / "run"
    result = fedce("run", "--data", tmp_path / "data", *layout.options, *SMALL, "--out", out)
    assert result.exit_code == 0, result.output
    found = json.loads((out / "results.json").read_text())
    assert set(found["dice"]) == set(SITES)
    assert layout.recognised in " ".join(result.stderr.split()), "the command says what it recognised"


def test_a_model_of_modalities_segments_new_cases(tmp_path: Path, fedce):
    nnunet(tmp_path / "data")
    run, out = tmp_path / "run", tmp_path / "out"
    assert fedce("run", "--data", tmp_path / "data", *SMALL, "--set", "model.norm=batch", "--out", run).exit_code == 0
    new = [tmp_path / f"data/north/imagesTr/p_{i}_{j:04d}.nii.gz" for i in range(2) for j in range(2)]
    result = fedce("predict", run, *new, "--out", out)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in out.glob("*.nii.gz")) == ["p_0.nii.gz", "p_1.nii.gz"]
    alone = fedce("predict", run, new[0], "--out", out)
    assert alone.exit_code == 2
    assert "the network takes 2 modalities, and 1 of them (0000) was given" in alone.stderr


def test_a_prediction_of_a_series_becomes_a_dicom_seg_that_is_read_as_a_mask(tmp_path: Path, fedce):
    dicom_series(tmp_path / "data")
    run, out = tmp_path / "run", tmp_path / "out"
    # Rounds enough to find something.
    options = [*SMALL, "--set", "model.norm=batch", "--rounds", "8", "--set", "train.lr=0.02", "--out", run]
    assert fedce("run", "--data", tmp_path / "data", *options).exit_code == 0
    series = tmp_path / "data/north/images/P1"
    for to in ("seg", "nifti"):
        result = fedce("predict", run, series, "--to", to, "--out", out, "--replace")
        assert result.exit_code == 0, result.output
    image = read_series(series)
    seg = sitk.GetArrayFromImage(read_on(out / "P1.dcm", image))
    nifti = sitk.GetArrayFromImage(sitk.ReadImage(str(out / "P1.nii.gz")))
    assert seg.any()
    assert np.array_equal(seg > 0, nifti > 0)
    refused = fedce("predict", run, tmp_path / "data/north/masks/P1.nii.gz", "--to", "seg", "--out", out)
    assert refused.exit_code == 2
    assert "is not a DICOM series" in refused.stderr
