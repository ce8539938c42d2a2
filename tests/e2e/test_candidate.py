"""What a federation would gain by a hospital that considers joining."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedce.data import load_sites
from fedce.data.sites import load_labelled
from fedce.questions.candidate import Candidacy
from fedce.questions.loading import Which, load_model
from fedce.record.folder import RunFolder
from fedce.site.hospital import Hospital

CLASSES = {"disc": [128, 255], "cup": [255]}
SMALL = ("--scale", "tiny", "--rounds", 3, "--set", "model.channels=[4,8]", "--set", "data.size=32", "--workers", 1)


def hospital(folder: Path, site: str) -> Path:
    """A folder with the drawn images of one site."""
    data = next(one for one in load_sites("fundus6", scale="tiny", size=32) if one.name == site)
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    for i, (image, mask) in enumerate(zip(data.images, data.masks, strict=True)):
        marked = np.where(mask[1], 255, np.where(mask[0], 128, 0)).astype(np.uint8)
        Image.fromarray(image.transpose(1, 2, 0)).save(folder / "images" / f"{i:02d}.png")
        Image.fromarray(marked).save(folder / "masks" / f"{i:02d}.png")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("candidate")
    hospital(folder / "west", "site5")
    hospital(folder / "north", "site1")
    hospital(folder / "data" / "north", "site1")
    hospital(folder / "data" / "east", "site4")
    return folder


def fedce_dice(run: Path, folder: Path) -> float:
    """The Dice of a run's model on a candidate's test images, by other means."""
    loaded = load_model(RunFolder(run), Which())
    data = load_labelled(
        RunFolder(run).config.data.model_copy(update={"source": str(folder), "classes": CLASSES, "sites": ()}),
        folder,
        all_test=False,
    )[0]
    return Hospital(data, loaded.learner, tuple(loaded.classes), 0).test_dice(loaded.learner.params)


@pytest.fixture(scope="module")
def drawn(place: Path, fedce) -> Path:
    sites = 'data.sites=["site1", "site2", "site3", "site4"]'
    made = fedce("run", *SMALL, "--set", sites, "--out", place / "run")
    assert made.exit_code == 0, made.output
    return place / "run"


def test_the_members_gain_is_measured_with_and_without_the_candidate(place: Path, drawn: Path, fedce):
    arguments = (
        "value",
        drawn,
        "--candidate",
        place / "west",
        "--rounds",
        2,
        "--seeds",
        "0,1",
        "--store",
        place / "store",
    )
    found = json.loads(fedce(*arguments, "--json").stdout)
    assert found["candidate"] == "west"
    assert set(found["by_member"]) == {"site1", "site2", "site3", "site4"}
    assert found["gain"] == pytest.approx(sum(found["by_member"].values()) / 4)
    assert found["interval"][0] <= found["gain"] <= found["interval"][1]
    assert found["own_before"] == pytest.approx(fedce_dice(drawn, place / "west"))
    assert len({found["own_before"], found["own_without"], found["own_after"]}) == 3
    before = {path: path.stat().st_mtime_ns for path in (place / "store").rglob("results.json")}
    assert len(before) == 4
    again = fedce(*arguments)
    assert again.exit_code == 0, again.output
    assert "west" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in (place / "store").rglob("results.json")} == before
    assert (drawn / "candidate-west.json").exists()


def test_without_the_runs_images_only_the_model_is_tried(place: Path, tmp_path: Path, fedce):
    classes = "data.classes={disc=[128,255], cup=[255]}"
    run = tmp_path / "run"
    keys = ("--rounds", 1, "--set", "model.channels=[4,8]", "--set", classes, "--workers", 1)
    assert fedce("run", "--data", place / "data", *keys, "--out", run).exit_code == 0
    (place / "data").rename(place / "gone")
    try:
        told = fedce("value", run, "--candidate", place / "west")
        assert told.exit_code == 0, told.output
        assert "can't be told here" in " ".join(told.stdout.split())
        assert "On the test images of west the run's model reaches" in " ".join(told.stdout.split())
        # Its images may have other sizes, also several.
        mixed = hospital(tmp_path / "mixed", "site5")
        for file in (mixed / "images" / "01.png", mixed / "masks" / "01.png"):
            larger = np.asarray(Image.open(file)).repeat(2, axis=0).repeat(2, axis=1)
            Image.fromarray(larger).save(file)
        told = fedce("value", run, "--candidate", mixed)
        assert told.exit_code == 0, told.output
    finally:
        (place / "gone").rename(place / "data")


def test_bad_candidates_are_one_line(place: Path, drawn: Path, fedce):
    for arguments, words in (
        ((place / "none",), "expected a folder of labelled images"),
        ((place / "data",), "holds several sites (east, north); name the folder of one of them"),
        ((place / "west", "--seeds", "0,0"), "--seeds: 0,0 names a seed twice"),
        ((place / "west", "--seeds", "-1"), "--seeds: expected whole numbers from 0"),
    ):
        refused = fedce("value", drawn, "--candidate", *arguments)
        assert refused.exit_code == 2
        assert words in refused.stderr.splitlines()[-1]


def test_without_a_common_model_nothing_is_trained(place: Path, drawn: Path, tmp_path: Path, fedce):
    copy = tmp_path / "run"
    shutil.copytree(drawn, copy)
    (copy / "model.safetensors").unlink()
    refused = fedce("value", copy, "--candidate", place / "west", "--store", tmp_path / "store")
    assert refused.exit_code == 2
    assert "there is no common model to go on from" in refused.stderr.splitlines()[-1]
    assert not (tmp_path / "store").exists()


def test_on_a_reference_set_the_candidate_is_averaged_in(place: Path, tmp_path: Path, fedce):
    """Where the run's images are not, and with an interval over seeds."""
    data, reference, run = tmp_path / "data", tmp_path / "reference", tmp_path / "run"
    shutil.copytree(place / "data", data)
    shutil.copytree(place / "north", reference)
    classes = "data.classes={disc=[128,255], cup=[255]}"
    keys = ("--rounds", 3, "--set", "model.channels=[4,8]", "--set", classes, "--workers", 1)
    trained = fedce("run", "--data", data, *keys, "--set", f'worth.reference="{reference}"', "--out", run)
    assert trained.exit_code == 0, trained.output
    shutil.rmtree(data)
    arguments = ("value", run, "--candidate", place / "west", "--rounds", 1, "--seeds", "0,1")
    found = json.loads(fedce(*arguments, "--json").stdout)
    assert found["on_reference"]
    assert found["interval"][0] <= found["gain"] <= found["interval"][1]
    said = " ".join(fedce(*arguments).stdout.split())
    assert "on the reference set" in said
    assert "averaged into the model and scored on the reference set" in said
    assert "the others would" not in said
    shutil.rmtree(reference)
    told = fedce(*arguments)
    assert told.exit_code == 0, told.output
    assert "neither the run's images nor its reference set are on this machine" in " ".join(told.stdout.split())


def test_no_sentence_says_more_than_the_interval():
    one = Candidacy("west", 10, "", 5, (0, 1), 0.6, gain=0.02, interval=(-0.01, 0.05))
    assert one.sentence.startswith("No gain or loss by west that these trainings can show: +2.0 points")
    sure = Candidacy("west", 10, "", 5, (0, 1), 0.6, gain=0.02, interval=(0.01, 0.03))
    assert sure.sentence.startswith("With west the others would gain 2.0 points")
