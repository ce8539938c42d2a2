"""Writes two folders to try fedce on, as hospitals would have them: PNG photographs, and volumes in nnU-Net's layout.

    python examples/write_folders.py DIR

DIR/photographs and DIR/volumes then hold four hospitals each. A program draws the images; they show no patients.
"""

import json
import sys
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from PIL import Image

from fedce.data.synthetic import draw_volume, generate

PHOTOGRAPHS = {"north": ("site1", 30), "south": ("site2", 50), "east": ("site3", 30), "west": ("site4", 50)}
VOLUMES = {"north": ("site1", 12), "south": ("site2", 12), "east": ("site3", 12), "west": ("site4", 12)}
"""Each hospital's scanner or camera, and its number of cases."""


def write_photographs(root: Path, size: int = 96) -> None:
    """HOSPITAL/images/*.png and HOSPITAL/masks/*.png, with the optic disc marked."""
    for hospital, (camera, n) in PHOTOGRAPHS.items():
        images, masks = generate("fundus6", camera, n, size, seed=0)
        for part in ("images", "masks"):
            (root / hospital / part).mkdir(parents=True)
        for i, (image, mask) in enumerate(zip(images, masks, strict=True)):
            Image.fromarray(np.moveaxis(image, 0, -1)).save(root / hospital / "images" / f"{i:03}.png")
            disc = (mask[0] > 0).astype(np.uint8)
            Image.fromarray(255 * disc).save(root / hospital / "masks" / f"{i:03}.png")


def write_volumes(root: Path) -> None:
    """HOSPITAL/imagesTr/*_0000.nii.gz, HOSPITAL/labelsTr/*.nii.gz and HOSPITAL/dataset.json."""
    about = {
        "channel_names": {"0": "T2"},
        "labels": {"background": 0, "organ": 1, "lesion": 2},
        "file_ending": ".nii.gz",
    }
    for hospital, (scanner, n) in VOLUMES.items():
        for part in ("imagesTr", "labelsTr"):
            (root / hospital / part).mkdir(parents=True)
        (root / hospital / "dataset.json").write_text(json.dumps({**about, "numTraining": n}), "utf-8")
        for i in range(n):
            drawn = draw_volume("volume6", scanner, i, seed=0)
            for values, file in ((drawn.values, f"imagesTr/case{i:02}_0000"), (drawn.labels, f"labelsTr/case{i:02}")):
                volume = sitk.GetImageFromArray(values)
                volume.SetSpacing(tuple(reversed(drawn.spacing)))
                sitk.WriteImage(volume, str(root / hospital / f"{file}.nii.gz"))


if __name__ == "__main__":
    root = Path(sys.argv[1])
    write_photographs(root / "photographs")
    write_volumes(root / "volumes")
    print(f"written to {root}: photographs, volumes")
