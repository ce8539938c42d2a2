"""The tool that builds a release: CI runs the whole of its quick form; here is what it says of missing Pythons."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def release():
    spec = spec_from_file_location("release", ROOT / "tools" / "release.py")
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_every_python_that_is_found_is_tried_and_the_others_are_named(release, monkeypatch, tmp_path: Path, capsys):
    tried: list[str] = []
    monkeypatch.setattr(release, "python_of", {"3.11": "a", "3.13": "b"}.get)
    monkeypatch.setattr(release, "call", lambda command, folder: "")
    monkeypatch.setattr(release, "check", lambda python, folder, expected, training: tried.append(str(expected)))
    release.whole(tmp_path / "fedce.whl", tmp_path)
    assert tried == [str(tmp_path / "environment-3.11"), str(tmp_path / "environment-3.13")]
    assert capsys.readouterr().out.splitlines()[-1] == "missing here, and not tried: 3.12, 3.14"


def test_without_any_python_it_fails(release, monkeypatch, tmp_path: Path):
    monkeypatch.setattr(release, "python_of", lambda version: None)
    with pytest.raises(SystemExit, match="no Python was found"):
        release.whole(tmp_path / "fedce.whl", tmp_path)


def test_a_python_that_does_not_start_is_not_there(release, monkeypatch, tmp_path: Path):
    """pyenv puts a program on the path for every version, also for those that are not switched on."""
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert release.python_of("3.12") is None
    kept = tmp_path / ".pyenv/versions/3.12.1/bin/python3.12"
    kept.parent.mkdir(parents=True)
    kept.write_text("#!/bin/sh\nexit 0\n")
    kept.chmod(0o755)
    assert release.python_of("3.12") == str(kept)


def test_a_wheel_that_was_not_imported_is_an_error(release, tmp_path: Path):
    """This Python has fedce from elsewhere."""
    with pytest.raises(SystemExit, match="fedce came from"):
        release.check(sys.executable, tmp_path / "empty", tmp_path, (), PYTHONPATH=str(ROOT / "src"))
