"""The sites' values by 'fedce value', compared with the run's own contributions."""

from collections.abc import Mapping
from typing import Any

from fedce.base.files import read_sealed
from fedce.record.folder import RunFolder
from fedce.record.forms import Value, check

METHODS = {
    "loo": ("Leave-one-out", "how much the mean test Dice over all sites falls if the site does not train"),
    "shapley": ("Shapley values", "the mean gain in test Dice when the site joins, over all groups of other sites"),
    "reconstruction": (
        "Shapley values of the rounds",
        "the mean gain in validation Dice when the site joins, over each round's groups of other sites",
    ),
}


def truths(run: RunFolder) -> list[dict[str, Any]]:
    """All values that were measured by training again or from each round's models."""
    return [_truth(run, path.name) for path in sorted(run.path.glob("value-*.json"))]


def _truth(run: RunFolder, name: str) -> dict[str, Any]:
    found = read_sealed(run.path / name)
    check(Value, found, str(run.path / name), "delete it, or value the run again")
    title, meaning = METHODS[found["method"]]
    return {
        "method": found["method"],
        "title": title,
        "meaning": meaning,
        "sentence": _sentence(found),
        "clipped": found["clipped"],
        "rows": [
            {"site": site, "value": value, "share": found["shares"][site], "estimate": found["estimate"][site]}
            for site, value in found["values"].items()
        ],
    }


def _sentence(found: Mapping[str, Any]) -> str:
    """How well the contributions agree with this truth."""
    title, agreement = METHODS[found["method"]][0], found["agreement"]
    if agreement["pearson"] is None:
        return f"{title}: all sites have equal contributions or equal true values, so there is no correlation."
    return (
        f"{title}: over {len(found['values'])} sites, the correlation of the contributions with the truth is "
        f"{agreement['pearson']:.2f} (Pearson, p = {agreement['pearson_p']:.2g}), and that of their order is "
        f"{agreement['spearman']:.2f} (Spearman); 1 is full agreement, 0 is no agreement, -1 is the reverse."
    )
