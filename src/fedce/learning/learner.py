"""Local training and scoring with torch and MONAI.

The network's tensors are views of one flat vector, so that a model comes and goes with one copy and the optimizer
steps one tensor instead of dozens. The arithmetic is elementwise, hence the same as with separate tensors.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import cos, pi
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedce.base.errors import ConfigError, DataError, nearest
from fedce.base.registry import full_name, load_object
from fedce.base.tables import TrainConfig
from fedce.core.params import KINDS, MAX_EXACT_COUNT, Entry, Kind, Layout, Params, Vector
from fedce.core.scoring import Counts
from fedce.core.site import Moments, Pull, Trained
from fedce.data.augment import Augment
from fedce.learning.classic_unet import ClassicUNet

Pixels = NDArray[np.uint8]
Normalize = Literal["unit", "zscore"]
NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)
"""Normalisation layers, which may stay at a site; the first is the base of batch and instance norms."""
SCORING_BATCH = 16
"""Images that are scored at a time. Larger batches leave the cache: 32 are up to a fifth slower, with the same bits."""
PERSONAL_RATE = 0.1
"""Part of the learning rate with which a site continues to train after the last round of a falling schedule."""
NARROW = 4
"""A transposed convolution to at most this many channels, such as a U-Net's last one, is slow in oneDNN."""


def layout_of(network: nn.Module) -> Layout:
    """The network's tensors by kind. Tied tensors are listed once; a frozen parameter counts as a buffer."""
    by_kind: dict[Kind, list[Entry]] = {kind: [] for kind in KINDS}
    seen: set[int] = set()
    norms = {name for name, module in network.named_modules() if isinstance(module, NORMS)}
    for name, tensor in network.state_dict(keep_vars=True).items():
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise ConfigError(f"the network's {name!r} is {tensor.dtype}; fedce trains float32 networks")
        kind: Kind = "trainable" if tensor.requires_grad else "buffer" if tensor.is_floating_point() else "counter"
        by_kind[kind].append(Entry(name, tuple(tensor.shape), kind, norm=name.rpartition(".")[0] in norms))
    return Layout(tuple(entry for kind in KINDS for entry in by_kind[kind]))


def counted(predicted: Tensor, truth: Tensor) -> Tensor:
    """Pixel counts of boolean masks, (2, n, classes): pixels marked in both, and the sum of those marked in each."""
    overlap = (predicted & truth).flatten(2).sum(2)
    return torch.stack([overlap, predicted.flatten(2).sum(2) + truth.flatten(2).sum(2)])


def to_unit(images: Tensor) -> Tensor:
    """Grey values 0 to 255 as numbers from 0 to 1."""
    return images.float().div_(255.0)


def to_input(unit: Tensor, normalize: Normalize) -> Tensor:
    """Grey values from 0 to 1, normalised as the network expects them."""
    if normalize == "unit":
        return unit
    mean, deviation = unit.mean((2, 3), keepdim=True), unit.std((2, 3), keepdim=True)
    return (unit - mean) / deviation.clamp(min=1e-6)


LOSSES = {"dice": "DiceLoss", "dice-ce": "DiceCELoss"}
"""MONAI's losses, by the names that `train.loss` takes."""


def loss_path(name: str) -> str:
    """The name, or the import path of a loss that an installed package offers (entry point fedce.losses)."""
    return full_name(name, LOSSES, "fedce.losses")


def make_loss(name: str, options: Mapping[str, Any] = MappingProxyType({})) -> nn.Module:
    from monai import losses

    name = loss_path(name)
    if name in LOSSES:
        loss: nn.Module = getattr(losses, LOSSES[name])(sigmoid=True)
        return loss
    if ":" not in name:
        known = f"{nearest(name, LOSSES)}; use {', '.join(LOSSES)} or package.module:Class"
        raise ConfigError(f"train.loss: unknown loss {name!r}{known}")
    kind = load_object(name, "train.loss")
    _check_takes_logits(name, kind, options)
    try:
        made = kind(**options)
    except (TypeError, ValueError) as error:
        given = f"with train.loss_options = {dict(options)}" if options else "without train.loss_options"
        raise ConfigError(f"train.loss: {name} can't be made {given} ({error})") from None
    if not isinstance(made, nn.Module):
        raise ConfigError(f"train.loss: {name} makes a {type(made).__name__}, not a torch.nn.Module")
    return made


