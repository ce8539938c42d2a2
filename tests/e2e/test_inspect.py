"""fedce data inspect: a table, a page that stands alone, JSON; one line for what can't be read."""

import json
import re
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from support import open_page

EVIL = "<img src=x onerror=alert(1)>&amp;$x^"
ROOT = Path(__file__).parents[2]


def write_scenes(root: Path, *sites: str, n: int = 6) -> Path:
    """Sites of different scenes; the first site's first scene is there twice."""
    for number, site in enumerate(sites):
        rng = np.random.default_rng(number)
        for i in range(n):
            scene = np.kron(rng.integers(0, 200, (8, 8, 3)), np.ones((6, 6, 1))).astype(np.uint8)
            mask = np.zeros((48, 48), np.uint8)
            mask[8 : 16 + i, 8:20] = 255
            for part, array in (("images", scene), ("masks", mask)):
                (root / site / part).mkdir(parents=True, exist_ok=True)
                Image.fromarray(array).save(root / site / part / f"scene{i}.png")
    for part in ("images", "masks"):
        shutil.copy(root / sites[0] / part / "scene0.png", root / sites[0] / part / "twin.png")
    return root


@pytest.fixture(scope="module")
def scenes(tmp_path_factory) -> Path:
    return write_scenes(tmp_path_factory.mktemp("scenes") / "hospitals", "north", "south", "west")


@pytest.fixture(scope="module")
def page(scenes: Path, tmp_path_factory, fedce) -> Path:
    out = tmp_path_factory.mktemp("page") / "page.html"
    result = fedce("data", "inspect", scenes, "--out", out)
    assert result.exit_code == 0, result.output
    return out


def test_an_experiment_that_is_planned_can_be_inspected_and_studied(scenes: Path, tmp_path: Path, fedce):
    stated = tmp_path / "stated.toml"
    stated.write_text(
        'recipe = "plan"\nrounds = 1\n\n[data]\nclasses = { scene = [255] }\n\n[model]\nchannels = [4, 8]\n'
    )
    seen = fedce("data", "inspect", stated, "--data", scenes, "--json", "--out", tmp_path / "page.html")
    assert seen.exit_code == 0, seen.output
    assert len(json.loads(seen.stdout)["sites"]) == 3
    study = ("study", "data", stated, "--data", scenes, "--store", tmp_path / "store", "--out", tmp_path / "study")
    conducted = fedce(*study)
    assert conducted.exit_code == 0, conducted.output
    assert "planned from the data" in conducted.stderr
    assert (tmp_path / "study" / "study.md").exists()


def test_the_terminal_shows_a_table_and_what_stands_out(scenes: Path, tmp_path: Path, fedce):
    result = fedce("data", "inspect", scenes, cwd=tmp_path)
    assert result.exit_code == 0, result.output
    assert re.search(r"north.*7.*48x48", result.stdout)
    assert "3 sites with 19 images of 19 cases." in result.stdout
    assert "1 pair of cases looks nearly the same" in result.stdout
    assert "written to runs/inspect-hospitals.html" in result.stderr
    assert (tmp_path / "runs" / "inspect-hospitals.html").exists()


def test_json_is_all_that_is_printed_and_its_groups_work(scenes: Path, tmp_path: Path, fedce):
    command = ("data", "inspect", scenes, "--out", tmp_path / "page.html", "--json")
    result = fedce(*command)
    assert result.stderr == ""
    found = json.loads(result.stdout)
    assert [site["images"] for site in found["sites"]] == [7, 6, 6]
    assert len(found["sites"][0]["histogram"][0]) == 64
    assert found["groups"] == [["north/scene0", "north/twin"]]
    assert found["near_duplicates"][0]["similarity"] == 1
    grouped = json.loads(fedce(*command, "--set", f"data.groups={found['groups']}").stdout)
    assert grouped["near_duplicates"] == []
    assert grouped["groups"] == found["groups"]
    assert [site["cases"] for site in grouped["sites"]] == [6, 6, 6]


def test_an_experiment_file_says_how_to_read(scenes: Path, tmp_path: Path, fedce):
    experiment = tmp_path / "ours.toml"
    experiment.write_text("[data]\nsize = 32\nclasses = { organ = [255] }\n")
    out = tmp_path / "page.html"
    result = fedce("data", "inspect", experiment, "--data", scenes, "--out", out, "--json")
    assert json.loads(result.stdout)["sites"][0]["empty_masks"] == {"organ": 0}
    assert "32 x 32 pixels" in out.read_text("utf-8")


def test_the_page_stands_alone_and_says_what_was_found(page: Path):
    text = page.read_text("utf-8")
    assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?!#|data:)[\w/:]""", text)
    assert text.count("<svg") == 2 * 2
    assert text.count('src="data:image/png;base64,') == 3 * 3 + 2
    groups = re.search(r"<pre>(.*?)</pre>", text, re.S)[1].replace("&#34;", '"')
    assert tomllib.loads(groups) == {"groups": [["north/scene0", "north/twin"]]}
    for heading in ("Sites", "Grey values", "How different the sites are", "Mask areas", "Examples", "Near-duplicates"):
        assert f">{heading}</h2>" in text


def test_hostile_names_are_shown_not_run(tmp_path: Path, fedce):
    data = write_scenes(tmp_path / "data", EVIL, "south")
    for part in ("images", "masks"):
        (data / "south" / part / "scene0.png").rename(data / "south" / part / f"{EVIL}.png")
    result = fedce(
        "data", "inspect", data, "--set", f"data.classes={{'{EVIL}'=[255]}}", "--out", tmp_path / "page.html"
    )
    assert result.exit_code == 0, result.output
    text = (tmp_path / "page.html").read_text("utf-8")
    assert not re.findall(r"<img (?!src=\"data:)", text)
    assert "&lt;img src=x" in text


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("nowhere",), "no such data folder: nowhere"),
        (("fundus6", "--data", "prostate6"), "leave out one"),
        (("nowhere.toml",), "can't read the experiment file nowhere.toml"),
        (("fundus6", "--set", "data.sizes=64"), "did you mean 'size'?"),
        (("fundus6", "--set", "data.scale=tiny", "--out", "."), "--out: . is a folder"),
    ],
)
def test_a_wrong_argument_is_one_line(tmp_path: Path, fedce, arguments, line):
    result = fedce("data", "inspect", *arguments, cwd=tmp_path)
    assert result.exit_code == 2, result.output
    assert line in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.output
    assert not any(tmp_path.iterdir())


def test_spoilt_data_are_listed(tmp_path: Path, fedce):
    data = write_scenes(tmp_path / "data", "north", "south")
    (data / "north" / "masks" / "scene1.png").unlink()
    (data / "south" / "images" / "scene2.png").unlink()
    result = fedce("data", "inspect", data, "--out", tmp_path / "page.html")
    assert result.exit_code == 2
    assert "'scene1.png' has no mask" in result.stderr
    assert "'scene2.png' has no image" in result.stderr
    assert not (tmp_path / "page.html").exists()


def test_it_opens_in_chromium(page: Path, tmp_path: Path, chromium):
    shown, picture = open_page(chromium, page, tmp_path)
    assert "How different the sites are" in shown.stdout
    assert shown.stdout.count("</svg>") == 2 * 2
    assert "CONSOLE" not in shown.stderr
    assert picture.stat().st_size > 20_000
