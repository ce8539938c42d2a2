"""Augmentation: decided by the seed, the same for image and mask, and switched by name."""

import numpy as np
import pytest
import torch

from fedce.base.tables import ModelConfig, TrainConfig
from fedce.data.augment import Augment
from fedce.learning import networks as models
from fedce.learning.learner import Learner


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    masks = torch.zeros(6, 1, 32, 32)
    masks[:, :, 4:14, 6:12] = 1
    return masks.repeat(1, 3, 1, 1) * 0.5, masks


@pytest.mark.parametrize("name", ["flips", "standard"])
def test_the_seed_decides(name: str):
    augment = Augment(name)
    results = []
    for seed in (1, 1, 2):
        augment.seed(seed)
        results.append(augment(*batch())[0])
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@pytest.mark.parametrize("name", ["flips", "standard"])
def test_image_and_mask_move_together(name: str):
    augment = Augment(name)
    augment.seed(3)
    images, masks = augment(*batch())
    assert set(masks.unique().tolist()) == {0.0, 1.0}
    overlap = ((images.amax(1, keepdim=True) > 0.2) == (masks > 0)).float().mean()
    assert overlap > 0.97
    assert not torch.equal(masks, batch()[1])


def test_training_with_augmentation_is_repeatable_and_another_training():
    images = np.random.default_rng(0).integers(0, 255, (8, 1, 32, 32), dtype=np.uint8)
    masks = (images > 128).astype(np.uint8)
    trained = {}
    for name in ("none", "standard", "standard"):
        network = models.build(ModelConfig(channels=(4, 8)), 1, 1, 0)
        learner = Learner(network, TrainConfig(augment=name), "unit", torch.device("cpu"))
        result = learner.train(learner.params, learner.batch(images, masks), 5, {}).params.vector
        if name in trained:
            assert (trained[name] == result).all()
        trained[name] = result
    assert (trained["none"] != trained["standard"]).any()
