"""Recipes: default values by a name, for keys of an experiment that nobody wrote."""

from collections.abc import Mapping
from typing import Any

Tree = Mapping[str, Any]

SMALL, PLAN = "small", "plan"
PLANNED = (
    "rounds",
    "data.normalize",
    "model.channels",
    "model.norm",
    "train.loss",
    "train.augment",
    "train.schedule",
    "train.batch_size",
    "train.epochs",
)
"""Keys that every plan states; it states data.size and data.resize only where images have to be resized."""
RECIPES: Mapping[str, Tree] = {
    # Made from the data by learning/planning.py, which fills what nobody wrote before this is asked for.
    PLAN: {},
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


def value_at(tree: Tree, key: str) -> Any:
    """What a tree has under a dotted key; None where it has nothing.

    >>> value_at({"train": {"lr": 0.1}}, "train.lr")
    0.1
    """
    table, _, name = key.rpartition(".")
    inside = tree.get(table) if table else tree
    return inside.get(name) if isinstance(inside, Mapping) else None
