"""Settings that files call for: found where they help, and never where names are only numbers."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedce.base.config import parse_assignment
from fedce.data import load_sites
from fedce.data.advice import advice_for, case_pattern
from fedce.data.inspection import inspect_sites
from fedce.data.remarks import summary
from support import write_site

PATIENTS = {
    "P00": [f"P{p:02d}_img{i}" for p in range(5) for i in range(4)],
    "patient3": [f"patient{p}_slice{i:03d}" for p in (3, 7, 12, 40) for i in range(1 + p % 5)],
    "case-00": [f"case-{p:02d}_{i:02d}" for p in range(6) for i in range(3)],
    "12345": [f"{p}_{eye}" for p in (12345, 777, 20001) for eye in ("left", "right")],
    "C3_P00": [f"C3_P{p:02d}_img{i}" for p in range(4) for i in range(3)],
    "imagesTr/sub-00": [f"imagesTr/sub-{p:02d}_{i}" for p in range(4) for i in range(3)],
    "P1": [f"P{p}_2021{p:02d}{i:02d}" for p in range(1, 5) for i in range(1, 4)],
    "video1": [f"video{p}_frame{i:03d}" for p in range(1, 5) for i in range(10)],
    "0": [f"{p}.{i}.left" for p in range(4) for i in range(3)],
}
"""Each by the case of its first image."""
OTHERS = {
    "running numbers": [f"img_{i:03d}" for i in range(30)],
    "bare numbers": [f"{i}" for i in range(30)],
    "a year": [f"scan2021_{i:04d}" for i in range(30)],
    "one prefix a site": [f"C3_EndoCV2021_{i:05d}" for i in range(30)],
    "a number of a sequence before a running number": [f"{i % 7}_endocv2021_positive_{i}" for i in range(30)],
    "one volume a patient": [f"ProstateX-{i:04d}_t2_tse_tra_4" for i in range(30)],
    "two kinds": [f"{kind}_{i:03d}" for kind in ("benign", "malignant") for i in range(15)],
    "two sequences": [f"T{kind}_{i:03d}" for kind in (1, 2) for i in range(15)],
    "cases alone": [f"case_{i:02d}" for i in range(30)],
}


@pytest.mark.parametrize("case", PATIENTS)
def test_names_of_patients_are_known(case: str):
    names = PATIENTS[case]
    pattern = case_pattern({"north": names, "south": names})
    assert pattern is not None
    matches = [re.fullmatch(pattern, name) for name in names]
    assert all(matches)
    assert matches[0][1] == case
    assert 3 <= len({match[1] for match in matches}) < len(names)


@pytest.mark.parametrize("scheme", OTHERS)
def test_other_names_are_left_alone(scheme: str):
    assert case_pattern({"north": OTHERS[scheme], "south": OTHERS[scheme]}) is None


def test_a_pattern_must_fit_every_site():
    assert case_pattern({"north": PATIENTS["P00"], "south": OTHERS["running numbers"]}) is None


def patients(root: Path) -> Path:
    for site in ("north", "south"):
        write_site(root, site, n=20)
        for path in (*root.glob(f"{site}/images/*"), *root.glob(f"{site}/masks/*")):
            number = int(path.stem)
            path.rename(path.with_name(f"P{number // 4:02d}_img{number % 4}.png"))
    return root


def setting(option: str) -> tuple[str, object]:
    """What a shell and the command line make of an option that was pasted."""
    flag, assignment = shlex.split(option)
    assert flag == "--set"
    return parse_assignment(assignment)


def test_the_option_that_is_printed_makes_five_cases(tmp_path: Path):
    sites = load_sites(patients(tmp_path))
    assert sites[0].n_cases_by_part == {"train": 10, "validation": 5, "test": 5}
    (said,) = advice_for(sites)
    key, value = setting(said.option)
    assert key == "data.case_pattern"
    assert "P00_img0 and P00_img1 look like images of one case, P00" in said.found
    mended = load_sites(tmp_path, case_pattern=value)
    assert sorted(set(mended[0].cases)) == [f"P{i:02d}" for i in range(5)]
    assert advice_for(mended) == []
    assert any(said.option in sentence for sentence in summary(inspect_sites(sites)))


def test_masks_with_several_values_ask_for_classes(tmp_path: Path):
    for site in ("north", "south"):
        write_site(tmp_path, site)
        for path in tmp_path.glob(f"{site}/masks/*"):
            mask = np.zeros((32, 32), np.uint8)
            mask[4:12, 4:12], mask[6:8, 6:8] = 128, 255
            Image.fromarray(mask).save(path)
    (said,) = advice_for(load_sites(tmp_path))
    key, value = setting(said.option)
    assert (key, value) == ("data.classes", {"value_128": [128], "value_255": [255]})
    mended = load_sites(tmp_path, classes=value)
    assert mended[0].masks.shape[1] == 2
    assert advice_for(mended) == []


def test_a_mask_in_shades_asks_for_nothing(tmp_path: Path):
    for site in ("north", "south"):
        write_site(tmp_path, site)
        for path in tmp_path.glob(f"{site}/masks/*"):
            Image.fromarray(np.arange(1024).reshape(32, 32).astype(np.uint8)).save(path)
    assert advice_for(load_sites(tmp_path)) == []


def test_built_in_federations_need_no_advice():
    assert advice_for(load_sites("fundus6", scale="tiny")) == []


def test_doctor_and_inspect_print_the_option(tmp_path: Path, fedce):
    data = patients(tmp_path / "data")
    option = "--set data.case_pattern='([^0-9]*[0-9]+)[ _.-].*'"
    assert option in fedce("doctor", "--data", data, "--json").stdout
    inspected = fedce("data", "inspect", data, "--out", tmp_path / "page.html")
    assert option in " ".join(inspected.output.split())
