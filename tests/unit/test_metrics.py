"""Each metric against a calculation of its own, and what a site makes of it."""

import doctest
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedce.algorithms import FedAvg
from fedce.base.config import load
from fedce.base.errors import ConfigError
from fedce.base.ranges import METRIC, Range
from fedce.core.messages import CaseScores, Evaluation, Measured
from fedce.core.scoring import Grouping, known_mean
from fedce.data import SiteData
from fedce.data.cache import Origin
from fedce.data.resizing import resized_spacing
from fedce.data.splits import Split
from fedce.federation.loop import evaluate
from fedce.federation.plan import code_of, resolve
from fedce.learning import metrics
from fedce.learning.metrics import METRICS, Masks, Measures, Metric, _values
from fedce.questions.metrics import metric_tables, over_seeds
from fedce.record.results import _metrics
from fedce.site.hospital import Hospital
from support import FakeFederation, FakeSite, params

W = params([1.0])
TOLERANCE = 1.5


def edge_of(mask: np.ndarray) -> np.ndarray:
    """Coordinates of marked pixels that have a neighbour which is not marked, or that lie at the border."""
    wide = np.pad(mask, 1)
    inside = np.ones_like(mask)
    for axis in range(mask.ndim):
        for step in (-1, 1):
            inside &= np.roll(wide, step, axis)[(slice(1, -1),) * mask.ndim]
    return np.argwhere(mask & ~inside)


def distances(mask: np.ndarray, other: np.ndarray, spacing: tuple[float, ...]) -> np.ndarray:
    """From each point of a mask's surface to the nearest point of the other's, by trying all pairs."""
    ours, theirs = edge_of(mask) * spacing, edge_of(other) * spacing
    return np.sqrt(((ours[:, None] - theirs[None]) ** 2).sum(axis=2)).min(axis=1)


def surface_dice(predicted, truth, spacing):
    if not predicted.any() and not truth.any():
        return np.nan
    if not predicted.any() or not truth.any():
        return 0.0
    both = np.concatenate([distances(predicted, truth, spacing), distances(truth, predicted, spacing)])
    return (both <= TOLERANCE).mean()


def hd95(predicted, truth, spacing):
    if not predicted.any() or not truth.any():
        return np.nan
    both = (distances(predicted, truth, spacing), distances(truth, predicted, spacing))
    return max(np.quantile(one, 0.95) for one in both)


def part(above, below):
    return above / below if below else np.nan


BY_HAND = {
    "iou": lambda p, t, spacing: part((p & t).sum(), (p | t).sum()) if (p | t).any() else 1.0,
    "precision": lambda p, t, spacing: part((p & t).sum(), p.sum()),
    "recall": lambda p, t, spacing: part((p & t).sum(), t.sum()),
    "surface_dice": surface_dice,
    "hd95": hd95,
    "volume_difference": lambda p, t, spacing: part(abs(int(p.sum()) - int(t.sum())), t.sum()),
}


