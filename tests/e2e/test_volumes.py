"""volume6 from the command line: a run in 3-D, and every question that is asked of a run."""

import json
import re
from pathlib import Path

import nibabel
import numpy as np
import pytest

from fedce.data import synthetic
from fedce.record.folder import RunFolder
from support import run_bundle

SMALL = ("--data", "volume6", "--scale", "tiny", "--set", "model.channels=[4,8]", "--set", "train.lr=0.01")


@pytest.fixture(scope="module")
def run_3d(tmp_path_factory, fedce) -> Path:
    out = tmp_path_factory.mktemp("volumes") / "run"
    options = ("--rounds", 4, "--alone", "--set", "model.norm=site", "--set", "data.normalize=zscore")
    done = fedce("run", *SMALL, *options, "--set", 'metrics=["dice","hd95"]', "--workers", 1, "--out", out)
    assert done.exit_code == 0, done.output
    return out


def test_a_run_on_volumes_counts_volumes_and_measures_errors(run_3d: Path):
    run = RunFolder(run_3d)
    assert run.results["train_images"] == {"site1": 4, "site2": 4, "site3": 6, "site4": 4, "site5": 4, "site6": 4}
    assert all(facts["err"] is not None for facts in run.rounds()[-1].facts.values())  # Eq. 4 from the second round on.
    assert run.results["gain"].keys() == run.results["dice"].keys()
    assert (run_3d / "examples.png").stat().st_size > 10_000
    words = " ".join((run_3d / "report.html").read_text().split())
    assert "resampled to 3 x 1.5 x 1.5 mm between slices, rows and columns, in windows of 24x48x48 voxels" in words
    assert "26 training volumes of 6 sites" in words
    assert "Dice on 12 test volumes that took no part in training" in words
    assert (
        ">Volumes</th>" in words.replace(' scope="col" class="number"', "").replace(" >", ">") or ">Volumes<" in words
    )


def test_its_ledger_is_sound_and_a_site_can_audit_it(run_3d: Path, fedce):
    assert fedce("ledger", "verify", run_3d).exit_code == 0
    audited = fedce("ledger", "audit", run_3d, "--site", "site6", "--data", "volume6")
    assert audited.exit_code == 0, audited.output
    assert "what site6 said is sound" in audited.output


def test_a_new_volume_is_segmented_on_its_own_grid(run_3d: Path, tmp_path: Path, fedce):
    drawn = synthetic.draw_volume("volume6", "site6", 99, seed=5)
    affine = np.diag([*drawn.spacing[::-1], 1.0])
    nibabel.save(nibabel.Nifti1Image(drawn.values.T, affine), tmp_path / "new.nii.gz")
    found = fedce("predict", run_3d, tmp_path / "new.nii.gz", "--site", "site6", "--out", tmp_path / "masks")
    assert found.exit_code == 0, found.output
    mask = nibabel.load(tmp_path / "masks" / "new.nii.gz")
    assert mask.shape == drawn.values.T.shape
    assert np.allclose(mask.affine, affine)
    assert set(np.unique(np.asarray(mask.dataobj))) <= {0, 1, 2}


def test_a_labelled_folder_is_evaluated_as_volumes(run_3d: Path, tmp_path: Path, fedce):
    for i in range(2):
        drawn = synthetic.draw_volume("volume6", "site5", 90 + i, seed=5)
        write(tmp_path / "new" / "images" / f"{i}.nii.gz", drawn.values, drawn.spacing)
        write(tmp_path / "new" / "masks" / f"{i}.nii.gz", drawn.labels, drawn.spacing)
    done = fedce("evaluate", run_3d, tmp_path / "new", "--adapt", "--out", tmp_path / "evaluation")
    assert done.exit_code == 0, done.output
    site = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())["sites"]["new"]
    assert (site["n_images"], site["n_cases"]) == (2, 2)
    assert site["metrics"]["hd95"]["unit"] == "mm"
    assert list(site["metrics"]["dice"]["by_class"]) == ["organ", "lesion"]


def write(path: Path, values, spacing) -> None:
    """A volume (slices, rows, columns) as NIfTI."""
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(values.T, np.diag([*spacing[::-1], 1.0])), path)


