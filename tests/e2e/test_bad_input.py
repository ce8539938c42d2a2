"""Bad input: one clear line, exit code 2, nothing written, never a traceback."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


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
        (("--set", "data.size=50", "--scale", "tiny"), "can't take images of 50x50 pixels"),
        (("--set", "engine.device=warp", "--scale", "tiny"), "engine.device 'warp' can't be used here"),
        (("--set", "data.split=[0.98,0.01,0.01]", "--scale", "tiny"), "which leaves none for validation"),
        (("--algorithm", "builtins:dict"), "is not an algorithm"),
        (("--set", "algorithm=fedavg"), "is a table; write algorithm.name"),
        (("--set", "model.name=:X", "--scale", "tiny"), "expected package.module:Name"),
        (("--set", "train.loss=json:loads", "--scale", "tiny"), "train.loss: json:loads can't be made"),
        (("--set", "train.loss=builtins:int", "--scale", "tiny"), "not a torch.nn.Module"),
        (("--set", "model.channels=[60000,60000]", "--scale", "tiny"), "can't be made"),
        (("--set", "model.options={a=1}", "--scale", "tiny"), "model.options is for networks by import path"),
        (("--set", "engine.device=meta", "--scale", "tiny"), "engine.device 'meta' can't be used here"),
        (("--set", "engine.min_sites=10", "--scale", "tiny"), "engine.min_sites is 10, but there are only 6 sites"),
        (("--set", "seed=" + "9" * 5000), "seed"),
        (("--set", "data.classes={a=[1]}"), "fundus6 has its own classes"),
        (("--set", "leave_out=['sit1']", "--scale", "tiny"), "no site is called 'sit1', did you mean 'site1'?"),
        (("--data", ""), "data.source is empty"),
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
        (spoil_size, "north/masks/0.png is 8x8, its image 32x32"),
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
    assert "leave out rounds" in refused(fedce, tiny_run, "run", "--resume", tiny_run, "--rounds", 9)
    assert "leave out --replace" in refused(fedce, tiny_run, "run", "--resume", tiny_run, "--replace")


def test_predict(tmp_path: Path, tiny_run: Path, fedce):
    out = tmp_path / "masks"
    image = tmp_path / "a.png"
    image.write_bytes(b"nothing")
    assert "can't read the image" in refused(fedce, out, "predict", tiny_run, image, "--out", out)
    assert "can't read the image" in refused(fedce, out, "predict", tiny_run, tmp_path / "none.png", "--out", out)
    assert "holds no run" in refused(fedce, out, "predict", tmp_path, image, "--out", out)
    (tmp_path / "b").mkdir()
    twins = (image, tmp_path / "b" / "a.png")
    assert "two images would write" in refused(fedce, out, "predict", tiny_run, *twins, "--out", out)


def test_a_report_of_an_unfinished_run(tmp_path: Path, tiny_run: Path, fedce):
    (tmp_path / "config.toml").write_text((tiny_run / "config.toml").read_text())
    assert "has no results yet" in refused(fedce, tmp_path, "report", tmp_path)
