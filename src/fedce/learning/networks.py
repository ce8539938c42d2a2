"""Networks by name or by import path."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedce.base.errors import ConfigError, nearest
from fedce.base.registry import full_name, load_object
from fedce.base.tables import ModelConfig
from fedce.data.shape import in_words, strides_of
from fedce.learning.classic_unet import ClassicUNet
from fedce.learning.losses import heads_of
from fedce.learning.seeds import seeded

NETWORKS = ("unet", "unet-classic", "dynunet", "segresnet")
MULTIPLES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Images are padded to the first of these multiples that the network can take."""


def network_path(name: str) -> str:
    """The name, or the import path of a network that an installed package offers (entry point fedce.networks)."""
    return full_name(name, NETWORKS, "fedce.networks")


def build(
    config: ModelConfig, n_channels: int, n_classes: int, seed: int, patch: tuple[int, ...] | None = None
) -> nn.Module:
    """The network with its initial weights, which depend on the seed alone; a network of volumes if there are patches.

    In 3-D a U-Net halves an axis only as long as enough voxels are left: volumes often have few slices.
    """
    dims = len(patch) if patch else 2
    data = {"spatial_dims": dims, "in_channels": n_channels, "out_channels": n_classes}
    n = len(config.channels) - 1
    strides: Sequence[Any] = strides_of(patch, n) if patch else (2,) * n
    with seeded(seed):
        if config.name in NETWORKS:
            _check_levels(config, dims)
            make = {"unet": _unet, "unet-classic": _classic, "dynunet": _dynunet, "segresnet": _segresnet}[config.name]
            with _made_of(config):
                return make(config, data, strides)
        if ":" not in network_path(config.name):
            raise ConfigError(
                f"unknown network {config.name!r}{nearest(config.name, NETWORKS)}; "
                f"use {', '.join(NETWORKS)} or an import path such as monai.networks.nets:AttentionUnet"
            )
        return _imported(config, data)


def _check_levels(config: ModelConfig, dims: int) -> None:
    if config.options and config.name.startswith("unet"):
        raise ConfigError(
            f"model.options is for dynunet, segresnet and networks by import path; {config.name} has channels, norm "
            "and, if unet, res_units"
        )
    if len(config.channels) < 2:
        raise ConfigError(f"model.channels: a U-Net needs at least two levels, got {list(config.channels)}")
    if config.res_units and config.name != "unet":
        raise ConfigError(f"model.res_units is {config.res_units}, but {config.name} has no residual units; use unet")
    if config.name == "unet-classic" and dims == 3:
        raise ConfigError("model.name = 'unet-classic' is for 2-D images; with data.dims = 3 use unet")


def _unet(config: ModelConfig, data: dict[str, int], strides: Sequence[Any]) -> nn.Module:
    from fedce.learning.residual_unet import ResidualUNet

    # Without residual units it is MONAI's U-Net layer by layer.
    network: nn.Module = ResidualUNet(
        **data,
        channels=config.channels,
        strides=strides,
        num_res_units=config.res_units,
        norm=_norm(config),
    )
    return network


def _classic(config: ModelConfig, data: dict[str, int], strides: Sequence[Any]) -> nn.Module:
    from monai.networks.layers.utils import get_norm_layer

    return ClassicUNet(
        data["in_channels"], data["out_channels"], config.channels, lambda n: get_norm_layer(_norm(config), 2, n)
    )


def _dynunet(config: ModelConfig, data: dict[str, int], strides: Sequence[Any]) -> nn.Module:
    from monai.networks.nets import DynUNet

    ours = {
        "kernel_size": [3] * len(config.channels),
        "strides": [1, *strides],
        "upsample_kernel_size": list(strides),
        "filters": config.channels,
        "norm_name": _norm(config),
    }
    network: nn.Module = DynUNet(**{**data, **ours, **config.options})
    return network


def _segresnet(config: ModelConfig, data: dict[str, int], strides: Sequence[Any]) -> nn.Module:
    from monai.networks.nets import SegResNet

    n = len(config.channels)
    ours = {
        "init_filters": config.channels[0],
        "blocks_down": (1, *(2,) * (n - 1)),
        "blocks_up": (1,) * (n - 1),
        "norm": _norm(config),
    }
    network: nn.Module = SegResNet(**{**data, **ours, **config.options})
    return network


def _norm(config: ModelConfig) -> Any:
    """The norm as MONAI names it. Every level's channels must be divisible by the number of groups."""
    if config.stays != "nothing":
        return "batch"
    if config.norm != "group":
        return config.norm
    return ("group", {"num_groups": next(g for g in (8, 4, 2, 1) if all(c % g == 0 for c in config.channels))})