def test_its_network_is_exported_with_the_steps_for_volumes(run_3d: Path, tmp_path: Path, fedce):
    done = fedce("export", run_3d, "--to", "onnx", "--site", "site6", "--out", tmp_path / "model.onnx")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "model.onnx.md").read_text()
    assert "input 1 x 24 x 48 x 48 (channels x slices x rows x columns)" in text
    assert "Resample to 3 x 1.5 x 1.5 mm" in text
    done = fedce("export", run_3d, "--to", "bundle", "--input", "images", "--site", "site6")
    assert done.exit_code == 2
    assert "the model was trained on volumes (data.dims = 3); leave out --input images" in " ".join(done.output.split())


def test_monai_runs_a_bundle_of_a_network_in_3d_as_fedce_predicts(run_3d: Path, tmp_path: Path, fedce):
    # One scanner's volumes are larger than a window, the other's have fewer slices and other voxels.
    for i, site in enumerate(("site4", "site6")):
        drawn = synthetic.draw_volume("volume6", site, 90 + i, seed=5)
        affine = np.array([[0, -1, 0, 5], [1, 0, 0, -7], [0, 0, -1, 9], [0, 0, 0, 1]], float)
        affine[:3, :3] *= drawn.spacing[::-1]
        path = tmp_path / "images" / f"{site}.nii.gz"
        path.parent.mkdir(exist_ok=True)
        nibabel.save(nibabel.Nifti1Image(10 * drawn.values.T.astype(np.int16), affine), path)
    assert fedce("export", run_3d, "--to", "bundle", "--site", "site6", "--out", tmp_path / "bundle").exit_code == 0
    compare_with_bundle(run_3d, tmp_path / "bundle", tmp_path / "images", fedce, "--site", "site6")


def compare_with_bundle(run: Path, bundle: Path, images: Path, fedce, *options: str) -> None:
    """Every mask that MONAI writes has the place of ours, and nearly all of its values."""
    run_bundle(bundle, images, bundle / "theirs")
    done = fedce("predict", run, images, "--out", bundle / "ours", *options)
    assert done.exit_code == 0, done.output
    names = sorted(path.name for path in (bundle / "ours").glob("*.nii.gz"))
    assert names == sorted(path.name for path in (bundle / "theirs").glob("*.nii.gz"))
    for name in names:
        theirs, ours = (nibabel.load(bundle / which / name) for which in ("theirs", "ours"))
        np.testing.assert_allclose(theirs.affine, ours.affine, atol=1e-5)
        found, expected = np.asarray(theirs.dataobj), np.asarray(ours.dataobj)
        assert expected.any()
        assert expected.min() == 0
        # A percentile is rounded differently, so a voxel at a border may differ.
        assert (found != expected).mean() < 0.002


def two_modalities(root: Path) -> Path:
    """Two nnU-Net data sets; the lesion is visible in the second modality alone."""
    rng = np.random.default_rng(0)
    for name, depth in (("Dataset001_North", 12), ("Dataset002_South", 14)):
        for i in range(4):
            labels = np.zeros((depth, 20, 22), np.uint8)
            labels[3:9, 5:15, 6:16], labels[4:7, 8:12, 9:13] = 1, 2
            seen = (rng.normal(100, 10, labels.shape) + 100 * (labels > 0), 500 + 600.0 * (labels == 2))
            for k, values in enumerate(seen):
                write(root / name / "imagesTr" / f"p{i}_000{k}.nii.gz", values.astype(np.float32), (3.0, 1.0, 1.0))
            write(root / name / "labelsTr" / f"p{i}.nii.gz", labels, (3.0, 1.0, 1.0))
        about = {
            "channel_names": {"0": "T2", "1": "ADC"},
            "labels": {"background": 0, "organ": 1, "lesion": 2},
            "numTraining": 4,
            "file_ending": ".nii.gz",
        }
        (root / name / "dataset.json").write_text(json.dumps(about))
    return root


