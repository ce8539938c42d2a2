"""Weights from a local file to start from."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file
from torch import nn

from fedce.base.config import load, load_recorded
from fedce.base.errors import ConfigError
from fedce.base.files import digest_of
from fedce.core.params import to_named
from fedce.data import load_sites
from fedce.engines.starting import execute
from fedce.federation.plan import Participants, resolve
from fedce.record.folder import RunFolder

TINY = {"data.scale": "tiny", "rounds": 1, "model.channels": (4, 8), "engine.workers": 1, "seed": 1}


def made(path: Path, how: str) -> Path:
    """Weights that a network with another seed has, in a file of some kind."""
    other = Participants(resolve(load(None, {**TINY, "seed": 7})), load_sites("fundus6", scale="tiny"))
    state = {name: value.clone() for name, value in other.learner.network.state_dict().items()}
    if how == "safetensors":
        save_file(state, path)
    elif how == "parameters":
        torch.save(
            {name: nn.Parameter(value) if value.is_floating_point() else value for name, value in state.items()}, path
        )
    elif how == "prefixed":
        torch.save({f"module.{name}": value for name, value in state.items()}, path)
    else:
        torch.save({"state_dict": state, "epoch": 3} if how == "inside" else state, path)
    return path


@pytest.mark.parametrize("how", ["safetensors", "plain", "inside", "prefixed", "parameters"])
def test_the_first_model_has_the_weights_of_the_file(tmp_path: Path, how):
    path = made(tmp_path / ("w.safetensors" if how == "safetensors" else "w.pt"), how)
    sites = load_sites("fundus6", scale="tiny")
    here = Participants(resolve(load(None, {**TINY, "model.start": str(path)})), sites).first_model
    there = Participants(resolve(load(None, {**TINY, "seed": 7})), sites).first_model
    np.testing.assert_array_equal(here.trainable, there.trainable)


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
def test_weights_in_half_precision_are_used(tmp_path: Path, ending: str):
    sites, path = load_sites("fundus6", scale="tiny"), tmp_path / f"w.{ending}"
    first = Participants(resolve(load(None, TINY)), sites).first_model.layout.entries[0]
    state = {first.name: torch.full(first.shape, 0.5, dtype=torch.bfloat16)}
    save_file(state, path) if ending == "safetensors" else torch.save(state, path)
    found = Participants(resolve(load(None, {**TINY, "model.start": str(path)})), sites).first_model
    assert (found.vector[: first.size] == 0.5).all()


def test_what_does_not_fit_stays_as_it_was_built(tmp_path: Path):
    sites = load_sites("fundus6", scale="tiny")
    built = Participants(resolve(load(None, TINY)), sites).first_model
    first = built.layout.entries[0]
    save_file({first.name: torch.full(first.shape, 0.5), "another": torch.zeros(3)}, tmp_path / "w.safetensors")
    found = Participants(
        resolve(load(None, {**TINY, "model.start": str(tmp_path / "w.safetensors")})), sites
    ).first_model
    assert (found.vector[: first.size] == 0.5).all()
    np.testing.assert_array_equal(found.vector[first.size :], built.vector[first.size :])


def test_a_run_records_which_file_it_started_from(tmp_path: Path):
    path = made(tmp_path / "w.safetensors", "safetensors")
    execute(load(None, {**TINY, "model.start": str(path)}), tmp_path / "run", report=False)
    start = RunFolder(tmp_path / "run").ledger().start
    assert len(start.content["weights"]) == 64
    assert load_file(tmp_path / "run" / "model.safetensors")


class Evil:
    def __reduce__(self):
        return (Path("/tmp/never").touch, ())


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "there is no file"),
        (b"not weights", "can't be read as safetensors or as a plain state dict"),
        (pickle.dumps(Evil(), protocol=2), "can't be read as safetensors or as a plain state dict"),
        ({"x": torch.zeros(2)}, "no tensor of .* fits the network by name and shape"),
        ([1, 2], "holds a list, expected a state dict"),
        ({"x": torch.zeros(2, device="meta")}, "holds a tensor that can't be used"),
    ],
    ids=["missing", "text", "code", "other tensors", "list", "no values"],
)
def test_a_file_that_can_not_be_used_is_one_line(tmp_path: Path, content, line):
    path = tmp_path / "w.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    config = resolve(load(None, {**TINY, "model.start": str(path)}))
    with pytest.raises(ConfigError, match=line):
        _ = Participants(config, load_sites("fundus6", scale="tiny")).first_model
    assert not Path("/tmp/never").exists(), "no code of the file is run"


def test_a_run_starts_from_another_run_and_from_its_exports(tmp_path: Path, fedce):
    execute(load(None, {**TINY, "seed": 7}), tmp_path / "first")
    for form in ("weights", "bundle"):
        assert fedce("export", tmp_path / "first", "--to", form).exit_code == 0
    sites = load_sites("fundus6", scale="tiny")
    ended = load_file(tmp_path / "first" / "model.safetensors")
    for place in ("first", "first.safetensors", "first-bundle", "first/best.safetensors"):
        config = resolve(load(None, {**TINY, "model.start": str(tmp_path / place)}))
        named = to_named(Participants(config, sites).first_model)
        expected = load_file(tmp_path / place) if "best" in place else ended
        assert all(np.array_equal(value, expected[name]) for name, value in named.items())
    execute(load(None, {**TINY, "model.start": str(tmp_path / "first")}), tmp_path / "second", report=False)
    start = RunFolder(tmp_path / "second").ledger().start
    assert start.content["weights"] == digest_of(tmp_path / "first" / "model.safetensors")


def test_another_network_is_one_line(tmp_path: Path):
    execute(load(None, {**TINY, "model.channels": (4, 6)}), tmp_path / "first", report=False)
    sites = load_sites("fundus6", scale="tiny")
    config = resolve(load(None, {**TINY, "model.start": str(tmp_path / "first")}))
    with pytest.raises(ConfigError, match=r"does not fit the network: model.1.* is 6 x 4 .* should be 8 x 4"):
        _ = Participants(config, sites).first_model
    (tmp_path / "empty").mkdir()
    config = resolve(load(None, {**TINY, "model.start": str(tmp_path / "empty")}))
    with pytest.raises(ConfigError, match=r"holds no model\.safetensors"):
        _ = Participants(config, sites).first_model


def test_a_recorded_run_may_have_the_key_of_an_earlier_version(tmp_path: Path):
    (tmp_path / "config.toml").write_text('[model]\nweights = "w.pt"\n')
    assert load_recorded(tmp_path / "config.toml").model.start == "w.pt"
