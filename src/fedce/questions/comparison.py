"""Several algorithms over several seeds, perhaps against the truth: what is trained, and what it shows."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedce.base.config import Config, parse
from fedce.base.errors import ConfigError
from fedce.base.files import write_bytes
from fedce.base.html import table_html
from fedce.questions import compare
from fedce.questions.compare import Row
from fedce.questions.jobs import Progress, Store
from fedce.questions.value import Truth, trainings_by, truth_over_seeds

MEASURES = ("mean", "std_over_sites", "worst", "jain", "gini", "rank_tau", "truth_pearson", "truth_spearman", "seconds")
"""What the comparison says of an algorithm as a whole."""


@dataclass(frozen=True)
class Comparison:
    """Several algorithms over several seeds; `fedce.compare` gives it, and a notebook shows its tables.

    >>> values = {"north": 0.8, "south": 0.7}
    >>> unknown = [None] * 3
    >>> of_all = (0.75, 0.05, 0.7, 1.0, 0.0)
    >>> row = Row("fedavg", values, values, {}, {}, *of_all, values, *unknown, {}, *unknown, *unknown, 1.0, 2.0)
    >>> found = Comparison((row,), seeds=(0,))
    >>> [(record["algorithm"], record["site"], record["dice"]) for record in found.records]
    [('fedavg', 'north', 0.8), ('fedavg', 'south', 0.7)]
    >>> found.summary[0]["worst"]
    0.7
    """

    rows: tuple[Row, ...]
    """One for each algorithm, with everything that is known of it."""
    seeds: tuple[int, ...]
    truth: Truth | None = None
    """The sites' values by training again, if they were asked for."""

    @property
    def records(self) -> list[dict[str, Any]]:
        """A row for each algorithm and site: Dice, contribution and worth, each the mean over seeds."""
        return [
            {
                "algorithm": row.algorithm,
                "site": site,
                "dice": dice,
                "dice_std": row.dice_std[site],
                "contribution": row.contributions[site],
                "worth": row.worth.get(site),
                "worth_low": row.worth_low.get(site),
                "worth_high": row.worth_high.get(site),
                "gain": row.gain.get(site),
                **{name: found.by_site.get(site) for name, found in row.metrics_by_site.items()},
            }
            for row in self.rows
            for site, dice in row.dice.items()
        ]

    @property
    def summary(self) -> list[dict[str, Any]]:
        """A row for each algorithm: mean and spread of Dice over the sites, fairness, agreement and seconds."""
        return [{"algorithm": row.algorithm, **{name: getattr(row, name) for name in MEASURES}} for row in self.rows]

    @property
    def title(self) -> str:
        return f"Dice in %, mean over the seeds {', '.join(map(str, self.seeds))}"

    def save(self, folder: str | Path, command: str = "fedce.compare(...)") -> Path:
        """Write compare.md, .csv, .tex and .json, and compare-METRIC.csv and .tex for each metric beside Dice."""
        folder = Path(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        by_site = {f"compare-{one.name}": (one.header, one.cells) for one in compare.tables_by_site(self.rows)}
        for name, (header, cells) in {"compare": compare.table(self.rows), **by_site}.items():
            write_bytes(folder / f"{name}.csv", compare.to_csv(header, cells).encode())
            write_bytes(folder / f"{name}.tex", compare.to_latex(header, cells).encode())
        write_bytes(folder / "compare.md", compare.to_markdown(self.rows).encode())
        write_bytes(
            folder / "compare.json", (json.dumps({"command": command, **asdict(self)}, indent=2) + "\n").encode()
        )
        return folder

    def _repr_html_(self) -> str:
        header, lines = compare.table(self.rows)
        # One seed has no deviation.
        cells = lines if len(self.seeds) > 1 else [[cell.split(" ± ")[0] for cell in line] for line in lines]
        kept = [i for i in range(len(header)) if i == 0 or any(line[i] != "-" for line in cells)]
        more = compare.tables_by_site(self.rows)
        tables = [table_html(self.title, [header[i] for i in kept], [[line[i] for i in kept] for line in cells])]
        return "".join([*tables, *(table_html(one.title, one.header, one.cells) for one in more)])


@dataclass(frozen=True)
class Compared:
    """What is to be compared."""

    config: Config
    algorithms: tuple[str, ...]
    seeds: tuple[int, ...]
    truth: str | None = None
    """The method of the truth: loo, shapley or reconstruction."""
    truth_by: str = "fedce"
    """The algorithm that is trained again for the truth."""

    def __post_init__(self) -> None:
        if not self.algorithms or not self.seeds:
            raise ConfigError("expected at least one algorithm and one seed, such as fedavg,fedce and 0,1,2")
        for seed in self.seeds:
            parse({"seed": seed})

    def trainings(self, store: Store) -> list[Config]:
        """Everything that must be trained."""
        configs = compare.plan(self.config, self.algorithms, self.seeds)
        if self.truth is None:
            return configs
        sites = [site.name for site in store.sites(self.config.data)]
        return configs + trainings_by(self.config, self.truth, self.truth_by, self.seeds, sites)

    def answer(
        self, store: Store, workers: int = 0, progress: Callable[[Progress], None] = lambda now: None
    ) -> Comparison:
        """Train what is missing, and compare."""
        truth = (
            truth_over_seeds(self.config, self.truth, self.truth_by, self.seeds, store, workers, progress)
            if self.truth
            else None
        )
        shares = truth.shares if truth else None
        rows = compare.compare(
            self.config, self.algorithms, self.seeds, store, truth=shares, workers=workers, progress=progress
        )
        return Comparison(tuple(rows), self.seeds, truth)
