"""Weights of sites: numbers that are not negative and sum to 1."""

from collections.abc import Mapping


def normalise(values: Mapping[str, float]) -> dict[str, float]:
    total = sum(values.values())
    return {site: value / total for site, value in values.items()}


def capped(weights: Mapping[str, float], cap: float) -> dict[str, float]:
    """The weights with none above the cap (or 1/N); the excess goes to the other sites in proportion to their weights.

    N is the number of sites with a weight above 0.
    """
    cap = max(cap, 1 / sum(weight > 0 for weight in weights.values()))
    result, full = dict(weights), set[str]()
    while over := {site for site, weight in result.items() if weight > cap and site not in full}:
        full |= over
        rest = sum(weight for site, weight in result.items() if site not in full)
        scale = (1 - cap * len(full)) / rest if rest > 0 else 0.0
        result = {site: cap if site in full else weight * scale for site, weight in result.items()}
    return result
