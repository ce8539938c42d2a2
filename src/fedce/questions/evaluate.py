"""How well a run's model does on any labelled folder, also of a hospital that took no part in the run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedce.base.config import Config
from fedce.base.errors import DataError, RunError
from fedce.base.files import digest_of, private_folder, write_bytes, write_sealed
from fedce.base.tables import BUILT_IN, DataConfig
from fedce.core.messages import CaseScores
from fedce.core.params import Params
from fedce.core.scoring import LEVEL, dice_interval
from fedce.core.site import round_seed
from fedce.data.labels import classes_for_others
from fedce.data.pixels import with_channels
from fedce.data.shape import settled
from fedce.data.site import SiteData
from fedce.data.sites import load_labelled
from fedce.federation.lines import versions
from fedce.learning.learner import Learner
from fedce.learning.metrics import DICE, Measures
from fedce.pictures.examples import found_in
from fedce.questions.evaluated import DICE_HEADING, AtSite, Evaluated, OfClass, OfMetric
from fedce.questions.loading import Loaded, Which, check_names_no_code, load_model
from fedce.record.folder import RunFolder
from fedce.site.cases import cases_csv
from fedce.site.hospital import Hospital, Tested, images_of

METRICS = (DICE, "hd95", "surface_dice", "volume_difference")
"""What is measured unless the command names other metrics."""
JSON, CASES, PAGE = "evaluation.json", "cases.csv", "evaluation.html"


@dataclass(frozen=True)
class Shown:
    """A case's picture for the page: the slice or image in which most is marked."""

    site: str
    case: str
    dice: float
    image: Any
    truth: Any
    found: Any


def evaluate(
    run: RunFolder,
    folder: Path,
    which: Which,
    *,
    metrics: Sequence[str] = METRICS,
    notify: Callable[[str], None] = lambda message: None,
) -> tuple[Evaluated, list[Shown]]:
    """Measure the run's model on every labelled case of a site's folder, or of each site in a folder of sites."""
    if not which.trust_code:
        check_names_no_code(run, "data.format")
    loaded, config = load_model(run, which), run.config
    measures = Measures.asked_by(config.model_copy(update={"metrics": tuple(metrics)}))
    size = (loaded.shape[1], loaded.shape[2]) if len(loaded.shape) == 3 else None
    sites = load_labelled(_reading(config.data, loaded), folder, notify=notify, size=size)
    at_sites, shown, common = [], [], loaded.learner.params
    for data in sites:
        fitted = _fitted(data, loaded, folder)
        params = _adapted(loaded.learner, common, fitted) if which.adapt else common
        tested = Hospital(fitted, loaded.learner, tuple(loaded.classes), config.seed, measures).test(params)
        at_sites.append(_at_site(fitted, tested, measures))
        shown += _shown(fitted, tested, loaded.learner)
    headings = {DICE: DICE_HEADING, **{metric.name: metric.heading for metric in measures.metrics}}
    evaluated = Evaluated(
        run=run.path.resolve().name,
        model=which.site or ("best" if which.best else "common"),
        model_sha256=digest_of(loaded.file),
        adapted=which.adapt,
        folder=folder.resolve().name,
        trained_on=_is_own(config, folder),
        classes=tuple(loaded.classes),
        tolerance=measures.tolerance,
        headings=headings,
        sites=tuple(at_sites),
    )
    return evaluated, shown


def check_free(out: Path, *, replace: bool) -> None:
    """Refuse to overwrite an earlier evaluation unless asked; called before anything is measured."""
    there = [out / name for name in (JSON, CASES, PAGE) if (out / name).exists()]
    if there and not replace:
        raise RunError(f"{there[0]} would be overwritten; add --replace, or choose another --out")
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file; give --out a folder")


def write(found: Evaluated, out: Path, command: str) -> None:
    """Write evaluation.json, with the digest of its content, and cases.csv."""
    if not out.exists():
        private_folder(out)  # File names and scores of patients concern nobody else.
    write_bytes(out / CASES, cases_csv({site.name: site.cases for site in found.sites}))
    about = {
        **{key: value for key, value in asdict(found).items() if key not in ("sites", "headings")},
        "level": LEVEL,
        "metrics_shown": {name: asdict(heading) for name, heading in found.headings.items()},
        "sites": {site.name: _recorded(site) for site in found.sites},
        "cases_sha256": digest_of(out / CASES),
        "command": command,
        "versions": versions(),
    }
    write_sealed(out / JSON, about)