def _check_takes_logits(name: str, kind: Any, options: Mapping[str, Any]) -> None:
    """Refuse a loss of MONAI without sigmoid: it would take logits for probabilities without an error."""
    if not (isinstance(kind, type) and kind.__module__.startswith("monai.")):
        return
    takes = [option for option in ("sigmoid", "softmax") if option in inspect.signature(kind).parameters]
    if takes and not any(options.get(option) for option in takes):
        raise ConfigError(
            f"train.loss: {name} would take the network's logits for probabilities; "
            "set train.loss_options = {sigmoid = true}"
        )


@dataclass(frozen=True)
class Schedule:
    """The part of the learning rate that each round uses.

    >>> [round(Schedule("cosine", 4).rate(round_no), 2) for round_no in range(5)]
    [1.0, 0.85, 0.5, 0.15, 0.1]
    """

    kind: Literal["constant", "cosine", "poly"] = "constant"
    n_rounds: int = 1

    def rate(self, round_no: int) -> float:
        if self.kind == "constant":
            return 1.0
        if round_no >= self.n_rounds:  # After the last round, a site that personalises trains at the lowest rate.
            return PERSONAL_RATE
        done = round_no / self.n_rounds
        return (1 + cos(pi * done)) / 2 if self.kind == "cosine" else float((1 - done) ** 0.9)


