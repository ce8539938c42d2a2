"""A finished run in Python: its numbers as records, its model, and its figures."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedce.base.config import Config
from fedce.base.places import STORE
from fedce.present.notebook import jobs_display
from fedce.present.results import flag_lines, interval_lines
from fedce.present.worth import shares_given
from fedce.record.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

    from fedce.questions.candidate import Candidacy
    from fedce.questions.evaluated import Evaluated
    from fedce.questions.segmentation import Segmentation

Record = dict[str, Any]
Ends = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run; `fedce.run` and `fedce.load` give it, and a notebook shows its table.

    Tables are lists of dicts: `pandas.DataFrame(result.sites)` makes a data frame. Dice and shares are fractions.

    >>> import fedce
    >>> sites = fedce.load_sites("fundus6", scale="tiny")
    >>> result = fedce.run(sites, rounds=2, settings={"recipe": "small"}, progress=False)
    >>> result
    <Result of runs/fundus6-fedce-0: fedce on fundus6, 2 rounds, mean Dice 0...>
    >>> list(result.contributions)
    ['site1', 'site2', 'site3', 'site4', 'site5', 'site6']
    >>> round(sum(result.contributions.values()), 6)
    1.0
    >>> [sorted(row) for row in result.sites[:1]]
    [['contribution', 'contribution_high', ..., 'train_images', 'worth', 'worth_high', 'worth_low']]
    >>> result.intervals, result.sentences[0]
    ({}, '...')
    """

    folder: Path
    """The run folder: model, report, record and configuration."""
    values: Mapping[str, Any] = field(repr=False)
    """Everything in results.json."""

    def __repr__(self) -> str:
        values = self.values
        trained = f"{values['algorithm']} on {Path(values['data']).name}, {values['rounds']} rounds"
        return f"<Result of {self.folder}: {trained}, mean Dice {values['fairness']['mean']:.3f}>"

    def _repr_html_(self) -> str:
        from fedce.present.shown import result_html

        return result_html(self.values, self.folder)

    @property
    def contributions(self) -> dict[str, float]:
        """Each site's contribution by the algorithm, with FedCE what the site needs; they sum to 1."""
        return dict(self.values["contributions"])

    @property
    def intervals(self) -> dict[str, Ends | None]:
        """The 95 % interval of each site's contribution; empty if there are none, and `sentences` says why."""
        found = self.values["intervals"]
        return {site: _ends(found, site) for site in found["low"]} if found else {}

    @property
    def worth(self) -> dict[str, float]:
        """Each site's share of what is given to the others; empty if it was not measured: `sentences` says why."""
        return dict(shares_given(self.values))

    @property
    def worth_intervals(self) -> dict[str, Ends | None]:
        """The 95 % interval of each site's worth."""
        return {site: _ends(self.values["worth"], site) for site in self.worth}

    @property
    def dice(self) -> dict[str, float]:
        """Each site's test Dice of the model that it uses."""
        return dict(self.values["dice"])

    @property
    def fairness(self) -> dict[str, float]:
        """Mean, standard deviation, worst and best Dice over the sites, Jain's index and the Gini coefficient."""
        return dict(self.values["fairness"])

    @property
    def sentences(self) -> list[str]:
        """What a reader must know beside the numbers: who can't be told apart, what was not measured, and flags."""
        return [*interval_lines(self.values), *flag_lines(self.values)]

    @property
    def sites(self) -> list[Record]:
        """A row for each site: images, Dice, contribution and worth with the ends of their intervals, flags."""
        return [self._site(name) for name in self.values["contributions"]]

    def _site(self, site: str) -> Record:
        values = self.values
        row: Record = {"site": site, "images": values["images"][site], "train_images": values["train_images"][site]}
        row |= _with_ends("worth", self.worth.get(site), self.worth_intervals.get(site))
        row |= _with_ends("contribution", values["contributions"][site], self.intervals.get(site))
        row |= _with_ends("dice", values["dice"].get(site), values.get("dice_interval", {}).get(site))
        row["dice_without"] = values["dice_without"].get(site)
        if "alone" in values:
            row["alone"] = values["alone"].get(site)
            row |= _with_ends("gain", values["gain"].get(site), values["gain_interval"].get(site))
        metrics = {name: by_site for name, by_site in values.get("metrics", {}).items() if name != "dice"}
        row |= {name: by_site.get(site) for name, by_site in metrics.items()}
        return {**row, "flags": values["flags"].get(site, [])}

    @cached_property
    def rounds(self) -> list[Record]:
        """A row for each round and site that took part: validation Dice at its start, loss, weight, contribution."""
        return [
            {
                "round": done.round_no + 1,
                "site": site,
                "validation_dice": facts.score,
                "loss": facts.loss,
                "weight": facts.weight,
                "contribution": facts.share,
                "seconds": facts.seconds,
                "flags": [flag.text for flag in facts.flags],
            }
            for done in self._run.rounds()
            for site, facts in done.sites.items()
        ]

    @cached_property
    def cases(self) -> list[Record]:
        """A row for each test case and class: its metrics; empty if the sites are on other machines."""
        file = self._run.cases_file
        if not file.exists():
            return []
        texts = ("site", "case", "class", "unit")
        return [
            {key: cell if key in texts else float(cell) if cell else None for key, cell in row.items()}
            for row in csv.DictReader(StringIO(file.read_text("utf-8")))
        ]

    @property
    def config(self) -> Config:
        """The whole experiment, as it was run."""
        return self._run.config

    @property
    def report(self) -> Path:
        """The report, one HTML page that needs no network."""
        return self._run.report_file

    @property
    def _run(self) -> RunFolder:
        return RunFolder.open(self.folder)

    def model(
        self, site: str | None = None, *, best: bool = False, device: str = "cpu", trust_code: bool = False
    ) -> "nn.Module":
        """The model as a torch module in eval mode: grey values from 0 to 255 in, logits out.

        The common model; with `site`, the model that this site keeps; with `best`, the common model of the best round.
        `trust_code` allows code that the run names, such as a network of its own. `model.network` is the network alone.

        >>> import fedce, torch
        >>> result = fedce.load("runs/fundus6-fedce-0")
        >>> images = torch.tensor(fedce.load_sites("fundus6", scale="tiny")[0].images)
        >>> with torch.inference_mode():
        ...     masks = result.model()(images) > 0
        >>> images.shape, masks.shape
        (torch.Size([8, 3, 48, 48]), torch.Size([8, 2, 48, 48]))
        """
        from fedce.questions.loading import Which, segmenter

        return segmenter(self._run, Which(site, best, trust_code=trust_code, device=device))

    def predict(
        self,
        images: Any,
        *,
        site: str | None = None,
        best: bool = False,
        adapt: bool = False,
        device: str = "auto",
        trust_code: bool = False,
    ) -> "list[Segmentation]":
        """Segment images; nothing is written (`fedce predict` writes masks to a folder).

        `images` is a path, a folder, or a list of paths; or an image in memory, (height, width), (height, width,
        channels) or (channels, height, width), a list of such images, or an array (n, channels, height, width). Volumes
        are read from files. `adapt` estimates batch-norm statistics from these images, for a new hospital; the other
        options choose the model, as in `model`.

        >>> import fedce
        >>> result = fedce.load("runs/fundus6-fedce-0")
        >>> eyes = fedce.load_sites("fundus6", scale="tiny")[0].images[:2]
        >>> first, second = result.predict(eyes)
        >>> first.labels.shape, sorted(first.masks)
        ((48, 48), ['cup', 'disc'])
        >>> first.save("first.png")
        PosixPath('first.png')
        """
        from fedce.questions.loading import Which
        from fedce.questions.predict import segment

        return segment(self._run, images, Which(site, best, adapt, trust_code, device))

    def evaluate(
        self,
        folder: str | Path,
        *,
        metrics: Sequence[str] | None = None,
        site: str | None = None,
        best: bool = False,
        adapt: bool = False,
        trust_code: bool = False,
    ) -> "Evaluated":
        """Measure the model on a labelled folder of one site or of several, also of a hospital that took no part.

        Nothing is written (`fedce evaluate` writes a page). `metrics` are names such as dice and hd95.

        >>> import fedce
        >>> from fedce.data.drawn import write_site
        >>> folder = write_site("fundus6", "site1", "new-hospital", 4, size=48)
        >>> found = fedce.load("runs/fundus6-fedce-0").evaluate(folder, metrics=["dice"])
        >>> [(row["site"], row["class"], row["cases"]) for row in found.records]
        [('new-hospital', 'disc', 4), ('new-hospital', 'cup', 4), ('new-hospital', 'mean', 4)]
        """
        from fedce.questions.evaluate import METRICS, evaluate
        from fedce.questions.loading import Which

        which = Which(site, best, adapt, trust_code)
        return evaluate(self._run, Path(folder), which, metrics=metrics or METRICS)[0]

    def candidate(
        self,
        folder: str | Path,
        *,
        rounds: int = 10,
        seeds: Sequence[int] = (0, 1, 2),
        store: str | Path = STORE,
        progress: bool = True,
    ) -> "Candidacy":
        """What the federation would gain by the hospital whose labelled images are in this folder.

        The run's last model is trained on for some rounds, with the candidate and without it, with each seed.

        >>> import fedce
        >>> from fedce.data.drawn import write_site
        >>> folder = write_site("fundus6", "site5", "candidate", 8, size=48)
        >>> found = fedce.load("runs/fundus6-fedce-0").candidate(folder, rounds=1, seeds=[0], progress=False)
        >>> found.candidate, len(found.records)
        ('candidate', 6)
        """
        from fedce.questions.candidate import candidacy

        with jobs_display(progress) as display:
            return candidacy(self._run, Path(folder), rounds, seeds, Path(store), display.notice)

    def plot_contributions(self) -> "Figure":
        """Each site's contribution so far, round by round, with the bands of its intervals.

        >>> import fedce
        >>> figure = fedce.load("runs/fundus6-fedce-0").plot_contributions()
        >>> figure.savefig("contributions.png")
        """
        from fedce.pictures import plots, style

        bands = self.values.get("intervals_over_rounds", [])
        return style.on_white(plots.contributions_figure(self._run.rounds(), bands))

    def plot_rounds(self) -> "Figure":
        """The common model's validation Dice at each site, round by round."""
        from fedce.pictures import plots, style

        return style.on_white(plots.progress_figure(self._run.rounds()))

    def plot_dice(self) -> "Figure":
        """Each site's test Dice, beside the model without the site and, if it was trained, the site's model alone."""
        from fedce.pictures import plots, style

        return style.on_white(plots.dice_figure(self.values))

    def plot_worth(self) -> "Figure":
        """What each site gives to the others, with its interval, beside its contribution."""
        from fedce.base.errors import RunError
        from fedce.pictures import plots, style

        if not self.worth:
            reason = (self.values.get("worth") or {}).get("reason", "the run is of an earlier version")
            raise RunError(f"{self.folder}: what each site gives was not measured: {reason}")
        ends = {site: found or (0.0, 1.0) for site, found in self.worth_intervals.items()}
        return style.on_white(plots.gives_and_needs_figure(self.worth, ends, self.contributions))


def _ends(found: Mapping[str, Any], site: str) -> Ends | None:
    low, high = found["low"][site], found["high"][site]
    return None if low is None or high is None else (low, high)


def _with_ends(name: str, value: float | None, ends: Sequence[float] | None) -> Record:
    low, high = ends or (None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}
