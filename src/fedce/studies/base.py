"""The parts of a study: the trainings that it needs, and its outcome (tables, pictures, findings in sentences)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fedce import algorithms
from fedce.algorithms.titles import title_of
from fedce.base.config import Config
from fedce.base.tables import WorthConfig
from fedce.base.words import cell_text
from fedce.data import Sites
from fedce.federation.session import Result
from fedce.questions.compare import Row, compare, table_for
from fedce.questions.jobs import Store
from fedce.questions.metrics import metric_tables
from fedce.record.entries import Round
from fedce.studies import paper

METHODS = ("standalone", "fedavg", "uniform", "qfedavg", "cffl", "fedci", "cgsv", "fedce", "fedce-sum")
"""The methods of the paper's Table 1, and Uniform, which the table lacks."""
Cell = str | float | None


@dataclass(frozen=True)
class Table:
    name: str
    """The table's name in the name of its CSV file."""
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    digits: int = 2
    n_keys: int = 1
    """Number of first columns that name the row."""

    def text(self, cell: Cell) -> str:
        return cell_text(cell, self.digits)

    @property
    def cells(self) -> list[list[str]]:
        return [[self.text(cell) for cell in row] for row in self.rows]


@dataclass(frozen=True)
class Picture:
    name: str
    caption: str
    """A sentence that says what the picture shows."""
    content: bytes
    """The file's bytes: SVG or PNG."""
    ending: str = "svg"
    data: Table | None = None
    """The numbers that the picture shows."""


@dataclass(frozen=True)
class Outcome:
    """The result of a study."""

    study: str
    title: str
    findings: Sequence[str]
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True, eq=False)
class Context:
    """What all studies of one command share: the experiment, the store, the seeds."""

    config: Config
    seeds: Sequence[int]
    store: Store
    methods: Sequence[str] = METHODS
    largest: int = 12
    """Number of sites of the largest federation that the scaling study makes."""
    _results: dict[str, Result] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.methods:
            algorithms.make(name, {})

    @cached_property
    def sites(self) -> Sites:
        return self.store.sites(self.config.data)

    @property
    def printed(self) -> str:
        """The federation's name in the paper's tables; empty for other data, or for a part of its sites."""
        return self.data if self.data in paper.DICE and tuple(self.names) == paper.CLIENTS else ""

    @property
    def names(self) -> list[str]:
        return [site.name for site in self.sites]

    @property
    def data(self) -> str:
        """The data's name: fundus6, prostate6, or the name of a folder."""
        return self.config.data.source

    @property
    def to_the_letter(self) -> Config:
        """The experiment without guard and ballots, which the paper lacks, unless the experiment states them."""
        off = {"guard": "off", "worth": WorthConfig(every=0)}
        update = {key: value for key, value in off.items() if key not in self.config.model_fields_set}
        return self.config.model_copy(update=update)

    def training(self, algorithm: str, seed: int, **changes: Any) -> Config:
        """One training; options of [algorithm] go to the algorithm that the file names."""
        table = table_for(self.config.algorithm, algorithm)
        return self.to_the_letter.model_copy(update={"algorithm": table, "seed": seed, **changes})

    def title_of(self, algorithm: str) -> str:
        """An algorithm's name in tables, with the variant that is trained."""
        return title_of(table_for(self.config.algorithm, algorithm))

    def trainings(self, algorithms: Sequence[str], **changes: Any) -> list[Config]:
        return [self.training(algorithm, seed, **changes) for algorithm in algorithms for seed in self.seeds]

    def compare(self, algorithms: Sequence[str], truth: Mapping[str, float] | None = None) -> list[Row]:
        """A row for each algorithm over all seeds; `truth` are shares to compare the contributions with."""
        return compare(self.to_the_letter, algorithms, self.seeds, self.store, truth=truth)

    def result(self, config: Config) -> Result:
        """The result of a finished training."""
        path = str(self.store.path(config))
        if path not in self._results:
            found = self.store.finished(config)
            assert found is not None, f"{path} was not trained"
            self._results[path] = found
        return self._results[path]

    def rounds(self, config: Config) -> list[Round]:
        """The ledger's rounds of a finished training."""
        return self.store.rounds(config)

    def leave_one_out(self) -> list[Config]:
        """Trainings of FedCE with all sites and without each site, with every seed."""
        return [
            self.training("fedce", seed, leave_out=left)
            for seed in self.seeds
            for left in ((), *((s,) for s in self.names))
        ]


@dataclass(frozen=True)
class Study:
    """What is trained, and what is made of it. A file of this folder, or of your own, has one: `STUDY`.

    >>> found = Outcome("sites", "Sites", ["No training was needed."])
    >>> study = Study("Sites", trainings=lambda context: [], evaluate=lambda context: found)
    >>> study.title, study.order
    ('Sites', None)
    """

    title: str
    trainings: Callable[[Context], Sequence[Config]]
    """Gives all trainings that the study needs; the store keeps them, so that none is repeated."""
    evaluate: Callable[[Context], Outcome]
    """Gives the outcome; called when all trainings are finished."""
    in_full: Callable[[Context], Sequence[Config]] | None = None
    """Gives those of the trainings whose ledgers or models the study reads; None: it reads all. Of the others, results
    that another machine left are enough."""
    order: int | None = None
    """The study's place in `fedce study all`; None: the study is conducted only when it is named."""


def results_alone(context: Context) -> list[Config]:
    """For a study that reads no ledger and no model."""
    return []


def other_metrics(context: Context, rows: Sequence[Row]) -> list[Table]:
    """A table for each metric beside Dice that the experiment asks for."""
    found = metric_tables({context.title_of(row.algorithm): row.metrics_by_site for row in rows}, list(rows[0].dice))
    return [Table(one.name, f"{one.title}.", one.header, one.cells) for one in found]


def one_seed(context: Context) -> str:
    """The first sentence of a study with one seed, which can't show an order."""
    return f"One seed ({context.seeds[0]}): how much the methods differ by chance is not known, so no order is shown."


def best(values: Mapping[str, float | None], lowest: bool = False) -> str:
    """The name with the largest (with `lowest`, the smallest) value."""
    known = {name: value for name, value in values.items() if value is not None}
    return (min if lowest else max)(known, key=lambda name: known[name])
