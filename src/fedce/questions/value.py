"""Ground truth: the value of each site, by training again without it, or from each round's models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from fedce.base.config import Config, load
from fedce.base.errors import ConfigError, nearest
from fedce.base.html import percent, table_html
from fedce.base.tables import AlgorithmConfig, WorthConfig
from fedce.federation.session import Result
from fedce.questions.jobs import Progress, Store
from fedce.record.folder import RunFolder
from fedce.valuation import shapley
from fedce.valuation.agreement import Agreement, Reliability, agreement, reliability

METHODS = ("loo", "shapley", "reconstruction")
MAX_RETRAINED = 8
"""Most sites for exact Shapley values: 2^8 trainings are as many as are practical."""


@dataclass(frozen=True)
class Valuation:
    """The value of each site, in mean test Dice over all sites (reconstruction: validation Dice).

    `fedce.value` gives it, and a notebook shows its table.

    >>> values, shares = {"north": 0.03, "south": 0.01}, {"north": 0.75, "south": 0.25}
    >>> estimate = {"north": 0.5, "south": 0.5}
    >>> agrees = agreement(list(estimate.values()), list(shares.values()))
    >>> found = Valuation("loo", values, shares, (), {}, estimate, agrees, 3)
    >>> found.records[0]
    {'site': 'north', 'value': 0.03, 'share': 0.75, 'contribution': 0.5, 'worth': None}
    """

    method: str
    values: Mapping[str, float]
    shares: Mapping[str, float]
    """The values as shares: negative ones clipped to 0, the others scaled to a sum of 1."""
    clipped: tuple[str, ...]
    utilities: Mapping[str, float]
    """Mean Dice of each trained coalition, by its members' names joined with '+'."""
    estimate: Mapping[str, float]
    """The algorithm's own contributions."""
    agreement: Agreement
    n_trained: int
    worth: Mapping[str, float] | None = None
    """What each site gives, and itself would lose, by the ballots of the run (worth.all); None if not measured."""
    worth_agreement: Agreement | None = None

    @property
    def records(self) -> list[dict[str, Any]]:
        """A row for each site: its value, the value as a share, and the estimates that the value judges."""
        return [
            {
                "site": site,
                "value": value,
                "share": self.shares[site],
                "contribution": self.estimate[site],
                "worth": (self.worth or {}).get(site),
            }
            for site, value in self.values.items()
        ]

    @property
    def sentences(self) -> list[str]:
        """How well the estimates agree with the values."""
        estimates = {"contributions": self.agreement, "worth.all": self.worth_agreement}
        return [f"{self.method} against {name}: {in_words(found)}" for name, found in estimates.items() if found]

    def _repr_html_(self) -> str:
        rows = [
            [one["site"], f"{one['value']:+.4f}", *(percent(one[key]) for key in ("share", "contribution", "worth"))]
            for one in self.records
        ]
        title = f"{self.method}: what the mean Dice loses without each site"
        header = ["site", "lost without it", "truth, share", "contribution", "worth.all"]
        return table_html(title, header, rows, self.sentences)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def trainings(config: Config, method: str, sites: Sequence[str]) -> list[Config]:
    """All trainings that a method needs; the training with all sites comes first."""
    # The common model is valued: a site that trains on by itself would make up for what the others leave out.
    config = config.model_copy(update={"personalise": 0, "alone": False})
    if config.leave_out:
        raise ConfigError(
            f"the experiment already leaves out {', '.join(config.leave_out)}; value the whole federation"
        )
    if method == "reconstruction":
        return [config.model_copy(update={"reconstruction": True})]
    everybody = frozenset(sites)
    if method == "loo":
        coalitions = [everybody, *(everybody - {site} for site in sites)]
    elif len(sites) <= MAX_RETRAINED:
        coalitions = [everybody, *(c for c in shapley.coalitions(sites) if c != everybody)]
    else:
        raise ConfigError(
            f"exact Shapley values of {len(sites)} sites need 2^{len(sites)} trainings; "
            "use --method reconstruction, which needs one"
        )
    without = config.model_copy(update={"worth": WorthConfig(every=0)})
    return [
        config if c == everybody else without.model_copy(update={"leave_out": _absent(sites, c)}) for c in coalitions
    ]


