"""Volumes as volumes: resampling, patches, windows, whole-case scores, and networks in 3-D."""

import nibabel
import numpy as np
import pytest
import torch
from monai.inferers import sliding_window_inference
from monai.networks.nets import DynUNet
from torch import nn

from fedce.base.config import parse
from fedce.base.errors import ConfigError, DataError
from fedce.base.tables import ModelConfig, TrainConfig
from fedce.core.scoring import Grouping
from fedce.data import load_sites, synthetic
from fedce.data.reader import at_spacing
from fedce.data.shape import Stack
from fedce.learning.batches import Volume, Volumes, Windows, cut, is_on_marked, to_input, to_unit
from fedce.learning.learner import Learner
from fedce.learning.losses import make_loss, of_labelled, over_heads
from fedce.learning.networks import build, check_fits, shared_out
from fedce.pictures.examples import found_in
from fedce.site.hospital import Hospital

CPU = torch.device("cpu")
PATCH = (8, 16, 16)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def learner(name="unet", channels=(4, 8), normalize="zscore", options=None, **train):
    network = build(ModelConfig(name=name, channels=channels, options=options or {}), 1, 2, seed=0, patch=PATCH)
    return Learner(network, TrainConfig(**train), normalize, CPU, windows=Windows(PATCH))


def volume(shape, seed=0):
    """A noisy volume with a bright box that is class 0, whose upper half is class 1."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 80, (shape[0], 1, *shape[1:])).astype(np.uint8)
    masks = np.zeros((shape[0], 2, *shape[1:]), np.uint8)
    masks[1:-1, 0, 3:-3, 4:-4] = 1
    masks[1:-1, 1, 3 : shape[1] // 2, 4:-4] = 1
    return images + 150 * masks[:, :1], masks


def volumes_of(*shapes):
    return Volumes([Volume(*volume(shape, i)) for i, shape in enumerate(shapes)], PATCH, CPU)


# --- data -------------------------------------------------------------------------------------


def test_resampling_keeps_the_size_in_millimetres():
    values, labels = np.zeros((9, 2, 20, 30), np.uint8), np.zeros((9, 20, 30), np.uint8)
    values[:, 0, :, 15:], values[:, 1], labels[:, 10:] = 200, 90, 3
    found, marked, spacing = at_spacing(values, labels, (8.0, 1.2, 1.2), (3.0, 1.5, 1.5))
    assert found.shape == (24, 2, 16, 24)
    assert marked.shape == (24, 16, 24)
    assert np.allclose(np.multiply(spacing, marked.shape), (72, 24, 36))
    assert set(np.unique(marked)) == {0, 3}  # Nearest: no other label arises.
    assert (found[:, 0, :, :10] == 0).all()
    assert (found[:, 0, :, 14:] == 200).all()
    assert 0 < found[0, 0, 0, 12] <= 200  # Linear: between the two.
    assert (found[:, 1] == 90).all()  # Each modality alone.


def write(path, values, spacing):
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(np.ascontiguousarray(values.T), np.diag([*spacing[::-1], 1.0])), path)


def folder_of(tmp_path, shapes, spacing=(2.0, 1.0, 1.0)):
    """Two sites with a volume of each shape."""
    for site in ("east", "west"):
        for i, shape in enumerate(shapes):
            images, masks = volume(shape, i)
            write(tmp_path / site / "images" / f"case{i}.nii.gz", images[:, 0], spacing)
            write(tmp_path / site / "masks" / f"case{i}.nii.gz", masks[:, 0], spacing)
    return tmp_path


SHAPES = [(10, 20, 24), (12, 24, 20), (8, 18, 18), (10, 20, 20)]


def test_volumes_of_several_sizes_stay_volumes(tmp_path):
    """Slices are padded for storage alone: every volume comes back at its own size."""
    sites = load_sites(str(folder_of(tmp_path, SHAPES)), dims=3, patch=PATCH)
    site = sites[0]
    assert site.n_by_part == {"train": 2, "validation": 1, "test": 1}
    assert site.shape == (1, 16, 16)
    stacks = site.stacks(np.arange(len(site.images)))
    assert [(len(one.rows), one.height, one.width) for one in stacks] == SHAPES
    for i, one in enumerate(stacks):
        # Files are turned to the patient's axes, so the picture may be mirrored, but it has as much marked.
        assert one.of(site.masks).sum() == volume(SHAPES[i], i)[1][:, 0].sum()
        assert site.masks[one.rows].sum() == one.of(site.masks).sum()


def test_an_example_is_of_the_volume_without_its_padding(tmp_path):
    site = load_sites(str(folder_of(tmp_path, SHAPES)), dims=3, patch=PATCH)[0]
    assert site.images.shape[2:] == (24, 24)
    given = []

    def predict(images):
        given.append(images.shape)
        return np.ones((len(images), 1, *images.shape[2:]), bool)

    row = int(np.flatnonzero(np.array(site.items) == 2)[0])
    found = found_in(site, row, predict)
    assert given == [(8, 1, 18, 18)]
    assert found.shape == (1, 24, 24)
    assert found.sum() == 18 * 18


def test_volumes_with_unequal_modalities_are_one_line(tmp_path):
    data = folder_of(tmp_path, SHAPES)
    path = data / "east" / "images" / "case1.nii.gz"
    both = np.stack([np.asarray(nibabel.load(path).dataobj)] * 2, axis=-1)
    nibabel.save(nibabel.Nifti1Image(both, nibabel.load(path).affine), path)
    with pytest.raises(DataError, match=r"'case1#000' has 2 modalities, 'case0#000' of the same site has 1"):
        load_sites(str(data), dims=3, patch=PATCH)


def test_volumes_are_resampled_to_one_spacing(tmp_path):
    sites = load_sites(str(folder_of(tmp_path, SHAPES)), dims=3, spacing=(2.0, 2.0, 2.0), patch=PATCH)
    found = [(len(one.rows), one.height, one.width) for one in sites[0].stacks(np.arange(len(sites[0].images)))]
    assert found == [(slices, rows // 2, columns // 2) for slices, rows, columns in SHAPES]
    assert all(origin.voxel == pytest.approx((2.0, 2.0, 2.0)) for origin in sites[0].origins)


def test_a_spacing_at_which_no_volume_fits_into_memory_is_one_line(tmp_path):
    with pytest.raises(
        DataError, match=r"case0.nii.gz would have 2000x2000x2400 voxels at data.spacing = 0.01 x 0.01 x"
    ):
        load_sites(str(folder_of(tmp_path, SHAPES)), dims=3, spacing=(0.01, 0.01, 0.01), patch=PATCH)


def test_2d_images_are_refused_by_their_name(tmp_path):
    from PIL import Image

    for site in ("east", "west"):
        for part in ("images", "masks"):
            (tmp_path / site / part).mkdir(parents=True)
            for i in range(4):
                Image.new("L", (32, 32), 1).save(tmp_path / site / part / f"{i}.png")
    with pytest.raises(DataError, match=r"2-D.*data\.dims = 3 needs volumes"):
        load_sites(str(tmp_path), dims=3)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ({"source": "fundus6", "dims": 3}, "fundus6 has 2-D images"),
        ({"source": "folder", "dims": 3, "size": 64}, "data.size is for 2-D images"),
        ({"source": "folder", "spacing": [1.0, 1.0, 1.0]}, "set data.dims = 3 as well"),
        ({"source": "folder", "dims": 3, "patch": [8, 8]}, "data.patch"),
        ({"source": "folder", "dims": 3, "patch": [512, 512, 512]}, "data.patch has 134,217,728 voxels"),
    ],
)
def test_settings_that_do_not_fit_volumes_are_one_line(data, line):
    with pytest.raises(ConfigError) as caught:
        parse({"data": data})
    assert line in str(caught.value)


def test_dims_follow_the_data():
    assert parse({"data": {"source": "volume6"}}).data.dims == 3
    assert parse({"data": {"source": "prostate6"}}).data.dims == 2
    assert parse({"data": {"source": "somewhere"}}).data.dims == 2


# --- volume6 ----------------------------------------------------------------------------------

SITES = tuple(synthetic.FEDERATIONS["volume6"].n_train_by_site)


@pytest.mark.parametrize("site", SITES)
def test_a_volume_has_an_organ_with_its_lesion_inside(site):
    drawn = synthetic.draw_volume("volume6", site, 0, seed=3)
    again, other = synthetic.draw_volume("volume6", site, 0, seed=3), synthetic.draw_volume("volume6", site, 1, seed=3)
    assert np.array_equal(drawn.values, again.values)
    assert not np.array_equal(drawn.values, other.values)
    assert set(np.unique(drawn.labels)) == {0, 1, 2}
    assert drawn.values.shape == drawn.labels.shape
    millimetres = np.multiply(drawn.values.shape, drawn.spacing)
    assert np.allclose(millimetres, (72, 72, 72), rtol=0.12)


def test_the_scanner_with_thick_slices_is_the_rare_one():
    spacing = {site: synthetic.draw_volume("volume6", site, 0, 0).spacing[0] for site in SITES}
    n_train = synthetic.FEDERATIONS["volume6"].n_train_by_site
    assert max(spacing, key=spacing.get) == min(n_train, key=n_train.get) == "site6"


def test_volume6_can_be_read_as_slices():
    sites = load_sites("volume6", scale="tiny", dims=2, sites=["site1", "site6"])
    assert sites[0].patch is None
    assert sites[1].images.shape[1:] == (1, 48, 48)
    assert sites[1].n_by_part["train"] == 4 * 9


# --- patches and windows ----------------------------------------------------------------------


def test_patches_are_cut_where_asked_and_black_outside():
    images, _ = volume((4, 6, 6))
    found = cut(images, (-1, 2, 3), (4, 4, 4))
    assert found.shape == (1, 4, 4, 4)
    assert (found[0, 0] == 0).all()
    assert np.array_equal(found[0, 1:, :, :3], images[:3, 0, 2:6, 3:6])
    assert (found[0, :, :, 3] == 0).all()


@pytest.mark.parametrize("part", [0.0, 1 / 3, 0.5, 0.7, 1.0])
def test_the_stated_part_of_patches_is_centred_on_foreground(part):
    assert sum(is_on_marked(i, part) for i in range(300)) == pytest.approx(300 * part, abs=0.5)


def test_a_marked_centre_is_in_the_middle_of_its_patch():
    """With one marked voxel, away from the borders, every such patch begins half a patch before it."""
    images = np.zeros((20, 1, 40, 40), np.uint8)
    masks = images.copy()
    masks[10, 0, 20, 25] = 1
    drawn = {Volume(images, masks).drawn(PATCH, on_marked=True) for _ in range(5)}
    assert drawn == {(6, 12, 17)}


def test_patches_depend_on_the_seed_alone():
    data, config = volumes_of((12, 24, 24), (10, 20, 30)), TrainConfig(patches=3, batch_size=2)

    def drawn(seed):
        torch.manual_seed(seed)
        return [seen.unit for seen in data.epoch(config)]

    first, again, other = drawn(1), drawn(1), drawn(2)
    assert [len(batch) for batch in first] == [2, 2, 2]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_a_patch_is_normalised_by_its_whole_volume():
    data = volumes_of((12, 24, 24))
    (whole,) = data.whole(1)
    once = to_input(whole.unit, "zscore", whole.moments)
    assert once.mean() == pytest.approx(0, abs=1e-4)
    assert once.std() == pytest.approx(1, abs=1e-3)
    seen = next(data.in_order(1))
    assert torch.allclose(to_input(seen.unit, "zscore", seen.moments), once[:, :, :8, :16, :16])


def test_tiles_cover_every_voxel():
    shape = (12, 24, 37)
    covered = np.zeros(shape, bool)
    for z, y, x in Volume(*volume(shape)).tiles(PATCH):
        covered[z : z + 8, y : y + 16, x : x + 16] = True
    assert covered.all()


def test_whole_volumes_are_segmented_by_gaussian_windows():
    """The same bits as MONAI's function on the normalised volume."""
    ours, data = learner(), volumes_of((12, 24, 37))
    (whole,) = data.whole(1)
    with torch.inference_mode():
        ours.network.eval()
        unit = to_input(whole.unit, "zscore", whole.moments)
        theirs = sliding_window_inference(unit, PATCH, 4, ours.network, overlap=0.25, mode="gaussian") > 0
    found = ours.masks(ours.params, data)
    assert found.shape == (12, 2, 24, 37)
    assert torch.equal(found.movedim(0, 1)[None], theirs)


