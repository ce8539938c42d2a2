"""Local training and scoring with torch and MONAI.

The network's tensors are views of one flat vector, so that a model comes and goes with one copy and the optimizer
steps one tensor instead of dozens. The arithmetic is elementwise, hence the same as with separate tensors.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedce.base.config import Config
from fedce.base.errors import ConfigError, DataError
from fedce.base.garbage import imported
from fedce.base.tables import TrainConfig
from fedce.core.params import KINDS, MAX_EXACT_COUNT, Entry, Kind, Layout, Params, Vector
from fedce.core.scoring import Counts
from fedce.core.site import Moments, Pull, Trained
from fedce.data.augment import Augment
from fedce.data.shape import Stack, patch_of
from fedce.learning.batches import Batch, Images, Labelled, Normalize, Pixels, Seen, Volumes, Windows, to_input
from fedce.learning.losses import heads_of, make_loss, of_labelled, over_heads
from fedce.learning.memory import keep_memory
from fedce.learning.networks import Fitted, build, check_fits, fitted
from fedce.learning.schedule import Schedule
from fedce.learning.seeds import seeded
from fedce.learning.speed import speed_up, without_compiler

NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)
"""Normalisation layers, which may stay at a site; the first is the base of batch and instance norms."""
SCORING_BATCH = 16
"""Images that are scored at a time. Larger batches leave the cache: 32 are up to a fifth slower, with the same bits."""
SCALE = 2.0**10
"""Factor of the loss with fp16 at the start of each training; torch then adapts it."""


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


def counted(predicted: Tensor, truth: Tensor, n_true: Tensor | None = None) -> Tensor:
    """Pixel counts of boolean masks, (2, n, classes): pixels marked in both, and the sum of those marked in each.

    `n_true`: how many the truth marks, if that is known.
    """
    overlap, n_predicted = _marked(predicted & truth), _marked(predicted)
    return torch.stack([overlap, n_predicted + (_marked(truth) if n_true is None else n_true)])


def _marked(masks: Tensor) -> Tensor:
    return masks.flatten(2).sum(2)


def check_amp(amp: str, device: torch.device) -> None:
    """Refuse mixed precision that the device does not have."""
    if amp != "off" and device.type == "mps":
        raise ConfigError(
            f"train.amp = {amp!r} needs CUDA or, for bf16, the CPU; the device is mps: set train.amp = off"
        )
    if amp == "fp16" and device.type != "cuda":
        raise ConfigError(
            f"train.amp = 'fp16' needs a CUDA device, and the device is {device}; set train.amp to bf16 or off"
        )


class Learner:
    """A network that the sites in one process use, one after another."""

    def __init__(
        self,
        network: nn.Module,
        config: TrainConfig,
        normalize: Normalize,
        device: torch.device,
        schedule: Schedule | None = None,
        windows: Windows | None = None,
    ) -> None:
        check_amp(config.amp, device)
        self.layout = layout_of(network)
        self.config = config
        self.schedule = schedule or Schedule(config.schedule)
        self.normalize: Normalize = normalize
        self.device = device
        self.network = network.to(device)
        self._format = speed_up(network)
        imported()
        self.loss = make_loss(config.loss, config.loss_options, config.class_weights).to(device)
        self._flat, self._gradient, self._counters = self._bind()
        self._trainable = nn.Parameter(self._flat[: self.layout.n_trainable])
        self._trainable.grad = self._gradient
        self.windows = windows
        self.fits: dict[tuple[int, ...], Fitted] = {}
        """How images of each size are padded, if the network can't take them as they are."""
        n_spatial = 2 if windows is None else 3
        self._augment = Augment(config.augment, n_spatial) if config.augment != "none" else None
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

    def batch(self, images: Pixels, masks: Pixels, labelled: Labelled = None) -> Batch:
        """Images and masks as tensors of bytes, which need a quarter of float's memory and transfer."""
        device = self.device
        return Batch(torch.tensor(images, device=device), torch.tensor(masks, device=device).bool(), labelled)

    def volumes(self, images: Pixels, masks: Pixels, stacks: Sequence[Stack], labelled: Labelled = None) -> Volumes:
        """Volumes whose slices are among these rows."""
        assert self.windows is not None
        return Volumes.of(images, masks, stacks, self.windows.patch, self.device, labelled)

    def unmarked(self, images: Sequence[Pixels]) -> Images:
        """Images (n, channels, height, width), or volumes, which may differ in size; they have no masks."""
        if self.windows is not None:
            return Volumes.unmarked(images, self.windows.patch, self.device)
        together = np.concatenate(images)
        return self.batch(together, np.zeros_like(together[:, :1]))

    def train(
        self, params: Params, data: Images, seed: int, moments: Moments, pull: Pull | None = None, rate: float = 1.0
    ) -> Trained:
        """Train some epochs with this part of the learning rate. The seed alone decides order, patches and dropout."""
        self.load(params)
        self.network.train()
        self._start_optimizer(moments)
        self._optimizer.param_groups[0]["lr"] = rate * self.config.lr
        towards = torch.tensor(pull.towards.trainable, device=self.device) if pull and pull.strength else None
        # A scaler of its own for each call, so that no state has to be kept between rounds.
        scaler = torch.amp.GradScaler("cuda", init_scale=SCALE) if self.config.amp == "fp16" else None
        total, n_steps = torch.zeros((), device=self.device), 0
        with seeded(seed, self.device):
            if self._augment:
                self._augment.seed(seed)
            for _ in range(self.config.epochs):
                for seen in data.epoch(self.config):
                    self._gradient.zero_()
                    loss = self._loss_of(self._changed(seen), data.labelled)
                    (scaler.scale(loss) if scaler else loss).backward()
                    if scaler:
                        scaler.unscale_(self._optimizer)
                    if pull and towards is not None:
                        self._gradient.add_(self._trainable.detach() - towards, alpha=pull.strength)
                    if self.config.clip:
                        nn.utils.clip_grad_norm_([self._trainable], self.config.clip)
                    self._step(scaler)
                    if self.after_step:
                        self.after_step(self.params)
                    total += loss.detach()
                    n_steps += 1
        return Trained(self.params, float(total) / n_steps, self._moments())

    def _changed(self, seen: Seen) -> Seen:
        if self._augment is None:
            return seen
        unit, masks = self._augment(seen.unit, seen.masks)
        return Seen(unit, masks, seen.moments)

    def _step(self, scaler: torch.amp.GradScaler | None) -> None:
        if scaler is None:
            self._optimizer.step()
            return
        scaler.step(self._optimizer)
        scaler.update()

    def _loss_of(self, seen: Seen, labelled: Labelled) -> Any:
        """The loss as training sees it; computed in single precision, whatever the network uses."""
        masks, loss = seen.masks.float(), of_labelled(self.loss, labelled)
        with self._autocast():
            heads, fit = self._heads(seen.unit, seen.moments)
        if len(heads) == 1:
            return over_heads(loss, [fit.cropped(heads[0]).float()], masks)
        # Smaller heads can't be cropped by whole voxels, so the masks are padded instead.
        return over_heads(loss, [head.float() for head in heads], fit.padded(masks))

    def _autocast(self) -> AbstractContextManager[None]:
        if self.config.amp == "off":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16 if self.config.amp == "bf16" else torch.float16)

    def gradient(self, params: Params, data: Images) -> tuple[float, Vector]:
        """Loss and its gradient over all images, as training sees them: batch by batch, in a fixed order."""
        self.load(params)
        self.network.train()
        self._gradient.zero_()
        total = 0.0
        with seeded(0, self.device):
            for seen in data.in_order(self.config.batch_size):
                part = self._loss_of(seen, data.labelled) * (len(seen.unit) / data.n_in_order)
                part.backward()
                total += float(part.detach())
        return total, self._gradient.cpu().numpy().copy()

    @torch.inference_mode()
    def mean_loss(self, params: Params, data: Images) -> float:
        """The loss without training; each image or volume has the same weight."""
        self.load(params)
        self.network.eval()
        total = 0.0
        loss = of_labelled(self.loss, data.labelled)
        for seen in data.whole(SCORING_BATCH):
            total += float(loss(self._logits(self._input(seen)), seen.masks.float())) * len(seen.unit)
        return total / len(data)

    @torch.no_grad()
    def adapted(self, params: Params, data: Images) -> Params:
        """The model with batch-norm statistics of these images; no masks are used."""
        norms = [module for module in self.network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        self.load(params)
        self.network.train()
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # None: PyTorch then takes the mean over all batches.
        for seen in data.in_order(self.config.batch_size):
            self._heads(seen.unit, seen.moments)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        return self.params

    @torch.inference_mode()
    def counts(self, models: Sequence[Params], data: Images) -> list[Counts]:
        """For each model, pixel counts of each image or slice; core/scoring.py makes a score of them.

        All models see a batch before the next batch is prepared: one pass over the images.
        """
        self.network.eval()
        found: list[list[Tensor]] = [[] for _ in models]
        for i, seen in enumerate(data.whole(SCORING_BATCH)):
            images, truth = self._input(seen), data.slices(seen.masks.bool(), i)
            n_true = _marked(truth)
            for model, counts in zip(models, found, strict=True):
                if len(models) > 1 or i == 0:
                    self.load(model)
                predicted = data.slices(self._logits(images) > 0, i)
                counts.append(counted(predicted, truth, n_true))
        return [Counts(*torch.cat(counts, dim=1).cpu().numpy()) for counts in found]

    @torch.inference_mode()
    def masks(self, params: Params, data: Images) -> Tensor:
        """The masks that the model predicts, (n, classes, height, width), on the CPU, where metrics work."""
        self.load(params)
        self.network.eval()
        whole = enumerate(data.whole(SCORING_BATCH))
        return torch.cat([data.slices(self._logits(self._input(seen)) > 0, i).cpu() for i, seen in whole])

    @torch.inference_mode()
    def predict(self, images: Pixels) -> NDArray[np.bool_]:
        """Masks of the loaded network, (n, classes, height, width), for images or for all slices of one volume."""
        self.network.eval()
        data = self.unmarked([images])
        whole = enumerate(data.whole(len(images)))
        masks: NDArray[np.bool_] = (
            torch.cat([data.slices(self._logits(self._input(seen)) > 0, i) for i, seen in whole]).cpu().numpy()
        )
        return masks

    def _input(self, seen: Seen) -> Tensor:
        """What the network sees, whichever model is loaded."""
        return to_input(seen.unit, self.normalize, seen.moments).contiguous(memory_format=self._format)

    def _logits(self, images: Tensor) -> Tensor:
        """The full-sized output for normalised whole images, or for one whole volume window by window."""
        if self.windows is None or images.shape[2:] == self.windows.patch:
            return self._full(images)
        logits: Tensor = self.windows.inferer(images, self._full)
        return logits

    def _full(self, images: Tensor) -> Tensor:
        heads, fit = self._run(images)
        return fit.cropped(heads[0])

    def _heads(self, unit: Tensor, moments: Tensor | None) -> tuple[tuple[Tensor, ...], Fitted]:
        return self._run(to_input(unit, self.normalize, moments))

    def _run(self, images: Tensor) -> tuple[tuple[Tensor, ...], Fitted]:
        """All outputs of the network for normalised images, at a size that it can take."""
        spatial = tuple(images.shape[2:])
        if spatial not in self.fits:
            self.fits[spatial] = fitted(self.network, images.shape[1], spatial, self.device)
        fit = self.fits[spatial]
        output = self.network(fit.padded(images).contiguous(memory_format=self._format))
        return heads_of(output, len(spatial)), fit

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


def learner_for(
    config: Config,
    n_channels: int,
    n_classes: int,
    device: torch.device,
    takes: tuple[int, ...] | None = None,
) -> Learner:
    """The learner that an experiment states; `takes` is a size on which the network is tried first."""
    keep_memory()
    network = build(config.model, n_channels, n_classes, config.seed, patch_of(config.data))
    fits = {takes: check_fits(network, n_channels, n_classes, takes)} if takes else {}
    windows = Windows.asked_by(config.data)
    schedule = Schedule(config.train.schedule, config.n_rounds, config.personalise)
    learner = Learner(network, config.train, config.data.normalize, device, schedule, windows)
    learner.fits.update(fits)
    return learner
