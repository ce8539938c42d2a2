"""A run's model as files for others: a MONAI bundle, ONNX, or one file of weights; each with its preprocessing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from fedce.base.errors import ConfigError, RunError
from fedce.base.files import digest_of, write_bytes, write_json, write_tensors
from fedce.base.words import install_command
from fedce.core.params import to_named
from fedce.data.shape import settled
from fedce.federation.lines import versions
from fedce.learning import graphs
from fedce.questions.bundle import Kind, inference, metadata
from fedce.questions.loading import Loaded, Which, load_model, plain_network
from fedce.questions.preprocessing import preprocessing_text
from fedce.record.folder import RunFolder

Form = Literal["bundle", "onnx", "weights"]
ENDINGS: dict[Form, str] = {"bundle": "-bundle", "onnx": ".onnx", "weights": ".safetensors"}
MARK = "fedce weights"
"""What a file of weights says it is."""
LARGEST_DIFFERENCE = 1e-3
"""Logits of torch and onnxruntime may differ by this much; a sum in another order gives about 1e-6."""
INPUT_KEYS = {"size", "resize", "intensity", "normalize", "plane", "dims", "spacing", "patch", "overlap"}
"""Keys of [data] that say how an image becomes the network's input."""
Card = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Exported:
    path: Path
    files: tuple[Path, ...]
    difference: float | None = None
    """For ONNX: the largest difference of a logit to torch's, in onnxruntime."""


def export(
    run: RunFolder, form: Form, out: Path | None, which: Which, card: Card, *, kind: Kind | None, replace: bool
) -> Exported:
    """Write the model in this form. `kind` says what a bundle reads; None: what the run was trained on."""
    if form == "onnx" and not all(find_spec(name) for name in ("onnx", "onnxruntime")):
        raise ConfigError(f"--to onnx needs onnx and onnxruntime; install them with {install_command('export')}")
    path = out or run.path.resolve().parent / f"{run.path.resolve().name}{ENDINGS[form]}"
    loaded = load_model(run, which)
    about = _about(run, loaded, which, card)
    text = _text(run, about, card)
    write = {"bundle": _bundle, "onnx": _onnx, "weights": _weights}[form]
    _check_free(path, form, replace=replace)
    return write(path, run, loaded, about, text, kind)


def _check_free(path: Path, form: Form, *, replace: bool) -> None:
    if form == "bundle":
        if path.exists() and not path.is_dir():
            raise RunError(f"{path} is a file; give --out a folder")
        is_taken = path.is_dir() and any(path.iterdir())
    else:
        if path.is_dir():
            raise RunError(f"{path} is a folder; give --out a file such as {path / f'model{ENDINGS[form]}'}")
        is_taken = path.exists() or _beside(path).exists()
    if is_taken and not replace:
        raise RunError(f"{path} would be overwritten; add --replace, or choose another --out")


def _about(run: RunFolder, loaded: Loaded, which: Which, card: Card) -> dict[str, Any]:
    """Everything that a receiver needs to use the weights."""
    config = run.config
    data, model = config.data, config.model
    return {
        "what": MARK,
        "network": model.model_dump(mode="json", include={"name", "channels", "res_units", "norm", "options"}),
        "shape": list(loaded.shape),
        "classes": {name: list(values) for name, values in loaded.classes.items()},
        "written": {name: list(values) for name, values in loaded.written.items()},
        "input": settled(data).model_dump(mode="json", include=INPUT_KEYS),
        "output": "logits, one channel for each class; a class is where its logit is above 0",
        "model": which.site or ("best" if which.best else "common"),
        "trained_by": {"run": run.path.resolve().name, "file_sha256": digest_of(loaded.file)},
        "card": [list(line) for line in card],
        "preprocessing": preprocessing_text(run.config.data, loaded),
        "versions": versions(),
    }


def _text(run: RunFolder, about: dict[str, Any], card: Card) -> str:
    """The text beside an export."""
    told = "\n\n".join(f"**{question}.** {answer}" for question, answer in card)
    axes = "height x width" if len(about["shape"]) == 3 else "slices x rows x columns"
    network = f"`{json.dumps(about['network'], ensure_ascii=False)}`"
    shape = " x ".join(map(str, about["shape"]))
    return (
        f"# {run.path.resolve().name}\n\n{told}\n\n## Network\n\n{network}, input {shape} (channels x {axes}), float32."
        f"{_last_level(about['network'])}\n\n## Preprocessing\n\n{about['preprocessing']}\n"
    )


def _last_level(network: Mapping[str, Any]) -> str:
    """Where MONAI's own U-Net would not take these weights."""
    if network["name"] != "unet" or not network["res_units"]:
        return ""
    return (
        " It is MONAI's UNet, but its last level is the transposed convolution alone, without norm and residual unit."
    )


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.md")


def _weights(
    path: Path, run: RunFolder, loaded: Loaded, about: dict[str, Any], text: str, kind: Kind | None
) -> Exported:
    write_tensors(path, to_named(loaded.learner.params), about)
    write_bytes(_beside(path), text.encode())
    return Exported(path, (path, _beside(path)))


def _network(run: RunFolder, loaded: Loaded) -> Any:
    return graphs.at_its_size(plain_network(run, loaded), loaded.shape)


def _onnx(path: Path, run: RunFolder, loaded: Loaded, about: dict[str, Any], text: str, kind: Kind | None) -> Exported:
    network = _network(run, loaded)
    graph = graphs.onnx(network, loaded.shape)
    difference = graphs.onnx_difference(network, graph, loaded.shape)
    if not difference <= LARGEST_DIFFERENCE:
        raise ConfigError(f"in onnxruntime a logit differs by {difference:.2g} from torch's; use --to weights")
    write_bytes(path, graph)
    write_bytes(_beside(path), text.encode())
    return Exported(path, (path, _beside(path)), difference)


def _bundle(
    path: Path, run: RunFolder, loaded: Loaded, about: dict[str, Any], text: str, kind: Kind | None
) -> Exported:
    kind = kind or ("volumes" if loaded.volumes else "images")
    config = inference(kind, settled(run.config.data), loaded)
    title, card = run.path.resolve().name, [(question, answer) for question, answer in about["card"]]
    files = {
        "configs/inference.json": config,
        "configs/metadata.json": metadata(title, card, loaded, about["versions"]),
    }
    script = graphs.torchscript(_network(run, loaded), loaded.shape)
    for name, content in files.items():
        write_json(path / name, content)
    write_bytes(path / "models" / "model.ts", script)
    write_tensors(path / "models" / "model.safetensors", to_named(loaded.learner.params), about)
    usage = (
        "\n## Run\n\n```sh\npython -m monai.bundle run --config_file configs/inference.json --bundle_root . \\\n"
        "  --dataset_dir IMAGES --output_dir MASKS\n```\n\n"
        f"This needs monai, torch and fire. It reads the files {', '.join(config['endings'])} in IMAGES, and writes a "
        f"mask for each {_a_case(kind, loaded)}.\n"
    )
    write_bytes(path / "docs" / "README.md", (text + usage).encode())
    written = (*files, "models/model.ts", "models/model.safetensors", "docs/README.md")
    return Exported(path, tuple(path / name for name in written))


def _a_case(kind: Kind, loaded: Loaded) -> str:
    """What a bundle writes a mask for."""
    if not loaded.modalities:
        return "of them"
    first, *_, last = (f"case_{i:04d}" for i in range(loaded.shape[0]))
    whole = ", or one file that holds all modalities" if kind == "volumes" else ""
    return f"case. A case is a file for each modality, {first} to {last}, in the order of the training{whole}"
