"""volume6 from the command line: a run in 3-D, and every question that is asked of a run."""

import json
from pathlib import Path

import nibabel
import numpy as np
import pytest

from fedce.data import synthetic
from fedce.record.folder import RunFolder

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
    assert "resampled to 1.5 x 1.5 x 3 mm, in windows of 48x48x24 voxels" in words


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
    assert "50 volumes of 50 cases, 48x48x24 voxels at a time" in " ".join(checked.output.split())
    shown = fedce("data", "inspect", "volume6", "--set", "data.scale=tiny", "--out", tmp_path / "page.html", "--json")
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["sites"][5]["images"] == 8 * 24
    assert "slices of volumes, resampled to 3 x 1.5 x 1.5 mm" in (tmp_path / "page.html").read_text()


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
