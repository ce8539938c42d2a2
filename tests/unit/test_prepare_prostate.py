"""Six prostate data sets in their published layouts, with small files of the real formats."""

import gzip
import json
import struct
import subprocess
import sys
import tomllib
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import SimpleITK as sitk

from fedce.base.config import load
from fedce.base.errors import DataError
from fedce.data import load_sites
from fedce.data import prepare as preparing
from fedce.data.prepare import volumes

SIZE = (12, 10, 6)
"""Columns, rows, slices."""
SPACING = (0.5, 0.6, 3.0)
ORIGIN = (-3.0, 7.0, -20.0)
SITES = ["I2CVB", "MSD", "NCI_ISBI_3T", "NCI_ISBI_Dx", "PROMISE12", "PROSTATEx"]


def gland(case: int) -> np.ndarray:
    """Slices, rows, columns; no two cases alike, and no axis or direction like another."""
    mask = np.zeros(SIZE[::-1], np.uint8)
    mask[1:4, 2 : 5 + case % 4, 3:9] = 1
    mask[4, 2, 3] = 1
    return mask


def volume(array: np.ndarray) -> sitk.Image:
    image = sitk.GetImageFromArray(array)
    image.SetSpacing(SPACING)
    image.SetOrigin(ORIGIN)
    return image


def scan(case: int) -> sitk.Image:
    """A T2 volume that shows its own number, where its gland is."""
    return volume(np.where(gland(case), 100 + case, 7).astype(np.int16))


def zones(case: int) -> sitk.Image:
    """The gland as two labels."""
    labels = gland(case)
    labels[:, :, 6:] *= 2
    return volume(labels)


