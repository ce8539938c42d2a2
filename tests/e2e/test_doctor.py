"""fedce doctor: what would go wrong is told before round 1, with what to do."""

import json
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from support import write_site


def findings(result) -> dict[str, list[dict]]:
    by_what: dict[str, list[dict]] = {}
    for finding in json.loads(result.stdout)["findings"]:
        by_what.setdefault(finding["what"], []).append(finding)
    return by_what


def federation(root: Path) -> Path:
    for site in ("north", "south"):
        write_site(root / "data", site, n=24)
    return root / "data"


def test_a_sound_federation_is_ready(tmp_path: Path, fedce):
    result = fedce("doctor", "--data", federation(tmp_path), "--out", tmp_path / "run", "--json")
    assert result.exit_code == 0, result.output
    found = findings(result)
    assert {finding["verdict"] for each in found.values() for finding in each} == {"ok"}
    expected = {
        "versions",
        "engine",
        "run folder",
        "algorithm",
        "layout",
        "data",
        "labels",
        "splits",
        "network",
        "disk",
        "near-duplicates",
    }
    assert expected | {"memory", "time"} == set(found)
    assert "2 sites, 48 images of 48 cases, 32x32 pixels, colour" in found["data"][0]["found"]
    assert not (tmp_path / "run").exists(), "looking changes nothing"


def test_it_reads_like_sentences(tmp_path: Path, fedce):
    result = fedce("doctor", "--data", federation(tmp_path))
    assert "ok      labels: foreground marked at every site" in result.stdout
    assert result.stdout.rstrip().endswith("ready to run")


def test_every_data_problem_is_told(tmp_path: Path, fedce):
    data = federation(tmp_path)
    (data / "north/masks/3.png").unlink()
    (data / "south/images/5.png").write_text("broken")
    result = fedce("doctor", "--data", data, "--json")
    assert result.exit_code == 2
    lines = [finding["found"] for finding in findings(result)["data"]]
    assert len(lines) == 2
    assert "image '3.png' has no mask" in lines[0]
    assert "south/images/5.png" in lines[1]


def test_doubtful_labels_and_small_splits_are_warnings(tmp_path: Path, fedce):
    data = federation(tmp_path)
    write_site(data, "small", n=5)
    for i in range(3):
        Image.fromarray(np.zeros((32, 32), np.uint8)).save(data / f"north/masks/{i}.png")
    for path in (data / "south/masks").iterdir():
        Image.fromarray(np.full((32, 32), 255, np.uint8)).save(path)
    found = findings(fedce("doctor", "--data", data, "--json"))
    labels = [finding["found"] for finding in found["labels"]]
    assert labels == [
        "site 'north': 3 of 24 masks have no foreground",
        "site 'south': foreground covers 100 % or more in half of the images",
    ]
    assert {finding["verdict"] for finding in found["labels"] + found["splits"]} == {"warning"}
    assert found["splits"][0]["found"] == "site 'small' has 3 train cases"


def test_a_site_of_two_cases_may_validate_on_its_training_case(tmp_path: Path, fedce):
    data = federation(tmp_path)
    write_site(data, "small", n=2)
    refused = fedce("doctor", "--data", data, "--json")
    assert refused.exit_code == 2
    assert "[0.5, 0, 0.5] validates on the training case" in refused.output
    found = findings(fedce("doctor", "--data", data, "--set", "data.split=[0.5,0,0.5]", "--json"))
    assert "site 'small' has 0 validation cases of its own, so its training cases validate too" in [
        finding["found"] for finding in found["splits"]
    ]


def test_near_duplicates_in_two_splits_are_told(tmp_path: Path, fedce):
    data = federation(tmp_path)
    for i in range(1, 24):
        shutil.copy(data / "north/images/0.png", data / f"north/images/{i}.png")
    found = findings(fedce("doctor", "--data", data, "--json"))["near-duplicates"][0]
    assert found["verdict"] == "warning"
    assert "north/" in found["found"]
    assert "data.groups" in found["advice"]


def test_a_class_that_nobody_marked_is_a_problem(tmp_path: Path, fedce):
    result = fedce("doctor", "--data", federation(tmp_path), "--set", "data.classes={a=[255], b=[7]}", "--json")
    assert result.exit_code == 2
    assert findings(result)["labels"][0]["found"] == "no image of any site has any b"


def test_a_network_that_does_not_fit(tmp_path: Path, fedce):
    result = fedce("doctor", "--data", federation(tmp_path), "--set", "model.channels=[4]", "--json")
    assert result.exit_code == 2
    assert findings(result)["network"][0]["verdict"] == "problem"
    wrong = fedce("doctor", "--set", "algorithm.power=3", "--json")
    assert wrong.exit_code == 2
    assert "power" in findings(wrong)["algorithm"][0]["found"]
    nowhere = fedce("doctor", "--set", "engine.device=abacus", "--json")
    assert findings(nowhere)["engine"][0]["verdict"] == "problem"


def test_a_last_batch_that_batch_norm_refuses(tmp_path: Path, fedce):
    for site in ("north", "south"):
        write_site(tmp_path / "data", site, n=4)
    small = ("--set", "model.channels=[4,4,4,4,4,4]", "--set", "train.batch_size=1")
    result = fedce("doctor", "--data", tmp_path / "data", *small, "--json")
    assert result.exit_code == 2
    assert "train.batch_size" in findings(result)["training"][0]["advice"]


def test_an_old_run_is_not_overwritten_unnoticed(tiny_run: Path, fedce):
    found = findings(fedce("doctor", "--scale", "tiny", "--out", tiny_run, "--json"))
    assert found["run folder"][0]["found"] == f"{tiny_run} already holds a run"


def test_a_check_of_the_gpu_without_one_is_one_line(fedce, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    result = fedce("doctor", "--gpu")
    assert result.exit_code == 2
    assert "torch sees no CUDA device" in result.output
    assert "Traceback" not in result.output
