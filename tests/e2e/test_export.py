"""'fedce export': files that other programs use, compared with what fedce itself predicts."""

import json
from pathlib import Path

import nibabel
import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

from fedce.base.files import digest_of, read_tensors
from fedce.data.volumes import nifti_bytes
from fedce.questions.loading import Which, load_model
from fedce.record.folder import RunFolder
from support import run_bundle, write_images

SMALL = ("--set", "model.channels=[4,8]", "--set", "train.lr=0.01", "--workers", 1, "--rounds", 8)


@pytest.fixture(scope="module")
def place(tmp_path_factory, fedce) -> Path:
    root = tmp_path_factory.mktemp("export")
    for site in ("north", "south"):
        write_images(root / "data" / site, value=3)
    planned = ("--set", "data.size=48", "--set", "model.res_units=2")
    done = fedce("run", "--data", root / "data", "--out", root / "run", *SMALL, *planned)
    assert done.exit_code == 0, done.output
    return root


@pytest.mark.parametrize("resize", ["stretch", "pad"])
def test_monai_runs_a_bundle_of_images_as_fedce_predicts(tmp_path: Path, place: Path, fedce, resize: str):
    run = place / "run"
    if resize == "pad":
        run, options = tmp_path / "run", ("--set", "data.size=48", "--set", "data.resize=pad")
        assert fedce("run", "--data", place / "data", "--out", run, *SMALL, *options).exit_code == 0
    images = tmp_path / "images"
    images.mkdir()
    # Wide, and of an odd size: a bundle that mixes up height and width, or is a pixel off, differs.
    for name in ("0", "1"):
        with Image.open(place / "data/north/images" / f"{name}.png") as image:
            image.resize((57, 40)).save(images / f"{name}.png")
    done = fedce("export", run, "--to", "bundle", "--out", tmp_path / "bundle")
    assert done.exit_code == 0, done.output
    run_bundle(tmp_path / "bundle", images, tmp_path / "theirs")
    assert fedce("predict", run, images, "--out", tmp_path / "ours").exit_code == 0
    for name in ("0.png", "1.png"):
        theirs, ours = (np.asarray(Image.open(tmp_path / which / name)) for which in ("theirs", "ours"))
        assert set(np.unique(ours)) == {0, 3}
        np.testing.assert_array_equal(theirs, ours)


@pytest.mark.parametrize("n_modalities", [1, 2])
def test_monai_runs_a_bundle_of_volumes_as_fedce_predicts(tmp_path: Path, fedce, n_modalities: int):
    import SimpleITK as sitk

    rng = np.random.default_rng(0)
    for site in ("north", "south"):
        for i in range(4):
            mask = np.zeros((5, 30, 40), np.uint8)
            mask[1:4, 8:20, 10 + i : 24] = 2
            mask[2:4, 10:15, 14:20] = 5
            image = (200 * (mask > 0) + 200 * (mask == 5) + rng.normal(0, 30, mask.shape)).astype(np.float32)
            for part, array in (("images", image), ("masks", mask)):
                volume = sitk.GetImageFromArray(array)
                volume.SetSpacing((0.7, 0.8, 3.0))
                volume.SetDirection((-1.0, 0, 0, 0, 1.0, 0, 0, 0, -1.0))
                path = tmp_path / "data" / site / part / f"{i}.nii.gz"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(nifti_bytes(volume))
                if part == "images" and n_modalities == 2:  # Both in one file.
                    one = nibabel.load(path)
                    values = np.asarray(one.dataobj)
                    nibabel.save(nibabel.Nifti1Image(np.stack([values, 900 - values], axis=-1), one.affine), path)
    classes = ("--set", "data.classes={organ=[2,5], lesion=[5]}", "--set", "data.normalize=zscore")
    plane = ("--set", "data.size=32", "--set", "data.plane=coronal")
    done = fedce("run", "--data", tmp_path / "data", "--out", tmp_path / "run", *SMALL, *classes, *plane)
    assert done.exit_code == 0, done.output
    assert fedce("export", tmp_path / "run", "--to", "bundle").exit_code == 0
    images = tmp_path / "data" / "north" / "images"
    run_bundle(tmp_path / "run-bundle", images, tmp_path / "theirs")
    assert fedce("predict", tmp_path / "run", images, "--out", tmp_path / "ours").exit_code == 0
    theirs, ours = (nibabel.load(tmp_path / which / "0.nii.gz") for which in ("theirs", "ours"))
    np.testing.assert_allclose(theirs.affine, ours.affine, atol=1e-6)
    found, expected = np.asarray(theirs.dataobj), np.asarray(ours.dataobj)
    assert set(np.unique(expected)) <= {0, 2, 5}
    # A percentile is rounded differently, so a pixel at a border may differ.
    assert (found != expected).mean() < 0.002


