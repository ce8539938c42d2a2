"""Bad input: one clear line, exit code 2, nothing written, never a traceback."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedce.base.files import read_sealed


def sites(root: Path) -> Path:
    for site in ("north", "south"):
        for part in ("images", "masks"):
            (root / site / part).mkdir(parents=True)
            for i in range(8):
                Image.fromarray(np.full((32, 32), 255 * (i % 2), np.uint8)).save(root / site / part / f"{i}.png")
    return root


def refused(fedce, out: Path, *arguments) -> str:
    existed = out.exists()
    result = fedce(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if not line.startswith("... ")]
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    assert out.exists() == existed, "something was written"
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--algorithm", "fedec"), "unknown algorithm 'fedec', did you mean 'fedce'?"),
        (("--set", "train.learning=1"), "unknown key 'train.learning'"),
        (("--set", "algorithm.max_share=1.2"), "algorithm.max_share: input should be less than or equal to 1"),
        (("--set", "algorithm.maxshare=0.5"), "did you mean 'max_share'?"),
        (("--rounds", "0"), "rounds: input should be greater than or equal to 1 (got 0)"),
        (("--set", "train.lr=-1"), "train.lr: input should be greater than 0"),
        (("--set", "train.lr"), "expected key=value"),
        (("--scale", "huge"), "data.scale: input should be 'tiny', 'demo' or 'paper'"),
        (("--data", "fundus7"), "no such data folder: fundus7"),
        (("--seed", "-3"), "seed: input should be greater than or equal to 0"),
        (("--set", "model.name=monai:Nothing", "--scale", "tiny"), "can't import 'monai:Nothing'"),
        (("--set", "model.name=torch.nn:Flatten", "--scale", "tiny"), "can't take images of 48x48 pixels"),
        (("--set", "engine.device=warp", "--scale", "tiny"), "engine.device 'warp' can't be used here"),
        (("--set", "data.split=[0.98,0.01,0.01]", "--scale", "tiny"), "which leaves none for validation"),
        (("--algorithm", "builtins:dict"), "is not an algorithm"),
        (("--set", "algorithm=fedavg"), "is a table; write algorithm.name"),
        (("--set", "model.name=:X", "--scale", "tiny"), "expected package.module:Name"),
        (("--set", "train.loss=json:loads", "--scale", "tiny"), "train.loss: json:loads can't be made"),
        (("--set", "train.loss=builtins:int", "--scale", "tiny"), "expected a torch.nn.Module"),
        (("--set", "model.channels=[60000,60000]", "--scale", "tiny"), "can't be made"),
        (
            ("--set", "model.options={a=1}", "--scale", "tiny"),
            "model.options is for dynunet, segresnet and networks by import path",
        ),
        (("--set", "engine.device=meta", "--scale", "tiny"), "engine.device 'meta' can't be used here"),
        (("--set", "engine.min_sites=10", "--scale", "tiny"), "engine.min_sites is 10, but there are only 6 sites"),
        (("--set", "seed=" + "9" * 5000), "seed"),
        (("--set", "data.classes={a=[1]}"), "fundus6 has its own classes"),
        (("--set", "leave_out=['sit1']", "--scale", "tiny"), "no site is called 'sit1', did you mean 'site1'?"),
        (("--data", ""), "data.source is empty"),
        (("--set", "data.case_pattern=" + "(" * 5000), "data.case_pattern: is not a regular expression"),
        (("nowhere.toml",), "can't read the experiment file nowhere.toml"),
        (("--set", "algorithm.name=fedavg", "--set", "algorithm.q=1"), "algorithm 'fedavg' has no option 'q'"),
    ],
)
def test_a_wrong_option(tmp_path: Path, fedce, arguments, line):
    out = tmp_path / "run"
    assert line in refused(fedce, out, "run", "--out", out, *arguments)


def spoil_mask(data):
    (data / "north" / "masks" / "0.png").unlink()


def spoil_size(data):
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(data / "north" / "masks" / "0.png")


def spoil_image(data):
    (data / "north" / "images" / "0.png").write_bytes(b"\x89PNG\r\n\x1a\n but no more")


def spoil_site(data):
    for path in (data / "north").rglob("*.png"):
        path.unlink()


def spoil_federation(data):
    (data / "north").rename(data.parent / "elsewhere")


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (spoil_mask, "site 'north': image '0.png' has no mask"),
        (spoil_size, "north/masks/0.png is 8x8 pixels, its image 32x32"),
        (spoil_image, "0.png"),
        (spoil_site, "site 'north' is empty"),
        (spoil_federation, "at least two sites"),
    ],
)
def test_a_spoilt_data_folder(tmp_path: Path, fedce, spoil, line):
    data = sites(tmp_path / "data")
    spoil(data)
    out = tmp_path / "run"
    assert line in refused(fedce, out, "run", "--data", data, "--out", out)


def test_a_folder_that_holds_another_run(tiny_run: Path, fedce):
    line = refused(fedce, tiny_run, "run", "--scale", "tiny", "--out", tiny_run)
    assert "already holds a run" in line
    assert (tiny_run / "results.json").exists()


def test_a_folder_that_holds_something_else(tmp_path: Path, fedce):
    (tmp_path / "letters.txt").write_text("dear")
    assert "is not empty and holds no run" in refused(fedce, tmp_path, "run", "--scale", "tiny", "--out", tmp_path)
    assert "is not empty" in refused(fedce, tmp_path, "run", "--scale", "tiny", "--out", tmp_path, "--replace")
    assert (tmp_path / "letters.txt").read_text() == "dear"
    assert "is a file" in refused(fedce, tmp_path, "run", "--scale", "tiny", "--out", tmp_path / "letters.txt")


def test_training_that_diverges_names_the_site(tmp_path: Path, fedce):
    out = tmp_path / "run"
    result = fedce("run", "--scale", "tiny", "--set", "train.lr=1e30", "--workers", 1, "--out", out)
    assert result.exit_code == 2
    assert "training diverged" in result.stderr.splitlines()[-1]
    assert "round 1, site 'site" in result.stderr.splitlines()[-1]


def test_resume_of_nothing_and_with_other_settings(tmp_path: Path, tiny_run: Path, fedce):
    assert "there is no folder" in refused(fedce, tmp_path / "none", "run", "--resume", tmp_path / "none")
    assert "--rounds must be above 4" in refused(fedce, tiny_run, "run", "--resume", tiny_run, "--rounds", 4)
    assert "leave out seed" in refused(fedce, tiny_run, "run", "--resume", tiny_run, "--rounds", 9, "--seed", 2)
    assert "leave out --replace" in refused(fedce, tiny_run, "run", "--resume", tiny_run, "--replace")


def test_predict(tmp_path: Path, tiny_run: Path, fedce):
    out = tmp_path / "masks"
    image = tmp_path / "a.png"
    image.write_bytes(b"nothing")
    assert "can't read the image" in refused(fedce, out, "predict", tiny_run, image, "--out", out)
    assert "there is no file or folder" in refused(fedce, out, "predict", tiny_run, tmp_path / "none.png", "--out", out)
    assert "holds no run" in refused(fedce, out, "predict", tmp_path, image, "--out", out)
    (tmp_path / "b").mkdir()
    twins = (image, tmp_path / "b" / "a.png")
    twins[1].write_bytes(b"nothing")
    assert "two images would write" in refused(fedce, out, "predict", tiny_run, *twins, "--out", out)


def test_a_report_of_an_unfinished_run(tmp_path: Path, tiny_run: Path, fedce):
    (tmp_path / "config.toml").write_text((tiny_run / "config.toml").read_text())
    assert "has no results yet" in refused(fedce, tmp_path, "report", tmp_path)


def other_sizes(data):
    for i in range(7):
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(data / "north" / "masks" / f"{i}.png")


def other_images(data):
    for i in range(1, 8):
        for part in ("images", "masks"):
            Image.fromarray(np.zeros((70, 50), np.uint8)).save(data / "north" / part / f"{i}.png")
    Image.fromarray(np.zeros((90, 64), np.uint8)).save(data / "north" / "images" / "0.png")
    Image.fromarray(np.zeros((90, 64), np.uint8)).save(data / "north" / "masks" / "0.png")


def other_names(data):
    for i in range(7):
        (data / "north" / "masks" / f"{i}.png").rename(data / "north" / "masks" / f"{i}x.png")


def unreadable(data):
    for i in range(7):
        (data / "north" / "images" / f"{i}.png").write_bytes(b"no picture")


@pytest.mark.parametrize(
    ("spoil", "options", "lines"),
    [
        (other_sizes, (), ["site 'north': 7 masks differ in size from their images; for example, mask "]),
        (other_images, (), ["site 'north': 7 images differ in size from the site's first image", "--set data.size=64"]),
        (
            other_names,
            (),
            ["7 images have no mask of the same name; for example,", "7 masks have no image of the same"],
        ),
        (unreadable, (), ["site 'north': 7 images can't be read; for example, can't read the image "]),
        (
            lambda data: None,
            ("--set", "data.classes={organ=[128]}"),
            ["site 'north': 4 masks hold values", '--set \'data.classes={"organ" = [128], "other" = [255]}\''],
        ),
    ],
)
def test_many_of_a_kind_are_one_line(tmp_path: Path, fedce, spoil, options, lines):
    data = sites(tmp_path / "data")
    spoil(data)
    result = fedce("run", "--data", data, "--out", tmp_path / "run", *options)
    assert result.exit_code == 2
    said = [line for line in result.stderr.splitlines() if not line.startswith("... ")]
    assert len(said) <= 4
    for line in lines:
        assert line in result.stderr


BAD_VALUES = (None, "text", "0.5", -1, 1e308, 10**400, True, [], {}, [1], {"a": 1}, float("nan"))


def nested(value, at=()):
    """Every place in a JSON value; of places that are alike, the first."""
    if isinstance(value, dict):
        for key in list(value)[: 1 if at and "site1" in value else None]:
            yield (*at, key)
            yield from nested(value[key], (*at, key))
    elif isinstance(value, list) and value:
        yield (*at, 0)
        yield from nested(value[0], (*at, 0))


def test_edited_results_are_one_line_or_make_no_difference(tmp_path: Path, tiny_run: Path, fedce):
    run = tmp_path / "runs" / "run"
    shutil.copytree(tiny_run, run)
    results = read_sealed(run / "results.json")
    results["freerider"] = {site: {"scores": [0.1, None], "alarms": []} for site in results["dice"]}
    results["intervals"] = {"level": 0.95, "low": {"site1": 0.1}, "high": {"site1": 0.2}, "sentences": ["All alike."]}
    cases = [(place, bad) for place in nested(results) for bad in BAD_VALUES]
    for place, bad in random.Random(0).sample(cases, 100):
        edited = json.loads(json.dumps(results))
        inner = edited
        for part in place[:-1]:
            inner = inner[part]
        inner[place[-1]] = bad
        (run / "results.json").write_text(json.dumps(edited))
        for command in (("allocate", run, "--budget", 9), ("publish", run, "--site", "site1"), ("report", run.parent)):
            result = fedce(*command)
            assert isinstance(result.exception, SystemExit | None), (place, bad, command)
            assert result.exit_code in (0, 2), (place, bad, command)
            assert len(result.stderr.splitlines()) == (result.exit_code == 2), result.stderr


@pytest.mark.parametrize("text", ["seed = " + "9" * 5000, "a = " + "[" * 20000, "seed = " + "9" * 4000, "a = \x00"])
def test_an_experiment_file_beyond_measure(tmp_path: Path, fedce, text):
    (tmp_path / "big.toml").write_text(text)
    line = refused(fedce, tmp_path / "run", "run", tmp_path / "big.toml", "--out", tmp_path / "run")
    assert "big.toml" in line
    assert len(line) < 500