def blob(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """A random box with some holes."""
    rng = np.random.default_rng(seed)
    low = rng.integers(0, np.array(shape) // 2)
    high = low + 1 + rng.integers(1, np.array(shape) // 2)
    mask = np.zeros(shape, bool)
    mask[tuple(slice(a, b) for a, b in zip(low, high, strict=True))] = True
    return mask & (rng.random(shape) > 0.1)


def masks_of(predicted: np.ndarray, truth: np.ndarray, spacing=None) -> Masks:
    """Two masks of one class as a metric is given them."""
    return Masks(*(torch.tensor(mask)[None, None].byte() for mask in (predicted, truth)), spacing)


def test_every_metric_has_a_calculation_of_its_own():
    assert BY_HAND.keys() == METRICS.keys()
    assert doctest.testmod(metrics).failed == 0


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("shape", [(9, 12), (5, 8, 10)])
@pytest.mark.parametrize("seed", range(4))
def test_a_metric_is_what_it_is_by_hand(name: str, shape: tuple[int, ...], seed: int):
    predicted, truth = blob(shape, seed), blob(shape, 100 + seed)
    for spacing in (None, (3.0, 0.5, 0.7)[-len(shape) :]):
        found = _values(METRICS[name], masks_of(predicted, truth, spacing), TOLERANCE)
        by_hand = BY_HAND[name](predicted, truth, spacing or (1.0,) * len(shape))
        assert found.tolist() == [pytest.approx(by_hand, abs=1e-6)]


@pytest.mark.parametrize("name", METRICS)
def test_empty_masks_are_undefined_as_the_metric_says(name: str):
    nothing, something = np.zeros((6, 6), bool), blob((6, 6), 1)
    for predicted, truth in ((nothing, nothing), (nothing, something), (something, nothing)):
        found = _values(METRICS[name], masks_of(predicted, truth), TOLERANCE)
        assert found.tolist() == pytest.approx([BY_HAND[name](predicted, truth, (1.0, 1.0))], nan_ok=True)


def hospital(predicted, truth, items, cases, voxel=None, asked=("precision",)) -> Hospital:
    """A site whose test images are these, (n, height, width), and whose model marks `predicted` in them."""
    n = len(truth)
    masks = np.concatenate([truth, truth[:1], truth[:1]])[:, None].astype(np.uint8)
    origins = tuple(Origin("", item, 4, 4, voxel and voxel[1:], (1,), voxel) for item in (*items, 97, 98))
    split = Split(np.array([n]), np.array([n + 1]), np.arange(n))
    names = tuple(map(str, range(n + 2)))
    data = SiteData("north", np.zeros_like(masks), masks, names, (*cases, "t", "v"), split, origins)

    def counts(models, batch):
        ones = np.ones((len(batch.masks), 1), np.int64)
        return [SimpleNamespace(overlap=ones, total=2 * ones) for _ in models]

    learner = SimpleNamespace(
        batch=lambda images, masks, labelled: SimpleNamespace(masks=torch.tensor(masks).bool()),
        counts=counts,
        masks=lambda model, batch: torch.tensor(np.asarray(predicted))[:, None].bool(),
    )
    config = load(None, {"metrics": list(asked), "surface_tolerance": TOLERANCE})
    return Hospital(data, learner, ("organ",), 0, Measures.asked_by(config))


def test_a_volume_is_measured_whole_and_a_case_by_the_mean_of_its_images():
    one, four = np.zeros((4, 4), bool), np.zeros((4, 4), bool)
    one[0, 0] = four[:2, :2] = True
    predicted, truth = np.stack([four, one, four]), np.stack([one, one, one])
    whole = hospital(predicted, truth, (0, 0, 1), ("a", "a", "b")).evaluate(W, None)
    assert whole.metrics["precision"].by_class == {"organ": pytest.approx((2 / 5 + 1 / 4) / 2)}
    images = hospital(predicted, truth, (0, 1, 2), ("a", "a", "b")).evaluate(W, None)
    assert images.metrics["precision"].by_class == {"organ": pytest.approx(((1 / 4 + 1) / 2 + 1 / 4) / 2)}


def test_slices_of_a_volume_lie_apart_by_what_its_files_say():
    """Two slices that are marked in neighbouring slices: within the tolerance by voxels, beyond it by millimetres."""
    full, empty = np.ones((4, 4), bool), np.zeros((4, 4), bool)
    predicted, truth = np.stack([full, empty, empty]), np.stack([empty, full, empty])
    for voxel, expected in ((None, 1.0), ((1.0, 1.0, 1.0), 1.0), ((3.0, 1.0, 1.0), 0.0)):
        found = hospital(predicted, truth, (0, 0, 0), "aaa", voxel, ["surface_dice"]).evaluate(W, None)
        assert found.metrics["surface_dice"].by_class == {"organ": expected}


@pytest.mark.parametrize(("name", "value", "unit"), [("precision", 1.0, ""), ("hd95", 0.0, "px")])
def test_what_is_undefined_is_counted_and_left_out_of_the_mean(name: str, value: float, unit: str):
    one, nothing = np.zeros((4, 4), bool), np.zeros((4, 4), bool)
    one[0, 0] = True
    truth = np.stack([one] * 4)
    half = hospital(np.stack([one, nothing, one, nothing]), truth, range(4), "aabc", asked=[name]).evaluate(W, None)
    assert half.metrics == {name: Measured({"organ": value}, {"organ": 2}, unit)}
    none = hospital(np.stack([nothing] * 4), truth, range(4), "abcd", asked=[name]).evaluate(W, None)
    assert none.metrics == {name: Measured({"organ": None}, {"organ": 4}, unit)}
    assert none.metrics[name].mean is None
    assert Measured({"x": 0.5, "y": None}, {"x": 0, "y": 3}).mean == 0.5


def test_a_length_is_in_millimetres_where_all_images_have_a_spacing():
    first = Metric(
        "step",
        "Step",
        lambda masks, tolerance: torch.tensor([[(masks.spacing or (1.0,))[0]]]),
        "",
        METRIC,
        is_length=True,
    )
    something, grouping = blob((6, 6), 1), Grouping.of([0, 1], ["a", "b"])
    known, unknown = (masks_of(something, something, spacing) for spacing in ((3.0, 3.0), None))
    for masks, expected, unit in (
        ([known, known], 3.0, "mm"),
        ([known, unknown], 1.0, "px"),
        ([unknown] * 2, 1.0, "px"),
    ):
        found, _ = Measures((first,)).measure(masks, grouping, ["x"])["step"]
        assert found == Measured({"x": expected}, {"x": 0}, unit)


def test_without_metrics_an_evaluation_is_written_as_before_there_were_any():
    found = hospital(np.ones((1, 4, 4)), np.ones((1, 4, 4), bool), [0], "a", asked=["dice"]).evaluate(W, None)
    assert "metrics" not in found.entry
    assert Evaluation.recorded(found.entry) == found
    assert _metrics({"north": found}) == {}


def test_the_mean_over_cases_leaves_nan_out():
    grouping = Grouping.of([0, 1, 2, 3], ["a", "a", "b", "c"])
    values = np.array([[1.0, np.nan], [3.0, np.nan], [4.0, np.nan], [np.nan, np.nan]])
    np.testing.assert_array_equal(known_mean(grouping.by_case(values)), [3.0, np.nan])


@pytest.mark.parametrize(("how", "expected"), [("stretch", (1.0, 2.0)), ("pad", (2.0, 2.0)), ("crop", (1.0, 1.0))])
def test_the_spacing_after_resizing(how: str, expected: tuple[float, float]):
    assert resized_spacing((0.5, 0.5), (64, 128), (32, 32), how) == expected


def test_an_unknown_metric_is_one_line_with_the_nearest_name():
    with pytest.raises(
        ConfigError, match=r"metrics: unknown metric 'precison', did you mean 'precision'\?; known: dice,"
    ):
        resolve(load(None, {"metrics": ["dice", "precison"]}))


IOU = Measured({"a": 0.5}, {"a": 0})


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ({"iou": IOU}, None),
        ({}, "sent no iou"),
        ({"iou": IOU, "age": IOU}, "sent age, which was not asked for"),
        ({"iou": Measured({"a": 1.5}, {"a": 0})}, "iou 1.5 is not in [0, 1]"),
        ({"iou": Measured({"a": float("nan")}, {"a": 0})}, "iou nan is not in [-1e+09, 1e+09]"),
        ({"iou": Measured({"b": 0.5}, {"b": 0})}, "iou is not of the classes that its Dice is of"),
        ({"iou": Measured({"a": 0.5}, {"a": -1})}, "iou is undefined in a number of images that is not in [0, 1e+09]"),
    ],
)
def test_a_site_answers_with_what_was_asked_within_its_bounds(told, problem):
    class Liar(FakeSite):
        def evaluate(self, w, without):
            return Evaluation(0.5, {"a": 0.5}, None, metrics=told)

    federation = FakeFederation(FedAvg(), [Liar("north", [1.0]), Liar("south", [1.0])])
    measures = Measures((METRICS["iou"],))
    replies, rejected = evaluate(FedAvg(), federation.state, federation, ["north"], measures=measures)
    assert rejected == ({} if problem is None else {"north": problem})
    assert list(replies) == ([] if problem else ["north"])


def offer(monkeypatch, **metrics):
    monkeypatch.setattr("fedce.base.registry.load_object", lambda path, key: metrics[path.partition(":")[2]])


def test_a_metric_of_ones_own_goes_by_its_path(monkeypatch):
    """So that two of one name, or one with the name of ours, are never taken for each other."""
    offer(monkeypatch, MINE=METRICS["recall"])
    config = resolve(load(None, {"metrics": ["dice", "recall", "here:MINE"]}))
    assert config.metrics == ("dice", "recall", "here:MINE")
    assert [metric.name for metric in Measures.asked_by(config).metrics] == ["recall", "here:MINE"]
    assert code_of(config) == {"metrics.2": "here:MINE"}


@pytest.mark.parametrize(
    ("own", "line"),
    [
        (print, "metrics: expected here:MINE to be of class Metric, got builtin_function_or_method"),
        (Metric("a", "A", lambda masks, tolerance: 1 / 0, "never"), "here:MINE can't measure two masks: ZeroDivision"),
        (Metric("a", "A", lambda masks, tolerance: masks.truth, "never"), r"shape \(1, 2\), got shape \(1, 2, 8, 8\)"),
        (replace(METRICS["iou"], digits=13), "here:MINE has digits = 13, expected 0 to 12"),
        (replace(METRICS["iou"], bounds=Range(0.0, 1e10)), r"expected a Range within \[-1e\+09, 1e\+09\]"),
        (replace(METRICS["iou"], higher_is_better=None), "needs a title, and True or False"),
    ],
)
def test_a_metric_that_can_not_be_used_is_one_line_before_round_1(monkeypatch, own, line):
    offer(monkeypatch, MINE=own)
    with pytest.raises(ConfigError, match=line):
        resolve(load(None, {"metrics": ["here:MINE"]}))


def seed(**values):
    undefined = {site: {"a": 0 if value is not None else 3} for site, value in values.items()}
    return {
        "metrics": {"dice": {}, "hd95": values},
        "metrics_undefined": {"hd95": undefined},
        "metrics_unit": {"hd95": dict.fromkeys(values, "mm")},
    }


def test_seeds_are_averaged_where_there_is_a_value_and_what_is_undefined_is_counted():
    found = over_seeds([seed(north=2.0, south=None, west=None), seed(north=4.0, south=5.0, west=None)])
    (table,) = metric_tables({"FedCE": found}, ["north", "south", "west"])
    assert table.title.startswith("HD95, mm (lower is better), on the test cases; undef.: ")
    assert table.cells == [["FedCE", "3.0 ± 1.4", "5.0 (3 undef.)", "- (6 undef.)", "4.0 (9 undef.)"]]
    assert over_seeds([{}, {}]) == {}


def test_a_metric_that_fails_on_a_case_is_one_line_and_one_for_volumes_alone_is_not_refused(monkeypatch):
    def of_volumes(masks, tolerance):
        assert masks.truth.ndim == 5, "volumes alone"
        return masks.truth.flatten(2).double().mean(dim=2)

    offer(monkeypatch, MINE=Metric("a", "A", of_volumes, "never"))
    (own,) = Measures.asked_by(load(None, {"metrics": ["here:MINE"]})).metrics
    image, volume = (torch.ones(1, 2, *shape, dtype=torch.uint8) for shape in ((8, 8), (3, 8, 8)))
    assert _values(own, Masks(volume, volume, None), 1.0).tolist() == [1.0, 1.0]
    with pytest.raises(ConfigError, match=r"here:MINE can't measure masks of shape \(1, 2, 8, 8\) .*volumes alone"):
        _values(own, Masks(image, image, None), 1.0)


@pytest.mark.parametrize("n", [4, 5, 9])
def test_a_metric_has_an_interval_from_five_cases_on(n: int):
    masks = [masks_of(blob((9, 12), seed), blob((9, 12), 100 + seed)) for seed in range(n)]
    grouping = Grouping.of(list(range(n)), [f"case-{i}" for i in range(n)])
    measured, by_case = Measures((METRICS["iou"],)).measure(masks, grouping, ["one"])["iou"]
    assert by_case.shape == (n, 1)
    assert (measured.interval is None) == (n < 5)
    if measured.interval:
        assert measured.interval[0] < measured.mean < measured.interval[1]


def test_names_may_have_hyphens():
    names = ("dice", "surface-dice", "volume-difference")
    assert [metric.name for metric in Measures.asked_by(load(changes={"metrics": names})).metrics] == [
        "surface_dice",
        "volume_difference",
    ]


def test_what_is_sent_holds_no_single_case():
    told = Evaluation(0.5, {"disc": 0.5}, None, cases=(CaseScores("patient 7", "disc", {"dice": 0.5}),))
    assert "patient 7" not in str(told.entry)
    assert "cases" not in told.entry
