"""Weights from a local file to start from. No code in the file is run: safetensors, or torch's restricted reader."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedce.base.errors import ConfigError
from fedce.core.params import Params

INSIDE = ("state_dict", "model_state_dict", "model")
"""Keys under which trainers keep a network's tensors beside other things."""
PREFIXES = ("module.", "model.", "network.")
"""What wrappers put before a tensor's name."""


def start_from(params: Params, path: Path) -> tuple[Params, int]:
    """The model with all tensors of the file that fit by name and shape, and how many those are."""
    tensors = _read(path)
    vector, n_used = params.vector.copy(), 0
    for entry, where in params.layout.slices():
        found = _named(tensors, entry.name)
        if found is not None and found.shape == entry.shape:
            vector[where] = found.astype(np.float32).reshape(-1)
            n_used += 1
    if n_used == 0:
        ours, theirs = params.layout.entries[0].name, next(iter(tensors), "no tensor")
        raise ConfigError(
            f"model.weights: no tensor of {path} fits the network by name and shape; the network begins with {ours!r}, "
            f"the file with {theirs!r}"
        )
    if not np.isfinite(vector).all():
        raise ConfigError(f"model.weights: {path} holds values that are not finite")
    return Params(params.layout, vector), n_used


def _named(tensors: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any] | None:
    return next((tensors[key] for key in (name, *(prefix + name for prefix in PREFIXES)) if key in tensors), None)


def _read(path: Path) -> Mapping[str, NDArray[Any]]:
    if not path.is_file():
        raise ConfigError(f"model.weights: there is no file {path}")
    try:
        if path.suffix == ".safetensors":
            tensors: Mapping[str, NDArray[Any]] = load_file(path)
            return tensors
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, ValueError, RuntimeError, EOFError, SafetensorError, pickle.UnpicklingError) as error:
        what = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"model.weights: {path} can't be read as safetensors or as a plain state dict ({what}); "
            "save it with safetensors.torch.save_file(network.state_dict(), PATH)"
        ) from None
    state = next((loaded[key] for key in INSIDE if isinstance(loaded, dict) and key in loaded), loaded)
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ConfigError(f"model.weights: {path} holds a {type(state).__name__}, expected a state dict of tensors")
    return {str(name): value.numpy() for name, value in state.items() if value.is_floating_point()}
