"""The bench's federations: who may be looked at was decided before any number was known."""

from pathlib import Path

import numpy as np

from fedce.base.config import parse
from fedce.data import load_sites
from fedce.studies import federations
from fedce.studies.federations import DRAWN, Federation, Pictures, of_folder

REPORTED = {
    "fundus6, instance norm",
    "prostate6, batch norm",
    "wrong labels",
    "few images",
    "many images",
    "duplicated site",
    "redundant pair",
}


def test_the_division_stays_as_it_was_committed() -> None:
    assert {one.name for one in DRAWN if one.is_reported} == REPORTED
    assert len(DRAWN) - len(REPORTED) == 6


def test_real_images_are_divided_by_the_same_rule() -> None:
    found = {one.name: one.is_reported for one in of_folder("data/PolypGen")}
    assert found == {"polypgen, batch norm": False, "polypgen, instance norm": False, "polypgen, site norm": True}


def test_a_changed_federation_is_drawn_once_and_read_back_unchanged(tmp_path: Path, monkeypatch) -> None:
    def small(sites: dict[str, Pictures]) -> dict[str, Pictures]:
        return {site: own.first(8) for site, own in sites.items()}

    one = Federation("small", "fundus6", "instance", small)
    config = one.config(parse({}), tmp_path)
    drawn = federations._drawn("fundus6", "site1", 8)
    read = load_sites(config.data)[0]
    assert config.model.norm == "instance"
    assert np.array_equal(read.images, drawn.images)
    assert np.array_equal(read.masks, drawn.masks)
    monkeypatch.setattr(federations, "_drawn_sites", lambda base: 1 / 0)
    assert one.config(parse({}), tmp_path) == config


def test_wrong_labels_and_copies_are_where_they_should_be() -> None:
    sites = {f"site{n}": federations._drawn("fundus6", f"site{n}", 6) for n in range(1, 7)}
    wrong = federations._wrong_labels(sites)["site4"]
    assert np.array_equal(wrong.images, sites["site4"].images)
    assert np.array_equal(wrong.masks[..., 8:], sites["site4"].masks[..., :-8])
    assert np.array_equal(federations._duplicated_site(sites)["site3"].images, sites["site6"].images)
    assert np.array_equal(federations._redundant_pair(sites)["site5"].images, sites["site5"].images)
    assert not np.array_equal(federations._redundant_pair(sites)["site2"].images, sites["site5"].images)