def test_dice_is_over_the_whole_volume_whatever_its_size():
    """Volumes larger and smaller than a patch: the counts are those of the predicted masks, cut back."""
    ours, data = learner(), volumes_of((12, 24, 20), (6, 10, 14))
    (counts,), masks = ours.counts([ours.params], data), ours.masks(ours.params, data)
    truth = data.masks
    assert masks.shape == truth.shape == (18, 2, 24, 20)
    assert np.array_equal(counts.overlap, (masks & truth).flatten(2).sum(2).numpy())
    items = [0] * 12 + [1] * 6
    found = Grouping.of(items, ["a"] * 12 + ["b"] * 6).dice(counts)
    by_hand = 2 * (masks & truth)[12:, 0].sum() / (masks[12:, 0].sum() + truth[12:, 0].sum())
    assert found[1, 0] == pytest.approx(float(by_hand), rel=1e-6)


def test_training_learns_the_boxes():
    ours, data = learner(lr=0.01, patches=8, batch_size=4), volumes_of((12, 24, 24), (10, 20, 30))
    params, moments = ours.params, {}
    losses = []
    for seed in range(8):
        trained = ours.train(params, data, seed, moments)
        params, moments = trained.params, trained.moments
        losses.append(trained.loss)
    assert losses[-1] < 0.75 * losses[0]
    overlap, total = (getattr(ours.counts([params], data)[0], name).sum(0) for name in ("overlap", "total"))
    assert 2 * overlap[0] / total[0] > 0.9  # Where the second class ends can be seen only by its place.


