"""What a federation would gain by a hospital that considers joining.

On a machine that has the run's images, the run's last model is trained on for some rounds, once with the candidate and
once without it; everything else is the same. With a reference set at the coordinator, the candidate's own training is
averaged into the model instead. Elsewhere nothing can be said about the gain.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from scipy import stats

from fedce.base.config import Config
from fedce.base.errors import ConfigError, DataError, RunError
from fedce.base.files import read_tensors
from fedce.base.html import table_html
from fedce.base.tables import WorthConfig
from fedce.core.params import Params, weighted_sum
from fedce.core.scoring import LEVEL
from fedce.core.site import Moments
from fedce.data import SiteData, Sites, load_sites
from fedce.data.shape import settled
from fedce.data.sites import load_labelled
from fedce.data.synthetic import FEDERATIONS, SCALES
from fedce.engines.starting import execute
from fedce.federation.reference import Reference, reference_images
from fedce.federation.session import Result
from fedce.questions.loading import Loaded, Which, load_model
from fedce.record.folder import RunFolder
from fedce.site.hospital import Hospital

Notify = Callable[[str], None]
FEWEST_SEEDS = 2
"""An interval needs at least two trainings."""


@dataclass(frozen=True)
class Candidacy:
    """What is expected of a candidate; Dice as fractions. `Result.candidate` gives it.

    >>> found = Candidacy("east", 20, "10 rounds", 10, (0,), gain=0.02, own_before=0.7, own_after=0.8)
    >>> print(found.sentence)
    With east the others would gain +2.0 points of Dice; one training can't say how sure that is.
    """

    candidate: str
    n_train: int
    how: str
    """How the gain was measured, in a sentence; if it was not, why."""
    n_rounds: int
    seeds: tuple[int, ...]
    own_before: float
    """Dice of the run's last model on the candidate's test images."""
    gain: float | None = None
    """What the members' mean test Dice gains (with a reference set: the Dice on it); None if it can't be measured."""
    interval: tuple[float, float] | None = None
    """95 % interval of the gain over training seeds; None with one seed."""
    by_member: Mapping[str, float] | None = None
    own_without: float | None = None
    """The same after the further rounds without the candidate."""
    own_after: float | None = None
    """The same after the further rounds with the candidate."""
    on_reference: bool = False
    """Whether the gain is that on the coordinator's reference set."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def records(self) -> list[dict[str, Any]]:
        """A row for each member: what its test Dice gains."""
        return [{"site": site, "gain": gain} for site, gain in (self.by_member or {}).items()]

    def _repr_html_(self) -> str:
        rows = [[one["site"], f"{100 * one['gain']:+.2f}"] for one in self.records]
        return table_html(self.how, ["site", "gain, points of Dice"], rows, [self.sentence, self.at_candidate])

    @property
    def sentence(self) -> str:
        if self.gain is None:
            return f"What the federation would gain by {self.candidate} can't be told here: {self.how}"
        size = f"{100 * self.gain:+.1f} points of Dice"
        if self.on_reference:
            size += " on the reference set"
        who = "the model" if self.on_reference else "the others"
        if self.interval is None:
            return f"With {self.candidate} {who} would gain {size}; one training can't say how sure that is."
        low, high = (100 * end for end in self.interval)
        within = f"95 % interval {low:+.1f} to {high:+.1f}"
        if low <= 0 <= high:
            return f"No gain or loss by {self.candidate} that these trainings can show: {size} ({within})."
        would = "gain" if self.gain > 0 else "lose"
        return f"With {self.candidate} {who} would {would} {size.lstrip('+-')} ({within})."

    @property
    def basis(self) -> str:
        """How the gain was measured, where no table of members says so."""
        return f"Measured by {self.how}." if self.on_reference else ""

    @property
    def at_candidate(self) -> str:
        """What the model does on the candidate's own test images."""
        said = f"On the test images of {self.candidate} the run's model reaches a Dice of {self.own_before:.3f}"
        if self.own_after is None:
            return f"{said}."
        without = "" if self.own_without is None else f"{self.own_without:.3f} without it and "
        return f"{said}; after {self.n_rounds} rounds more, {without}{self.own_after:.3f} with it."


def candidacy(
    run: RunFolder,
    folder: Path,
    n_rounds: int,
    seeds: Sequence[int],
    store: Path,
    notify: Notify = lambda message: None,
) -> Candidacy:
    """What the run's federation would gain by the hospital whose images are in a folder."""
    config = run.config
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds: {list(seeds)} names one twice, and the same training says nothing new")
    if not run.model_file.exists():
        raise RunError(
            f"{run.path}: there is no common model to go on from (model.safetensors was deleted, or each site has a "
            "model of its own), so what a candidate would add can't be told"
        )
    data = _candidate(run, folder)
    try:
        sites = load_sites(config.data, notify=notify)
    except DataError as error:
        return _elsewhere(run, data, n_rounds, seeds, str(error))
    if data.shape != sites[0].shape:
        raise DataError(
            f"--candidate: images in {folder} have the shape {data.shape} (channels and size), the run's "
            f"{sites[0].shape}; convert the images"
        )
    taken = {site.name for site in sites}
    data = replace(data, name=f"{data.name} (candidate)") if data.name in taken else data
    everybody = replace(sites, members=(*sites.members, data))
    pairs = [_pair(run, everybody, data.name, n_rounds, seed, store, notify) for seed in seeds]
    members = [name for name in sorted(taken) if name not in config.leave_out]
    gains = {name: [after.dice[name] - before.dice[name] for before, after in pairs] for name in members}
    by_seed = [fmean(gains[name][i] for name in members) for i in range(len(seeds))]
    return Candidacy(
        candidate=data.name,
        n_train=len(data.split.train),
        how=f"{n_rounds} rounds from the run's last model, with and without the candidate",
        n_rounds=n_rounds,
        seeds=tuple(seeds),
        gain=fmean(by_seed),
        interval=_interval(by_seed),
        by_member={name: fmean(values) for name, values in gains.items()},
        own_before=_dice(_last_model(run), data),
        own_without=fmean(before.dice[data.name] for before, _ in pairs),
        own_after=fmean(after.dice[data.name] for _, after in pairs),
    )


