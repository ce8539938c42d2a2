"""Batch norms whose statistics, or all of whose values, stay at each site."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from monai.losses import DiceLoss
from monai.networks.nets import UNet
from PIL import Image
from safetensors.numpy import load_file

from fedce.base.config import load
from fedce.base.errors import ConfigError
from fedce.core.params import Entry, Layout, Params, completed, part_of, pooled, shared_layout, to_named
from fedce.data import load_sites
from fedce.engines.starting import execute, resume
from fedce.federation.plan import Participants, Plan, resolve
from fedce.record.folder import RunFolder
from fedce.record.verify import verify
from fedce.site.hospital import round_seed
from support import Stopped, stopping_after

TINY = {
    "data.scale": "tiny",
    "rounds": 3,
    "model.channels": (4, 8),
    "engine.workers": 1,
    "algorithm.name": "fedavg",
    "engine.device": "cpu",
}
entries = st.lists(st.tuples(st.sampled_from(["trainable", "buffer", "counter"]), st.booleans()), max_size=8)


def layout_of(kinds) -> Layout:
    order = ("trainable", "buffer", "counter")
    made = [Entry(f"{i}", (2,), kind, norm) for i, (kind, norm) in enumerate(kinds)]
    return Layout(tuple(sorted(made, key=lambda entry: order.index(entry.kind))))


@given(entries, st.sampled_from(["nothing", "statistics", "norms"]), st.integers(0, 2**32 - 1))
def test_a_completed_part_is_the_part_and_the_rest_is_the_sites_own(kinds, stays, seed):
    whole = layout_of(kinds)
    rng = np.random.default_rng(seed)
    own = Params(whole, rng.normal(size=whole.size).astype(np.float32))
    shared = shared_layout(whole, stays)
    part = Params(shared, rng.normal(size=shared.size).astype(np.float32))
    made = completed(part, own)
    assert part_of(made, shared).vector.tobytes() == part.vector.tobytes()
    names = {entry.name for entry in shared.entries}
    for name, values in to_named(made).items():
        assert name in names or np.array_equal(values, to_named(own)[name])


def test_pooled_statistics_are_those_of_all_values_together():
    """Mean and variance of a mixture of equal parts."""
    layout = Layout((Entry("n.running_mean", (1,), "buffer", True), Entry("n.running_var", (1,), "buffer", True)))
    parts = [np.array([1.0, 3.0, 5.0]), np.array([10.0, 10.0, 16.0])]
    models = [Params(layout, np.array([part.mean(), part.var()], np.float32)) for part in parts]
    together = np.concatenate(parts)
    np.testing.assert_allclose(pooled(models).vector, [together.mean(), together.var()], rtol=1e-6)


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> dict[str, RunFolder]:
    folder = tmp_path_factory.mktemp("norms")
    runs = {}
    for name, changes in {
        "site": {"model.norm": "site"},
        "site-affine": {"model.norm": "site-affine"},
        "fedbn": {"algorithm.name": "fedbn"},
    }.items():
        execute(load(None, {**TINY, **changes}), folder / name)
        runs[name] = RunFolder(folder / name)
    return runs


def is_statistic(name: str) -> bool:
    return "running" in name or "num_batches" in name


@pytest.mark.parametrize("norm", ["site", "site-affine"])
def test_sites_share_all_but_what_stays(ran, norm):
    models = [load_file(ran[norm].site_model_file(f"site{i}")) for i in range(1, 7)]
    stays = {name for name in models[0] if is_statistic(name) or (norm == "site-affine" and ".N." in name)}
    assert stays
    for name, first in models[0].items():
        alike = all(np.array_equal(first, model[name]) for model in models[1:])
        assert alike != (name in stays), name


def test_fedbn_is_fedavg_with_site_affine_norms(ran):
    assert ran["fedbn"].results["model_sha256"] == ran["site-affine"].results["model_sha256"]
    assert ran["fedbn"].config.model.norm == "site-affine"


def test_the_common_model_has_the_pooled_statistics(ran):
    run = ran["site"]
    common = load_file(run.model_file)
    own = [load_file(run.site_model_file(f"site{i}")) for i in range(1, 7)]
    for name in common:
        if name.endswith("running_mean"):
            np.testing.assert_allclose(common[name], np.mean([model[name] for model in own], axis=0), rtol=1e-5)


def test_the_ledger_of_such_a_run_is_sound(ran):
    for run in ran.values():
        assert verify(run).problems == ()


def test_a_plain_loop_gives_the_same_models(tmp_path: Path):
    """FedAvg with site statistics, written once more in plain PyTorch."""
    # Not with Adam: a bias before a batch norm has no gradient but rounding noise, which Adam makes large.
    sgd = {"train.optimizer": "sgd", "train.lr": 0.05}
    config = load(None, {**TINY, **sgd, "model.norm": "site", "rounds": 2, "guard": "off"})
    sites = load_sites(config.data)
    execute(config, tmp_path / "run", sites=sites, report=False)
    torch.manual_seed(0)
    network = UNet(2, 3, 2, channels=(4, 8), strides=(2,), num_res_units=0, norm="batch")
    common = {name: value.clone() for name, value in network.state_dict().items()}
    own = {data.name: {n: v.clone() for n, v in common.items() if is_statistic(n)} for data in sites}
    moments: dict[str, dict] = {}
    total = sum(len(data.split.train) for data in sites)
    for round_no in range(2):
        mean = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in common.items()}
        for data in sites:
            network.load_state_dict({**common, **own[data.name]})
            optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
            if data.name in moments:
                optimizer.load_state_dict(moments[data.name])
            network.train()
            images = torch.tensor(data.images[data.split.train]).float() / 255
            masks = torch.tensor(data.masks[data.split.train]).float()
            torch.manual_seed(round_seed(0, data.name, round_no))
            for rows in torch.split(torch.randperm(len(images)), 8):
                optimizer.zero_grad()
                DiceLoss(sigmoid=True)(network(images[rows]), masks[rows]).backward()
                optimizer.step()
            moments[data.name] = optimizer.state_dict()
            trained = network.state_dict()
            own[data.name] = {n: v.clone() for n, v in trained.items() if is_statistic(n)}
            for name, value in trained.items():
                mean[name] += value * (len(images) / total)
        common = {name: value.to(common[name].dtype) for name, value in mean.items()}
    for data in sites:
        found = load_file(tmp_path / "run" / "models" / f"{data.name}.safetensors")
        for name, value in {**common, **own[data.name]}.items():
            np.testing.assert_allclose(found[name], value.numpy(), atol=2e-5, err_msg=name)


def test_two_workers_and_a_resumed_run_give_the_same_bits(ran, tmp_path: Path):
    config = load(None, {**TINY, "model.norm": "site", "engine.workers": 2, "engine.checkpoint_seconds": 0.0})

    with pytest.raises(Stopped):
        execute(config, tmp_path / "run", observer=stopping_after(1))
    again = resume(tmp_path / "run")
    assert again.values["model_sha256"] == ran["site"].results["model_sha256"]
    assert again.dice == ran["site"].results["dice"]


def test_a_site_without_norms_of_its_own_estimates_them_from_its_images(tmp_path: Path):
    """A left-out site is evaluated with its own statistics, which no mask and no training has made."""
    config = load(None, {**TINY, "model.norm": "site", "leave_out": ("site5",), "rounds": 2})
    participants = Participants(resolve(config), load_sites(config.data))
    execute(config, tmp_path / "run", sites=participants.sites, report=False)
    found = load_file(tmp_path / "run" / "models" / "site5.safetensors")
    learner = participants.learner
    data = next(data for data in participants.sites if data.name == "site5")
    first = next(name for name in found if name.endswith("running_mean"))
    learner.load(participants.learner.initial)
    tensors = {name: torch.tensor(value) for name, value in found.items()}
    learner.network.load_state_dict(tensors)
    images = learner.batch(data.images[data.split.train], data.masks[data.split.train]).images.float() / 255
    seen: list[torch.Tensor] = []
    layer = dict(learner.network.named_modules())[first.removesuffix(".running_mean")]
    layer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].mean((0, 2, 3))))
    learner.network.train()
    for batch in torch.split(images, 8):
        learner.network(batch)
    np.testing.assert_allclose(found[first], torch.stack(seen).mean(0).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"model.norm": "site-affine", "algorithm.name": "fedce", "algorithm.estimate": "site"},
            "set model.norm to site",
        ),
        ({"model.norm": "instance", "algorithm.name": "fedbn"}, "leave out model.norm"),
    ],
)
def test_what_can_not_be_is_one_line(changes, said):
    config = load(None, {**TINY, **changes})
    members = {data.name: None for data in load_sites(config.data)}
    with pytest.raises(ConfigError, match=said):
        Plan(resolve(config), members)


def test_a_network_without_batch_norm_is_refused(tmp_path: Path):
    network = {"model.name": "monai.networks.nets:BasicUNet", "model.norm": "site"}
    options = {"spatial_dims": 2, "in_channels": 3, "out_channels": 2, "features": (4, 4, 8, 8, 8, 4)}
    with pytest.raises(ConfigError, match="has no batch norm"):
        execute(load(None, {**TINY, **network, "model.options": options}), tmp_path / "run")


def test_predict_adapts_to_new_images(ran, tmp_path: Path, fedce):
    run = ran["site"]
    data = load_sites(run.config.data)[0]
    for i in range(6):
        Image.fromarray(255 - data.images[i].transpose(1, 2, 0)).save(tmp_path / f"{i}.png")
    images = [tmp_path / f"{i}.png" for i in range(6)]
    plain = fedce("predict", run.path, *images, "--out", tmp_path / "plain")
    adapted = fedce("predict", run.path, *images, "--out", tmp_path / "adapted", "--adapt")
    assert plain.exit_code == adapted.exit_code == 0, adapted.output
    assert "batch-norm statistics are estimated from these images" in adapted.stderr
    masks = [
        np.array([np.array(Image.open(tmp_path / how / f"{i}.png")) for i in range(6)]) for how in ("plain", "adapted")
    ]
    assert (masks[0] != masks[1]).any()


def test_a_model_without_batch_norm_can_not_adapt(tmp_path: Path, fedce):
    out = tmp_path / "run"
    execute(load(None, {**TINY, "model.norm": "instance", "rounds": 1}), out)
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    refused = fedce("predict", out, tmp_path / "a.png", "--out", tmp_path / "masks", "--adapt")
    assert refused.exit_code == 2
    assert "has no batch norm" in refused.output
    assert json.loads((out / "results.json").read_text())
