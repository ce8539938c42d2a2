"""Several algorithms, several seeds, one table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from fedce.algorithms.titles import printed_name
from fedce.base.config import Config
from fedce.base.files import csv_text
from fedce.base.tables import AlgorithmConfig
from fedce.federation.session import Result
from fedce.questions.jobs import Progress, Store
from fedce.questions.metrics import MetricTable, OverSeeds, metric_tables, over_seeds
from fedce.valuation.agreement import agreement, rank_stability
from fedce.valuation.fairness import against_standalone, fairness, sample_std
from fedce.valuation.worth import is_told, measures_needs


@dataclass(frozen=True)
class Row:
    """One algorithm over all seeds. Dice as fractions; deviations over seeds are sample standard deviations."""

    algorithm: str
    dice: Mapping[str, float]
    """Site to its mean Dice over seeds."""
    dice_std: Mapping[str, float]
    """Site to its standard deviation of Dice over seeds."""
    dice_by_seed: Mapping[str, Sequence[float]]
    """Site to its Dice with each seed, in the order of the seeds."""
    dice_by_class: Mapping[str, float]
    """Class to its mean Dice over sites and seeds."""
    mean: float
    std_over_sites: float
    """Standard deviation of the sites' means, as in the paper's Table 1."""
    worst: float
    jain: float
    gini: float
    contributions: Mapping[str, float]
    """Mean over seeds."""
    standalone_pearson: float | None
    standalone_pearson_p: float | None
    standalone_euclid: float | None
    """Agreement of the sites' means with Standalone's (the paper's Table 2)."""
    gain: Mapping[str, float]
    """Site to its Dice minus Standalone's; empty if Standalone is not compared."""
    truth_pearson: float | None
    truth_pearson_p: float | None
    truth_spearman: float | None
    truth_euclid: float | None
    truth_cosine: float | None
    """Agreement of the contributions with the truth (the paper's Table 3)."""
    rank_tau: float | None
    """Kendall's tau between two seeds' orders of the contributions, averaged over all pairs; None for one seed."""
    seconds: float
    megabytes: float
    """Models carried over the network in a whole run."""
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    """Metric beside Dice to its mean over sites and seeds, where it is defined."""
    title: str = ""
    """The name in tables, with the variant if the algorithm has several; if empty, the algorithm's name."""
    metrics_by_site: Mapping[str, OverSeeds] = field(default_factory=dict)
    worth: Mapping[str, float] = field(default_factory=dict)
    """Site to its share of what is given to others, the mean over seeds; empty if it was not measured with each."""
    worth_low: Mapping[str, float] = field(default_factory=dict)
    worth_high: Mapping[str, float] = field(default_factory=dict)
    """The ends of a run's 95 % interval of `worth`, each the mean over seeds."""
    worth_is_told: bool = True
    """Whether the sites differ by more than noise in what they give, with every seed."""
    truth_pearson_of_worth: float | None = None
    """Agreement with the truth of what each site gives and itself needs (worth.all)."""

    def over_sites(self, measure: Callable[[Sequence[float]], float]) -> list[float]:
        """A measure of all sites' Dice, for each seed."""
        return [measure(dice) for dice in zip(*self.dice_by_seed.values(), strict=True)]


def plan(config: Config, algorithms: Sequence[str], seeds: Sequence[int]) -> list[Config]:
    """Every algorithm with every seed. Options of [algorithm] go to the algorithm that the file names."""
    tables = {name: table_for(config.algorithm, name) for name in algorithms}
    return [
        config.model_copy(update={"algorithm": tables[name], "seed": seed}) for name in algorithms for seed in seeds
    ]


def table_for(named: AlgorithmConfig, name: str) -> AlgorithmConfig:
    """The [algorithm] table of one of several algorithms: with the file's options, if the file names it."""
    return named if named.name == name else AlgorithmConfig(name=name)


def compare(
    config: Config,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    store: Store,
    *,
    truth: Mapping[str, float] | None = None,
    workers: int = 0,
    progress: Callable[[Progress], None] = lambda now: None,
) -> list[Row]:
    """Train what is missing and compare all; `truth` are shares to compare the contributions with."""
    results = store.run(plan(config, algorithms, seeds), workers, progress)
    by_algorithm = {name: results[i * len(seeds) : (i + 1) * len(seeds)] for i, name in enumerate(algorithms)}
    alone = _mean_by_site([result.dice for result in by_algorithm.get("standalone", [])])
    titles = {name: printed_name(table_for(config.algorithm, name)) for name in algorithms}
    return [replace(_row(name, runs, alone, truth), title=titles[name]) for name, runs in by_algorithm.items()]


def _row(name: str, runs: Sequence[Result], alone: Mapping[str, float], truth: Mapping[str, float] | None) -> Row:
    dice = _mean_by_site([run.dice for run in runs])
    served = fairness(list(dice.values()))
    contributions = _mean_by_site([run.contributions for run in runs])
    metrics = over_seeds([run.values for run in runs])
    classes = [_mean_by_class(list(run.values["dice_by_class"].values())) for run in runs]
    versus = against_standalone(dice, alone) if alone and name != "standalone" else None
    agrees = (
        agreement([contributions[site] for site in truth], list(truth.values()))
        if truth and name != "standalone"
        else None
    )
    return Row(
        algorithm=name,
        dice=dice,
        dice_std={site: sample_std([run.dice[site] for run in runs]) for site in dice},
        dice_by_seed={site: [run.dice[site] for run in runs] for site in dice},
        dice_by_class=_mean_by_site(classes),
        mean=served.mean,
        std_over_sites=served.std,
        worst=served.worst,
        jain=served.jain,
        gini=served.gini,
        contributions=contributions,
        standalone_pearson=versus.pearson if versus else None,
        standalone_pearson_p=versus.pearson_p if versus else None,
        standalone_euclid=versus.euclid if versus else None,
        gain=versus.gain_by_site if versus else {},
        truth_pearson=agrees.pearson if agrees else None,
        truth_pearson_p=agrees.pearson_p if agrees else None,
        truth_spearman=agrees.spearman if agrees else None,
        truth_euclid=agrees.euclid if agrees else None,
        truth_cosine=agrees.cosine if agrees else None,
        rank_tau=_rank_tau(runs) if name != "standalone" else None,
        seconds=fmean(run.values["seconds"] for run in runs),
        megabytes=fmean(run.values["megabytes"] for run in runs),
        metrics={metric: found.mean for metric, found in metrics.items()},
        metrics_by_site=metrics,
        worth=_worth(runs, "share"),
        worth_low=_worth(runs, "low"),
        worth_high=_worth(runs, "high"),
        worth_is_told=all(is_told(run.values.get("worth")) for run in runs),
        truth_pearson_of_worth=_worth_agrees(_worth(runs, "all"), truth),
    )


def _worth(runs: Sequence[Result], what: str) -> dict[str, float]:
    """Shares by ballots, the mean over runs; empty if they were not measured in every run."""
    found = [(run.values.get("worth") or {}).get(what) for run in runs]
    known = [shares for shares in found if shares is not None]
    return _mean_by_site(known) if len(known) == len(runs) else {}


def _worth_agrees(worth: Mapping[str, float], truth: Mapping[str, float] | None) -> float | None:
    if not worth or not truth:
        return None
    return agreement([worth.get(site, 0.0) for site in truth], list(truth.values())).pearson


def _rank_tau(runs: Sequence[Result]) -> float | None:
    orders = [[run.contributions[site] for site in runs[0].contributions] for run in runs]
    return rank_stability(orders).mean_tau if len(runs) > 1 else None


def _mean_by_class(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Class to the mean over the sites that label it."""
    names = dict.fromkeys(name for one in values for name in one)
    return {name: fmean(one[name] for one in values if name in one) for name in names}


def _mean_by_site(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    known = set.intersection(*map(set, values)) if values else set()
    return {key: fmean(one[key] for one in values) for key in (values[0] if values else {}) if key in known}


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Header and cells; Dice in per cent, as in the paper."""
    sites = list(rows[0].dice)
    metrics = rows[0].metrics_by_site
    header = ["algorithm", *sites, "Avg.", "Std.", *(found.heading.line(found.units) for found in metrics.values())]
    header += ["worst", "r Standalone", "d Standalone"]
    header += ["r truth", "r truth of worth", "Spearman", "d truth", "cos truth", "tau seeds", "seconds", "MB"]
    return header, [
        [
            row.title or row.algorithm,
            *(f"{100 * row.dice[site]:.2f} ± {100 * row.dice_std[site]:.2f}" for site in sites),
            f"{100 * row.mean:.2f}",
            f"{100 * row.std_over_sites:.2f}",
            *(row.metrics_by_site[metric].mean_text for metric in metrics),
            f"{100 * row.worst:.2f}",
            _cell(row.standalone_pearson, 100),
            _cell(row.standalone_euclid, 100),
            _cell(row.truth_pearson, 100),
            _cell(row.truth_pearson_of_worth, 100),
            _cell(row.truth_spearman, 100),
            _cell(row.truth_euclid, 1, 3),
            _cell(row.truth_cosine, 1, 3),
            _cell(row.rank_tau, 1, 2),
            f"{row.seconds:.0f}",
            f"{row.megabytes:.0f}",
        ]
        for row in rows
    ]


def tables_by_site(rows: Sequence[Row]) -> list[MetricTable]:
    """Each metric beside Dice by site, and what each site gives and contributes, if that was measured."""
    found = metric_tables({row.algorithm: row.metrics_by_site for row in rows}, list(rows[0].dice))
    return [*found, *([shares_table(rows)] if any(row.worth for row in rows) else [])]


def shares_table(rows: Sequence[Row]) -> MetricTable:
    """What each site gives to the others, and its contribution by the method, which with FedCE says what it needs."""
    sites = list(rows[0].dice)
    cells: list[list[str]] = []
    for row in (one for one in rows if one.worth):
        name = row.title or row.algorithm
        gives = "gives" if row.worth_is_told else "gives (who gives most can't be told)"
        second = "needs" if measures_needs(row.algorithm) else "contribution"
        cells.append([f"{name}, {gives}", *(_given(row, site) for site in sites)])
        cells.append([f"{name}, {second}", *(_cell(row.contributions.get(site), 100, 1) for site in sites)])
    return MetricTable(
        "shares",
        "what each site gives to the others, as a share of all that is given (in brackets a run's 95 % interval, each "
        "end the mean over seeds), and its contribution by the method, with FedCE what it needs; %",
        ["method", *sites],
        cells,
    )


def _given(row: Row, site: str) -> str:
    if site not in row.worth:
        return "-"
    ends = f"{100 * row.worth_low[site]:.0f} to {100 * row.worth_high[site]:.0f}"
    return f"{_cell(row.worth[site], 100, 1)} ({ends})"


def _cell(value: float | None, factor: float = 1.0, digits: int = 2) -> str:
    return "-" if value is None else f"{factor * value:.{digits}f}"


def to_markdown(rows: Sequence[Row]) -> str:
    more = "".join(f"\n{table.title}\n\n{_markdown(table.header, table.cells)}" for table in tables_by_site(rows))
    return _markdown(*table(rows)) + more


def _markdown(header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *cells]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def to_csv(header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    return csv_text([header, *cells])


def to_latex(header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    body = "".join(" & ".join(_tex(cell) for cell in line) + r" \\" + "\n" for line in cells)
    columns = "l" + "c" * (len(header) - 1)
    head = " & ".join(_tex(cell) for cell in header)
    return f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head} \\\\\n\\midrule\n{body}\\bottomrule\n\\end{{tabular}}\n"


def _tex(text: str) -> str:
    return text.replace("_", r"\_").replace("%", r"\%").replace(" ± ", r" $\pm$ ")
