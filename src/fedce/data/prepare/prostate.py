"""Six public prostate MRI data sets, as NVIDIA FLARE's example and the paper use them."""

import csv
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fedce.base.errors import DataError
from fedce.data.prepare.segmentations import referenced_series
from fedce.data.prepare.sources import Files, Found, Role, Source, by_case, files_below, pair, series_by_case
from fedce.data.prepare.volumes import convert_volume, is_segmentation, series_uid

CLASSES = {"prostate": [1]}
NCI_ISBI_URL = "https://doi.org/10.7937/K9/TCIA.2015.zF0vlOPv"
NCI_ISBI_DOWNLOAD = (
    "Three .tcia manifests (fetch the images with the NBIA Data Retriever) and three label archives "
    "(Training, Leaderboard, Test) from the challenge's page on TCIA."
)
NCI_ISBI_MASKS = "peripheral zone (1) and central gland (2) together"
N_WHOLE_GLANDS = 204
PROSTATEX_LIST = "image_list.csv"


def find_i2cvb(root: Path) -> Found:
    """GE/<patient>/T2W/*.dcm with GT/prostate/*.dcm beside it, and Siemens/<patient> likewise."""

    def case(patient: Path) -> str:
        return f"{patient.parent.name}_{patient.name}".replace(" ", "_")

    patients = sorted(path for scanner in ("GE", "Siemens") for path in (root / scanner).glob("*") if path.is_dir())
    return pair(
        root,
        {
            "image": series_by_case((patient / "T2W" for patient in patients), lambda folder: case(folder.parent)),
            "mask": series_by_case(
                (patient / "GT" / "prostate" for patient in patients), lambda folder: case(folder.parent.parent)
            ),
        },
    )


def find_msd(root: Path) -> Found:
    name = r"(prostate_\d+)\.nii\.gz"
    return pair(
        root,
        {
            "image": by_case(files_below(root / "imagesTr", ".nii.gz"), name),
            "mask": by_case(files_below(root / "labelsTr", ".nii.gz"), name),
        },
    )


def find_nci_isbi(root: Path, patient: str) -> Found:
    """Patient folders of the TCIA download at any depth, and PATIENT.nrrd (or PATIENT_correctedLabels.nrrd)."""
    folders = [path for path in sorted(root.rglob("*")) if path.is_dir() and re.fullmatch(patient, path.name)]
    series = sorted(inner for folder in folders for inner in folder.rglob("*") if inner.is_dir())

    def case(folder: Path) -> str:
        return next(parent.name for parent in folder.parents if re.fullmatch(patient, parent.name))

    return pair(
        root,
        {
            "image": series_by_case(series, case),
            "mask": by_case(files_below(root, ".nrrd"), rf"({patient})(?:_\w+)?\.nrrd"),
        },
    )


def find_prostate_3t(root: Path) -> Found:
    return find_nci_isbi(root, r"Prostate3T-\d+-\d+")


def find_prostate_diagnosis(root: Path) -> Found:
    return find_nci_isbi(root, r"ProstateDx-\d+-\d+")


def find_promise12(root: Path) -> Found:
    headers = list(files_below(root, ".mhd"))
    return pair(
        root,
        {
            "image": by_case(headers, r"(Case\d+)\.mhd"),
            "mask": by_case(headers, r"(Case\d+)_segmentation\.mhd"),
        },
    )


def find_prostatex(root: Path) -> Found:
    """Both editions of the masks state which T2 series they were drawn on; a patient often has several."""
    masks = by_case(
        (path for path in files_below(root, ".nii.gz") if path.parent.name == "mask_prostate"),
        r"(ProstateX-\d+)\.nii\.gz",
    )
    if masks:
        return replace(pair(root, {"image": _listed_series(root), "mask": masks}), published=N_WHOLE_GLANDS)
    return pair(root, _segmented_series(root))


def _segmented_series(root: Path) -> Mapping[str, Role]:
    """DICOM segmentations, and the series that they name."""
    images: dict[str, list[Files]] = {}
    masks: dict[str, list[Files]] = {}
    folders = (path for path in sorted(root.rglob("ProstateX-*/*/*")) if path.is_dir())
    for patient, series in series_by_case(folders, lambda folder: folder.parents[1].name).items():
        masks[patient] = [files for files in series if is_segmentation(files)]
        scans = [files for files in series if files not in masks[patient]]
        if len(masks[patient]) == 1:
            drawn_on = referenced_series(masks[patient][0][0])
            images[patient] = [files for files in scans if series_uid(files) == drawn_on]
        else:
            images[patient] = scans[:1]  # Any one of them, so that the patient is listed as one without a mask.
    return {"image": images, "mask": masks}