def test_modalities_partial_labels_and_a_reference_set_work_on_volumes(tmp_path: Path, fedce):
    data = two_modalities(tmp_path / "data")
    options = {
        "data.dims": 3,
        "data.spacing": [3, 1.5, 1],
        "data.patch": [11, 13, 20],  # A size that the network can't take as it is.
        "data.labelled": '{Dataset001_North = ["organ"]}',
        "model.channels": [4, 8],
        "model.norm": "instance",
        "train.lr": 0.03,
        "train.loss": "dice-ce",
        "train.class_weights": [1, 1],
        "worth.reference": data / "Dataset002_South",
    }
    stated = [part for key, value in options.items() for part in ("--set", f"{key}={value}")]
    run = tmp_path / "run"
    done = fedce("run", "--data", data, "--rounds", 30, "--workers", 1, "--out", run, *stated)
    assert done.exit_code == 0, done.output
    by_class = RunFolder(run).results["dice_by_class"]
    assert list(by_class["Dataset001_North"]) == ["organ"]
    assert by_class["Dataset002_South"]["lesion"] > 0.5, "seen in the second modality alone"
    assert fedce("ledger", "verify", run).exit_code == 0
    done = fedce("predict", run, data / "Dataset002_South" / "imagesTr", "--out", tmp_path / "masks")
    assert done.exit_code == 0, done.output
    lesions = []
    for i in range(4):
        masks = (tmp_path / "masks" / f"p{i}.nii.gz", data / "Dataset002_South" / "labelsTr" / f"p{i}.nii.gz")
        mask, truth = (np.asarray(nibabel.load(path).dataobj) == 2 for path in masks)
        lesions.append(2 * (mask & truth).sum() / (mask.sum() + truth.sum()))
    done = fedce("evaluate", run, data / "Dataset002_South", "--metrics", "dice", "--out", tmp_path / "evaluation")
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())["sites"]["Dataset002_South"]
    # Masks are predicted on the grid of the file, and evaluated on the network's.
    assert found["metrics"]["dice"]["by_class"]["lesion"]["mean"] == pytest.approx(np.mean(lesions), abs=0.08)
    done = fedce("export", run, "--to", "onnx", "--out", tmp_path / "model.onnx")
    assert done.exit_code == 0, done.output
    assert "2 modalities, in the order of the training" in (tmp_path / "model.onnx.md").read_text()
    assert fedce("export", run, "--to", "bundle", "--out", tmp_path / "bundle").exit_code == 0
    compare_with_bundle(run, tmp_path / "bundle", data / "Dataset002_South" / "imagesTr", fedce)


def test_a_2d_image_is_refused_by_a_model_of_volumes(run_3d: Path, tmp_path: Path, fedce):
    from PIL import Image

    Image.new("L", (48, 48)).save(tmp_path / "flat.png")
    found = fedce("predict", run_3d, tmp_path / "flat.png", "--site", "site1", "--out", tmp_path / "masks")
    assert found.exit_code == 2
    assert "trained on volumes" in found.output
    assert "Traceback" not in found.output


def test_doctor_and_inspection_know_volumes(tmp_path: Path, fedce):
    checked = fedce("doctor", *SMALL, "--out", tmp_path / "run")
    assert checked.exit_code == 0, checked.output
    assert "50 volumes of 50 cases, 24x48x48 voxels at a time" in " ".join(checked.output.split())
    shown = fedce("data", "inspect", "volume6", "--set", "data.scale=tiny", "--out", tmp_path / "page.html", "--json")
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["sites"][5]["images"] == 8 * 24
    page = (tmp_path / "page.html").read_text()
    assert "slices of volumes, resampled to 3 x 1.5 x 1.5 mm" in page
    assert re.search(r"6 sites with \d+ slices of 50 cases\.", page)
    assert "Number of slices by split" in page


def test_methods_are_compared_on_volumes(tmp_path: Path, fedce):
    found = fedce(
        "compare",
        *SMALL,
        "--rounds",
        2,
        "--algorithms",
        "fedavg,fedce",
        "--seeds",
        "0",
        "--workers",
        1,
        "--store",
        tmp_path / "store",
        "--set",
        "data.sites=['site1','site6']",
        "--out",
        tmp_path / "compared",
        "--json",
    )
    assert found.exit_code == 0, found.output


def test_half_precision_without_a_gpu_is_one_line(tmp_path: Path, fedce):
    found = fedce("run", *SMALL, "--set", "train.amp=fp16", "--set", "engine.device=cpu", "--out", tmp_path / "run")
    assert found.exit_code == 2
    assert "train.amp = 'fp16' needs a CUDA device" in " ".join(found.output.split())
    assert "Traceback" not in found.output
