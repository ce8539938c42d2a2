"""New cases with several modalities: which files belong together, in which order."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fedce.base.errors import DataError
from fedce.base.tables import DataConfig
from fedce.data.formats import Formats
from fedce.data.newcases import by_case
from fedce.data.site import SiteData
from fedce.data.splits import stated
from fedce.questions.evaluate import _fitted

OUT = Path("out")


def cases(names: list[str], n_channels: int, **keys) -> dict[str, list[str]]:
    formats = Formats()
    stems = [(formats.file(Path(name)), OUT / formats.stem(Path(name))) for name in names]
    found = by_case(stems, DataConfig(source="x", **keys), n_channels)
    return {stem.name: [one.path.as_posix() for one in file.files] for file, stem in found}


def test_files_of_one_channel_are_cases():
    assert cases(["a_0000.png", "b.png"], 1) == {"a_0000": ["a_0000.png"], "b": ["b.png"]}


def test_modalities_by_suffix_in_their_order():
    names = ["a_0001.nii.gz", "b_0000.nii.gz", "a_0000.nii.gz", "b_0001.nii.gz"]
    assert cases(names, 2) == {"a": ["a_0000.nii.gz", "a_0001.nii.gz"], "b": ["b_0000.nii.gz", "b_0001.nii.gz"]}


def test_modalities_by_the_experiments_patterns_in_the_stated_order():
    keys = {"images": {"t2": "scan/*_t2.nii.gz", "adc": "scan/*_adc.nii.gz"}, "masks": "roi/*.nii.gz"}
    assert cases(["new/P1_adc.nii.gz", "new/P1_t2.nii.gz"], 2, **keys) == {
        "P1": ["new/P1_t2.nii.gz", "new/P1_adc.nii.gz"]
    }


@pytest.mark.parametrize("stated", [("t2", "adc"), ("adc", "t2")])
def test_modalities_with_one_name_in_every_folder_are_in_the_stated_order(stated):
    keys = {"images": {name: f"*/{name}.nii.gz" for name in stated}, "masks": "*/mask.nii.gz"}
    given = ["new/P1/adc.nii.gz", "new/P1/t2.nii.gz", "new/P2/adc.nii.gz", "new/P2/t2.nii.gz"]
    assert cases(given, 2, **keys) == {p: [f"new/{p}/{name}.nii.gz" for name in stated] for p in ("P1", "P2")}


def test_three_grey_pictures_are_one_case_of_three_modalities():
    assert cases(["a_0000.png", "a_0001.png", "a_0002.png"], 3) == {"a": ["a_0000.png", "a_0001.png", "a_0002.png"]}
    keys = {"images": {name: f"images/*_{name}" for name in "zyx"}, "masks": "masks/*"}
    assert cases(["a_x.png", "a_y.png", "a_z.png"], 3, **keys) == {"a": ["a_z.png", "a_y.png", "a_x.png"]}


def test_modalities_by_a_patients_folder():
    names = ["P1/t1.nii.gz", "P1/flair.nii.gz", "P2/flair.nii.gz", "P2/t1.nii.gz"]
    assert cases(names, 2) == {"P1": ["P1/flair.nii.gz", "P1/t1.nii.gz"], "P2": ["P2/flair.nii.gz", "P2/t1.nii.gz"]}


def test_a_missing_modality_is_one_line():
    with pytest.raises(
        DataError, match=r"b_0000.nii.gz: the network takes 2 modalities, and 1 of them \(0000\) was given"
    ):
        cases(["a_0000.nii.gz", "a_0001.nii.gz", "b_0000.nii.gz"], 2)


def test_other_modalities_than_in_training_are_one_line():
    with pytest.raises(DataError, match=r"b_0000.nii.gz: .* 2 of them \(0000, 0002\) were given for this case"):
        cases(["a_0000.nii.gz", "a_0001.nii.gz", "b_0000.nii.gz", "b_0002.nii.gz"], 2)
    keys = {"images": {"t2": "*_t2", "adc": "*_adc"}, "masks": "masks/*"}
    with pytest.raises(DataError, match=r"named as in training \(such as \*_t2 and \*_adc\)"):
        cases(["P1_0000.nii.gz", "P1_0001.nii.gz"], 2, **keys)
    with pytest.raises(DataError, match="are one modality of one case; leave out one"):
        cases(["P1_t2.nii.gz", "P1_t2.nii", "P1_adc.nii"], 2, **keys)


def test_an_evaluation_refuses_other_modalities():
    """Grey and colour become each other; a modality does not become another one."""
    pixels, masks = np.zeros((1, 1, 32, 32), np.uint8), np.zeros((1, 1, 32, 32), np.uint8)
    data = SiteData("east", pixels, masks, ("a",), ("a",), stated(["test"]))
    colour = SimpleNamespace(shape=(3, 32, 32), modalities=False)
    assert _fitted(data, colour, Path("east")).images.shape == (1, 3, 32, 32)
    with pytest.raises(DataError, match="have 1 modalities or channels, the model takes 2"):
        _fitted(data, SimpleNamespace(shape=(2, 32, 32), modalities=True), Path("east"))
