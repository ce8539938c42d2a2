"""Sites that label only some of the classes: their loss and scores leave the others out, and tables say so."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedce.base.config import parse
from fedce.base.errors import ConfigError, DataError
from fedce.base.tables import ModelConfig, TrainConfig
from fedce.data import load_sites
from fedce.data.fingerprint import fingerprint_of
from fedce.engines.starting import execute
from fedce.learning import networks
from fedce.learning.learner import Learner
from fedce.present.columns import labelled_lines, sites_table
from fedce.site.hospital import Hospital, member_of

SITES = ("north", "south", "west")
CLASSES = {"disc": [1, 2], "cup": [2]}


def federation(root: Path) -> Path:
    """Three sites with a disc and a cup; west's masks have only the disc."""
    for site in SITES:
        rng = np.random.default_rng(list(site.encode()))
        for i in range(8):
            drawn = np.zeros((32, 32), np.uint8)
            drawn[6:26, 6:26] = 1
            drawn[12:20, 12:20] = 2 if site != "west" else 1
            pixels = np.clip(rng.normal(60, 20, (32, 32)) + 60 * drawn, 0, 255).astype(np.uint8)
            for folder, values in (("images", pixels), ("masks", drawn)):
                path = root / site / folder / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(values).save(path)
    return root


@pytest.fixture
def sites(tmp_path: Path):
    return load_sites(federation(tmp_path), classes=CLASSES, labelled={"west": ["disc"]})


def hospital_of(data, learner: Learner) -> Hospital:
    return Hospital(data, learner, tuple(CLASSES), seed=0)


@pytest.fixture
def learner() -> Learner:
    network = networks.build(ModelConfig(channels=(4, 8), norm="instance"), 1, 2, 0)
    return Learner(network, TrainConfig(loss="dice-ce"), "unit", torch.device("cpu"))


def test_the_loss_has_no_gradient_for_a_class_that_is_not_labelled(sites, learner: Learner):
    _, gradient = hospital_of(sites[2], learner).gradient(learner.params)
    last = next(where for entry, where in reversed(list(learner.layout.slices())) if entry.name.endswith("bias"))
    disc, cup = gradient[last]
    assert disc != 0
    assert cup == 0
    _, whole = hospital_of(sites[0], learner).gradient(learner.params)
    assert (whole[last] != 0).all()


def test_the_loss_is_that_of_the_labelled_classes(sites, learner: Learner):
    west = sites[2]
    other = west.masks.copy()
    other[:, 1] = 1 - other[:, 1]
    same = hospital_of(replace(west, masks=other), learner)
    assert hospital_of(west, learner).loss(learner.params) == same.loss(learner.params)
    assert hospital_of(west, learner).score(learner.params) == same.score(learner.params)
    assert hospital_of(replace(west, labelled=None), learner).loss(learner.params) != same.loss(learner.params)


def test_scores_are_of_the_labelled_classes(sites, learner: Learner):
    found = hospital_of(sites[2], learner).evaluate(learner.params, None)
    assert found.test_dice_by_class.keys() == {"disc"}
    assert found.test_dice == found.test_dice_by_class["disc"]
    assert member_of(sites[2], CLASSES).scored == ("disc",)
    assert member_of(sites[0], CLASSES).scored == ("disc", "cup")


def test_a_plans_fingerprint_and_the_data_s_digest_know_it(sites, tmp_path: Path):
    found = fingerprint_of(sites[2], tuple(CLASSES))
    assert (tuple(found.areas), found.every_class) == (("disc",), ("disc", "cup"))
    whole = load_sites(tmp_path, classes=CLASSES)
    assert whole[2].fingerprint != sites[2].fingerprint
    assert whole[0].fingerprint == sites[0].fingerprint


def test_dataset_json_says_what_a_site_labels(tmp_path: Path):
    federation(tmp_path)
    for site in SITES:
        labels = {"background": 0, "rim": 1} if site == "west" else {"background": 0, "rim": 1, "cup": 2}
        (tmp_path / site / "dataset.json").write_text(json.dumps({"labels": labels}))
    sites = load_sites(tmp_path)
    assert [site.labelled for site in sites] == [None, None, (0,)]
    assert list(sites.classes) == ["rim", "cup"]


@pytest.mark.parametrize(
    ("labelled", "line"),
    [
        ({"west": ["disk"]}, "site 'west' labels 'disk', did you mean 'disc'"),
        ({"wst": ["disc"]}, "data.labelled names 'wst', did you mean 'west'"),
    ],
)
def test_unknown_names_are_refused(tmp_path: Path, labelled: dict, line: str):
    with pytest.raises(DataError, match=line):
        load_sites(federation(tmp_path), classes=CLASSES, labelled=labelled)


def test_the_table_shows_a_dash_and_a_footnote():
    results = {
        "dice_by_class": {"north": {"disc": 0.8, "cup": 0.7}, "west": {"disc": 0.9}},
        "dice": {"north": 0.75, "west": 0.9},
        "dice_without": {},
        "images": {},
        "train_images": {},
        "contributions": {},
        "flags": {},
        "intervals": None,
    }
    table = sites_table(results, "report", ["north", "west"])
    at = [name for name, _ in table.titles].index("cup")
    assert [row[at].text for row in table.rows] == ["0.700", "\N{EN DASH}"]
    (line,) = labelled_lines(results)
    assert line.endswith("their scores are of these classes alone: west (disc).")


def test_a_run_with_such_a_site_is_complete_and_verified(tmp_path: Path, fedce):
    data, out = federation(tmp_path / "data"), tmp_path / "run"
    keys = ["classes={disc=[1,2],cup=[2]}", 'labelled={west=["disc"]}']
    result = fedce(
        *("run", "--data", data, "--rounds", 2, "--workers", 1, "--out", out, "--set", "model.channels=[4,8]"),
        *(part for key in keys for part in ("--set", f"data.{key}")),
        *("--set", 'metrics=["dice","iou"]'),
    )
    assert result.exit_code == 0, result.output
    assert "these classes alone: west (disc)" in " ".join(result.output.split())
    found = json.loads((out / "results.json").read_text())
    assert found["dice_by_class"]["west"].keys() == {"disc"}
    assert found["dice"]["west"] == found["dice_by_class"]["west"]["disc"]
    assert found["metrics_by_class"]["iou"]["west"].keys() == {"disc"}
    assert fedce("ledger", "verify", out).exit_code == 0
    assert fedce("ledger", "audit", out, "--site", "west", "--data", data).exit_code == 0
    assert fedce("report", out).exit_code == 0
    assert "west (disc)" in (out / "report.html").read_text("utf-8")
    assert fedce("data", "inspect", out / "config.toml", "--out", tmp_path / "page.html").exit_code == 0
    assert "not labelled" in (tmp_path / "page.html").read_text("utf-8")
    assert fedce("doctor", out / "config.toml", "--out", tmp_path / "other").exit_code == 0


@pytest.mark.parametrize(
    ("weights", "line"),
    [
        ([1, 2, 3], "has 3 values, and the classes are disc, cup; give one for each class"),
        ([0, 1], "site 'west' labels only disc, of weight 0"),
    ],
)
def test_weights_with_which_a_site_learns_nothing_are_refused_before_a_folder_is_made(tmp_path: Path, weights, line):
    data = federation(tmp_path / "data")
    keys = {"source": str(data), "classes": CLASSES, "labelled": {"west": ["disc"]}}
    config = parse({"rounds": 1, "data": keys, "train": {"class_weights": weights}})
    with pytest.raises(ConfigError, match=line):
        execute(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
