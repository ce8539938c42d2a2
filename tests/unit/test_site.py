"""A hospital scores its cases, on a stand-in for the network whose counts are known."""

from types import SimpleNamespace

import numpy as np
import pytest

from fedce.base.config import Config
from fedce.base.errors import DataError
from fedce.core.scoring import Counts
from fedce.data import SiteData
from fedce.data.cache import Origin
from fedce.data.splits import Split
from fedce.site.hospital import N_REPLICATES, Hospital, member_of
from fedce.site.resident import at_hospital
from support import params

W = params([1.0])


def hospital(n_cases: int, n_images: int, is_volume: bool = False) -> Hospital:
    """Validation and test cases with several images each; in case i the model finds i of 100 pixels in each image."""
    n = n_cases * n_images
    rows = np.arange(2 * n + 1)
    cases = [f"P{row // n_images}" for row in rows]
    items = [row // n_images if is_volume else row for row in rows]
    origins = tuple(Origin("", item, 4, 4, (1.0, 1.0) if is_volume else None, (1,)) for item in items)
    images = np.zeros((len(rows), 1, 4, 4), np.uint8)
    images[:, 0, 0, 0] = [row // n_images % n_cases for row in rows]
    split = Split(rows[-1:], rows[:n], rows[n : 2 * n])
    data = SiteData("north", images, np.ones_like(images), tuple(map(str, rows)), tuple(cases), split, origins)

    def counts(models, batch):
        learner.passes.append(list(models))
        found = batch.images[:, 0, 0, 0].astype(np.int64)[:, None]
        return [Counts(found, np.full_like(found, 200)) for _ in models]

    made = lambda images, masks, labelled: SimpleNamespace(images=images)  # noqa: E731
    learner = SimpleNamespace(batch=made, counts=counts, passes=[])
    return Hospital(data, learner, ("organ",), 0)


@pytest.mark.parametrize("is_volume", [False, True])
def test_a_site_is_the_mean_of_its_cases(is_volume: bool):
    found = hospital(6, 3, is_volume).evaluate(W, None)
    assert found.validation_dice == pytest.approx(np.mean(np.arange(6) / 100))
    assert found.test_dice_by_class == {"organ": pytest.approx(0.025)}
    low, high = found.test_interval
    assert 0 <= low < 0.025 < high <= 0.05


def test_models_that_were_scored_together_are_not_scored_again():
    site, first, second = hospital(5, 2), params([1.0]), params([2.0])
    scores = site.scores([first, second, first])
    assert scores == (pytest.approx(0.02),) * 3
    assert [site.score(first), site.score(second)] == list(scores[:2])
    assert len(site.score_replicates(first)) == N_REPLICATES
    assert site.learner.passes == [[first, second]]
    site.score(params([1.0]))  # Another model, even if its numbers are the same.
    assert len(site.learner.passes) == 2


def test_images_of_a_case_are_resampled_together():
    """Were forty images of five cases drawn one by one, their mean would vary by a third of this."""
    site = hospital(5, 8)
    replicates = np.array(site.score_replicates(W))
    assert len(replicates) == N_REPLICATES
    means = {round(sum(drawn) / 500, 6) for drawn in np.ndindex(5, 5, 5, 5, 5)}
    assert {round(float(value), 6) for value in replicates} <= means, "a mean of five whole cases"
    by_image = np.std(np.arange(5) / 100) / np.sqrt(40)
    assert replicates.std() > 2 * by_image


def test_below_five_cases_nothing_is_resampled_however_many_images_there_are():
    site = hospital(4, 50)
    assert site.score_replicates(W) == ()
    found = site.evaluate(W, None)
    assert (found.validation_interval, found.test_interval) == (None, None)


def test_cases_that_are_all_alike_have_an_interval_without_width():
    site = hospital(5, 2)
    site.data.images[:] = 50
    found = site.evaluate(W, None)
    assert found.test_interval == (found.test_dice, found.test_dice)


def test_a_member_tells_its_cases():
    member = member_of(hospital(6, 3).data, {"organ": [1]})
    assert (member.n_train, member.n_validation, member.n_test) == (1, 18, 18)
    assert (member.n_train_cases, member.n_validation_cases, member.n_test_cases) == (1, 6, 6)


def test_a_folder_that_is_not_the_sites_is_said_with_what_to_do(tmp_path):
    (tmp_path / "south").mkdir()
    assert at_hospital(Config(), "south", str(tmp_path / "south")).data.source == str(tmp_path.resolve())
    for folder, words in (("none", "is not a folder; name the folder of"), ("south", "call the folder of its images")):
        with pytest.raises(DataError, match=words):
            at_hospital(Config(), "north", str(tmp_path / folder))
