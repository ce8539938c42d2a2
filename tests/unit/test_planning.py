"""An experiment made from the data: rules as laws, and what a person wrote."""

import json
import tomllib
from math import inf
from pathlib import Path

import nibabel
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import fedce as package
from fedce.base.config import load, parse
from fedce.base.errors import ConfigError, DataError
from fedce.base.recipes import PLANNED, value_at
from fedce.cli import main
from fedce.data import load_sites
from fedce.data.fingerprint import Fingerprint, Fingerprints, fingerprint_of, look_at
from fedce.learning.networks import build
from fedce.learning.planning import LARGEST, as_toml, completed_by, plan_of, planned, tree_of
from fedce.learning.planning_cost import cost_of
from support import write_site

sides = st.integers(16, 4096)
fingerprints = st.builds(
    Fingerprint,
    site=st.uuids().map(str),
    n_train=st.integers(1, 5000),
    n_validation=st.integers(1, 100),
    n_test=st.integers(1, 100),
    n_channels=st.sampled_from([1, 3]),
    heights=sides.map(lambda side: (side, side, side)),
    widths=sides.map(lambda side: (side, side, side)),
    spacing=st.none(),
    is_volume=st.just(False),
    grey=st.just(((1 / 64,) * 64,)),
    areas=st.floats(0, 1).map(lambda area: {"organ": (0.0, area, 1.0)}),
    absent=st.floats(0, 1).map(lambda part: {"organ": part}),
)
federations = st.lists(fingerprints, min_size=2, max_size=8, unique_by=lambda site: site.site)


@given(federations)
def test_a_plan_is_an_experiment_that_can_be_run(sites):
    config = completed_by({}, plan_of(Fingerprints(tuple(sites)))).config
    tree = tree_of(plan_of(Fingerprints(tuple(sites))))
    assert all(value_at(tree, key) is not None for key in PLANNED)
    heights, widths = ({side for site in sites for side in getattr(site, what)} for what in ("heights", "widths"))
    if config.data.size is None:
        assert len(heights) == len(widths) == 1
    for side in [config.data.size] if config.data.size else [*heights, *widths]:
        assert side % 2 ** (len(config.model.channels) - 1) == 0, "the network can halve it"
        assert side <= LARGEST
    smallest = config.data.size or min(*heights, *widths)
    assert 4 <= smallest / 2 ** (len(config.model.channels) - 1) < 8 or len(config.model.channels) == 2


@given(federations, st.integers(4, 128), st.integers(4, 128))
def test_a_size_that_is_settled_can_be_halved_as_often_as_the_network_does(sites, half_height, half_width):
    """72 pixels can be halved three times, not four."""
    shape = (2 * half_height, 2 * half_width)
    channels = tree_of(plan_of(Fingerprints(tuple(sites), shape)))["model"]["channels"]
    assert all(side % 2 ** (len(channels) - 1) == 0 for side in shape)


@given(federations)
def test_no_site_is_too_small_for_a_batch_or_works_without_end(sites):
    config = completed_by({}, plan_of(Fingerprints(tuple(sites)))).config
    fewest = min(site.n_train for site in sites)
    assert config.train.batch_size == 2 or config.train.batch_size <= min(8, fewest)
    assert config.train.epochs == 1, "the guard's limits were measured with one"
    assert 120 <= config.n_rounds <= 300


@given(federations, st.randoms())
def test_the_order_of_the_sites_does_not_matter(sites, random):
    mixed = list(sites)
    random.shuffle(mixed)
    assert tree_of(plan_of(Fingerprints(tuple(mixed)))) == tree_of(plan_of(Fingerprints(tuple(sites))))


@given(federations)
def test_the_file_of_a_plan_is_the_plan(sites):
    tree = {"seed": 3, "max_length": inf, "data": {"classes": {"disc": [128, 255], 'the "cup"': [255]}}}
    tree |= {"train": {"lr": 1e-4, "loss_options": {"sigmoid": True}, "loss": "monai.losses:DiceLoss"}}
    made = completed_by(tree | {"data": {**tree["data"], "source": "somewhere"}}, plan_of(Fingerprints(tuple(sites))))
    text = as_toml(made, tree | {"data": {**tree["data"], "source": "somewhere"}}, ["two", "lines"])
    assert parse(tomllib.loads(text)) == made.config
    for one in made.chosen:
        assert one.reason in text