def _absent(sites: Sequence[str], coalition: frozenset[str]) -> tuple[str, ...]:
    return tuple(site for site in sites if site not in coalition)


def value(
    config: Config,
    method: str,
    store: Store,
    workers: int = 0,
    progress: Callable[[Progress], None] = lambda now: None,
) -> Valuation:
    """Train what is missing, and compute the sites' values."""
    sites = [site.name for site in store.sites(config.data)]
    wanted = trainings(config, method, sites)
    results = store.run(wanted, workers, progress)
    whole = results[0]
    if method == "reconstruction":
        values = {site: float(whole.values["reconstruction"].get(site, 0.0)) for site in sites}
        utilities: dict[str, float] = {}
    else:
        by_coalition = {
            frozenset(sites) - set(run.leave_out): utility(result) for run, result in zip(wanted, results, strict=True)
        }
        rule = shapley.leave_one_out if method == "loo" else shapley.exact
        values = rule(by_coalition.__getitem__, sites)
        utilities = {"+".join(sorted(coalition)): u for coalition, u in by_coalition.items()}
    shares = shapley.shares(values)
    estimate = whole.contributions
    worth = (whole.values.get("worth") or {}).get("all")
    target = [shares.by_player[site] for site in sites]
    return Valuation(
        method=method,
        values=values,
        shares=shares.by_player,
        clipped=shares.clipped,
        utilities=utilities,
        estimate=estimate,
        agreement=agreement([estimate[site] for site in sites], target),
        n_trained=len(wanted),
        worth=worth,
        worth_agreement=agreement([worth.get(site, 0.0) for site in sites], target) if worth else None,
    )


@dataclass(frozen=True)
class Truth:
    """The sites' values over several seeds."""

    method: str
    by: str
    """The algorithm that was trained again."""
    values: Mapping[str, float]
    """Mean over seeds."""
    by_seed: Mapping[int, Mapping[str, float]]
    shares: Mapping[str, float]
    """Shares of the mean values; negative ones clipped to 0."""
    reliability: Reliability | None


def truth_over_seeds(
    config: Config,
    method: str,
    algorithm: str,
    seeds: Sequence[int],
    store: Store,
    workers: int,
    progress: Callable[[Progress], None],
) -> Truth:
    """Retrain with one algorithm, with each seed."""
    sites = [site.name for site in store.sites(config.data)]
    # All seeds at once, so that no core waits for the last training of a seed.
    store.run(trainings_by(config, method, algorithm, seeds, sites), workers, progress)
    by_seed = {run.seed: value(run, method, store).values for run in _runs(config, algorithm, seeds)}
    values = {site: fmean(one[site] for one in by_seed.values()) for site in sites}
    rows = [[one[site] for site in sites] for one in by_seed.values()]
    return Truth(method, algorithm, values, by_seed, shapley.shares(values).by_player, reliability(rows))


def trainings_by(
    config: Config, method: str, algorithm: str, seeds: Sequence[int], sites: Sequence[str]
) -> list[Config]:
    """All trainings of a truth over several seeds."""
    check_method(method)
    return [one for run in _runs(config, algorithm, seeds) for one in trainings(run, method, sites)]


def _runs(config: Config, algorithm: str, seeds: Sequence[int]) -> list[Config]:
    table = config.algorithm if config.algorithm.name == algorithm else AlgorithmConfig(name=algorithm)
    return [config.model_copy(update={"algorithm": table, "seed": seed}) for seed in seeds]


def in_words(found: Agreement) -> str:
    return ", ".join(
        f"{name} {'undefined' if value is None else f'{value:.3f}'}" for name, value in vars(found).items()
    )


def check_method(method: str) -> None:
    if method not in METHODS:
        raise ConfigError(f"unknown method {method!r}{nearest(method, METHODS)}; known: {', '.join(METHODS)}")


def utility(result: Result) -> float:
    """Mean test Dice over all sites, including those left out of training."""
    return sum(result.dice.values()) / len(result.dice)


def config_of(target: Path) -> Config:
    """The experiment of a run folder, or of a TOML file."""
    return RunFolder.open(target).config if target.is_dir() else load(target)