def write(image: sitk.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sitk.WriteImage(image, str(path))


def write_series(image: sitk.Image, folder: Path, leave_out: int | None = None) -> None:
    """A DICOM series whose file names run against the slices' positions."""
    folder.mkdir(parents=True)
    writer = sitk.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    uid = f"1.2.826.0.1.3680043.2.1125.{crc32(str(folder).encode())}"
    n = image.GetDepth()
    for z in range(n):
        if z == leave_out:
            continue
        piece = sitk.Cast(image[:, :, z], sitk.sitkInt16)
        position = image.TransformIndexToPhysicalPoint((0, 0, z))
        tags = {
            "0008|0016": "1.2.840.10008.5.1.4.1.1.4",
            "0008|0018": f"{uid}.{z + 1}",
            "0008|0060": "MR",
            "0010|0010": "Somebody^Private",
            "0018|0050": str(SPACING[2]),
            "0020|000d": uid,
            "0020|000e": f"{uid}.0",
            "0020|0013": str(z + 1),
            "0020|0032": "\\".join(map(str, position)),
            "0020|0037": "\\".join(str(image.GetDirection()[i]) for i in (0, 3, 6, 1, 4, 7)),
            "0028|0030": f"{SPACING[1]}\\{SPACING[0]}",
        }
        for key, value in tags.items():
            piece.SetMetaData(key, value)
        writer.SetFileName(str(folder / f"1-{n - z:02d}.dcm"))
        writer.Execute(piece)


def i2cvb(root: Path) -> None:
    for case, patient in ((1, "GE/Patient 1041"), (2, "Siemens/Patient 383"), (3, "Siemens/Patient 428260")):
        write_series(scan(case), root / "I2CVB" / patient / "T2W")
        write_series(volume(gland(case) * 255), root / "I2CVB" / patient / "GT" / "prostate")


def msd(root: Path) -> None:
    for case in (3, 0):
        adc = volume(np.full(SIZE[::-1], 9, np.int16))
        write(sitk.JoinSeries([scan(case), adc]), root / "Task05_Prostate" / "imagesTr" / f"prostate_{case:02d}.nii.gz")
        write(zones(case), root / "Task05_Prostate" / "labelsTr" / f"prostate_{case:02d}.nii.gz")
    (root / "Task05_Prostate" / "imagesTr" / "._prostate_00.nii.gz").write_bytes(b"from a Mac")


def nci_isbi(root: Path) -> None:
    for collection, patient, labels in (
        ("Prostate-3T", "Prostate3T-01-0001", "Training/Prostate3T-01-0001.nrrd"),
        ("Prostate-3T", "Prostate3T-01-0002", "Test/Prostate3T-01-0002.nrrd"),
        ("PROSTATE-DIAGNOSIS", "ProstateDx-01-0006", "Training/ProstateDx-01-0006_correctedLabels.nrrd"),
    ):
        case = int(patient[-1])
        series = root / "NCI-ISBI" / "manifest-123" / collection / patient / "study" / "3.000000-t2-1"
        write_series(scan(case), series)
        # The published labels stand on the image's grid with other axes and directions.
        write(sitk.DICOMOrient(zones(case), "PIR"), root / "NCI-ISBI" / "labels" / labels)


def promise12(root: Path) -> None:
    for case in (10, 1, 2):
        write(scan(case), root / "PROMISE12" / f"Case{case:02d}.mhd")
        write(volume(gland(case)), root / "PROMISE12" / f"Case{case:02d}_segmentation.mhd")


def prostatex(root: Path) -> None:
    masks = root / "PROSTATEx" / "PROSTATEx_masks" / "Files" / "prostate"
    patients = root / "PROSTATEx" / "manifest-1" / "PROSTATEx"
    for case in (0, 1):
        study = patients / f"ProstateX-000{case}" / "07-07-2011-MR prostaat"
        write_series(scan(case + 5), study / "3.000000-t2tsetra-11111")
        write_series(scan(case), study / "4.000000-t2tsetra-61946")
        write(volume(gland(case)), masks / "mask_prostate" / f"ProstateX-000{case}.nii.gz")
    write(scan(2), masks / "Images" / "ProstateX-0002_t2_tse_tra_Grappa3_2.nii.gz")
    write(volume(gland(2)), masks / "mask_prostate" / "ProstateX-0002.nii.gz")
    listed = ["ProstateX-0000_t2_tse_tra_4", "ProstateX-0001_t2_tse_tra_4", "ProstateX-0002_t2_tse_tra_Grappa3_2"]
    (masks / "image_list.csv").write_text("\n".join(["T2", *listed]) + "\n")


def element(tag: int, kind: str, value: bytes) -> bytes:
    value += b"\0" * (len(value) % 2)
    head = struct.pack("<HH2s", tag >> 16, tag & 0xFFFF, kind.encode())
    is_long = kind in ("OB", "SQ")
    return head + (struct.pack("<HI", 0, len(value)) if is_long else struct.pack("<H", len(value))) + value


def sequence(tag: int, *items: bytes, told_length: bool = True) -> bytes:
    """DICOM has two ways to say where a sequence ends."""
    item_head, item_end, end = (struct.pack("<HH", 0xFFFE, number) for number in (0xE000, 0xE00D, 0xE0DD))
    if told_length:
        return element(tag, "SQ", b"".join(item_head + struct.pack("<I", len(item)) + item for item in items))
    head = struct.pack("<HH2sHI", tag >> 16, tag & 0xFFFF, b"SQ", 0, 0xFFFFFFFF)
    body = b"".join(item_head + b"\xff" * 4 + item + item_end + bytes(4) for item in items)
    return head + body + end + bytes(4)


def write_segmentation(labels: sitk.Image, series: str, path: Path, told_length: bool = True) -> None:
    """A segment for each label, slice by slice, without the empty ones, a bit a pixel."""
    array = sitk.GetArrayFromImage(labels)
    frames = [(z, array[z] == label) for label in (1, 2) for z in range(len(array)) if (array[z] == label).any()]
    places = [labels.TransformIndexToPhysicalPoint((0, 0, z)) for z, _ in frames]
    numbers = {0x00280002: 1, 0x00280010: SIZE[1], 0x00280011: SIZE[0]}
    bits = {0x00280100: 1, 0x00280101: 1, 0x00280102: 0, 0x00280103: 0}
    groups = [
        sequence(0x00209113, element(0x00200032, "DS", "\\".join(map(str, place)).encode()), told_length=told_length)
        for place in places
    ]
    pixels = np.packbits(np.concatenate([frame.ravel() for _, frame in frames]), bitorder="little").tobytes()
    parts = [
        bytes(128) + b"DICM",
        element(0x00020002, "UI", b"1.2.840.10008.5.1.4.1.1.66.4"),
        element(0x00020003, "UI", b"1.2.3"),
        element(0x00020010, "UI", b"1.2.840.10008.1.2.1"),
        element(0x00080016, "UI", b"1.2.840.10008.5.1.4.1.1.66.4"),
        element(0x00080018, "UI", b"1.2.3"),
        element(0x00080060, "CS", b"SEG "),
        sequence(0x00081115, element(0x0020000E, "UI", series.encode()), told_length=told_length),
        element(0x0020000D, "UI", b"1.2"),
        element(0x0020000E, "UI", b"1.2.4"),
        *(element(tag, "US", struct.pack("<H", number)) for tag, number in numbers.items() if tag < 0x00280004),
        element(0x00280004, "CS", b"MONOCHROME2 "),
        element(0x00280008, "IS", str(len(frames)).encode()),
        *(element(tag, "US", struct.pack("<H", number)) for tag, number in numbers.items() if tag > 0x00280004),
        *(element(tag, "US", struct.pack("<H", number)) for tag, number in bits.items()),
        sequence(0x52009230, *groups, told_length=told_length),
        element(0x7FE00010, "OB", pixels),
    ]
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(parts))


