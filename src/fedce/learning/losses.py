"""Losses on logits and masks: by name, by import path, with a weight for each class, and over several heads."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from fedce.base.errors import ConfigError, nearest
from fedce.base.registry import full_name, load_object

LOSSES = {"dice": "DiceLoss", "dice-ce": "DiceCELoss"}
"""MONAI's losses, by the names that `train.loss` takes."""


def loss_path(name: str) -> str:
    """The name, or the import path of a loss that an installed package offers (entry point fedce.losses)."""
    return full_name(name, LOSSES, "fedce.losses")


def make_loss(name: str, options: Mapping[str, Any] = MappingProxyType({}), weights: Sequence[float] = ()) -> nn.Module:
    """The loss; `weights` make it the weighted mean of the losses of the single classes."""
    loss = _unweighted(loss_path(name), options)
    return ByClass(loss, tuple(weights)) if weights else loss


def _unweighted(name: str, options: Mapping[str, Any]) -> nn.Module:
    from monai import losses

    if name in LOSSES:
        loss: nn.Module = getattr(losses, LOSSES[name])(sigmoid=True)
        return loss
    if ":" not in name:
        known = f"{nearest(name, LOSSES)}; use {', '.join(LOSSES)} or package.module:NAME"
        raise ConfigError(f"train.loss: unknown loss {name!r}{known}")
    kind = load_object(name, "train.loss")
    _check_takes_logits(name, kind, options)
    if isinstance(kind, nn.Module) and not options:
        return kind
    try:
        made = _function(kind, options) if _is_plain(kind, options) else kind(**options)
    except (TypeError, ValueError) as error:
        given = f"with train.loss_options = {dict(options)}" if options else "without train.loss_options"
        raise ConfigError(f"train.loss: {name} can't be made {given} ({error})") from None
    if not isinstance(made, nn.Module):
        raise ConfigError(
            f"train.loss: {name} makes a {type(made).__name__}, expected a torch.nn.Module, or a function of logits "
            "and masks"
        )
    return made


def _is_plain(kind: Any, options: Mapping[str, Any]) -> bool:
    """Whether this is a function of logits and masks: it takes two values in order, beside the options by name.

    >>> def squared(logits, masks, scale=1.0): return scale * (logits - masks) ** 2
    >>> _is_plain(squared, {"scale": 2.0}), _is_plain(lambda: nn.MSELoss(), {}), _is_plain(nn.MSELoss, {})
    (True, False, False)
    """
    if isinstance(kind, type | nn.Module):
        return False
    try:
        signature = inspect.signature(kind)
    except (TypeError, ValueError):  # A function in C has no signature; functions of torch take logits and masks.
        return True
    needed = [one for one in signature.parameters.values() if one.default is one.empty and one.name not in options]
    return len([one for one in needed if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]) == 2


def _function(kind: Callable[..., Any], options: Mapping[str, Any]) -> nn.Module:
    """The function as a loss, after a check that it takes the options."""
    with suppress(ValueError):  # A function in C has no signature.
        inspect.signature(kind).bind(None, None, **options)
    return Function(partial(kind, **options))


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


class Function(nn.Module):
    """A loss that is a plain function of logits and masks; several values become their mean."""

    def __init__(self, of: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.of = of

    def forward(self, logits: Tensor, masks: Tensor) -> Tensor:
        found = self.of(logits, masks)
        if not isinstance(found, Tensor):
            raise ConfigError(f"train.loss: the function returns a {type(found).__name__}, expected a tensor")
        return found.mean()


def check_weights(weights: Sequence[float], classes: Sequence[str], labelled: Sequence[str], site: str) -> None:
    """Refuse weights of the classes that do not fit the classes, or leave a site nothing to learn."""
    if not weights:
        return
    if len(weights) != len(classes):
        raise ConfigError(
            f"train.class_weights has {len(weights)} values, and the classes are {', '.join(classes)}; "
            "give one for each class"
        )
    by_class = dict(zip(classes, weights, strict=True))
    if not sum(by_class[name] for name in labelled):
        raise ConfigError(
            f"train.class_weights: site {site!r} labels only {', '.join(labelled)}, of weight 0; give one of its "
            "classes a weight"
        )


class ByClass(nn.Module):
    """The weighted mean of a loss over the classes, each class taken alone."""

    def __init__(self, loss: nn.Module, weights: tuple[float, ...]) -> None:
        super().__init__()
        self.loss, self.weights = loss, weights

    def forward(self, logits: Tensor, masks: Tensor) -> Tensor:
        found = [self.loss(logits[:, i : i + 1], masks[:, i : i + 1]) for i in range(len(self.weights))]
        weighted: Tensor = sum((w * one for w, one in zip(self.weights, found, strict=True)), logits.new_zeros(()))
        return weighted / sum(self.weights)

    def among(self, classes: Sequence[int]) -> "ByClass":
        """The weighted mean over some of the classes."""
        weights = tuple(self.weights[i] for i in classes)
        if not sum(weights):  # Of a site that joined late; `check_weights` finds the others.
            raise ConfigError("train.class_weights: a site labels only classes of weight 0; give one of them a weight")
        return ByClass(self.loss, weights)


class OfClasses(nn.Module):
    """A loss over some of the classes: those that a site labels."""

    def __init__(self, loss: nn.Module, classes: tuple[int, ...]) -> None:
        super().__init__()
        self.classes = list(classes)
        self.loss = loss.among(classes) if isinstance(loss, ByClass) else loss

    def forward(self, logits: Tensor, masks: Tensor) -> Tensor:
        found: Tensor = self.loss(logits[:, self.classes], masks[:, self.classes])
        return found


def of_labelled(loss: nn.Module, labelled: tuple[int, ...] | None) -> nn.Module:
    """The loss over the classes that a site labels; None: all."""
    return loss if labelled is None else OfClasses(loss, labelled)


def heads_of(output: Any, n_spatial: int) -> tuple[Tensor, ...]:
    """A network's outputs, the full-sized first: one, a list, or several heads stacked behind the batch.

    >>> import torch
    >>> [len(heads_of(output, 2)) for output in (torch.zeros(1, 2, 8, 8), torch.zeros(1, 3, 2, 8, 8))]
    [1, 3]
    """
    if isinstance(output, list | tuple):
        return tuple(output)
    return output.unbind(1) if output.ndim == n_spatial + 3 else (output,)


def over_heads(loss: nn.Module, heads: Sequence[Tensor], masks: Tensor) -> Tensor:
    """The loss of all heads: weights 1, 1/2, 1/4 ... that sum to 1; masks are resized to a head by nearest."""
    if len(heads) == 1:
        only: Tensor = loss(heads[0], masks)
        return only
    weights = [0.5**i for i in range(len(heads))]
    total = masks.new_zeros(())
    for weight, head in zip(weights, heads, strict=True):
        size = head.shape[2:]
        target = masks if size == masks.shape[2:] else functional.interpolate(masks, size=size, mode="nearest-exact")
        total = total + weight / sum(weights) * loss(head, target)
    return total
