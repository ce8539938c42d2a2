"""What 'fedce predict' writes: the values of the training masks, folders as they are, and nothing over a file."""

from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image

from fedce.data.pixels import written_values
from fedce.data.volumes import nifti_bytes
from support import write_images


def values_of(path: Path) -> set[int]:
    return set(np.unique(np.asarray(Image.open(path))).tolist())


def trained(fedce, data: Path, out: Path, *options: object) -> Path:
    small = ("--set", "model.channels=[4,8]", "--set", "train.lr=0.01", "--workers", 1)
    result = fedce("run", "--data", data, "--rounds", 12, "--out", out, *small, *options)
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture(scope="module")
def ones(tmp_path_factory, fedce) -> Path:
    """A folder of two sites whose masks hold the value 1, and a run of them."""
    root = tmp_path_factory.mktemp("ones")
    for site in ("north", "south"):
        write_images(root / "data" / site, value=1)
    trained(fedce, root / "data", root / "run")
    return root


def test_one_in_one_out_for_images(tmp_path: Path, ones: Path, fedce):
    image = ones / "data" / "north" / "images" / "0.png"
    assert fedce("predict", ones / "run", image, "--out", tmp_path, "--device", "cpu").exit_code == 0
    assert values_of(tmp_path / "0.png") == {0, 1}


@pytest.mark.parametrize("value", [7, 255])
def test_volumes_get_the_value_of_the_training_masks(tmp_path: Path, value: int, fedce):
    import SimpleITK as sitk

    rng = np.random.default_rng(0)
    for site in ("north", "south"):
        for i in range(4):
            mask = np.zeros((3, 32, 32), np.uint8)
            mask[1:, 8:22, 10:24] = value
            image = (100 * (mask > 0) + rng.integers(0, 20, mask.shape)).astype(np.int16)
            for part, array in (("images", image), ("masks", mask)):
                path = tmp_path / "data" / site / part / f"{i}.nii.gz"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(nifti_bytes(sitk.GetImageFromArray(array)))
    run = trained(fedce, tmp_path / "data", tmp_path / "run")
    image = tmp_path / "data" / "north" / "images" / "0.nii.gz"
    assert fedce("predict", run, image, "--out", tmp_path / "masks").exit_code == 0
    found = np.asarray(nibabel.load(tmp_path / "masks" / "0.nii.gz").dataobj)
    assert set(np.unique(found).tolist()) == {0, value}


def test_several_values_of_a_class_give_the_one_that_most_sites_hold():
    classes = {"disc": [1, 2, 3], "cup": [3, 4]}
    # 1 and 2 both stand for the disc alone; 4 is the cup outside of the disc.
    assert written_values(classes, [[1, 3], [2], [1]]) == {"disc": [1, 3], "cup": [3, 4]}
    assert written_values(classes, []) == {"disc": [2, 3], "cup": [3, 4]}


def test_a_folder_keeps_its_paths(tmp_path: Path, ones: Path, fedce):
    done = fedce("predict", ones / "run", ones / "data", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "north" / "images" / "0.png").exists()
    assert (tmp_path / "south" / "images" / "7-overlay.png").exists()
    assert done.stdout.count("\n") == 32
    (tmp_path / "nothing").mkdir()
    empty = fedce("predict", ones / "run", tmp_path / "nothing", "--out", tmp_path / "out")
    assert empty.exit_code == 2
    assert "there is no image in" in empty.stderr


def test_nothing_is_overwritten_unless_asked(tmp_path: Path, ones: Path, fedce):
    image = ones / "data" / "north" / "images" / "0.png"
    (tmp_path / "0.png").write_text("mine")
    refused = fedce("predict", ones / "run", image, "--out", tmp_path)
    assert refused.exit_code == 2
    assert refused.stderr.strip().count("\n") == 0
    assert "0.png would be overwritten; add --replace" in refused.stderr
    assert (tmp_path / "0.png").read_text() == "mine"
    assert fedce("predict", ones / "run", image, "--out", tmp_path, "--replace").exit_code == 0
    assert values_of(tmp_path / "0.png") == {0, 1}


def test_a_device_that_is_not_there_is_one_line(tmp_path: Path, ones: Path, fedce):
    image = ones / "data" / "north" / "images" / "0.png"
    refused = fedce("predict", ones / "run", image, "--out", tmp_path, "--device", "gpu7")
    assert refused.exit_code == 2
    assert "--device 'gpu7' can't be used here" in refused.stderr
