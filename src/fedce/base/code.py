"""Finds the Python code that an experiment names, so that nobody runs somebody else's code without agreeing to it."""

import re
from collections.abc import Mapping
from typing import Any

from fedce.base.config import Config

SAFE_NETWORKS = frozenset(
    f"monai.networks.nets:{name}"
    for name in (
        *("AttentionUnet", "BasicUNet", "BasicUNetPlusPlus", "DynUNet", "HighResNet", "MedNeXt"),
        *("SegResNet", "SwinUNETR", "UNet", "UNETR", "VNet"),
    )
)
SAFE_LOSSES = frozenset(
    f"monai.losses:{name}"
    for name in (
        *("DiceCELoss", "DiceFocalLoss", "DiceLoss", "FocalLoss", "GeneralizedDiceFocalLoss", "GeneralizedDiceLoss"),
        *("HausdorffDTLoss", "LogHausdorffDTLoss", "TverskyLoss"),
    )
)
"""MONAI's networks and losses that take no address, file or weights; their modules were searched for downloads."""
FETCHING = re.compile(r"(^|_)(pretrained|urls?|weights?|files?|download|path$)")
"""Names of options that could make a network fetch or read something."""


def code_in(config: Config) -> dict[str, str]:
    """Keys whose values name Python code that the experiment runs; safe networks and losses are left out.

    Only import paths are found; `federation.plan.code_of` also finds names that installed packages register.
    """
    named = {"algorithm.name": config.algorithm.name, "model.name": config.model.name, "train.loss": config.train.loss}
    named["data.format"] = config.data.format
    named |= {f"metrics.{i}": name for i, name in enumerate(config.metrics)}
    named |= {f"freerider.plant.{site}": kind for site, kind in config.freerider.plant.items()}
    safe = {*SAFE_LOSSES, *(() if _may_fetch(config.model.options) else SAFE_NETWORKS)}
    return {key: path for key, path in named.items() if ":" in path and path not in safe}


def _may_fetch(value: Any) -> bool:
    """Whether a network's options name an address, a file or weights, at any depth."""
    if isinstance(value, Mapping):
        return any(FETCHING.search(str(key).lower()) or _may_fetch(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return any(_may_fetch(inner) for inner in value)
    return isinstance(value, str) and ("/" in value or "\\" in value)
