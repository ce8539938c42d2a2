"""What 'fedce value' found about a run, beside the run's own contributions."""

from collections.abc import Mapping
from typing import Any

from fedce.base.files import read_sealed
from fedce.record.folder import RunFolder
from fedce.record.forms import Value, check

METHODS = {
    "loo": ("Leave-one-out", "what mean test Dice over all sites loses if the site does not train"),
    "shapley": ("Shapley values", "the mean gain in test Dice over all coalitions that the site can join"),
    "reconstruction": ("Shapley values of the rounds", "the mean gain in validation Dice over each round's coalitions"),
}


def truths(run: RunFolder) -> list[dict[str, Any]]:
    """All that was measured by training again or from each round's models."""
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
    """How well the contributions follow this truth."""
    title, agreement = METHODS[found["method"]][0], found["agreement"]
    if agreement["pearson"] is None:
        return f"{title}: contributions or truth are the same for all sites, so there is no correlation."
    return (
        f"{title}: over {len(found['values'])} sites the contributions correlate with the truth by "
        f"{agreement['pearson']:.2f} (Pearson, p = {agreement['pearson_p']:.2g}), their order by "
        f"{agreement['spearman']:.2f} (Spearman); 1 is full agreement, 0 none, -1 the reverse."
    )