def _candidate(run: RunFolder, folder: Path) -> SiteData:
    """The candidate's images, at the size that the run's model takes if it is a network for images."""
    config, folder = run.config, folder.resolve()
    if not folder.is_dir():
        raise DataError(f"--candidate: expected a folder of labelled images, and {folder} is not a folder")
    its_own = {"source": str(folder), "sites": (), "shards": 1, "root": None, "groups": [], "labelled": {}}
    reading = settled(config.data).model_copy(update={**its_own, **_of_drawn_images(config)})
    shape = read_tensors(run.model_file)[1]["shape"] if run.model_file.exists() else []
    size = (shape[1], shape[2]) if len(shape) == 3 else None
    found = load_labelled(reading, folder, all_test=False, size=size)
    if len(found) > 1:
        names = ", ".join(site.name for site in found)
        raise DataError(f"--candidate: {folder} holds several sites ({names}); name the folder of one of them")
    one: SiteData = found[0]
    return one


def _last_model(run: RunFolder) -> Loaded:
    torch.set_num_threads(1)
    return load_model(run, Which())


def _dice(last: Loaded, data: SiteData) -> float:
    """The Dice of the run's last model on the candidate's test images."""
    return Hospital(data, last.learner, tuple(last.classes), 0).test_dice(last.learner.params)


def _of_drawn_images(config: Config) -> dict[str, Any]:
    """Keys for images from a folder, if the run's own images were drawn."""
    if config.data.source not in FEDERATIONS:
        return {}
    values = FEDERATIONS[config.data.source].classes
    size = config.data.size or SCALES[config.data.scale].size
    return {"classes": {name: list(found) for name, found in values.items()}, "size": size}


def _pair(
    run: RunFolder, sites: Sites, candidate: str, n_rounds: int, seed: int, store: Path, notify: Notify
) -> tuple[Result, Result]:
    """Two trainings that differ only in whether the candidate takes part."""
    config = run.config
    base = config.model_copy(
        update={
            "seed": seed,
            "rounds": n_rounds,
            "personalise": 0,
            "alone": False,
            "patience": None,
            "worth": WorthConfig(every=0),
            "tracking": (),
            "model": config.model.model_copy(update={"start": str(run.path.resolve())}),
            "data": sites.config,
        }
    )
    without = base.model_copy(update={"leave_out": (*config.leave_out, candidate)})
    before, after = (_trained(run, one, sites, store, notify) for one in (without, base))
    return before, after


def _trained(run: RunFolder, config: Config, sites: Sites, store: Path, notify: Notify) -> Result:
    """The training's result; it is kept by content, so that a second call finds it."""
    what = "".join([config.model_dump_json(), run.results["model_sha256"], *(site.fingerprint for site in sites)])
    folder = store / f"candidate-{sha256(what.encode()).hexdigest()[:16]}"
    if RunFolder(folder).results_file.exists():
        return Result(folder, RunFolder(folder).results)
    part = "without" if config.leave_out else "with"
    notify(f"training {config.n_rounds} rounds {part} the candidate, seed {config.seed}")
    return execute(config, folder, sites=sites, replace=True, report=False)


def _interval(values: Sequence[float]) -> tuple[float, float] | None:
    if len(values) < FEWEST_SEEDS:
        return None
    half = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return fmean(values) - half, fmean(values) + half


def _elsewhere(run: RunFolder, data: SiteData, n_rounds: int, seeds: Sequence[int], why: str) -> Candidacy:
    """Without the run's images: by the reference set, if there is one; otherwise only the model's own Dice here."""
    config = run.config
    last = _last_model(run)
    names = tuple(last.classes)
    hospital = Hospital(data, last.learner, names, config.seed)
    unknown = Candidacy(data.name, len(data.split.train), "", 0, (), _dice(last, data))
    if config.worth.reference is None:
        return replace(unknown, how=f"the run's images are not on this machine ({why}), and it has no worth.reference.")
    try:
        images = reference_images(config, data.shape, last.classes)
    except (ConfigError, DataError, RunError) as error:
        return replace(unknown, how=f"neither the run's images nor its reference set are on this machine ({error}).")
    weight = hospital.n_train / (hospital.n_train + sum(run.results["train_images"].values()))
    mixed = [_mixed(last, data, n_rounds, seed, weight) for seed in seeds]
    first, *scores = Reference(images, last.learner, names)([last.learner.params, *mixed])
    gains = [score - first for score in scores]
    return replace(
        unknown,
        how=f"{n_rounds} rounds of the candidate's training, averaged into the model and scored on the reference set",
        n_rounds=n_rounds,
        seeds=tuple(seeds),
        gain=fmean(gains),
        interval=_interval(gains),
        own_after=fmean(hospital.test_dice(one) for one in mixed),
        on_reference=True,
    )


def _mixed(last: Loaded, data: SiteData, n_rounds: int, seed: int, weight: float) -> Params:
    """The run's model after the candidate trained alone from it, averaged with it by the number of images."""
    hospital = Hospital(data, last.learner, tuple(last.classes), seed)
    model = trained = last.learner.params
    moments: Moments = {}
    for round_no in range(n_rounds):
        after = hospital.train(trained, round_no, moments)
        trained, moments = after.params, after.moments
    return weighted_sum([model, trained], [1 - weight, weight])