class NarrowUpsampling(nn.ConvTranspose2d):
    """A transposed convolution by torch's own kernel: to two channels it takes a fifth of oneDNN's time."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        before = torch.backends.mkldnn.enabled
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        try:
            return super().forward(input, output_size)
        finally:
            torch.backends.mkldnn.enabled = before


def speed_up(network: nn.Module) -> torch.memory_format:
    """Speed up narrow upsampling in place; returns the memory format that the network's images should have.

    Channels last is a tenth faster for a U-Net. A user's own network keeps the usual format, because it may reshape its
    input in a way that only this format allows.
    """
    from monai.networks.nets import UNet

    for module in network.modules():
        if type(module) is nn.ConvTranspose2d and module.out_channels <= NARROW:
            module.__class__ = NarrowUpsampling
    return torch.channels_last if isinstance(network, UNet | ClassicUNet) else torch.contiguous_format


def without_compiler(kind: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """The same optimizer, without the call that tells torch's compiler to skip it.

    That call imports the compiler: some 800 modules and a second in every process.
    """
    step, add = inspect.unwrap(kind.step), inspect.unwrap(kind.add_param_group)
    return type(kind.__name__, (kind,), {"step": torch.no_grad()(step), "add_param_group": add})


@dataclass(frozen=True)
class Batch:
    """A site's images and masks on the device."""

    images: Tensor
    masks: Tensor
    labelled: tuple[int, ...] | None = None
    """Numbers of the classes that the site labels, which alone count in the loss; None: all."""

    def __len__(self) -> int:
        return len(self.images)

    def split(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches in order, without copies."""
        return zip(torch.split(self.images, size), torch.split(self.masks, size), strict=True)


class Learner:
    """A network that the sites in one process use, one after another."""

    def __init__(
        self,
        network: nn.Module,
        config: TrainConfig,
        normalize: Normalize,
        device: torch.device,
        n_rounds: int = 1,
    ) -> None:
        self.layout = layout_of(network)
        self.config = config
        self.schedule = Schedule(config.schedule, n_rounds)
        self.normalize: Normalize = normalize
        self.device = device
        self.network = network.to(device)
        self._format = speed_up(network)
        self.loss = make_loss(config.loss, config.loss_options).to(device)
        self._flat, self._gradient, self._counters = self._bind()
        self._trainable = nn.Parameter(self._flat[: self.layout.n_trainable])
        self._trainable.grad = self._gradient
        self._augment = Augment(config.augment) if config.augment != "none" else None
        self._optimizer = self._make_optimizer()
        self.initial = self.params
        """The network as it was built; layers that stay at a site begin with these values."""
        self.after_step: Callable[[Params], None] | None = None
        """Called with the model after every step, for studies of the path of training."""

    def _bind(self) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Make every parameter and float buffer a view of one vector, and every gradient of another."""
        flat = torch.empty(self.layout.n_averaged, device=self.device)
        gradient = torch.zeros(self.layout.n_trainable, device=self.device)
        tensors = self.network.state_dict(keep_vars=True)
        counters = []
        for entry, where in self.layout.slices():
            tensor = tensors[entry.name]
            if entry.kind == "counter":
                counters.append(tensor)
                continue
            view = flat[where].view(entry.shape)
            view.copy_(tensor.detach())
            tensor.data = view
            if entry.kind == "trainable":
                tensor.grad = gradient[where].view(entry.shape)
        return flat, gradient, counters

    @property
    def params(self) -> Params:
        """A copy of the network as it is now."""
        vector = np.empty(self.layout.size, np.float32)
        vector[: self.layout.n_averaged] = self._flat.detach().cpu().numpy()
        counters = [counter.detach().cpu().reshape(-1).numpy() for counter in self._counters]
        if counters:
            values = np.concatenate(counters)
            if np.abs(values).max(initial=0) > MAX_EXACT_COUNT:
                raise ConfigError(f"the network counts above {MAX_EXACT_COUNT}, more than fedce carries exactly")
            vector[self.layout.n_averaged :] = values
        return Params(self.layout, vector)

    @torch.no_grad()
    def load(self, params: Params) -> None:
        self._flat.copy_(torch.from_numpy(params.vector[: self.layout.n_averaged]))
        start = self.layout.n_averaged
        for counter in self._counters:
            values = params.vector[start : start + counter.numel()]
            counter.copy_(torch.from_numpy(values).reshape(counter.shape))
            start += counter.numel()

    def batch(self, images: Pixels, masks: Pixels) -> Batch:
        """Images and masks as tensors of bytes, which need a quarter of float's memory and transfer."""
        return Batch(torch.tensor(images, device=self.device), torch.tensor(masks, device=self.device).bool())

    def train(
        self, params: Params, data: Batch, seed: int, moments: Moments, pull: Pull | None = None, rate: float = 1.0
    ) -> Trained:
        """Train some epochs with this part of the learning rate. The seed alone decides order and dropout."""
        self.load(params)
        self.network.train()
        self._start_optimizer(moments)
        self._optimizer.param_groups[0]["lr"] = rate * self.config.lr
        towards = torch.tensor(pull.towards.trainable, device=self.device) if pull and pull.strength else None
        total, n_steps = torch.zeros((), device=self.device), 0
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(seed)
            if self._augment:
                self._augment.seed(seed)
            for _ in range(self.config.epochs):
                for rows in torch.split(torch.randperm(len(data)).to(self.device), self.config.batch_size):
                    self._gradient.zero_()
                    images, masks = to_unit(data.images[rows]), data.masks[rows].float()
                    if self._augment:
                        images, masks = self._augment(images, masks)
                    loss = self._loss(self._forward(images), masks, data)
                    loss.backward()
                    if pull and towards is not None:
                        self._gradient.add_(self._trainable.detach() - towards, alpha=pull.strength)
                    self._optimizer.step()
                    if self.after_step:
                        self.after_step(self.params)
                    total += loss.detach()
                    n_steps += 1
        return Trained(self.params, float(total) / n_steps, self._moments())

    def gradient(self, params: Params, data: Batch) -> tuple[float, Vector]:
        """Loss and its gradient over all images, as training sees them: batch by batch, in a fixed order."""
        self.load(params)
        self.network.train()
        self._gradient.zero_()
        total = 0.0
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(0)
            for images, masks in data.split(self.config.batch_size):
                loss = self._loss(self._forward(to_unit(images)), masks.float(), data)
                part = loss * (len(images) / len(data))
                part.backward()
                total += float(part.detach())
        return total, self._gradient.cpu().numpy().copy()

    @torch.inference_mode()
    def mean_loss(self, params: Params, data: Batch) -> float:
        """The loss without training; each image has the same weight."""
        self.load(params)
        self.network.eval()
        total = 0.0
        for images, masks in data.split(SCORING_BATCH):
            total += float(self._loss(self._forward(to_unit(images)), masks.float(), data)) * len(images)
        return total / len(data)

    @torch.no_grad()
    def adapted(self, params: Params, images: Tensor) -> Params:
        """The model with batch-norm statistics of these images; no masks are used."""
        norms = [module for module in self.network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        self.load(params)
        self.network.train()
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # None: PyTorch then takes the mean over all batches.
        for batch in torch.split(images, self.config.batch_size):
            self._forward(to_unit(batch))
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        return self.params

    @torch.inference_mode()
    def counts(self, params: Params, data: Batch) -> Counts:
        """Pixel counts of each image, predicted and true; core/scoring.py makes a score of them."""
        self.load(params)
        self.network.eval()
        found = [counted(self._forward(to_unit(images)) > 0, masks) for images, masks in data.split(SCORING_BATCH)]
        return Counts(*torch.cat(found, dim=1).cpu().numpy())

    @torch.inference_mode()
    def masks(self, params: Params, data: Batch) -> Tensor:
        """The masks that the model predicts, (n, classes, height, width), on the CPU, where metrics work."""
        self.load(params)
        self.network.eval()
        return torch.cat([(self._forward(to_unit(images)) > 0).cpu() for images, _ in data.split(SCORING_BATCH)])

    @torch.inference_mode()
    def predict(self, images: Pixels) -> NDArray[np.bool_]:
        """Masks of the loaded network, (n, classes, height, width)."""
        self.network.eval()
        unit = to_unit(torch.tensor(images, device=self.device))
        masks: NDArray[np.bool_] = (self._forward(unit) > 0).cpu().numpy()
        return masks

    def _loss(self, logits: Tensor, masks: Tensor, data: Batch) -> Any:
        """The loss over the classes that the site labels."""
        if data.labelled is not None:
            logits, masks = logits[:, list(data.labelled)], masks[:, list(data.labelled)]
        return self.loss(logits, masks)

    def _forward(self, unit: Tensor) -> Tensor:
        logits: Tensor = self.network(to_input(unit, self.normalize).contiguous(memory_format=self._format))
        return logits

    def _make_optimizer(self) -> torch.optim.Optimizer:
        config = self.config
        common: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
        kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
        kind: Any = without_compiler(kinds[config.optimizer])
        if config.optimizer == "sgd":
            made: torch.optim.Optimizer = kind([self._trainable], momentum=config.momentum, **common)
        else:
            made = kind([self._trainable], betas=config.betas, fused=self.device.type != "mps", **common)
        return made

    def _start_optimizer(self, moments: Moments) -> None:
        self._optimizer.state.clear()
        if moments and self.config.optimizer_state == "persist":
            self._optimizer.state[self._trainable] = {
                key: torch.tensor(value, device=self.device if value.ndim else "cpu") for key, value in moments.items()
            }

    def _moments(self) -> Moments:
        if self.config.optimizer_state == "reset":
            return {}
        state = self._optimizer.state[self._trainable]
        return {key: value.detach().cpu().numpy() for key, value in state.items() if isinstance(value, Tensor)}


def check_finite(site: str, trained: Trained) -> None:
    """Raise if training diverged: the site reports this itself, before it sends anything."""
    if not np.isfinite(trained.loss) or not np.isfinite(trained.params.vector).all():
        raise DataError(
            f"site {site!r}: training diverged (loss {trained.loss}); lower train.lr or check the site's images"
        )