@pytest.mark.parametrize("augment", ["flips", "standard"])
def test_augmented_patches_keep_their_form(augment):
    ours, data = learner(augment=augment, batch_size=2), volumes_of((12, 24, 24))
    first, again = (ours.train(ours.initial, data, 3, {}).params.digest for _ in range(2))
    assert first == again != learner(batch_size=2).train(ours.initial, data, 3, {}).params.digest


def test_loss_gradient_and_statistics_work_on_volumes():
    ours, data = learner(batch_size=4), volumes_of((12, 24, 20), (6, 10, 14))
    loss, gradient = ours.gradient(ours.initial, data)
    assert 0 < loss < 1
    assert np.abs(gradient).max() > 0
    assert 0 < ours.mean_loss(ours.initial, data) < 1
    adapted = ours.adapted(ours.initial, data)
    assert np.array_equal(adapted.trainable, ours.initial.trainable)
    assert not np.array_equal(adapted.vector, ours.initial.vector)


def test_patches_and_loss_of_volumes_know_the_labelled_classes_alone():
    images, masks = volume((12, 24, 24))
    masks[:, 1] = 0
    masks[0, 1, 0, 0] = 1  # A class that the site does not label, although something is marked.
    ours = learner(loss="dice-ce", class_weights=(1.0, 3.0))
    stack = [Stack(np.arange(12), 24, 24)]
    some, every = ours.volumes(images, masks, stack, (0,)), ours.volumes(images, masks, stack)
    assert [len(one.volumes[0].marked) for one in (some, every)] == [1, 2]
    flipped = ours.volumes(images, np.stack([masks[:, 0], 1 - masks[:, 1]], axis=1), stack, (0,))
    assert ours.mean_loss(ours.initial, some) == ours.mean_loss(ours.initial, flipped)
    assert ours.mean_loss(ours.initial, some) != ours.mean_loss(ours.initial, every)
    last = next(entry for entry in reversed(ours.layout.entries) if entry.kind == "trainable" and entry.shape == (2,))
    where = {entry.name: span for entry, span in ours.layout.slices()}[last.name]
    bias = ours.gradient(ours.initial, some)[1][where]
    assert bias[0] != 0
    assert bias[1] == 0


