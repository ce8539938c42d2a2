"""DICOM SEG: read as the masks of a series, and written for a series; both by highdicom."""

from pathlib import Path

import highdicom
import numpy as np
import pydicom
import pytest
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.sr.codedict import codes
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from fedce.base.errors import DataError
from fedce.data import load_sites
from fedce.data.dicom import read_series
from fedce.data.dicom_seg import holds_seg, is_seg, read_on, seg_bytes

SIZE, DEPTH = 32, 5
MR = "1.2.840.10008.5.1.4.1.1.4"


def write_series(folder: Path, seed: int = 0, depth: int = DEPTH) -> list[pydicom.Dataset]:
    """A series whose file names are against the order of its slices."""
    folder.mkdir(parents=True)
    series, study, frame = generate_uid(), generate_uid(), generate_uid()
    rng = np.random.default_rng(seed)
    slices = []
    for z in range(depth):
        meta = FileMetaDataset()
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = MR, generate_uid()
        one = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
        one.SOPClassUID, one.SOPInstanceUID = MR, meta.MediaStorageSOPInstanceUID
        one.SeriesInstanceUID, one.StudyInstanceUID, one.FrameOfReferenceUID = series, study, frame
        one.PatientID, one.PatientName, one.PatientBirthDate, one.PatientSex = "P1", "Doe^Jane", "", "O"
        one.StudyID, one.StudyDate, one.StudyTime, one.AccessionNumber = "1", "20200101", "000000", ""
        one.ReferringPhysicianName, one.Modality, one.SeriesNumber, one.InstanceNumber = "", "MR", 1, z + 1
        one.ImagePositionPatient, one.ImageOrientationPatient = [-10.0, -20.0, 3.0 * z], [1, 0, 0, 0, 1, 0]
        one.PixelSpacing, one.SliceThickness = [0.5, 0.5], 3.0
        one.Rows = one.Columns = SIZE
        one.SamplesPerPixel, one.PhotometricInterpretation, one.PixelRepresentation = 1, "MONOCHROME2", 0
        one.BitsAllocated, one.BitsStored, one.HighBit = 16, 16, 15
        pixels = rng.integers(0, 200, (SIZE, SIZE)).astype(np.uint16)
        pixels[8:16, 10:20] += 400
        one.PixelData = pixels.tobytes()
        one.save_as(folder / f"{depth - z:03d}.dcm", enforce_file_format=True)
        slices.append(one)
    return slices


def drawn(depth: int = DEPTH) -> np.ndarray:
    """(slices, rows, columns, segments): a gland in three slices, a zone within it in one; the others are empty."""
    found = np.zeros((depth, SIZE, SIZE, 2), np.uint8)
    found[1:4, 8:16, 10:20, 0] = 1
    found[2, 9:12, 11:15, 1] = 1
    return found


