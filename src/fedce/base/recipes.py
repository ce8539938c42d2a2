"""Recipes: named sets of values for the keys that an experiment leaves out."""

from collections.abc import Mapping
from typing import Any

Tree = Mapping[str, Any]

SMALL, PLAN = "small", "plan"
PLANNED = (
    "rounds",
    "personalise",
    "data.normalize",
    "model.channels",
    "model.res_units",
    "model.norm",
    "train.loss",
    "train.augment",
    "train.schedule",
    "train.batch_size",
    "train.epochs",
)
"""Keys that every plan sets."""
PLANNED_IF_NEEDED = ("data.size", "data.resize", "data.dims", "data.spacing", "data.patch")
"""Keys that a plan sets only if images have to be resized, or if all files are volumes."""
RECIPES: Mapping[str, Tree] = {
    # Made from the data by learning/planning.py, which fills the missing keys before this table is used.
    PLAN: {},
    # The defaults of base/config.py: a network of half a million parameters, for a computer without a GPU.
    SMALL: {},
    # D12 and D17. Values that equal the defaults are listed as well, so that the recipe is complete.
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
    """The tree with defaults for the keys that it leaves out; None counts as left out, because TOML can't write it.

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
    """The value of a dotted key in a tree; None if the tree does not have the key.

    >>> value_at({"train": {"lr": 0.1}}, "train.lr")
    0.1
    """
    table, _, name = key.rpartition(".")
    inside = tree.get(table) if table else tree
    return inside.get(name) if isinstance(inside, Mapping) else None
