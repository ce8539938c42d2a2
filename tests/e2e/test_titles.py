"""Every table, page and line that names a method says which variant of it ran."""

from pathlib import Path

import pytest

from fedce.algorithms import ALGORITHMS
from fedce.algorithms.titles import TITLES, printed_name, title_of
from fedce.base.config import parse
from fedce.base.tables import AlgorithmConfig
from fedce.present.pages.live import Record, values_of
from fedce.questions.jobs import Store
from fedce.record.folder import RunFolder
from fedce.studies import Context
from support import write_site

PUBLISHED = ("--set", "algorithm.name=qfedavg", "--set", "algorithm.variant=published")
SMALL = ("--set", "model.channels=[4,8]", "--rounds", 2, "--workers", 1)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data") / "clinics"
    for site in ("east", "north", "south"):
        write_site(root, site)
    return root


@pytest.mark.parametrize(
    ("table", "title"),
    [
        ({"name": "qfedavg"}, "q-FedAvg, normalised"),
        ({"name": "qfedavg", "variant": "published"}, "q-FedAvg, published"),
        ({"name": "qfedavg", "variant": "lipschitz"}, "q-FedAvg, published"),
        ({"name": "cffl"}, "CFFL, stable"),
        ({"name": "cgsv"}, "CGSV, weights"),
        ({"name": "cgsv", "variant": "rewards"}, "CGSV, rewards"),
        ({"name": "afl", "variant": "published"}, "AFL, published"),
        ({"name": "fedce"}, "FedCE (Multi.)"),
        ({"name": "some.package:Method"}, "some.package:Method"),
    ],
)
def test_titles(table, title):
    assert title_of(AlgorithmConfig(**table)) == title


def test_every_built_in_method_has_a_title():
    assert TITLES.keys() == ALGORITHMS.keys()
    assert printed_name(AlgorithmConfig(name="fedce")) == "fedce"


def test_a_run_says_its_variant_wherever_it_is_shown(data: Path, tmp_path: Path, fedce):
    out = tmp_path / "runs" / "published"
    ran = fedce("run", "--data", data, *SMALL, *PUBLISHED, "--out", out)
    assert ran.exit_code == 0, ran.output
    assert "q-FedAvg, published on clinics" in ran.stdout
    assert "q-FedAvg, published on " in ran.stderr
    page = (out / "report.html").read_text()
    assert "<h1>q-FedAvg, published on clinics" in page
    assert "trained for 2 rounds with q-FedAvg, published." in page
    assert "The method is q-FedAvg, published, for 2 rounds." in page
    assert values_of(Record.read(RunFolder(out)), out, 0.0)["algorithm"] == "q-FedAvg, published"
    assert fedce("allocate", out, "--budget", "100", "--rule", "contribution", "--yes").exit_code == 0
    assert "q-FedAvg, published on clinics" in (out / "allocation.html").read_text()
    checked = fedce("doctor", "--data", data, *SMALL[:2], *PUBLISHED, "--out", tmp_path / "new")
    assert "algorithm: q-FedAvg, published" in checked.stdout


def test_two_variants_side_by_side_are_two_methods(data: Path, tmp_path: Path, fedce):
    for name, settings in (("published", PUBLISHED), ("normalised", ("--algorithm", "qfedavg"))):
        assert fedce("run", "--data", data, *SMALL, *settings, "--out", tmp_path / name).exit_code == 0
    assert fedce("report", tmp_path).exit_code == 0
    page = (tmp_path / "report.html").read_text()
    assert "<td>q-FedAvg, published</td>" in page
    assert "<td>q-FedAvg, normalised</td>" in page
    assert "a comparison needs at least two seeds that all methods have" in page


def test_compare_and_studies_say_the_variant_of_each_method(data: Path, tmp_path: Path, fedce):
    arguments = ("--data", data, *SMALL, *PUBLISHED, "--store", tmp_path / "store", "--seeds", "0")
    shown = fedce("compare", "--algorithms", "fedavg,qfedavg,afl", *arguments, "--out", tmp_path / "compare")
    assert shown.exit_code == 0, shown.output
    lines = (tmp_path / "compare" / "compare.md").read_text().splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == ["| fedavg", "| q-FedAvg, published", "| AFL, current"]
    config = parse({"data": {"source": str(data)}, "algorithm": {"name": "qfedavg", "variant": "published"}})
    context = Context(config, (0,), Store(tmp_path / "store"), ("fedavg", "qfedavg", "cffl"))
    assert [context.title_of(name) for name in context.methods] == ["FedAvg", "q-FedAvg, published", "CFFL, stable"]
