"""A network as a graph that other programs run: TorchScript and ONNX. Files are only written here, never loaded."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedce.base.errors import ConfigError
from fedce.core.params import Params, to_named
from fedce.learning.networks import Fitted, fitted

INPUT, OUTPUT = "image", "logits"
OPSET = 18


def with_weights(network: nn.Module, params: Params) -> nn.Module:
    """The network, as it was built, with these weights, ready for use."""
    tensors = {name: torch.from_numpy(np.array(value)) for name, value in to_named(params).items()}
    network.load_state_dict(tensors, strict=False)  # Tied tensors are listed once; a test compares the outputs.
    return network.eval()


class Fitting(nn.Module):
    """A network that pads its input to a size that it can take, and crops its output back."""

    def __init__(self, network: nn.Module, fit: Fitted) -> None:
        super().__init__()
        self.network, self.fit = network, fit

    def forward(self, images: Tensor) -> Tensor:
        return self.fit.cropped(self.network(self.fit.padded(images)))


def at_its_size(network: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """The network for images of this shape, as the learner uses it."""
    fit = fitted(network, shape[0], shape[1:])
    return network if fit.size == fit.becomes else Fitting(network, fit).eval()


def torchscript(network: nn.Module, shape: tuple[int, ...]) -> bytes:
    """The traced network; `shape` is that of one image, with its channels."""
    buffer = BytesIO()
    with _refused("TorchScript"), torch.no_grad():
        trace: Any = torch.jit.trace
        torch.jit.save(trace(network, torch.zeros(1, *shape), check_trace=False), buffer)
    return buffer.getvalue()


def onnx(network: nn.Module, shape: tuple[int, ...]) -> bytes:
    """The network as ONNX, for any number of images of this shape."""
    buffer: Any = BytesIO()
    batch = {INPUT: {0: "batch"}, OUTPUT: {0: "batch"}}
    names: dict[str, Any] = {"input_names": [INPUT], "output_names": [OUTPUT], "dynamic_axes": batch}
    # torch.export refuses networks that look at their input's size, such as the paper's U-Net; tracing does not.
    with _refused("ONNX"), torch.no_grad():
        torch.onnx.export(network, (torch.zeros(1, *shape),), buffer, dynamo=False, opset_version=OPSET, **names)
    graph: bytes = buffer.getvalue()
    return graph


def onnx_difference(network: nn.Module, graph: bytes, shape: tuple[int, ...], seed: int = 0) -> float:
    """The largest difference of the network's logits and those of onnxruntime, on two random images."""
    from onnxruntime import InferenceSession

    images = torch.rand(2, *shape, generator=torch.Generator().manual_seed(seed))
    session = InferenceSession(graph, providers=["CPUExecutionProvider"])
    (found,) = session.run([OUTPUT], {INPUT: images.numpy()})
    with torch.inference_mode():
        expected = network(images).numpy()
    return float(np.abs(found - expected).max())


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Silence torch's notes on its own exporters, and turn a network that can't be traced into one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except Exception as error:  # noqa: BLE001 (a network may refuse to be traced in any way)
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ConfigError(f"the network can't be written as {what} ({reason}); use --to weights") from None
