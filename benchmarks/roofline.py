"""Where the time of a training step goes, against what one core can do.

The default network at three sizes in batches of 8 images, and on 3-D patches of 64x64x16 voxels in batches of 2. Each
layer's forward and backward pass is timed by itself, with the tensors that it has in the network. Its work follows from
its shapes: operations of the convolutions, and bytes that must be read and written if nothing is kept in a cache. The
peaks are of this machine, in the same run: a product of two matrices, and a copy of 128 MiB.

The same step is also taken by MONAI's network as it is, by that network compiled (torch.compile, 2-D only, in channels
last), and by ours in bf16 (train.amp). Compiling takes the seconds that are shown if no compiled files are found.

Everything is measured in CPU seconds with one thread; a value is the best of several calls.

    python -m benchmarks.roofline [--repeats 3]
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from benchmarks.figures import Figure, main
from torch import Tensor, nn

from fedce.base.config import Config, parse
from fedce.data.shape import patch_of
from fedce.learning.learner import Learner, learner_for
from fedce.learning.networks import build

CASES = {"64x64": (64, 64), "128x128": (128, 128), "256x256": (256, 256), "3-D patch": (64, 64, 16)}
N_CALLS = 5


def best(call: Callable[[], Any], n_calls: int = N_CALLS) -> float:
    """CPU seconds of the fastest call."""
    found = []
    for _ in range(n_calls):
        start = process_time()
        call()
        found.append(process_time() - start)
    return min(found)


def peaks() -> dict[str, tuple[float, str]]:
    """What this core reaches: billions of operations a second in a matrix product, and of bytes a second in a copy."""
    a, b = torch.rand(1024, 1024), torch.rand(1024, 1024)
    large, copy = torch.rand(2**25), torch.empty(2**25)
    halves = a.bfloat16(), b.bfloat16()
    return {
        "peak: matrix product": (2 * 1024**3 / best(lambda: a @ b) / 1e9, "GFLOP/s"),
        "peak: matrix product in bf16": (2 * 1024**3 / best(lambda: halves[0] @ halves[1]) / 1e9, "GFLOP/s"),
        "peak: copy of 128 MiB": (2 * large.nbytes / best(lambda: copy.copy_(large)) / 1e9, "GB/s"),
    }


@dataclass
class Layer:
    """One layer of the network, with what it was given."""

    name: str
    module: nn.Module
    given: Tensor
    made: Tensor

    @property
    def kind(self) -> str:
        kinds = {"Conv": "convolution", "Narrow": "transposed convolution", "BatchNorm": "batch norm"}
        if isinstance(self.module, nn.ConvTranspose2d | nn.ConvTranspose3d):
            return "transposed convolution"
        name = type(self.module).__name__
        return next((words for start, words in kinds.items() if name.startswith(start)), "PReLU")

    @property
    def operations(self) -> int:
        """Of a forward pass; a backward pass of a convolution has twice as many."""
        if not isinstance(self.module, nn.modules.conv._ConvNd):
            return 0
        # A convolution uses its weights once for each place of the smaller side of its two images.
        places = min(self.given[0, 0].numel(), self.made[0, 0].numel()) * len(self.given)
        return 2 * places * self.module.weight.numel()

    @property
    def n_bytes(self) -> int:
        """Of a forward pass: what is read and written once. A backward pass moves about twice as much."""
        return self.given.nbytes + self.made.nbytes + sum(one.nbytes for one in self.module.parameters())

    def seconds(self) -> tuple[float, float]:
        """A forward pass in training, and a backward pass."""
        given = self.given.detach().requires_grad_()
        made = self.module(given)
        gradient = torch.rand_like(made)
        inputs = [given, *self.module.parameters()]
        forward = best(lambda: self.module(given))
        return forward, best(lambda: torch.autograd.grad(made, inputs, gradient, retain_graph=True))


def config_at(size: tuple[int, ...]) -> Config:
    volumes = {"dims": 3, "patch": list(size)} if len(size) == 3 else {}
    return parse({"data": {"source": "volume6" if volumes else "fundus6", "scale": "tiny", **volumes}})


def learner_at(size: tuple[int, ...]) -> Learner:
    return learner_for(config_at(size), 3, 2, torch.device("cpu"), size)


def layers_of(learner: Learner, images: Tensor) -> list[Layer]:
    """Every layer that computes, in the order of the forward pass."""
    found: list[Layer] = []
    kinds = (nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm, nn.PReLU)
    hooks = [
        module.register_forward_hook(
            lambda module, given, made, name=name: found.append(Layer(name, module, given[0], made))
        )
        for name, module in learner.network.named_modules()
        if isinstance(module, kinds)
    ]
    learner.network.train()
    learner.network(images)
    for hook in hooks:
        hook.remove()
    return found


def figures_of(case: str, size: tuple[int, ...]) -> dict[str, tuple[float, str]]:
    """What is measured of one size: name to value and unit."""
    learner, n = learner_at(size), 8 if len(size) == 2 else 2
    found: dict[str, tuple[float, str]] = {}
    images = torch.rand(n, 3, *size).contiguous(memory_format=learner._format)
    masks = (torch.rand(n, 2, *size) > 0.5).float()
    loss_of = learner.loss

    def step() -> None:
        loss_of(learner.network(images), masks).backward()

    learner.network.train()
    step()
    whole = best(step)
    layers = layers_of(learner, images)
    seconds = [layer.seconds() for layer in layers]
    for kind in ("convolution", "transposed convolution", "batch norm", "PReLU"):
        chosen = [(layer, both) for layer, both in zip(layers, seconds, strict=True) if layer.kind == kind]
        total = sum(sum(both) for _, both in chosen)
        found[f"{case}: {kind}, share of the step"] = total / whole, "x"
        if operations := sum(3 * layer.operations for layer, _ in chosen):
            found[f"{case}: {kind}"] = operations / total / 1e9, "GFLOP/s"
        found[f"{case}: {kind}, memory"] = sum(3 * layer.n_bytes for layer, _ in chosen) / total / 1e9, "GB/s"
    convolutions = [i for i, layer in enumerate(layers) if layer.operations]
    for name, i in (("first convolution", convolutions[0]), ("last convolution", convolutions[-1])):
        found[f"{case}: {name}, share of the step"] = sum(seconds[i]) / whole, "x"
        found[f"{case}: {name}"] = 3 * layers[i].operations / sum(seconds[i]) / 1e9, "GFLOP/s"
    found |= other_ways(case, config_at(size), learner, images, masks, whole)
    rest = 1 - sum(map(sum, seconds)) / whole
    found[f"{case}: loss, concatenations and the rest, share of the step"] = max(rest, 0.0), "x"
    found[f"{case}: a step, forward and backward"] = 1e3 * whole, "ms"
    found[f"{case}: a step's convolutions"] = 3 * sum(layer.operations for layer in layers) / whole / 1e9, "GFLOP/s"
    rng = np.random.default_rng(0)
    if len(size) == 2:
        pixels = rng.integers(0, 255, (16, 3, *size)).astype(np.uint8)
        data, params = learner.batch(pixels, pixels[:, :2] > 127), learner.params
        learner.counts([params], data)
        found[f"{case}: scoring 16 images"] = 1e3 * best(lambda: learner.counts([params], data)), "ms"
        forward = best(lambda: learner.counts([params] * 4, data))
        found[f"{case}: four models in one pass / one by one"] = (
            forward / best(lambda: [learner.counts([params], data) for _ in range(4)]),
            "x",
        )
    return found


def other_ways(
    case: str, config: Config, learner: Learner, images: Tensor, masks: Tensor, ours: float
) -> dict[str, tuple[float, str]]:
    """The same step without our ways around slow paths, compiled, and in bf16; each over ours."""

    def step(network: Callable[[Tensor], Tensor]) -> float:
        def one() -> None:
            learner.loss(network(images).float(), masks).backward()

        one()
        return best(one)

    def in_bf16(given: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            made: Tensor = learner.network(given)
        return made

    plain = build(config.model, 3, 2, config.seed, patch_of(config.data))
    found = {f"{case}: MONAI's network as it is / ours": (step(plain) / ours, "x")}
    found[f"{case}: in bf16 / ours"] = step(in_bf16) / ours, "x"
    if images.ndim == 5:  # torch 2.13 fails to compile the 3-D network: "Invalid ranges" in its inductor.
        return found
    start = perf_counter()
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": folder}):
        compiled = torch.compile(plain.to(memory_format=learner._format))
        compiled(images).sum().backward()
        found[f"{case}: compiling"] = perf_counter() - start, "s"
        found[f"{case}: compiled / ours"] = step(compiled) / ours, "x"
    return found


def measure(repeats: int) -> list[Figure]:
    torch.set_num_threads(1)
    runs: list[dict[str, tuple[float, str]]] = []
    for _ in range(repeats):
        found = dict(peaks())
        for case, size in CASES.items():
            found |= figures_of(case, size)
        runs.append(found)
    return [Figure(what, [run[what][0] for run in runs], unit) for what, (_, unit) in runs[0].items()]


if __name__ == "__main__":
    main(__doc__, measure, repeats=3)
