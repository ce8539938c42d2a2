"""Experiment files: defaults are the paper's, mistakes get one line with the nearest name."""

from inspect import signature
from pathlib import Path

import pytest

from fedce import algorithms
from fedce.algorithms import FedCE, FedCEAtSites
from fedce.base.code import FETCHING, SAFE_LOSSES, SAFE_NETWORKS, code_in
from fedce.base.config import Config, dumps, load, parse, parse_assignment
from fedce.base.errors import ConfigError
from fedce.base.registry import load_object
from fedce.record.folder import RunFolder


def test_defaults_are_the_papers():  # D12
    train = Config().train
    assert (train.optimizer, train.lr, train.betas, train.batch_size, train.epochs) == ("adam", 1e-3, (0.9, 0.99), 8, 1)
    assert (train.loss, train.optimizer_state) == ("dice", "persist")
    assert Config().data.split == (0.5, 0.25, 0.25)
    assert parse({"data": {"scale": "paper"}}).n_rounds == 200


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        ({"round": 3}, "unknown key 'round', did you mean 'rounds'?"),
        ({"train": {"learning_rate": 1}}, "unknown key 'train.learning_rate'"),
        ({"train": {"batchsize": 1}}, "did you mean 'batch_size'?"),
        ({"rounds": 0}, "rounds: input should be greater than or equal to 1 (got 0)"),
        ({"train": {"lr": -1}}, "train.lr: input should be greater than 0 (got -1)"),
        ({"train": {"lr": float("nan")}}, "train.lr"),
        ({"data": {"split": [0.5, 0.25, 1.5]}}, "data.split.2: input should be less than 1"),
        ({"data": {"split": [0.5, 0.25, 0.5]}}, "data.split: training, validation and test shares must sum to 1"),
        ({"data": {"classes": {"a": []}}}, "every class needs at least one mask value"),
        ({"engine": {"min_sites": 1}}, "engine.min_sites"),
        ({"data": 3}, "data:"),
        ({"seed": -1}, "seed:"),
    ],
)
def test_a_mistake_is_one_line(tree, line):
    with pytest.raises(ConfigError) as caught:
        parse(tree)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("fedec", {}, "unknown algorithm 'fedec', did you mean 'fedce'?"),
        ("fedavg", {"q": 1}, "algorithm 'fedavg' has no option 'q'; it has: none"),
        ("fedce", {"max_shares": 1}, "did you mean 'max_share'?"),
        ("fedce", {"combine": "sum"}, "has no option 'combine'"),
        ("fedce", {"max_share": 1.5}, "algorithm.max_share: input should be less than or equal to 1 (got 1.5)"),
        ("nowhere:Thing", {}, "can't import 'nowhere:Thing'"),
        (
            "fedce",
            {"guard": "off"},
            "algorithm.guard: the guard is for every algorithm now; set the top-level key guard",
        ),
        ("fedavg", {"guard": "off"}, "set the top-level key guard instead"),
    ],
)
def test_an_unknown_algorithm_or_option_is_one_line(name, options, line):
    with pytest.raises(ConfigError) as caught:
        algorithms.make(name, options)
    assert line in str(caught.value)


@pytest.mark.parametrize("name", algorithms.ALGORITHMS)
def test_every_name_makes_an_algorithm_that_knows_its_name(name):
    assert algorithms.name_of(algorithms.make(name, {})) == name


def test_the_four_forms_of_fedce():
    made = {name: algorithms.make(name, {}) for name in ("fedce", "fedce-sum", "fedce-cos", "fedce-err")}
    assert [algorithm.combine for algorithm in made.values()] == ["product", "sum", "cos", "err"]
    assert algorithms.make("fedce", {"estimate": "site"}) == FedCEAtSites()


def test_a_resolved_file_reads_back_as_itself(tmp_path: Path):
    config = parse({"rounds": 7, "data": {"source": "prostate6"}, "algorithm": {"name": "fedce", "estimate": "site"}})
    (tmp_path / "config.toml").write_text(dumps(config))
    assert load(tmp_path / "config.toml") == config


def test_changes_go_over_the_file(tmp_path: Path):
    (tmp_path / "a.toml").write_text("rounds = 5\n[train]\nlr = 0.1\n")
    config = load(tmp_path / "a.toml", {"train.lr": 0.2, "algorithm.estimate": "site"})
    assert (config.rounds, config.train.lr, config.algorithm.options) == (5, 0.2, {"estimate": "site"})


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(ConfigError, match="can't read the experiment file"):
        load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("rounds = = 3")
    with pytest.raises(ConfigError, match="is not a TOML file"):
        load(tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match="'rounds' is a value, not a table"):
        load(None, {"rounds": 3, "rounds.x": 1})


def test_assignments():
    assert parse_assignment("train.lr=3e-4") == ("train.lr", 3e-4)
    assert parse_assignment("algorithm.estimate=site") == ("algorithm.estimate", "site")
    assert parse_assignment("data.split=[0.6, 0.2, 0.2]") == ("data.split", [0.6, 0.2, 0.2])
    with pytest.raises(ConfigError, match="expected key=value"):
        parse_assignment("rounds")


def test_the_guard_of_an_earlier_run_folder_is_still_read(tmp_path: Path):
    (tmp_path / "config.toml").write_text('rounds = 3\n[algorithm]\nname = "fedce"\nguard = "off"\nmax_share = 0.7\n')
    recorded = RunFolder(tmp_path).config
    assert (recorded.guard, recorded.algorithm.options) == ("off", {"max_share": 0.7})
    assert algorithms.built_in(recorded) == FedCE(max_share=0.7)


@pytest.mark.parametrize("name", algorithms.ALGORITHMS)
def test_every_algorithm_can_have_the_guard_on_or_off(name):
    for guard in ("standard", "off"):
        config = parse({"guard": guard, "algorithm": {"name": name}})
        assert getattr(algorithms.made_for(config), "guard", guard) == guard


@pytest.mark.parametrize(
    ("model", "loss", "keys"),
    [
        ({"name": "unet"}, "dice", []),
        ({"name": "monai.networks.nets:SegResNet", "options": {"init_filters": 8}}, "monai.losses:TverskyLoss", []),
        ({"name": "monai.networks.nets:SwinUNETR", "options": {"dropout_path_rate": 0.1}}, "dice", []),
        ({"name": "monai.networks.nets:FlexibleUNet", "options": {"pretrained": True}}, "dice", ["model.name"]),
        ({"name": "monai.networks.nets:AHNet"}, "dice", ["model.name"]),
        ({"name": "monai.networks.nets:UNet", "options": {"pretrained_url": "x"}}, "dice", ["model.name"]),
        ({"name": "monai.networks.nets:UNet", "options": {"act": ["prelu", {"path": "x"}]}}, "dice", ["model.name"]),
        ({"name": "monai.networks.nets:UNet", "options": {"act": "https://x"}}, "dice", ["model.name"]),
        ({"name": "monai.networks.nets:torch"}, "monai.losses:PerceptualLoss", ["model.name", "train.loss"]),
        ({"name": "my.code:Net"}, "my.code:loss", ["model.name", "train.loss"]),
    ],
)
def test_only_what_fetches_nothing_is_made_without_being_trusted(model, loss, keys):
    assert sorted(code_in(parse({"model": model, "train": {"loss": loss}}))) == keys


def test_the_networks_and_losses_that_are_called_safe_exist_and_take_no_weights():
    for path in (*SAFE_NETWORKS, *SAFE_LOSSES):
        options = signature(load_object(path, "model.name")).parameters
        assert not [name for name in options if FETCHING.search(name) and name != "weight"], path