def test_a_key_that_a_person_wrote_always_wins():
    tree = {"recipe": "plan", "rounds": 7, "data": {"source": "fundus6", "scale": "tiny"}, "train": {"loss": "dice"}}
    found = planned(tree)
    assert (found.config.n_rounds, found.config.train.loss) == (7, "dice")
    assert not {"rounds", "train.loss"} & {one.key for one in found.chosen}
    assert found.config.train.schedule == "late"


def test_a_fingerprint_has_no_image_and_no_name_of_a_file():
    site = load_sites("fundus6", scale="tiny")[0]
    found = fingerprint_of(site, ("disc", "cup"))
    text = found.model_dump_json()
    assert len(text) < 6000
    assert not any(name in text for name in site.files)
    assert Fingerprint.model_validate(json.loads(text)) == found
    assert found.n_train == len(site.split.train)
    assert np.sum(found.grey, axis=1) == pytest.approx([1, 1, 1], abs=1e-4)
    area = site.masks[:, 0].mean(axis=(1, 2))
    assert found.areas["disc"][1] == pytest.approx(np.median(area), abs=1e-6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Two sites whose images have other sizes."""
    root = tmp_path_factory.mktemp("sites")
    write_site(root, "north", n=8, size=(80, 100))
    write_site(root, "south", n=10, size=(120, 120))
    return root


def test_fingerprints_that_were_sent_give_the_plan_of_the_images(folder: Path, tmp_path: Path, fedce):
    for site in ("north", "south"):
        sent = fedce("plan", folder, "--site", site, "--fingerprint", tmp_path / f"{site}.json")
        assert sent.exit_code == 0, sent.output
    whole = fedce("plan", folder, "--json")
    parts = fedce("plan", tmp_path / "north.json", tmp_path / "south.json", "--json")
    assert json.loads(whole.stdout) == json.loads(parts.stdout)
    by_key = {one["key"]: one["value"] for one in json.loads(whole.stdout)["plan"]}
    assert by_key["data.size"] == 96


def test_the_keys_of_an_experiment_file_are_left_as_they_are(folder: Path, tmp_path: Path, fedce):
    stated = tmp_path / "stated.toml"
    stated.write_text('recipe = "plan"\nrounds = 9\n\n[data]\nclasses = { polyp = [255] }\n')
    made = fedce("plan", stated, "--data", folder, "--out", tmp_path / "plan.toml")
    assert made.exit_code == 0, made.output
    config = load(tmp_path / "plan.toml")
    assert (config.n_rounds, config.data.size, config.data.source) == (9, 96, str(folder))
    assert config.data.classes == {"polyp": [255]}
    nowhere = fedce("plan", stated)
    assert nowhere.exit_code == 2
    assert nowhere.stderr.strip().endswith("leave out data.classes and data.colors, or add --data DIR")
    twice = fedce("plan", folder, "--data", folder)
    assert twice.exit_code == 2
    assert "goes with an experiment file" in twice.stderr


def test_one_image_of_another_size_is_enough_to_need_a_size(tmp_path: Path):
    for site in ("north", "south"):
        write_site(tmp_path, site, n=40, size=(64, 64))
    write_site(tmp_path, "south", n=1, size=(80, 64))
    found = planned({"recipe": "plan", "data": {"source": str(tmp_path)}})
    assert found.config.data.size == 64


def test_a_hospital_alone_can_make_its_fingerprint(tmp_path: Path, fedce):
    write_site(tmp_path / "data", "north", n=8)
    made = fedce("plan", tmp_path / "data", "--fingerprint", tmp_path / "north.json")
    assert made.exit_code == 0, made.output
    assert json.loads((tmp_path / "north.json").read_text())["site"] == "north"


def test_a_planned_file_runs_and_its_run_runs_again(folder: Path, tmp_path: Path, fedce):
    file = tmp_path / "plan.toml"
    assert fedce("plan", folder, "--out", file).exit_code == 0
    small = ("--rounds", 1, "--set", "model.channels=[4,8]", "--workers", 1)
    first = fedce("run", file, *small, "--out", tmp_path / "one", "--json")
    assert first.exit_code == 0, first.output
    again = fedce("run", tmp_path / "one" / "config.toml", "--out", tmp_path / "two", "--json")
    assert json.loads(again.stdout)["model_sha256"] == json.loads(first.stdout)["model_sha256"]
    assert fedce("plan", folder, "--out", file).exit_code == 2, "a file that is there stays"


def test_without_a_file_a_command_plans_and_says_so(folder: Path, tmp_path: Path, fedce):
    arguments = ["run", "--data", folder, "--rounds", 1, "--workers", 1, "--out", tmp_path / "run"]
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    assert "planned from the data: personalise = 0, data.size = 96" in done.stderr.replace("\n", " ")
    config = load(tmp_path / "run" / "config.toml")
    assert (config.recipe, config.n_rounds, config.model.norm) == ("plan", 1, "site")


def test_python_plans_too_and_leaves_loaded_images_as_they_are(tmp_path: Path):
    sites = package.load_sites("fundus6", scale="tiny")
    result = package.run(sites, "fedavg", rounds=1, out=tmp_path / "run", settings={"engine.workers": 1})
    config = load(result.folder / "config.toml")
    assert (config.recipe, config.data.normalize, config.train.loss) == ("plan", "zscore", "dice-ce")
    settings = {"recipe": "small", "engine.workers": 1}
    small = package.run(sites, "fedavg", rounds=1, out=tmp_path / "small", settings=settings)
    assert load(small.folder / "config.toml").train.loss == "dice"


def test_the_cost_grows_with_the_work():
    known = look_at(parse({"data": {"scale": "tiny"}}).data)
    costs = [cost_of(completed_by({"rounds": n}, plan_of(known)).config, known).minutes for n in (50, 100, 200)]
    assert 0 < costs[0] < costs[1] < costs[2]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("a.json", "folder"), "expected one folder of sites, one experiment file, or fingerprints"),
        (("one", "two"), "expected one folder of sites, one experiment file, or fingerprints"),
        (("fundus6", "--fingerprint", "f.json"), "of which site? Add --site, one of site1"),
        (("fundus6", "--site", "site9", "--fingerprint", "f.json"), "site9"),
        (("nowhere",), "nowhere"),
        (("nowhere.json", "else.json"), "nowhere.json"),
    ],
)
def test_bad_input_is_one_line(arguments, line, tmp_path: Path, fedce):
    refused = fedce("plan", *arguments, cwd=tmp_path)
    assert refused.exit_code == 2
    assert line in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1


def test_recipe_plan_where_nobody_looks_at_the_data_is_one_line():
    with pytest.raises(ConfigError, match="takes rounds from the data, which is not looked at here"):
        parse({"recipe": "plan"})


def test_a_network_of_ones_own_is_taken_as_it_is():
    """It may have no batch norm whose statistics could stay at the sites."""
    tree = {"recipe": "plan", "data": {"scale": "tiny"}, "model": {"name": "monai.networks.nets:BasicUNet"}}
    assert planned(tree).config.model.norm == "batch"
    assert planned({**tree, "model": {"name": "unet"}}).config.model.norm == "site"


def test_a_sites_name_can_not_break_the_file():
    site = fingerprint_of(load_sites("fundus6", scale="tiny")[0], ("disc", "cup"))
    sites = tuple(site.model_copy(update={"site": name}) for name in ("north\nrounds = 1", "south"))
    made = completed_by({}, plan_of(Fingerprints(sites)))
    assert parse(tomllib.loads(as_toml(made, {}, []))) == made.config


def of_volumes(site: str, depth: int, side: int, spacing: tuple[float, float, float], n: int = 8) -> Fingerprint:
    return Fingerprint(
        site=site,
        n_train=n * depth,
        n_validation=depth,
        n_test=depth,
        n_channels=1,
        heights=(side, side, side),
        widths=(side, side, side),
        spacing=spacing,
        is_volume=True,
        grey=((1 / 64,) * 64,),
        areas={"organ": (0.0, 0.1, 1.0)},
        absent={"organ": 0.5},
        volumes={"depths": (depth, depth, depth), "n_train": n, "n_validation": 1, "n_test": 1},
    )


DEEP = Fingerprints((of_volumes("a", 24, 64, (3.0, 1.0, 1.0)), of_volumes("b", 40, 96, (2.0, 1.0, 1.0))))


def test_volumes_with_enough_slices_are_planned_in_3d():
    chosen = {one.key: one for one in plan_of(DEEP)}
    assert chosen["data.dims"].value == 3
    assert "a have 24 slices" in chosen["data.dims"].reason
    assert chosen["data.spacing"].value == [2.5, 1.0, 1.0]
    # At this spacing the volumes have 29 and 32 slices of 64 and 96 pixels: 30, 80, 80 in the median.
    assert chosen["data.patch"].value == [24, 80, 80]
    assert chosen["model.channels"].value == [16, 32, 64, 128]  # 24 slices are halved three times.
    assert chosen["rounds"].value == 50  # 8 volumes, 2 patches each, 2 in a batch: 8 steps a round.
    config = completed_by({}, plan_of(DEEP)).config
    assert config.data.dims == 3
    assert cost_of(config, DEEP).minutes > 0


@pytest.mark.parametrize(
    ("stated", "dims"),
    [
        ({}, 3),
        ({"data": {"dims": 2}}, None),
        ({"data": {"size": 64}}, None),
        ({"model": {"name": "unet-classic"}}, None),
        ({"model": {"name": "some.module:Network"}}, None),
    ],
)
def test_a_person_decides_between_2d_and_3d(stated, dims):
    assert value_at(tree_of(plan_of(DEEP, stated)), "data.dims") == dims


def test_few_slices_stay_2d_unless_asked():
    flat = Fingerprints((of_volumes("a", 24, 64, (3.0, 1.0, 1.0)), of_volumes("b", 9, 64, (8.0, 1.0, 1.0))))
    assert value_at(tree_of(plan_of(flat)), "data.dims") is None
    assert value_at(tree_of(plan_of(flat, {"data": {"dims": 3}})), "data.dims") == 3


def test_volumes_that_are_not_there_cannot_be_planned():
    flat = Fingerprints(tuple(site.model_copy(update={"volumes": None}) for site in DEEP.sites))
    with pytest.raises(DataError, match=r"data\.dims = 3"):
        plan_of(flat, {"data": {"dims": 3}})


def test_a_spacing_that_is_too_fine_for_patches_becomes_coarser():
    fine = Fingerprints(tuple(of_volumes(name, 19, 384, (3.0, 0.5, 0.5)) for name in ("a", "b")))
    chosen = {one.key: one for one in plan_of(fine)}
    slices, rows, columns = chosen["data.spacing"].value
    assert slices == 3.0
    assert rows == columns
    assert 0.7 < rows < 0.85
    assert "3 x 0.5 x 0.5 mm" in chosen["data.spacing"].reason
    assert chosen["data.patch"].value[0] == 16


def test_a_fingerprint_states_the_files_own_spacing_and_counts_volumes(tmp_path):
    rng = np.random.default_rng(0)
    for site in ("a", "b"):
        for i in range(4):
            for part in ("images", "masks"):
                path = tmp_path / site / part / f"{i}.nii.gz"
                path.parent.mkdir(parents=True, exist_ok=True)
                values = rng.integers(0, 2, (96, 80, 18)).astype(np.uint8)
                nibabel.save(nibabel.Nifti1Image(values, np.diag([0.5, 0.5, 3.0, 1.0])), path)
    (first, _) = look_at(parse({"data": {"source": str(tmp_path)}}).data).sites
    assert first.spacing == pytest.approx((3.0, 0.5, 0.5))
    assert first.volumes is not None
    assert (first.volumes.depths, first.volumes.n_train) == ((18, 18, 18), 2)
    made = planned({"recipe": "plan", "data": {"source": str(tmp_path)}})
    assert made.config.data.dims == 3
    assert made.config.data.patch == (16, 80, 96)


@pytest.mark.parametrize(("name", "units"), [("unet", 2), ("unet-classic", 0), ("dynunet", 0), ("segresnet", 0)])
def test_only_the_u_net_gets_residual_units(name, units):
    config = planned({"recipe": "plan", "data": {"source": "fundus6", "scale": "tiny"}, "model": {"name": name}}).config
    assert config.model.res_units == units
    build(config.model, 3, 2, 0)
