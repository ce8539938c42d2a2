"""Networks by name or by import path."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fedce.base.errors import ConfigError, nearest
from fedce.base.registry import full_name, load_object
from fedce.base.tables import ModelConfig
from fedce.learning.classic_unet import ClassicUNet

NETWORKS = ("unet", "unet-classic")


def network_path(name: str) -> str:
    """The name, or the import path of a network that an installed package offers (entry point fedce.networks)."""
    return full_name(name, NETWORKS, "fedce.networks")


def build(config: ModelConfig, n_channels: int, n_classes: int, seed: int) -> nn.Module:
    """The network with its initial weights, which depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if config.name in NETWORKS:
            _check_levels(config)
            return (_unet if config.name == "unet" else _classic)(config, n_channels, n_classes)
        if ":" not in network_path(config.name):
            raise ConfigError(
                f"unknown network {config.name!r}{nearest(config.name, NETWORKS)}; "
                f"use {', '.join(NETWORKS)} or an import path such as monai.networks.nets:SegResNet"
            )
        return _imported(config)


def _check_levels(config: ModelConfig) -> None:
    if config.options:
        raise ConfigError(
            f"model.options is for networks by import path; {config.name} has channels, norm and, if unet, res_units"
        )
    if len(config.channels) < 2:
        raise ConfigError(f"model.channels: a U-Net needs at least two levels, got {list(config.channels)}")
    if config.res_units and config.name != "unet":
        raise ConfigError(f"model.res_units is {config.res_units}, but {config.name} has no residual units; use unet")


def _unet(config: ModelConfig, n_channels: int, n_classes: int) -> nn.Module:
    from monai.networks.nets import UNet

    with _made_of(config):
        network: nn.Module = UNet(
            spatial_dims=2,
            in_channels=n_channels,
            out_channels=n_classes,
            channels=config.channels,
            strides=(2,) * (len(config.channels) - 1),
            num_res_units=config.res_units,
            norm=_norm(config),
        )
    return network


def _classic(config: ModelConfig, n_channels: int, n_classes: int) -> nn.Module:
    from monai.networks.layers.utils import get_norm_layer

    with _made_of(config):
        return ClassicUNet(n_channels, n_classes, config.channels, lambda n: get_norm_layer(_norm(config), 2, n))


def _norm(config: ModelConfig) -> Any:
    """The norm as MONAI names it. Every level's channels must be divisible by the number of groups."""
    if config.stays != "nothing":
        return "batch"
    if config.norm != "group":
        return config.norm
    return ("group", {"num_groups": next(g for g in (8, 4, 2, 1) if all(c % g == 0 for c in config.channels))})


@contextmanager
def _made_of(config: ModelConfig) -> Iterator[None]:
    """Turn torch's error about impossible channels into one line."""
    try:
        yield
    except RuntimeError as error:
        raise ConfigError(f"a U-Net of channels {list(config.channels)} can't be made: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _imported(config: ModelConfig) -> nn.Module:
    make = load_object(network_path(config.name), "model.name")
    try:
        network = make(**config.options)
    except Exception as error:  # noqa: BLE001 (a constructor may refuse its arguments in any way)
        raise ConfigError(f"model.options does not fit {config.name}: {_first_line(error)}") from None
    if not isinstance(network, nn.Module):
        raise ConfigError(f"model.name: {config.name} makes a {type(network).__name__}, not a torch.nn.Module")
    return network


def check_fits(network: nn.Module, n_channels: int, n_classes: int, height: int, width: int) -> None:
    """Try the network on one image, so that a wrong size is found before round 1."""
    network.eval()
    image = torch.zeros(1, n_channels, height, width)
    try:
        with torch.inference_mode():
            shape = tuple(network(image).shape)
    except Exception as error:  # noqa: BLE001 (a network may refuse its input in any way)
        raise ConfigError(
            f"the network can't take images of {width}x{height} pixels and {n_channels} channels "
            f"({_first_line(error)}); set data.size to a multiple of 16, or change [model]"
        ) from None
    if shape != (1, n_classes, height, width):
        raise ConfigError(
            f"the network answers with shape {shape}, expected {(1, n_classes, height, width)}: "
            "one channel for each class, at the image's size"
        )


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
