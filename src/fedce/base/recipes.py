"""Recipes: default values by a name, for keys of an experiment that nobody wrote."""

from collections.abc import Mapping
from typing import Any

Tree = Mapping[str, Any]

SMALL = "small"
RECIPES: Mapping[str, Tree] = {
    # The defaults of base/config.py: a network of half a million parameters, for a computer without a GPU.
    SMALL: {},
    # D12 and D17. What it shares with the defaults stands here as well, so that this is the whole of it.
    "paper": {
        "rounds": 200,
        "data": {"size": 256, "split": (0.5, 0.25, 0.25)},
        "model": {"name": "unet-classic", "channels": (32, 64, 128, 256, 512), "norm": "batch"},
        "train": {
            "loss": "dice",
            "optimizer": "adam",
            "lr": 1e-3,
            "betas": (0.9, 0.99),
            "weight_decay": 0.0,
            "augment": "none",
            "batch_size": 8,
            "epochs": 1,
            "optimizer_state": "persist",
        },
    },
}


def filled(tree: Tree, defaults: Tree) -> dict[str, Any]:
    """The tree with defaults for what it leaves out; None is what TOML can't write, and counts as left out.

    >>> filled({"rounds": 5, "train": {"lr": 0.1}}, {"rounds": 200, "train": {"lr": 0.001, "epochs": 1}})
    {'rounds': 5, 'train': {'lr': 0.1, 'epochs': 1}}
    """
    result = dict(tree)
    for key, default in defaults.items():
        own = result.get(key)
        if own is None:
            result[key] = default
        elif isinstance(default, Mapping) and isinstance(own, Mapping):
            result[key] = filled(own, default)
    return result
