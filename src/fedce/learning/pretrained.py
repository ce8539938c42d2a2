"""Weights to start from: of a run, of an export, or of another program.

No code in a file is run: files are read as safetensors, or by torch's restricted reader.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from fedce.base.errors import ConfigError
from fedce.core.params import Params

INSIDE = ("state_dict", "model_state_dict", "model")
"""Keys under which other programs keep a network's tensors in a file."""
PREFIXES = ("module.", "model.", "network.")
"""Prefixes that wrappers add to a tensor's name."""


def file_of(path: Path) -> Path:
    """The file of weights that model.start means: a file itself, or the one in a run's folder or in a bundle."""
    if not path.is_dir():
        return path
    names = ("model.safetensors", "models/model.safetensors", "models/model.pt")
    if found := next((path / name for name in names if (path / name).is_file()), None):
        return found
    own = sorted((path / "models").glob("*.safetensors"))
    hint = f"; each site has a model of its own: name one, such as {own[0]}" if own else ""
    raise ConfigError(f"model.start: {path} holds no {names[0]} (a run) and no {names[1]} (a bundle){hint}")


def start_from(params: Params, path: Path) -> tuple[Params, int]:
    """The model with the tensors of the file, and the number of these tensors.

    A file of fedce must fit as a whole; of another program's file, tensors are used where name and shape fit.
    """
    file = file_of(path)
    tensors, is_ours = _read(file)
    vector, n_used = params.vector.copy(), 0
    for entry, where in params.layout.slices():
        found = _named(tensors, entry.name)
        if found is not None and found.shape == entry.shape:
            vector[where] = found.astype(np.float32).reshape(-1)
            n_used += 1
        elif is_ours:
            raise ConfigError(_misfit(file, entry.name, entry.shape, found))
    if n_used == 0:
        ours, theirs = params.layout.entries[0].name, next(iter(tensors), "no tensor")
        raise ConfigError(
            f"model.start: no tensor of {file} fits the network by name and shape; the network begins with {ours!r}, "
            f"the file with {theirs!r}"
        )
    if not np.isfinite(vector).all():
        raise ConfigError(f"model.start: {file} holds values that are not finite")
    return Params(params.layout, vector), n_used


def _misfit(file: Path, name: str, shape: tuple[int, ...], found: NDArray[Any] | None) -> str:
    there = "is not there" if found is None else f"is {_times(found.shape)}"
    return (
        f"model.start: {file} does not fit the network: {name} {there} and should be {_times(shape)}; "
        "set [model], data.classes and grey or colour images as in the run that made it"
    )


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"


def _named(tensors: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any] | None:
    return next((tensors[key] for key in (name, *(prefix + name for prefix in PREFIXES)) if key in tensors), None)


def _read(path: Path) -> tuple[Mapping[str, NDArray[Any]], bool]:
    """The file's tensors, and whether fedce wrote it."""
    if not path.is_file():
        raise ConfigError(f"model.start: there is no file {path}")
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                is_ours = "about" in (file.metadata() or {})
            return {name: _array(value) for name, value in load_file(path).items()}, is_ours
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, ValueError, RuntimeError, EOFError, SafetensorError, pickle.UnpicklingError) as error:
        what = (str(error).splitlines() or [type(error).__name__])[0].partition(". ")[0]
        raise ConfigError(
            f"model.start: {path} can't be read as safetensors or as a plain state dict ({what}); "
            "save it with safetensors.torch.save_file(network.state_dict(), PATH)"
        ) from None
    state = next((loaded[key] for key in INSIDE if isinstance(loaded, dict) and key in loaded), loaded)
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ConfigError(f"model.start: {path} holds a {type(state).__name__}, expected a state dict of tensors")
    try:
        return {str(name): _array(value) for name, value in state.items() if value.is_floating_point()}, False
    except (RuntimeError, TypeError) as error:  # A tensor without values, such as one on the device "meta".
        raise ConfigError(f"model.start: {path} holds a tensor that can't be used ({error})") from None


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    """The values in single precision, whatever the file has: NumPy knows neither bfloat16 nor sparse tensors."""
    found: NDArray[Any] = tensor.detach().to_dense().float().numpy()
    return found
