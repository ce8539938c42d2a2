"""New cases with several modalities: which files belong together, in which order."""

from pathlib import Path

import pytest

from fedce.base.errors import DataError
from fedce.base.tables import DataConfig
from fedce.data.formats import Formats
from fedce.data.newcases import by_case

OUT = Path("out")


def cases(names: list[str], n_channels: int, **keys) -> dict[str, list[str]]:
    formats = Formats()
    stems = [(formats.file(Path(name)), OUT / formats.stem(Path(name))) for name in names]
    found = by_case(stems, DataConfig(source="x", **keys), n_channels)
    return {stem.name: [one.path.as_posix() for one in file.files] for file, stem in found}


def test_files_of_one_channel_are_cases():
    assert cases(["a_0000.png", "b.png"], 1) == {"a_0000": ["a_0000.png"], "b": ["b.png"]}
    assert cases(["a.png", "b.png"], 3) == {"a": ["a.png"], "b": ["b.png"]}, "three channels are colours"


def test_modalities_by_suffix_in_their_order():
    names = ["a_0001.nii.gz", "b_0000.nii.gz", "a_0000.nii.gz", "b_0001.nii.gz"]
    assert cases(names, 2) == {"a": ["a_0000.nii.gz", "a_0001.nii.gz"], "b": ["b_0000.nii.gz", "b_0001.nii.gz"]}


def test_modalities_by_the_experiments_patterns_in_the_stated_order():
    keys = {"images": {"t2": "scan/*_t2.nii.gz", "adc": "scan/*_adc.nii.gz"}, "masks": "roi/*.nii.gz"}
    assert cases(["new/P1_adc.nii.gz", "new/P1_t2.nii.gz"], 2, **keys) == {
        "P1": ["new/P1_t2.nii.gz", "new/P1_adc.nii.gz"]
    }


def test_modalities_by_a_patients_folder():
    names = ["P1/t1.nii.gz", "P1/flair.nii.gz", "P2/flair.nii.gz", "P2/t1.nii.gz"]
    assert cases(names, 2) == {"P1": ["P1/flair.nii.gz", "P1/t1.nii.gz"], "P2": ["P2/flair.nii.gz", "P2/t1.nii.gz"]}


def test_a_missing_modality_is_one_line():
    with pytest.raises(DataError, match=r"b_0000.nii.gz: the network takes 2 modalities, and 1 of them was given"):
        cases(["a_0000.nii.gz", "a_0001.nii.gz", "b_0000.nii.gz"], 2)
