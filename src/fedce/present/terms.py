"""The two terms behind a site's contribution by FedCE, in words, from the ledger's rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedce.algorithms import ALGORITHMS
from fedce.record.entries import Round

BY_COMBINE = {"product": ("cos", "err"), "sum": ("cos", "err"), "cos": ("cos",), "err": ("err",)}
"""The terms that count in each variant of FedCE."""
WORDS = {
    "cos": {
        1: "its updates are newer than average",
        0: "its updates are as new as on average",
        -1: "its updates are less new than average",
    },
    "err": {
        1: "the others' model errs more on its cases than on average",
        0: "the others' model errs as much on its cases as on average",
        -1: "the others' model errs less on its cases than on average",
    },
}
BEHIND = {
    "cos": "how new a site's updates are, which means that they point where no other site's do",
    "err": "how much the model of the others errs on the site's cases",
}
"""What each term is, for readers who do not know the paper."""


@dataclass(frozen=True)
class Terms:
    about: str
    """What the terms are."""
    by_site: Mapping[str, str]
    """A sentence for each site."""


def terms_in_words(algorithm: str, rounds: Sequence[Round]) -> Terms | None:
    """The terms of each site's contribution; None for methods other than FedCE and if no term was measured.

    Each term is its mean over the rounds in which it was measured and the site's reply was used, divided by the mean
    over the sites.
    """
    combine = ALGORITHMS[algorithm][1].get("combine") if algorithm in ALGORITHMS else None
    if combine is None:
        return None
    found = {key: relative(rounds, key) for key in BY_COMBINE[combine]}
    sites = sorted(set.intersection(*(set(by_site) for by_site in found.values())))
    by_site = {site: _sentence({key: multiples[site] for key, multiples in found.items()}) for site in sites}
    about = f"In every round FedCE measures {', and '.join(BEHIND[key] for key in found)}."
    return Terms(f"{about} Here is the mean over the rounds, as a multiple of the average site's.", by_site)


def relative(rounds: Sequence[Round], key: str) -> dict[str, float]:
    """Each site's mean of a recorded term over the rounds, as a multiple of the average site's."""
    measured: dict[str, list[float]] = {}
    for done in rounds:
        for site, facts in done.facts.items():
            if (value := facts.get(key)) is not None and done.sites[site].trust > 0:
                measured.setdefault(site, []).append(float(value))
    means = {site: fmean(values) for site, values in measured.items()}
    average = fmean(means.values()) if means else 0.0
    return {site: mean / average for site, mean in means.items()} if average > 0 else {}


def _sentence(multiples: Mapping[str, float]) -> str:
    parts = [f"{WORDS[key][_side(multiple)]} ({multiple:.1f} times)" for key, multiple in multiples.items()]
    text = ", and ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _side(multiple: float) -> int:
    """1: above the average, -1: below, 0: neither, as far as the printed digit shows."""
    shown = round(multiple, 1)
    return 0 if shown == 1 else 1 if shown > 1 else -1
