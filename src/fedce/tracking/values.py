"""What a tracker gets, from a run's experiment and its ledger alone."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedce.base.config import Config
from fedce.record.entries import Round
from fedce.record.ledger import Ledger
from fedce.record.results import worth_so_far
from fedce.tracking.tracker import RoundValues

SHOWN = ("recipe", "seed", "rounds", "patience", "sites_per_round", "guard", "alone", "personalise", "algorithm")
TABLES = ("algorithm", "train", "model")
PRIVATE = ("model.start",)
"""Paths of this machine."""


def rounds_from(config: Config, ledger: Ledger, n_known: int) -> Iterator[RoundValues]:
    """The rounds after the first `n_known` ones."""
    worth, n_rounds = None, 0
    for number, line in enumerate(ledger.lines, 1):
        if not isinstance(line, Round):
            continue
        n_rounds += 1
        if n_rounds <= n_known:
            continue
        if worth is None or line.ballot is not None:  # Worth changes only with a ballot.
            worth = _worth(config, Ledger(ledger.lines[:number]))
        yield _values_of(line, worth)


def _worth(config: Config, ledger: Ledger) -> Mapping[str, float]:
    found: Mapping[str, float] | None = worth_so_far(config, ledger).get("worth", {}).get("share")
    return found or {}


def _values_of(done: Round, worth: Mapping[str, float]) -> RoundValues:
    sites = done.sites
    scores = {site: facts.score for site, facts in sites.items()}
    losses = {site: facts.loss for site, facts in sites.items()}
    flags = {site: tuple(facts.flag_texts) for site, facts in sites.items()}
    flags |= {site: (f"reply rejected: {reason}",) for site, reason in done.rejected.items()}
    return RoundValues(
        number=done.round_no + 1,
        time=done.time,
        mean_dice=done.mean_score,
        seconds=done.seconds,
        by_site={
            "dice": {site: score for site, score in scores.items() if score is not None},
            "share": done.shares,
            "worth": dict(worth),
            "loss": {site: loss for site, loss in losses.items() if loss is not None},
            "seconds": {site: facts.seconds for site, facts in sites.items()},
            "flags": {site: float(len(words)) for site, words in flags.items()},
        },
        flags={site: words for site, words in flags.items() if words},
    )


def settings_of(config: Config) -> dict[str, str]:
    """The keys that people compare runs by. Tables of data and engine are left out: they hold paths and keys."""
    tree = config.model_dump(mode="json", exclude_none=True, include={*SHOWN, *TABLES})
    flat = {"data": Path(config.data.source).name, **dict(_flat(tree))}
    return {key: str(value) for key, value in flat.items() if key not in PRIVATE}


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