def prostatex_zones(root: Path) -> Path:
    """TCIA's own edition: two T2 series, and a segmentation of the second."""
    patients = root / "PROSTATEx" / "manifest-1" / "PROSTATEx"
    for case in (4, 5):
        study = patients / f"ProstateX-000{case}" / "10-18-2011-MR prostaat"
        write_series(scan(case + 2), study / "3.000000-t2tsetra-11111")
        write_series(scan(case), study / "4.000000-t2tsetra-00702")
        uid = volumes.series_uid((study / "4.000000-t2tsetra-00702" / "1-01.dcm",))
        write_segmentation(zones(case), uid, study / "300.000000-Segmentation-1" / "1-1.dcm", told_length=case == 4)
    return patients


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("published")
    for build in (i2cvb, msd, nci_isbi, promise12, prostatex):
        build(root)
    return root


@pytest.fixture(scope="module")
def prepared(published: Path, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("prepared") / "out"
    preparing.prepare("prostate", published, out, lambda message: None)
    return out


def names(site: Path) -> list[str]:
    images, masks = (sorted(path.name for path in (site / part).iterdir()) for part in ("images", "masks"))
    assert images == masks
    return [name.removesuffix(".nii.gz") for name in images]


def contents(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def test_every_source_becomes_a_site(prepared: Path):
    assert {site.name: names(site) for site in sorted(prepared.iterdir()) if site.is_dir()} == {
        "I2CVB": ["GE_Patient_1041", "Siemens_Patient_383"],
        "MSD": ["prostate_00", "prostate_03"],
        "NCI_ISBI_3T": ["Prostate3T-01-0001", "Prostate3T-01-0002"],
        "NCI_ISBI_Dx": ["ProstateDx-01-0006"],
        "PROMISE12": ["Case01", "Case02", "Case10"],
        "PROSTATEx": ["ProstateX-0000", "ProstateX-0001", "ProstateX-0002"],
    }


@pytest.mark.parametrize("site", SITES)
def test_a_mask_lies_on_its_own_image(prepared: Path, site: str):
    for path in (prepared / site / "images").iterdir():
        image, mask = (sitk.ReadImage(str(prepared / site / part / path.name)) for part in ("images", "masks"))
        for property_of in ("GetSize", "GetSpacing", "GetOrigin", "GetDirection"):
            assert getattr(image, property_of)() == pytest.approx(getattr(mask, property_of)(), abs=1e-5)
        pixels, inside = sitk.GetArrayFromImage(image), sitk.GetArrayFromImage(mask)
        assert set(np.unique(inside)) == {0, 1}
        assert len(set(pixels[inside == 1])) == 1, "the mask of another case, or turned"
        assert (pixels[inside == 0] == 7).all()


@pytest.mark.parametrize(("site", "name", "case"), [("I2CVB", "Siemens_Patient_383", 2), ("PROMISE12", "Case10", 10)])
def test_slices_and_geometry_are_kept(prepared: Path, site: str, name: str, case: int):
    image = sitk.ReadImage(str(prepared / site / "images" / f"{name}.nii.gz"))
    assert (sitk.GetArrayFromImage(image) == sitk.GetArrayFromImage(scan(case))).all()
    assert image.GetSpacing() == pytest.approx(SPACING)
    assert image.GetOrigin() == pytest.approx(ORIGIN)


def test_the_series_that_the_list_names_is_taken(prepared: Path):
    image = sitk.ReadImage(str(prepared / "PROSTATEx" / "images" / "ProstateX-0001.nii.gz"))
    assert sitk.GetArrayFromImage(image).max() == 101


def test_names_of_patients_stay_behind(prepared: Path):
    for path in prepared.rglob("*.nii.gz"):
        assert b"Somebody" not in gzip.decompress(path.read_bytes())


def test_the_experiment_names_the_folder_and_the_class(prepared: Path):
    experiment = tomllib.loads((prepared / "experiment.toml").read_text())
    assert experiment["data"] == {"source": str(prepared), "size": 256, "classes": {"prostate": [1]}}


def test_what_was_found_is_written_down(prepared: Path):
    sites = json.loads((prepared / "prepared.json").read_text())["sites"]
    assert sorted(sites) == SITES
    assert sites["I2CVB"]["found"] == 3
    assert sites["I2CVB"]["published"] == 40
    assert [line.split(":")[0] for line in sites["I2CVB"]["left_out"]] == ["Siemens_Patient_428260"]
    assert sites["MSD"]["licence"] == "CC BY-SA 4.0"
    (entry,) = sites["NCI_ISBI_Dx"]["cases"].values()
    assert entry["made_from"]["mask"] == "NCI-ISBI/labels/Training/ProstateDx-01-0006_correctedLabels.nrrd"
    assert sorted(entry["outputs"]) == [f"{part}/ProstateDx-01-0006.nii.gz" for part in ("images", "masks")]


def test_a_second_call_makes_nothing_again(published: Path, prepared: Path, monkeypatch):
    before = contents(prepared)
    monkeypatch.setattr(volumes, "read_volume", None)
    preparing.prepare("prostate", published, prepared, lambda message: None)
    assert contents(prepared) == before


def test_a_call_that_was_cut_off_is_completed_to_the_same_bytes(published: Path, prepared: Path, tmp_path: Path):
    converted = []

    def dying(message):
        if message.startswith("PROMISE12"):
            raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        preparing.prepare("prostate", published, out, dying)
    assert not (out / "PROMISE12").exists()
    preparing.prepare("prostate", published, out, converted.append)
    assert "MSD: 0 of 2 cases to convert" in converted
    assert "PROMISE12: 3 of 3 cases to convert" in converted
    assert {name: content for name, content in contents(out).items() if name != "experiment.toml"} == {
        name: content for name, content in contents(prepared).items() if name != "experiment.toml"
    }


def test_a_changed_source_is_converted_again(tmp_path: Path):
    promise12(tmp_path / "source")
    preparing.prepare("prostate", tmp_path / "source", tmp_path / "out", lambda message: None)
    write(scan(2), tmp_path / "source" / "PROMISE12" / "Case01.mhd")
    write(volume(gland(2)), tmp_path / "source" / "PROMISE12" / "Case01_segmentation.mhd")
    said = []
    preparing.prepare("prostate", tmp_path / "source", tmp_path / "out", said.append)
    assert "PROMISE12: 1 of 3 cases to convert" in said
    image = sitk.ReadImage(str(tmp_path / "out" / "PROMISE12" / "images" / "Case01.nii.gz"))
    assert sitk.GetArrayFromImage(image).max() == 102


def test_a_mask_never_goes_to_an_image_of_another_name(tmp_path: Path):
    """One mask missing: an order of files would shift all that follow."""
    promise12(tmp_path)
    (tmp_path / "PROMISE12" / "Case02_segmentation.mhd").unlink()
    summary = preparing.prepare("prostate", tmp_path, tmp_path / "out", lambda message: None)
    assert names(tmp_path / "out" / "PROMISE12") == ["Case01", "Case10"]
    (site,) = (site for site in summary.sites if not site.missing)
    assert site.unmatched == ("Case02.mhd: no mask of case 'Case02'",)
    mask = sitk.ReadImage(str(tmp_path / "out" / "PROMISE12" / "masks" / "Case10.nii.gz"))
    assert (sitk.GetArrayFromImage(mask) == gland(10)).all()


def test_two_masks_for_a_case_stop_everything_before_it_begins(tmp_path: Path, fedce):
    promise12(tmp_path)
    msd(tmp_path)
    write(volume(gland(1)), tmp_path / "PROMISE12" / "test" / "Case01_segmentation.mhd")
    result = fedce("data", "prepare", "prostate", "--source", tmp_path, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stderr == (
        "fedce: PROMISE12: case 'Case01' has more than one mask: Case01_segmentation.mhd and "
        "test/Case01_segmentation.mhd; keep the one that belongs to it\n"
    )
    assert not (tmp_path / "out").exists()


def spoil_slices(folder: Path) -> str:
    write(volume(gland(1)[:-1]), folder / "Case01_segmentation.mhd")
    return "is 12x10x5 voxels, its image 12x10x6"


def spoil_place(folder: Path) -> str:
    mask = volume(gland(1))
    mask.SetOrigin((100.0, 7.0, -20.0))
    write(mask, folder / "Case01_segmentation.mhd")
    return "lies elsewhere than its image: origin 103.0 mm away"


def spoil_labels(folder: Path) -> str:
    write(volume(np.zeros_like(gland(1))), folder / "Case01_segmentation.mhd")
    return "is empty; expected the prostate in it"


def spoil_voxels(folder: Path) -> str:
    raw = folder / "Case01.raw"
    raw.write_bytes(raw.read_bytes()[:50])
    return "can't read"


@pytest.mark.parametrize("spoil", [spoil_slices, spoil_place, spoil_labels, spoil_voxels])
def test_a_spoilt_case_is_one_line_and_the_others_are_made(tmp_path: Path, fedce, spoil):
    promise12(tmp_path)
    line = spoil(tmp_path / "PROMISE12")
    result = fedce("data", "prepare", "prostate", "--source", tmp_path, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "... 1 cases could not be used" in result.stderr
    (said,) = [line for line in result.stderr.splitlines() if not line.startswith("... ")]
    assert said.startswith("fedce: PROMISE12, case 'Case01': ")
    assert line in said
    assert names(tmp_path / "out" / "PROMISE12") == ["Case02", "Case10"]


@pytest.mark.parametrize(
    ("leave_out", "line"),
    [
        (2, "is not a complete series: its slices are 3.0 mm apart .median., but some 3.0 mm and some 6.0 mm"),
        (5, "12x10x6 voxels, its image 12x10x5"),
    ],
)
def test_a_dicom_slice_that_is_missing(tmp_path: Path, leave_out: int, line: str):
    patient = tmp_path / "I2CVB" / "GE" / "Patient 1"
    write_series(scan(1), patient / "T2W", leave_out=leave_out)
    write_series(volume(gland(1)), patient / "GT" / "prostate")
    with pytest.raises(DataError, match=line):
        preparing.prepare("prostate", tmp_path, tmp_path / "out", lambda message: None)


def test_truncated_volumes_are_a_line_each(tmp_path: Path, fedce):
    msd(tmp_path)
    for path in (tmp_path / "Task05_Prostate").glob("*Tr/prostate_0*.nii.gz"):
        path.write_bytes(path.read_bytes()[:-60])
    result = fedce("data", "prepare", "prostate", "--source", tmp_path, "--out", tmp_path / "out")
    assert result.exit_code == 2
    first, *lines = [line for line in result.stderr.splitlines() if not line.startswith("... ")]
    assert first == f"fedce: 2 problems in {tmp_path}:"
    for case, line in zip(("00", "03"), lines, strict=True):
        assert line.startswith(f"- MSD, case 'prostate_{case}': can't read the volume")


def test_the_experiment_loads(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("FEDCE_CACHE", str(tmp_path / "cache"))
    for case in range(8):
        for site, image, mask in (
            ("PROMISE12", f"Case{case:02d}.mhd", f"Case{case:02d}_segmentation.mhd"),
            ("Task05_Prostate", f"imagesTr/prostate_{case:02d}.nii.gz", f"labelsTr/prostate_{case:02d}.nii.gz"),
        ):
            write(scan(case), tmp_path / "source" / site / image)
            write(zones(case), tmp_path / "source" / site / mask)
    out = tmp_path / "out"
    preparing.prepare("prostate", tmp_path / "source", out, lambda message: None)
    sites = load_sites(load(out / "experiment.toml", {"data.size": 32}).data)
    assert [site.name for site in sites] == ["MSD", "PROMISE12"]
    assert sites[0].images.shape == (8 * 6, 1, 32, 32), "volumes are read whole"
    assert sites.classes == {"prostate": [1]}


def test_a_truncated_slice_is_one_line(tmp_path: Path, capfd):
    patient = tmp_path / "I2CVB" / "GE" / "Patient 1"
    write_series(scan(1), patient / "T2W")
    write_series(volume(gland(1)), patient / "GT" / "prostate")
    slice_file = patient / "T2W" / "1-03.dcm"
    slice_file.write_bytes(slice_file.read_bytes()[:-40])
    with pytest.raises(DataError, match="T2W") as error:
        preparing.prepare("prostate", tmp_path, tmp_path / "out", lambda message: None)
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == ""


def test_a_grid_that_is_a_little_off_is_resampled_and_said(tmp_path: Path):
    promise12(tmp_path)
    mask = volume(gland(1))
    mask.SetOrigin((ORIGIN[0] + 1.2 * SPACING[0], *ORIGIN[1:]))
    write(mask, tmp_path / "PROMISE12" / "Case01_segmentation.mhd")
    said = []
    preparing.prepare("prostate", tmp_path, tmp_path / "out", said.append)
    assert any(
        "PROMISE12, Case01: the mask's grid differs from the image's (origin 0.6 mm away)" in line for line in said
    )
    moved = sitk.ReadImage(str(tmp_path / "out" / "PROMISE12" / "masks" / "Case01.nii.gz"))
    assert (sitk.GetArrayFromImage(moved)[:, :, 1:] == gland(1)[:, :, :-1]).all()


def test_a_tilted_series_keeps_its_direction(tmp_path: Path):
    angle = np.deg2rad(12)
    tilt = (1, 0, 0, 0, np.cos(angle), -np.sin(angle), 0, np.sin(angle), np.cos(angle))
    image, labels = scan(1), zones(1)
    for part in (image, labels):
        part.SetDirection(tilt)
    folder = tmp_path / "NCI-ISBI"
    write_series(image, folder / "Prostate-3T" / "Prostate3T-01-0001" / "study" / "series")
    write(sitk.DICOMOrient(labels, "PIR"), folder / "Prostate3T-01-0001.nrrd")
    preparing.prepare("prostate", tmp_path, tmp_path / "out", lambda message: None)
    for part, expected in (("images", sitk.GetArrayFromImage(image)), ("masks", gland(1))):
        written = sitk.ReadImage(str(tmp_path / "out" / "NCI_ISBI_3T" / part / "Prostate3T-01-0001.nii.gz"))
        assert written.GetDirection() == pytest.approx(tilt, abs=1e-5)
        assert (sitk.GetArrayFromImage(written) == expected).all()


def test_two_series_in_one_folder_are_no_volume(tmp_path: Path):
    patient = tmp_path / "I2CVB" / "GE" / "Patient 1"
    write_series(scan(1), patient / "T2W")
    write_series(scan(2), tmp_path / "other")
    for path in (tmp_path / "other").iterdir():
        path.rename(patient / "T2W" / f"again-{path.name}")
    write_series(volume(gland(1)), patient / "GT" / "prostate")
    with pytest.raises(DataError, match="is not a complete series"):
        preparing.prepare("prostate", tmp_path, tmp_path / "out", lambda message: None)


def test_prostatex_without_its_list(tmp_path: Path):
    prostatex(tmp_path)
    (tmp_path / "PROSTATEx" / "PROSTATEx_masks" / "Files" / "prostate" / "image_list.csv").unlink()
    with pytest.raises(DataError, match=r"0 files image_list.csv beside a folder mask_prostate; expected one"):
        preparing.prepare("prostate", tmp_path, tmp_path / "out", lambda message: None)


def test_segmentation_objects_go_to_the_series_that_they_name(tmp_path: Path):
    prostatex_zones(tmp_path)
    summary = preparing.prepare("prostate", tmp_path, tmp_path / "out", lambda message: None)
    assert names(tmp_path / "out" / "PROSTATEx") == ["ProstateX-0004", "ProstateX-0005"]
    assert summary.sites[-1].n_published == 98
    for case in (4, 5):
        image, mask = (
            sitk.ReadImage(str(tmp_path / "out" / "PROSTATEx" / part / f"ProstateX-000{case}.nii.gz"))
            for part in ("images", "masks")
        )
        assert sitk.GetArrayFromImage(image).max() == 100 + case
        assert (sitk.GetArrayFromImage(mask) == gland(case)).all()
        assert mask.GetOrigin() == pytest.approx(ORIGIN)


def test_a_patient_without_segmentation_is_listed(tmp_path: Path):
    study = prostatex_zones(tmp_path) / "ProstateX-0005" / "10-18-2011-MR prostaat"
    (study / "300.000000-Segmentation-1" / "1-1.dcm").unlink()
    summary = preparing.prepare("prostate", tmp_path, tmp_path / "out", lambda message: None)
    (line,) = summary.sites[-1].unmatched
    assert line.endswith("3.000000-t2tsetra-11111: no mask of case 'ProstateX-0005'")


def spoil_header(path: Path) -> str:
    path.write_bytes(path.read_bytes()[:200])
    return "1-1.dcm"


def spoil_pixels(path: Path) -> str:
    path.write_bytes(path.read_bytes()[:-40])
    return "1-1.dcm"


def spoil_syntax(path: Path) -> str:
    path.write_bytes(path.read_bytes().replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2.2\0"))
    return "1-1.dcm"


def spoil_frame(path: Path) -> str:
    path.write_bytes(path.read_bytes().replace(b"-3.0\\7.0\\-17.0", b"-3.0\\7.0\\-18.0"))
    return "has a frame at .* where its image has no slice"


@pytest.mark.parametrize("spoil", [spoil_header, spoil_pixels, spoil_syntax, spoil_frame])
def test_a_spoilt_segmentation_is_one_line(tmp_path: Path, spoil):
    patients = prostatex_zones(tmp_path)
    (path,) = patients.glob("ProstateX-0004/*/300*/1-1.dcm")
    line = spoil(path)
    with pytest.raises(DataError, match=line):
        preparing.prepare("prostate", tmp_path, tmp_path / "out", lambda message: None)


def test_the_table_tells_found_published_and_missing(published: Path, prepared: Path, fedce):
    result = fedce("data", "prepare", "prostate", "--source", published, "--out", prepared)
    assert result.exit_code == 0, result.output
    rows = {line.split("│")[1].strip(): line for line in result.stdout.splitlines() if line.count("│") > 3}
    assert [cell.strip() for cell in rows["MSD"].split("│")[2:6]] == ["2", "32", "2", "0"]
    assert "Siemens_Patient_428260: a slice of its segmentation is missing" in result.stderr


def test_nothing_found_shows_the_layouts(tmp_path: Path, fedce):
    result = fedce("data", "prepare", "prostate", "--source", tmp_path, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "PROMISE12: PROMISE12/.../CaseNN.mhd and CaseNN.raw" in result.stderr
    assert not (tmp_path / "out").exists()
    result = fedce("data", "prepare", "prostate", "--source", tmp_path / "none")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_a_folder_of_something_else_is_left_alone(published: Path, tmp_path: Path, fedce):
    (tmp_path / "letters.txt").write_text("dear")
    result = fedce("data", "prepare", "prostate", "--source", published, "--out", tmp_path)
    assert result.exit_code == 2
    assert "is not empty and holds no prepared data" in result.stderr
    (tmp_path / "prepared.json").write_text("[]")
    result = fedce("data", "prepare", "prostate", "--source", published, "--out", tmp_path)
    assert "is not what 'fedce data prepare' writes" in result.stderr


@pytest.mark.parametrize("options", [[], ["--list", "--source", "."]])
def test_the_guide_says_where_to_get_everything(fedce, options):
    result = fedce("data", "prepare", "prostate", *options)
    assert result.exit_code == 0
    for source in preparing.sources_of("prostate"):
        assert source.url in result.stdout
        assert source.licence in result.stdout


def test_simpleitk_is_imported_only_to_convert():
    script = "import sys, fedce.cli, fedce.data.prepare; print('SimpleITK' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