@contextmanager
def _made_of(config: ModelConfig) -> Iterator[None]:
    """Turn an error about impossible channels or options into one line."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, KeyError, AssertionError) as error:
        kind = "a U-Net" if config.name.startswith("unet") else config.name
        given = f" and options {config.options}" if config.options else ""
        raise ConfigError(
            f"{kind} of channels {list(config.channels)}{given} can't be made: {_first_line(error)}"
        ) from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _imported(config: ModelConfig, data: dict[str, int]) -> nn.Module:
    make = load_object(network_path(config.name), "model.name")
    try:
        network = make(**{**_known_from(make, data), **config.options})
    except Exception as error:  # noqa: BLE001 (a constructor may refuse its arguments in any way)
        raise ConfigError(f"model.options does not fit {config.name}: {_first_line(error)}") from None
    if not isinstance(network, nn.Module):
        raise ConfigError(f"model.name: {config.name} makes a {type(network).__name__}, not a torch.nn.Module")
    return network


def _known_from(make: Any, data: dict[str, int]) -> dict[str, int]:
    """What the data say of a network of MONAI: those of its arguments that it takes by these names."""
    if not str(getattr(make, "__module__", "")).startswith("monai."):
        return {}
    takes: set[str] = {name for name, one in signature(make).parameters.items() if one.kind != Parameter.VAR_KEYWORD}
    return {name: value for name, value in data.items() if name in takes}


@dataclass(frozen=True)
class Fitted:
    """A size that the network can't take, and the next one that it can; usually both are equal."""

    size: tuple[int, ...]
    becomes: tuple[int, ...]

    def padded(self, images: Tensor) -> Tensor:
        """Images (n, channels, *size) with zeros around them."""
        if self.size == self.becomes:
            return images
        sides = [(new - old) // 2 for old, new in zip(self.size, self.becomes, strict=True)]
        around = [(side, new - old - side) for side, old, new in zip(sides, self.size, self.becomes, strict=True)]
        return functional.pad(images, [width for both in reversed(around) for width in both])

    def cropped(self, output: Tensor) -> Tensor:
        """The middle of an output (n, channels, *becomes): the inverse of `padded`."""
        for axis, (old, new) in enumerate(zip(self.size, self.becomes, strict=True), start=2):
            output = output.narrow(axis, (new - old) // 2, old) if old != new else output
        return output


def fitted(network: nn.Module, n_channels: int, size: tuple[int, ...], device: torch.device | None = None) -> Fitted:
    """The smallest padding with which the network answers at the size of its input."""
    problem = ""
    for multiple in MULTIPLES:
        becomes = tuple(-(-side // multiple) * multiple for side in size)
        try:
            found = _trial(network, torch.zeros(1, n_channels, *becomes, device=device))
        except Exception as error:  # noqa: BLE001 (a network may refuse its input in any way)
            problem = problem or _first_line(error)
            continue
        if tuple(found.shape[2:]) == becomes:
            return Fitted(size, becomes)
        problem = problem or f"it answers with shape {tuple(found.shape)}"
    raise ConfigError(
        f"the network can't take images of {in_words(size)} and {n_channels} channels ({problem}); "
        f"set {'data.size to a multiple of 16' if len(size) == 2 else 'data.patch to multiples of 16'}, "
        "or change [model]"
    )


@torch.inference_mode()
def _trial(network: nn.Module, images: Tensor) -> Tensor:
    """The network's full-sized output; its mode stays as it was."""
    was_training = network.training
    network.eval()
    try:
        return heads_of(network(images), images.ndim - 2)[0]
    finally:
        network.train(was_training)


def check_fits(network: nn.Module, n_channels: int, n_classes: int, size: tuple[int, ...]) -> Fitted:
    """Try the network on one image, so that a wrong size is found before round 1."""
    fit = fitted(network, n_channels, size)
    shape = tuple(_trial(network, fit.padded(torch.zeros(1, n_channels, *size))).shape)
    if shape != (1, n_classes, *fit.becomes):
        raise ConfigError(
            f"the network answers with shape {shape}, expected {(1, n_classes, *fit.becomes)}: "
            "one channel for each class, at the image's size"
        )
    return fit


def choose_device(name: str, key: str = "engine.device") -> torch.device:
    """The torch device of this name, which `key` states; auto means CUDA, else MPS, else CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda", "mps"):
            raise RuntimeError("expected auto, cpu, cuda, cuda:1 or mps")
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch asserts that it was built with CUDA.
        raise ConfigError(f"{key} {name!r} can't be used here: {_first_line(error)}") from None
    return device


def shared_out(n_workers: int, asked: str, n_gpus: int) -> list[str]:
    """The device of each worker process: GPUs in turn, unless one device was asked for.

    >>> shared_out(3, "auto", 2), shared_out(2, "cuda:1", 2), shared_out(2, "auto", 0)
    (['cuda:0', 'cuda:1', 'cuda:0'], ['cuda:1', 'cuda:1'], ['auto', 'auto'])
    """
    if asked not in ("auto", "cuda") or n_gpus < 2:
        return [asked] * n_workers
    return [f"cuda:{worker % n_gpus}" for worker in range(n_workers)]
