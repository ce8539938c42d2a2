"""'fedce evaluate': a run's model on labelled folders, also of hospitals that took no part."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedce.base.files import read_sealed
from fedce.core.scoring import dice_interval
from fedce.record.folder import RunFolder
from fedce.site.hospital import round_seed
from support import write_images, write_site

SMALL = ("--set", "model.channels=[4,8]", "--set", "train.lr=0.01", "--workers", 1)


@pytest.fixture(scope="module")
def place(tmp_path_factory, fedce) -> Path:
    """Two sites and their run, and a hospital with nine cases and one with three that took no part."""
    root = tmp_path_factory.mktemp("evaluate")
    for site in ("data/north", "data/south", "new/east"):
        write_images(root / site, value=1, n=9)
    write_images(root / "new/west", value=1, n=3)
    done = fedce("run", "--data", root / "data", "--rounds", 8, "--out", root / "run", *SMALL)
    assert done.exit_code == 0, done.output
    return root


def test_hospitals_that_took_no_part(tmp_path: Path, place: Path, fedce):
    done = fedce("evaluate", place / "run", place / "new", "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    east, west = (found["sites"][site] for site in ("east", "west"))
    rows = list(csv.DictReader((tmp_path / "out" / "cases.csv").read_text().splitlines()))
    assert [row["case"] for row in rows if row["site"] == "west"] == ["0", "1", "2"]
    dice = np.array([float(row["dice"]) for row in rows if row["site"] == "east"])
    assert east["metrics"]["dice"]["mean"] == pytest.approx(dice.mean())
    # The interval is the bootstrap over the cases that the table lists.
    assert east["metrics"]["dice"]["interval"] == pytest.approx(dice_interval(dice, round_seed(0, "east", 0)))
    assert west["metrics"]["dice"]["interval"] is None
    assert west["no_interval"] == "west has 3 labelled cases; an interval needs at least 5"
    assert east["metrics"].keys() == {"dice", "hd95", "surface_dice", "volume_difference"}
    assert east["metrics"]["hd95"]["unit"] == "px"
    assert not found["trained_on"]
    assert read_sealed(tmp_path / "out" / "evaluation.json")["sites"] == found["sites"]
    page = (tmp_path / "out" / "evaluation.html").read_text()
    assert "west has 3 labelled cases" in page
    assert page.count("<img ") == 6


def test_the_test_images_of_a_run_have_the_dice_that_it_reports(tmp_path: Path, place: Path, fedce):
    splits = json.loads((place / "run" / "splits.json").read_text())["north"]["test"]
    for part in ("images", "masks"):
        (tmp_path / "north" / part).mkdir(parents=True)
        for name in splits:
            shutil.copy(place / "data" / "north" / part / f"{name}.png", tmp_path / "north" / part)
    done = fedce(
        "evaluate", place / "run", tmp_path / "north", "--out", tmp_path / "out", "--metrics", "dice", "--json"
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["sites"]["north"]["metrics"]["dice"]["mean"]
    assert found == pytest.approx(RunFolder.open(place / "run").results["dice"]["north"], abs=1e-6)


def test_a_hospital_that_labels_only_some_classes(tmp_path: Path, fedce):
    for site in ("data/north", "data/south", "east"):
        write_images(tmp_path / site, value=1, n=5)
    for path in (tmp_path / "data").glob("*/masks/*.png"):
        mask = np.array(Image.open(path))
        mask[:5, :5] = 2
        Image.fromarray(mask).save(path)
    classes = ("--set", "data.classes={disc=[1], corner=[2]}")
    assert (
        fedce("run", "--data", tmp_path / "data", "--rounds", 1, "--out", tmp_path / "run", *SMALL, *classes).exit_code
        == 0
    )
    (tmp_path / "east" / "dataset.json").write_text(json.dumps({"labels": {"background": 0, "disc": 1}}))
    done = fedce("evaluate", tmp_path / "run", tmp_path / "east", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "east labels only disc; its means leave the other classes out" in " ".join(done.output.split())
    metrics = json.loads((tmp_path / "out" / "evaluation.json").read_text())["sites"]["east"]["metrics"]
    assert list(metrics["dice"]["by_class"]) == ["disc"]
    assert metrics["dice"]["mean"] == metrics["dice"]["by_class"]["disc"]["mean"]


def test_own_training_data_are_named_as_such(tmp_path: Path, place: Path, fedce):
    done = fedce("evaluate", place / "run", place / "data" / "north", "--out", tmp_path / "out", "--no-examples")
    assert done.exit_code == 0, done.output
    assert "it trained on some of the cases, so the scores are too good" in done.stderr
    page = (tmp_path / "out" / "evaluation.html").read_text()
    assert "<img " not in page


def test_adapting_gives_other_scores_without_masks(tmp_path: Path, place: Path, fedce):
    for image in (place / "new" / "east" / "images").iterdir():
        target = tmp_path / "dark" / "images" / image.name
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((255 - np.asarray(Image.open(image)) // 2).astype(np.uint8)).save(target)
    shutil.copytree(place / "new" / "east" / "masks", tmp_path / "dark" / "masks")
    scores = []
    for options in ((), ("--adapt",)):
        out = tmp_path / f"out{len(options)}"
        done = fedce("evaluate", place / "run", tmp_path / "dark", "--out", out, "--json", *options)
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert found["adapted"] == bool(options)
        scores.append(found["sites"]["dark"]["metrics"]["dice"]["mean"])
    assert scores[0] != scores[1]


def test_nothing_is_overwritten_unless_asked(tmp_path: Path, place: Path, fedce):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cases.csv").write_text("mine")
    arguments = ("evaluate", place / "run", place / "new" / "west", "--out", tmp_path / "out")
    refused = fedce(*arguments)
    assert refused.exit_code == 2
    assert "cases.csv would be overwritten; add --replace" in refused.stderr
    assert (tmp_path / "out" / "cases.csv").read_text() == "mine"
    assert fedce(*arguments, "--replace").exit_code == 0
    assert (tmp_path / "out" / "cases.csv").read_text().startswith("site,case,class,dice")


def test_images_of_any_size_are_resized_to_that_of_the_model(tmp_path: Path, fedce):
    """Also where the model's images are not square, and a folder's images have several sizes."""
    for site in ("north", "south"):
        write_site(tmp_path / "data", site, n=9, size=(48, 32))
    out = ("--rounds", 1, "--out", tmp_path / "run", *SMALL)
    assert fedce("run", "--data", tmp_path / "data", *out).exit_code == 0
    folder = write_site(tmp_path, "west", n=6, size=(48, 32))
    same = fedce("evaluate", tmp_path / "run", folder, "--out", tmp_path / "same", "--json")
    for file in [folder / part / f"{i}.png" for part in ("images", "masks") for i in (1, 4)]:
        twice = np.asarray(Image.open(file)).repeat(2, axis=0).repeat(2, axis=1)
        Image.fromarray(twice).save(file)
    several = fedce("evaluate", tmp_path / "run", folder, "--out", tmp_path / "several", "--json")
    assert several.exit_code == 0, several.output
    found = [json.loads(done.stdout)["sites"]["west"] for done in (same, several)]
    assert [one["n_cases"] for one in found] == [6, 6]
    dice = [one["metrics"]["dice"]["mean"] for one in found]
    assert dice[1] == pytest.approx(dice[0], abs=0.05)


def test_bad_folders_are_one_line(tmp_path: Path, place: Path, fedce):
    (tmp_path / "half" / "images").mkdir(parents=True)
    shutil.copy(place / "new" / "west" / "images" / "0.png", tmp_path / "half" / "images")
    for folder, words in (
        (tmp_path / "none", "no such folder"),
        (tmp_path / "half", "image '0.png' has no mask of the same name"),
    ):
        refused = fedce("evaluate", place / "run", folder, "--out", tmp_path / "out")
        assert refused.exit_code == 2
        assert words in refused.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()
    refused = fedce("evaluate", place / "run", place / "new", "--out", tmp_path / "out", "--metrics", "dise")
    assert "did you mean 'dice'" in refused.stderr