def write_theirs(path: Path, slices: list[pydicom.Dataset], values: np.ndarray, kind: str = "BINARY") -> None:
    """A SEG as somebody else's tool writes it: sparse frames of several segments."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds = (codes.SCT.Organ, codes.SCT.Prostate)
    highdicom.seg.Segmentation(
        source_images=slices,
        pixel_array=values,
        segmentation_type=kind,
        segment_descriptions=[
            highdicom.seg.SegmentDescription(i, name, *kinds, "MANUAL") for i, name in ((1, "gland"), (2, "zone"))
        ],
        series_instance_uid=generate_uid(),
        series_number=2,
        sop_instance_uid=generate_uid(),
        instance_number=1,
        manufacturer="test",
        manufacturer_model_name="test",
        software_versions="1",
        device_serial_number="1",
    ).save_as(path)


@pytest.mark.parametrize("name", ["masks/P{}.dcm", "masks/P{}/1-1.dcm"])
def test_segments_become_mask_values(tmp_path: Path, name: str):
    for site in ("north", "south"):
        for i in range(4):
            slices = write_series(tmp_path / site / f"images/P{i}", seed=i)
            write_theirs(tmp_path / site / name.format(i), slices, drawn())
    sites = load_sites(tmp_path, classes={"gland": [1, 2], "zone": [2]})
    masks = sites[0].masks[:DEPTH]
    assert np.array_equal(masks.transpose(0, 2, 3, 1), drawn())
    inside, outside = sites[0].images[2, 0][drawn()[2, ..., 0] == 1], sites[0].images[2, 0][drawn()[2, ..., 0] == 0]
    assert inside.min() > outside.max(), "the mask lies where its slice is bright"


def test_a_folder_a_patient_with_a_series_and_its_segmentation(tmp_path: Path):
    for site in ("north", "south"):
        for i in range(4):
            slices = write_series(tmp_path / site / f"P{i}/T2", seed=i)
            write_theirs(tmp_path / site / f"P{i}/seg.dcm", slices, drawn())
    sites = load_sites(tmp_path)
    assert sites.recognised == "a folder a patient, 1 class (foreground)"
    assert sites[0].masks.sum() == 4 * 3 * 80


def test_a_fractional_segment_is_where_at_least_half_of_it_is(tmp_path: Path):
    import SimpleITK as sitk

    slices = write_series(tmp_path / "series")
    parts = drawn() * np.array([0.2, 0.6], np.float32)
    write_theirs(tmp_path / "seg.dcm", slices, parts.astype(np.float32), "FRACTIONAL")
    found = sitk.GetArrayFromImage(read_on(tmp_path / "seg.dcm", read_series(tmp_path / "series")))
    assert np.array_equal(found, 2 * drawn()[..., 1])


def test_a_folder_with_a_hidden_file_beside_its_segmentation(tmp_path: Path):
    slices = write_series(tmp_path / "series")
    write_theirs(tmp_path / "masks" / "1-1.dcm", slices, drawn())
    (tmp_path / "masks" / ".DS_Store").write_bytes(b"hidden")
    assert holds_seg(tmp_path / "masks")
    assert read_on(tmp_path / "masks", read_series(tmp_path / "series")).GetSize() == (SIZE, SIZE, DEPTH)


def test_a_segmentation_of_another_series_is_refused(tmp_path: Path):
    slices = write_series(tmp_path / "a")
    other = write_series(tmp_path / "b", depth=3)
    write_theirs(tmp_path / "seg.dcm", slices, drawn())
    image = read_series(tmp_path / "b")
    assert len(other) == 3
    with pytest.raises(DataError, match=r"has a frame at .* mm, where its image has no slice"):
        read_on(tmp_path / "seg.dcm", image)
    with pytest.raises(DataError, match="is not a DICOM segmentation"):
        read_on(tmp_path / "a/001.dcm", image)


def test_what_is_written_is_read_again(tmp_path: Path):
    import SimpleITK as sitk

    write_series(tmp_path / "series")
    image = read_series(tmp_path / "series")
    masks = {}
    for i, name in enumerate(("gland", "zone")):
        masks[name] = sitk.GetImageFromArray(drawn()[..., i])
        masks[name].CopyInformation(image)
    path = tmp_path / "seg.dcm"
    path.write_bytes(seg_bytes(masks, tmp_path / "series"))
    assert is_seg(path)
    assert not is_seg(tmp_path / "series/001.dcm")
    found = sitk.GetArrayFromImage(read_on(path, image))
    assert np.array_equal(found, drawn()[..., 0] + drawn()[..., 1])
    header = pydicom.dcmread(path)
    assert [segment.SegmentLabel for segment in header.SegmentSequence] == ["gland", "zone"]
    assert header.PatientID == "P1"
    source = {pydicom.dcmread(file).SeriesInstanceUID for file in (tmp_path / "series").iterdir()}
    assert header.ReferencedSeriesSequence[0].SeriesInstanceUID in source
    # Nothing may be found in one of many series; its file says so.
    path.write_bytes(seg_bytes({"gland": masks["zone"] * 0}, tmp_path / "series"))
    assert not sitk.GetArrayFromImage(read_on(path, image)).any()