def _recorded(site: AtSite) -> dict[str, Any]:
    kept = {key: value for key, value in asdict(site).items() if key not in ("name", "cases")}
    return {**kept, "no_interval": site.no_interval or None}


def _reading(data: DataConfig, loaded: Loaded) -> DataConfig:
    """How the run's data were read; the classes are those that the model was trained with."""
    classes = classes_for_others(data, loaded.classes)
    update: dict[str, Any] = {"classes": classes, "root": None, "sites": (), "shards": 1, "groups": []}
    return settled(data).model_copy(update=update)


def _fitted(data: SiteData, loaded: Loaded, folder: Path) -> SiteData:
    """The site's images with as many channels as the network takes."""
    n_channels = loaded.shape[0]
    if data.images.shape[1] == n_channels:
        return data
    if loaded.modalities or data.modalities:
        raise DataError(
            f"the images in {folder} have {data.images.shape[1]} modalities or channels, the model takes {n_channels}"
        )
    return replace(data, images=np.stack([with_channels(image, n_channels) for image in data.images]))


def _adapted(learner: Learner, params: Params, data: SiteData) -> Params:
    return learner.adapted(params, images_of(data, np.arange(len(data.images)), learner))


def _is_own(config: Config, folder: Path) -> bool:
    return config.data.source not in BUILT_IN and folder.resolve().is_relative_to(Path(config.data.source).resolve())


def _at_site(data: SiteData, tested: Tested, measures: Measures) -> AtSite:
    seed = round_seed(0, data.name, 0)
    units = {name: found.unit for name, found in tested.metrics.items()}
    undefined = {name: found.undefined for name, found in tested.metrics.items()}
    metrics = {
        name: _of_metric(tested.cases, name, undefined.get(name, {}), units.get(name, ""), seed)
        for name in (DICE, *(metric.name for metric in measures.metrics))
    }
    return AtSite(data.name, len(set(data.items)), data.n_cases_by_part["test"], metrics, tested.cases)


def _of_metric(cases: Sequence[CaseScores], name: str, undefined: Mapping[str, int], unit: str, seed: int) -> OfMetric:
    by_class: dict[str, list[float]] = {}
    by_case: dict[str, list[float]] = {}
    for one in cases:
        by_class.setdefault(one.class_name, [])
        if (value := one.values[name]) is not None:
            by_class[one.class_name].append(value)
            by_case.setdefault(one.case, []).append(value)
    of_class = {
        kind: OfClass(_mean(values), dice_interval(np.array(values), seed), undefined.get(kind, 0))
        for kind, values in by_class.items()
    }
    means = [found.mean for found in of_class.values() if found.mean is not None]
    of_cases = np.array([sum(values) / len(values) for values in by_case.values()])
    return OfMetric(_mean(means), dice_interval(of_cases, seed), unit, of_class)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _shown(data: SiteData, tested: Tested, learner: Learner) -> list[Shown]:
    """The worst, the middle and the best case of a site by Dice: a fixed rule, so that no example is picked."""
    dice: dict[str, list[float]] = {}
    for one in tested.cases:
        dice.setdefault(one.case, []).append(one.values[DICE] or 0.0)
    ranked = sorted(dice, key=lambda case: sum(dice[case]) / len(dice[case]))
    chosen = dict.fromkeys((ranked[0], ranked[len(ranked) // 2], ranked[-1]))
    return [_picture(data, case, sum(dice[case]) / len(dice[case]), learner) for case in chosen]


def _picture(data: SiteData, case: str, score: float, learner: Learner) -> Shown:
    rows = [row for row, own in enumerate(data.cases) if own == case]
    row = max(rows, key=lambda row: int(data.masks[row].sum()))
    found = found_in(data, row, learner.predict)
    is_labelled = np.array([data.labels(i) for i in range(data.masks.shape[1])])[:, None, None]
    return Shown(data.name, case, score, data.images[row], (data.masks[row] > 0) & is_labelled, found & is_labelled)
