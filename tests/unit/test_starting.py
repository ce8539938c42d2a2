"""One way to start a run, whoever starts it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

import fedce
from fedce.base import registry
from fedce.base.config import parse
from fedce.base.errors import ConfigError
from fedce.data import load_sites
from fedce.data.sites import site_names
from fedce.engines import starting
from fedce.engines.launching import begun
from fedce.federation.plan import code_of, resolve
from fedce.federation.session import Observer
from fedce.questions.doctor import examine
from fedce.questions.finding import verdict_of
from support import HOSPITALS, write_site


@pytest.mark.parametrize("engine", ["flower", "nvflare", "here:carry", "post"])
def test_python_runs_by_the_engine_that_its_settings_name(engine, tmp_path: Path, monkeypatch):
    """Ours, one by its import path, and one that an installed package calls post."""
    asked = []

    def carry(config, out, *rest, **options):
        asked.append((config, out, options))
        raise KeyboardInterrupt

    homes = {"flower": "fedce.engines.flower:run_here", "nvflare": "fedce.engines.nvflare:run_here"}
    monkeypatch.setattr(starting, "load_object", lambda path, key: {homes.get(engine, "here:carry"): carry}[path])
    monkeypatch.setattr(registry, "entry_points", offered(post="here:carry"))
    sites, settings = load_sites("fundus6", scale="tiny"), {"engine.name": engine}
    with pytest.raises(KeyboardInterrupt):
        fedce.run(sites, rounds=2, out=tmp_path / "run", settings=settings)
    ((config, out, options),) = asked
    assert (config.engine.name, config.rounds, out) == (
        "here:carry" if engine == "post" else engine,
        2,
        tmp_path / "run",
    )
    assert options == {"resume": False, "replace": False}
    assert not (tmp_path / "run").exists(), "nothing ran here"


def offered(**paths):
    """What installed packages offer."""
    return lambda group, name: [SimpleNamespace(value=path) for own, path in paths.items() if own == name]


def test_what_a_package_offers_by_a_name_is_somebodys_own_code(monkeypatch):
    monkeypatch.setattr(
        registry, "entry_points", offered(mine="examples.own_algorithm:ValidationGain", fedce="evil:Code")
    )
    config = resolve(parse({"algorithm": {"name": "mine"}, "train": {"loss": "mine"}, "model": {"name": "mine"}}))
    assert set(code_of(config)) == {"algorithm.name", "train.loss", "model.name"}
    assert code_of(config)["algorithm.name"] == "examples.own_algorithm:ValidationGain"
    assert code_of(resolve(parse({}))) == {}, "our own names can't be taken"


def test_a_hospital_sees_what_a_packages_name_stands_for_before_it_runs(monkeypatch):
    """A coordinator may send names in place of paths: what they stand for at the hospital is what would be run."""
    monkeypatch.setattr(registry, "entry_points", offered(mine="evil:Code"))
    everything = {
        "algorithm": {"name": "mine"},
        "train": {"loss": "mine"},
        "model": {"name": "mine"},
        "metrics": ["dice", "mine"],
        "freerider": {"plant": {"site1": "mine"}},
    }
    keys = {"algorithm.name", "train.loss", "model.name", "metrics.1", "freerider.plant.site1"}
    assert code_of(parse(everything)) == dict.fromkeys(keys, "evil:Code")


def test_an_unknown_engine_is_one_line():
    with pytest.raises(
        ConfigError, match=r"engine\.name: .*'flower', 'nvflare' or package.module:function.*did you mean"
    ):
        parse({"engine": {"name": "flwer"}})


@pytest.mark.parametrize(
    "data",
    [
        {"scale": "tiny"},
        {"scale": "tiny", "sites": ["site2", "site4"]},
        {"scale": "tiny", "source": "prostate6", "shards": 2},
    ],
)
def test_names_of_sites_are_those_of_the_loaded_ones(data):
    config = parse({"data": data}).data
    assert site_names(config) == [site.name for site in load_sites(config)]


def test_an_engine_is_begun_without_decoding_an_image(tmp_path: Path):
    for site in HOSPITALS:
        (write_site(tmp_path / "data", site, n=3) / "images" / "0.png").write_bytes(b"this is no image")
    config = parse({"data": {"source": str(tmp_path / "data")}, "engine": {"name": "flower"}})
    trial = begun(config, tmp_path / "run", Observer(), resume=False, replace=False)
    assert trial.sites == list(HOSPITALS)


def test_what_can_not_be_reconstructed_is_refused_before_round_1(tmp_path: Path):
    config = parse({"data": {"scale": "tiny"}, "algorithm": {"name": "fedadam"}, "reconstruction": True})
    findings = list(examine(config, tmp_path / "run", lambda message: None))
    assert not verdict_of(findings)["ready"]
    with pytest.raises(ConfigError, match="reconstruction: only for methods whose common model is the weighted mean"):
        starting.execute(config, tmp_path / "run")