def test_every_head_is_trained_on_the_labelled_classes_alone():
    heads = [torch.zeros(1, 2, 8, 8, 8, requires_grad=True), torch.zeros(1, 2, 4, 4, 4, requires_grad=True)]
    over_heads(of_labelled(make_loss("dice-ce"), (1,)), heads, torch.ones(1, 2, 8, 8, 8)).backward()
    assert all(head.grad[:, 1].any() and not head.grad[:, 0].any() for head in heads)


def test_a_site_that_labels_classes_of_no_weight_is_refused():
    with pytest.raises(ConfigError, match="classes of weight 0"):
        of_labelled(make_loss("dice", weights=(0.0, 1.0)), (0,))


def test_a_site_counts_its_volumes(tmp_path):
    sites = load_sites(str(folder_of(tmp_path, SHAPES)), dims=3, patch=PATCH, classes={"box": [1]})
    network = build(ModelConfig(channels=(4, 8)), 1, 1, seed=0, patch=PATCH)
    site = Hospital(sites[0], Learner(network, TrainConfig(), "unit", CPU, windows=Windows(PATCH)), ("box",), 0)
    assert site.n_train == 2
    assert 0 <= site.score(site.learner.params) <= 1


# --- networks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("patch", [None, (16, 32, 32), (6, 32, 32)])
@pytest.mark.parametrize("name", ["unet", "dynunet", "segresnet", "monai.networks.nets:AttentionUnet"])
def test_networks_by_name_get_dims_channels_and_classes(name, patch):
    options = {"channels": [4, 8], "strides": [2]} if ":" in name else {}
    network = build(ModelConfig(name=name, channels=(8, 16, 32), options=options), 2, 3, 0, patch)
    assert check_fits(network, 2, 3, patch or (32, 32)).size == (patch or (32, 32))