def test_monai_runs_a_bundle_of_modalities_as_fedce_predicts(tmp_path: Path, fedce):
    rng = np.random.default_rng(0)
    for site in ("north", "south"):
        for i in range(4):
            mask = np.zeros((40, 48), np.uint8)
            mask[8:24, 10 + i : 30] = 1
            # 8 bits, 8 bits and 16 bits; three channels that are no colours.
            seen = (rng.integers(0, 200, mask.shape), 90 * mask + rng.integers(0, 60, mask.shape), 9000 * (1.0 + mask))
            for k, (values, kind) in enumerate(zip(seen, (np.uint8, np.uint8, np.uint16), strict=True)):
                path = tmp_path / "data" / site / "images" / f"{i}_000{k}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(values.astype(kind)).save(path)
            path = tmp_path / "data" / site / "masks" / f"{i}.png"
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(mask).save(path)
    done = fedce("run", "--data", tmp_path / "data", "--out", tmp_path / "run", *SMALL, "--set", "data.size=32")
    assert done.exit_code == 0, done.output
    done = fedce("export", tmp_path / "run", "--to", "bundle")
    assert done.exit_code == 0, done.output
    assert (
        "A case is a file for each modality, case_0000 to case_0002"
        in (tmp_path / "run-bundle/docs/README.md").read_text()
    )
    images = tmp_path / "data" / "north" / "images"
    run_bundle(tmp_path / "run-bundle", images, tmp_path / "theirs")
    assert fedce("predict", tmp_path / "run", images, "--out", tmp_path / "ours").exit_code == 0
    for i in range(4):
        theirs, ours = (np.asarray(Image.open(tmp_path / which / f"{i}.png")) for which in ("theirs", "ours"))
        assert ours.any()
        np.testing.assert_array_equal(theirs, ours)
    refused = fedce("predict", tmp_path / "run", images / "0_0000.png", "--out", tmp_path / "one")
    assert refused.exit_code == 2
    assert "takes 3 modalities, and 1 of them" in " ".join(refused.output.split())


def test_onnxruntime_gives_the_logits_of_torch(tmp_path: Path, place: Path, fedce):
    done = fedce("export", place / "run", "--to", "onnx", "--out", tmp_path / "model.onnx")
    assert done.exit_code == 0, done.output
    assert "in onnxruntime no logit differs by more than" in done.stderr
    loaded = load_model(RunFolder.open(place / "run"), Which(device="cpu"))
    images = torch.rand(3, *loaded.shape)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"image": images.numpy()})
    with torch.inference_mode():
        expected = loaded.learner.network.eval()(images).numpy()
    assert np.abs(found - expected).max() < 1e-4
    text = (tmp_path / "model.onnx.md").read_text()
    assert "Normalise: divide by 255." in text
    assert "its last level is the transposed convolution alone" in text


def test_one_file_of_weights_says_everything(tmp_path: Path, place: Path, fedce):
    done = fedce("export", place / "run", "--to", "weights", "--best", "--out", tmp_path / "w.safetensors")
    assert done.exit_code == 0, done.output
    tensors, about = read_tensors(tmp_path / "w.safetensors")
    best, _ = read_tensors(place / "run" / "best.safetensors")
    assert all(np.array_equal(tensors[name], value) for name, value in best.items())
    assert about["network"]["name"] == "unet"
    assert about["network"]["channels"] == [4, 8]
    assert about["shape"] == [1, 48, 48]
    assert about["written"] == {"foreground": [3]}
    assert about["input"]["resize"] == "stretch"
    assert about["model"] == "best"
    assert about["trained_by"]["file_sha256"] == digest_of(place / "run" / "best.safetensors")
    assert "Mask values: foreground = 3." in about["preprocessing"]
    assert any(question == "What it is not for" for question, _ in about["card"])


def test_an_export_overwrites_nothing_unless_asked(tmp_path: Path, place: Path, fedce):
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "mine.txt").write_text("mine")
    for form, out in (("bundle", tmp_path / "bundle"), ("weights", tmp_path / "w.safetensors")):
        if form == "weights":
            out.write_text("mine")
        refused = fedce("export", place / "run", "--to", form, "--out", out)
        assert refused.exit_code == 2
        assert "would be overwritten; add --replace" in refused.stderr
        assert fedce("export", place / "run", "--to", form, "--out", out, "--replace").exit_code == 0
    assert (tmp_path / "bundle" / "mine.txt").read_text() == "mine"
    config = json.loads((tmp_path / "bundle/configs/inference.json").read_text())
    assert "fedce" not in json.dumps(config)
    wrong = fedce("export", place / "run", "--to", "weights", "--input", "volumes")
    assert "--input is for --to bundle" in wrong.stderr
