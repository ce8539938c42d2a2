"""The examples run as they are, from a copy, with the commands that they name."""

import json
import re
import runpy
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from fedce.base.config import load
from fedce.data import load_sites
from fedce.federation.plan import resolve
from fedce.learning.planning import planned

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NOTEBOOK = EXAMPLES / "from_images_to_report.ipynb"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that looks as the repository's root does to an example, and whose runs/ is nobody's."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    return tmp_path


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_every_experiment_file_can_be_read(path: Path):
    """An experiment that is planned from data that are not here is read as if nothing were planned."""
    needs_data = "--data DIR" in path.read_text("utf-8")
    resolve(load(path, {"data.source": "DIR", "recipe": "small"} if needs_data else {}))


def test_fundus6_is_make_demo():
    command = "fedce run --data fundus6 --scale demo --alone --rounds 50"
    assert command in (ROOT / "Makefile").read_text("utf-8")
    tree = {"recipe": "plan", "rounds": 50, "alone": True, "data": {"source": "fundus6", "scale": "demo"}}
    assert resolve(load(EXAMPLES / "fundus6.toml")) == resolve(planned(tree).config)


def test_a_network_and_a_loss_of_ones_own(root: Path, fedce, monkeypatch, capsys):
    monkeypatch.chdir(root)
    runpy.run_path("examples/custom_network.py", run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"site{i}" for i in range(1, 7)]
    assert load(root / "runs" / "custom-network" / "config.toml") == resolve(load(EXAMPLES / "custom_network.toml"))
    quick = fedce("run", "examples/custom_network.toml", "--rounds", 1, "--workers", 1, "--out", "runs/toml")
    assert quick.exit_code == 0, quick.output


def test_an_algorithm_of_ones_own(root: Path, fedce):
    name = "examples.own_algorithm:ValidationGain"
    result = fedce("run", "--algorithm", name, "--scale", "tiny", "--workers", 1, "--out", "run", "--json", cwd=root)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["algorithm"] == name
    assert (root / "run" / "report.html").exists()


def test_the_notebook_is_kept_without_outputs():
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert not cell.get("outputs"), cell.id
        assert cell.get("execution_count") is None, cell.id
        assert not cell.metadata, cell.id


def test_the_notebook_leads_from_images_to_a_report(tmp_path: Path):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cell_by_id = {cell.id: cell for cell in notebook.cells}
    # As few as have intervals; nothing else is changed.
    quick = cell_by_id["imports"].source.replace("ROUNDS = 25", "ROUNDS = 10")
    assert quick != cell_by_id["imports"].source
    cell_by_id["imports"].source = quick
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, startup_timeout=300, resources=place).execute()
    assert text_of(cell_by_id["contributions"]).count(" needs ") == 4
    for name in ("look", "plot", "plot-worth", "predict"):
        assert shown_as("image/png", cell_by_id[name]), name
    for name in ("sites", "plan", "train", "evaluate", "compare"):
        assert any("<table" in shown for shown in shown_as("text/html", cell_by_id[name])), name
    # The bar is one output, which was written again until the last round.
    (bar,) = [shown for shown in shown_as("text/html", cell_by_id["train"]) if "<progress" in shown]
    assert '<progress value="10" max="10">' in bar
    assert cell_by_id["where"].outputs[-1].data["text/plain"] == "True"
    report = tmp_path / text_of(cell_by_id["where"]).splitlines()[0]
    assert report.read_bytes().startswith(b"<!")


def text_of(cell) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def shown_as(kind: str, cell) -> list[str]:
    return [output.data[kind] for output in cell.outputs if kind in output.get("data", {})]


def test_the_list_of_examples_is_complete():
    listed = set(re.findall(r"^\| \[([^]]+)\]", (EXAMPLES / "README.md").read_text("utf-8"), re.M))
    assert listed == {path.name for path in EXAMPLES.iterdir()} - {"README.md", "__pycache__"}


def test_folders_to_try_are_recognised(tmp_path: Path):
    example = runpy.run_path(str(EXAMPLES / "write_folders.py"))
    for hospitals in (example["PHOTOGRAPHS"], example["VOLUMES"]):
        hospitals.update({name: (camera, 6) for name, (camera, _) in hospitals.items()})
    example["write_photographs"](tmp_path / "photographs", size=32)
    example["write_volumes"](tmp_path / "volumes")
    photographs, volumes = (load_sites(str(tmp_path / name), size=32) for name in ("photographs", "volumes"))
    assert photographs.recognised == "images and masks in folders, 1 class (foreground)"
    assert volumes.recognised == "nnU-Net folders, 2 classes (organ, lesion)"
    for sites in (photographs, volumes):
        assert [site.name for site in sites] == ["east", "north", "south", "west"]