def test_the_papers_network_is_2d_only():
    with pytest.raises(ConfigError, match="unet-classic"):
        build(ModelConfig(name="unet-classic"), 1, 1, 0, PATCH)


def test_a_network_of_few_slices_halves_rows_and_columns_alone():
    network = build(ModelConfig(channels=(4, 8, 16, 32)), 1, 1, 0, (6, 64, 64))
    assert check_fits(network, 1, 1, (6, 64, 64)).becomes == (6, 64, 64)  # Nothing is padded.
    assert [module.stride for module in network.modules() if isinstance(module, nn.Conv3d)][:3] == [
        (2, 2, 2),
        (1, 2, 2),
        (1, 2, 2),
    ]


@pytest.mark.parametrize("size", [(33, 50), (10, 17, 20)])
def test_sizes_that_the_network_cannot_take_are_padded_and_cropped_back(size):
    network = build(ModelConfig(channels=(4, 8, 16)), 1, 1, 0, (16, 16, 16) if len(size) == 3 else None)
    fit = check_fits(network, 1, 1, size)
    assert all(new % 4 == 0 and 0 <= new - old < 4 for old, new in zip(size, fit.becomes, strict=True))
    image = torch.rand(2, 1, *size)
    assert torch.equal(fit.cropped(fit.padded(image)), image)
    assert fit.padded(image).shape[2:] == fit.becomes


def test_a_patch_that_the_network_cannot_take_trains():
    network = build(ModelConfig(channels=(4, 8, 16)), 1, 2, 0, (8, 16, 16))
    ours = Learner(network, TrainConfig(), "unit", CPU, windows=Windows((7, 15, 17)))
    data = Volumes([Volume(*volume((12, 24, 24)))], (7, 15, 17), CPU)
    assert np.isfinite(ours.train(ours.params, data, 0, {}).loss)
    assert ours.masks(ours.params, data).shape == (12, 2, 24, 24)


def test_workers_share_the_gpus():
    assert shared_out(5, "cuda", 3) == ["cuda:0", "cuda:1", "cuda:2", "cuda:0", "cuda:1"]
    assert shared_out(2, "auto", 1) == ["auto", "auto"]
    assert shared_out(2, "cpu", 4) == ["cpu", "cpu"]
    assert shared_out(1, "cuda:3", 4) == ["cuda:3"]


def test_stacks_of_scattered_rows():
    array = np.arange(4 * 2 * 3 * 3, dtype=np.uint8).reshape(4, 2, 3, 3)
    assert np.array_equal(Stack(np.array([0, 2]), 2, 3).of(array), array[[0, 2], :, :2, :3])


# --- deep supervision -------------------------------------------------------------------------


def test_dynunet_with_stacked_heads_trains_and_answers_with_one():
    ours = learner("dynunet", (4, 8, 16), options={"deep_supervision": True, "deep_supr_num": 1}, batch_size=2)
    assert isinstance(ours.network, DynUNet)
    data = volumes_of((12, 24, 24))
    assert np.isfinite(ours.train(ours.params, data, 0, {}).loss)
    assert ours.masks(ours.params, data).shape == (12, 2, 24, 24)


def test_bytes_become_units():
    assert to_unit(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [0.0, 1.0]