def _listed_series(root: Path) -> Role:
    """The T2 series that the repository's list names as PATIENT_SEQUENCE_NUMBER: a NIfTI file, or a DICOM folder."""
    lists = list(files_below(root, PROSTATEX_LIST))
    lists = [path for path in lists if (path.parent / "mask_prostate").is_dir()]
    if len(lists) != 1:
        raise DataError(
            f"{root} holds {len(lists)} files {PROSTATEX_LIST} beside a folder mask_prostate; "
            "expected one, from https://github.com/rcuocolo/PROSTATEx_masks (Files/prostate)"
        )
    listed = {}
    with lists[0].open(newline="", encoding="utf-8") as file:
        for row in csv.reader(file):
            if row and (match := re.fullmatch(r"(ProstateX-\d+)_.*?(\d+)", row[0].strip())):
                listed[row[0].strip()] = (match[1], int(match[2]))
    numbers = dict(listed.values())
    images = by_case(
        (path for path in files_below(root, ".nii.gz") if path.name.removesuffix(".nii.gz") in listed),
        r"(ProstateX-\d+)_.*\.nii\.gz",
    )

    def is_listed(folder: Path) -> bool:
        # Such as 4.000000-t2tsetra-61946 in patient / study: number, description, end of the series' UID.
        match = re.match(r"(\d+)(?:\.0+)?-", folder.name)
        return bool(match) and numbers.get(folder.parents[1].name) == int(match[1] if match else 0)

    folders = (path for path in sorted(root.rglob("ProstateX-*/*/*")) if path.is_dir() and is_listed(path))
    series = series_by_case(folders, lambda folder: folder.parents[1].name)
    return {**series, **images}


SOURCES = (
    Source(
        site="I2CVB",
        title="I2CVB",
        folder="I2CVB",
        url="https://zenodo.org/record/162231",
        licence="see the Zenodo record",
        download="All parts ge-1-5t* and siemens-3t*; join each with cat and unpack the two archives.",
        layout="I2CVB/{GE,Siemens}/<patient>/T2W/*.dcm\nI2CVB/{GE,Siemens}/<patient>/GT/prostate/*.dcm",
        masks="the drawn prostate, any value above 0",
        published=40,
        find=find_i2cvb,
        convert=convert_volume,
        defects={
            f"{scanner}_Patient_428260": "a slice of its segmentation is missing (NVIDIA FLARE leaves it out too)"
            for scanner in ("GE", "Siemens")
        },
    ),
    Source(
        site="MSD",
        title="Medical Segmentation Decathlon, Task05 Prostate",
        folder="Task05_Prostate",
        url="http://medicaldecathlon.com",
        licence="CC BY-SA 4.0",
        download="Task05_Prostate.tar; unpack it.",
        layout="Task05_Prostate/imagesTr/prostate_NN.nii.gz\nTask05_Prostate/labelsTr/prostate_NN.nii.gz",
        masks="peripheral zone (1) and transition zone (2) together; the T2 sequence is used, ADC is not",
        published=32,
        find=find_msd,
        convert=convert_volume,
        defects={},
    ),
    Source(
        site="NCI_ISBI_3T",
        title="NCI-ISBI 2013, Prostate-3T",
        folder="NCI-ISBI",
        url=NCI_ISBI_URL,
        licence="CC BY 3.0",
        download=NCI_ISBI_DOWNLOAD,
        layout="NCI-ISBI/.../Prostate3T-NN-NNNN/<study>/<series>/*.dcm\nNCI-ISBI/.../Prostate3T-NN-NNNN.nrrd",
        masks=NCI_ISBI_MASKS,
        published=40,
        find=find_prostate_3t,
        convert=convert_volume,
        defects={},
    ),
    Source(
        site="NCI_ISBI_Dx",
        title="NCI-ISBI 2013, PROSTATE-DIAGNOSIS",
        folder="NCI-ISBI",
        url=NCI_ISBI_URL,
        licence="CC BY 3.0",
        download=NCI_ISBI_DOWNLOAD,
        layout="NCI-ISBI/.../ProstateDx-NN-NNNN/<study>/<series>/*.dcm\nNCI-ISBI/.../ProstateDx-NN-NNNN.nrrd",
        masks=NCI_ISBI_MASKS,
        published=40,
        find=find_prostate_diagnosis,
        convert=convert_volume,
        defects={"ProstateDx-01-0055": "image and mask do not match (NVIDIA FLARE leaves it out too)"},
    ),
    Source(
        site="PROMISE12",
        title="PROMISE12",
        folder="PROMISE12",
        url="https://doi.org/10.5281/zenodo.8026660",
        licence="research use, with citation; see the Zenodo record",
        download="training_data.zip alone: the test data use the same case numbers again.",
        layout="PROMISE12/.../CaseNN.mhd and CaseNN.raw\n"
        "PROMISE12/.../CaseNN_segmentation.mhd and CaseNN_segmentation.raw",
        masks="the drawn prostate (1)",
        published=50,
        find=find_promise12,
        convert=convert_volume,
        defects={},
    ),
    Source(
        site="PROSTATEx",
        title="PROSTATEx, with PROSTATEx-Seg-Zones or the whole-gland masks of Cuocolo et al.",
        folder="PROSTATEx",
        url="https://www.cancerimagingarchive.net/analysis-result/prostatex-seg-zones/ "
        "(or https://github.com/rcuocolo/PROSTATEx_masks)",
        licence="CC BY 3.0 (Cuocolo et al.: CC BY 4.0); images: see the TCIA page",
        download="Images and segmentations with the NBIA Data Retriever (98 cases, the paper's); "
        f"or the images with it, and a checkout of the repository ({N_WHOLE_GLANDS} cases).",
        layout="PROSTATEx/.../ProstateX-NNNN/<study>/<series>/*.dcm, images and segmentations\n"
        "or PROSTATEx/.../mask_prostate/ProstateX-NNNN.nii.gz with image_list.csv beside mask_prostate, and the images",
        masks="all four zones together (or the drawn prostate), on the T2 series that the mask names",
        published=98,
        find=find_prostatex,
        convert=convert_volume,
        defects={},
    ),
)
