"""A MONAI bundle of a run's model: its configurations use MONAI and torch alone, so fedce is not needed to run it.

How images and slices become the network's input is here; `bundle_volumes` has networks that see volumes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fedce.base.errors import ConfigError
from fedce.base.tables import DataConfig
from fedce.data.pixels import PERCENTILES, Classes, mask_values
from fedce.questions import bundle_volumes
from fedce.questions.loading import Loaded, Shape

Kind = Literal["images", "volumes"]
MOST_CLASSES = 10
"""The configuration holds a mask value for every combination of classes."""
AXES = {"axial": "PLS", "coronal": "ILP", "sagittal": "IPL"}
"""Directions of rows, columns and slices, as data/volumes.py cuts a volume."""
ENDINGS: dict[Kind, tuple[str, ...]] = {
    "images": (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp"),
    "volumes": (".nii.gz", ".nii"),
}
UNIT = "x / 255"
ZSCORE = (
    "((x / 255) - (x / 255).mean(dim=(2, 3), keepdim=True)) / (x / 255).std(dim=(2, 3), keepdim=True).clamp(min=1e-6)"
)
OF_MODALITIES = {
    # The modalities of a case are case_0000, case_0001 and so on, as nnU-Net has them.
    "case_of": "$lambda f: re.sub('_[0-9]{4}(?=(' + '|'.join(map(re.escape, @endings)) + ')$)', '', f, flags=re.I)",
    "cases": "$[(case, [f for f in @files if @case_of(f) == case]) for case in sorted(set(map(@case_of, @files)))]",
}


def inference(kind: Kind, data: DataConfig, loaded: Loaded) -> dict[str, Any]:
    """configs/inference.json: segments every case of a folder as 'fedce predict' does."""
    shape, written = loaded.shape, loaded.written
    _check(kind, data, loaded)
    is_3d = len(shape) == 4
    axes = bundle_volumes.axes(AXES[data.plane]) if is_3d else AXES[data.plane]
    return {
        "imports": ["$import glob", "$import os", "$import re", "$import torch", "$import monai"],
        "bundle_root": ".",
        "dataset_dir": "$@bundle_root + '/images'",
        "output_dir": "$@bundle_root + '/predictions'",
        "device": "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')",
        "endings": list(ENDINGS[kind]),
        "files": "$sorted(f for f in glob.glob(os.path.join(@dataset_dir, '**', '*'), recursive=True) "
        "if f.lower().endswith(tuple(@endings)))",
        **(OF_MODALITIES if loaded.modalities else {"cases": "$[(f, f) for f in @files]"}),
        "network": "$torch.jit.load(@bundle_root + '/models/model.ts', map_location=@device).eval()",
        "preprocessing": {"_target_": "Compose", "transforms": [*_loading(kind, data, loaded, axes), _bytes_again()]},
        "plain": "$lambda x: monai.utils.convert_to_tensor(x, track_meta=False)",
        **(bundle_volumes.steps(data, shape[1:]) if is_3d else _steps(kind, data, shape)),
        "mask_values": _table(written),
        "labels": f"$lambda masks: torch.tensor(@mask_values)[{_position(len(written))}][None]",
        "postprocessing": {"_target_": "Compose", "transforms": _postprocessing(kind)},
        # The mask is saved under the name of the case, which is not that of its first file.
        "segment": "$lambda case, item: item['image'].meta.update(filename_or_obj=case) or @postprocessing({**item, "
        "'pred': monai.data.MetaTensor(@labels(@masks(item['image'])), meta=item['image'].meta)})",
        "run": [
            "$monai.utils.set_determinism(seed=0)",
            "$[@segment(case, @preprocessing({'image': files})) and None for case, files in @cases]",
        ],
    }


def _steps(kind: Kind, data: DataConfig, shape: Shape) -> dict[str, Any]:
    """From an image, or the slices of a volume, to masks of its size."""
    height, width = shape[1:]
    # MONAI reads a picture as (channels, width, height), and the network was trained on (channels, height, width).
    turned = ".transpose(-1, -2)" if kind == "images" else ""
    slices = {"_target_": "SliceInferer", "spatial_dim": 2, "roi_size": [height, width], "sw_batch_size": 8}
    return {
        "normalise": f"$lambda x: {UNIT if data.normalize == 'unit' else ZSCORE}",
        "predictor": f"$lambda x: @network(@normalise(x{turned})){turned}",
        **_resizing(kind, data, shape),
        "inferer": {"_target_": "SimpleInferer"} if kind == "images" else slices,
        "logits": "$lambda x: @inferer(@plain(@to_network(@plain(x)))[None].to(@device), @predictor)[0].cpu()",
        "masks": "$lambda image: @from_network((@logits(image) > 0).float(), list(image.shape[1:]))",
    }


def _check(kind: Kind, data: DataConfig, loaded: Loaded) -> None:
    shape, is_3d = loaded.shape, len(loaded.shape) == 4
    if is_3d and kind == "images":
        raise ConfigError("the model was trained on volumes (data.dims = 3); leave out --input images")
    if kind == "volumes" and shape[0] > 1 and not loaded.modalities:
        raise ConfigError("the model takes images in colour, and volumes are grey; leave out --input volumes")
    if len(loaded.written) > MOST_CLASSES:
        raise ConfigError(
            f"a bundle has at most {MOST_CLASSES} classes, this model has {len(loaded.written)}; use --to weights"
        )
    if is_3d:
        return
    if data.resize == "crop" or (data.resize == "pad" and (len(set(shape[1:])) > 1 or kind == "volumes")):
        raise ConfigError(
            f"data.resize = {data.resize!r} of {kind} with {shape[2]}x{shape[1]} pixels is not in MONAI's transforms; "
            "use --to weights or --to onnx, whose text says how images are resized"
        )


def _loading(kind: Kind, data: DataConfig, loaded: Loaded, axes: str) -> list[dict[str, Any]]:
    load: dict[str, Any] = {"_target_": "LoadImaged", "keys": "image", "ensure_channel_first": True}
    if kind == "volumes":
        turn = {"_target_": "Orientationd", "keys": "image", "axcodes": axes, "labels": None}
        read = [{**load, "reader": "NibabelReader"}, turn]
    else:
        mode = "RGB" if loaded.shape[0] == 3 and not loaded.modalities else "L"
        convert = f"$lambda image: image if image.mode[0] in 'IF' else image.convert('{mode}')"
        read = [{**load, "reader": "PILReader", "converter": convert}]
    return [*read, *_intensity(kind, data, each=loaded.modalities)]


def _intensity(kind: Kind, data: DataConfig, *, each: bool) -> list[dict[str, Any]]:
    """Grey values to 0..255, as data.intensity says; `each` modality has its own range."""
    low, high = PERCENTILES
    target = {"keys": "image", "b_min": 0, "b_max": 255, "clip": True}
    if isinstance(data.intensity, tuple):
        a_min, a_max = data.intensity
        return [{"_target_": "ScaleIntensityRanged", "a_min": a_min, "a_max": a_max, **target}]
    if data.intensity == "minmax":
        return [{"_target_": "ScaleIntensityd", "keys": "image", "minv": 0, "maxv": 255, "channel_wise": each}]
    if data.intensity == "auto" and kind == "images":
        wide = f"monai.transforms.ScaleIntensityRangePercentiles({low}, {high}, 0, 255, clip=True)"
        parts = "x.split(1)" if each else "[x]"
        bytes_of = f"torch.cat([p if p.max() <= 255 else {wide}(p) for p in {parts}])"
        return [_by_function("image", f"$lambda x: monai.data.MetaTensor({bytes_of}, meta=x.meta)")]
    scale = {"_target_": "ScaleIntensityRangePercentilesd", "lower": low, "upper": high, "channel_wise": each}
    return [{**scale, **target}]


def _resizing(kind: Kind, data: DataConfig, shape: tuple[int, ...]) -> dict[str, Any]:
    """How an image gets the network's size, and a mask the image's size, as data/resizing.py does it.

    MONAI's own inverse takes the nearest pixel by rounding down, which moves a mask by half a pixel.
    """
    height, width = shape[1:]
    size = [width, height] if kind == "images" else [height, width, -1]
    mode = "bilinear" if kind == "images" else "trilinear"
    resize: dict[str, Any] = {"_target_": "Resize", "mode": mode, "anti_aliasing": True, "spatial_size": size}
    rounded = {"_target_": "Lambda", "func": "$lambda x: x.clamp(0, 255).round()"}
    nearest = "torch.nn.functional.interpolate({}[None], size=shape, mode='nearest-exact')[0]"
    if data.resize == "stretch":
        return {
            "to_network": {"_target_": "Compose", "transforms": [resize, rounded]},
            "from_network": f"$lambda mask, shape: {nearest.format('mask')}",
        }
    longest = {**resize, "spatial_size": height, "size_mode": "longest"}
    pad = {"_target_": "SpatialPad", "spatial_size": size}
    return {
        "to_network": {"_target_": "Compose", "transforms": [longest, rounded, pad]},
        "inside": f"$lambda shape: [max(1, round(s * {height} / max(shape))) for s in shape]",
        "bars": f"$lambda shape: [({height} - s) // 2 for s in @inside(shape)]",
        "middle": "$lambda mask, shape: mask[:, @bars(shape)[0]:@bars(shape)[0] + @inside(shape)[0], "
        "@bars(shape)[1]:@bars(shape)[1] + @inside(shape)[1]]",
        "from_network": f"$lambda mask, shape: {nearest.format('@middle(mask, shape)')}",
    }


def _bytes_again() -> dict[str, Any]:
    return _by_function("image", "$lambda x: x.clamp(0, 255).round()")


def _by_function(key: str, function: str) -> dict[str, Any]:
    return {"_target_": "Lambdad", "keys": key, "func": function}


def _position(n_classes: int) -> str:
    return f"sum((masks[k] > 0.5).long() << k for k in range({n_classes}))"


def _postprocessing(kind: Kind) -> list[dict[str, Any]]:
    """Turn a volume's mask back as the volume was, and save the mask beside the others."""
    back = {"transform": "@preprocessing", "orig_keys": "image", "nearest_interp": True, "to_tensor": True}
    save = {
        "_target_": "SaveImaged",
        "keys": "pred",
        "output_dir": "@output_dir",
        "output_postfix": "",
        "output_ext": ".png" if kind == "images" else ".nii.gz",
        "output_dtype": "$torch.uint8",
        "resample": False,
        "separate_folder": False,
        "data_root_dir": "@dataset_dir",
        "print_log": False,
    }
    return [*([{"_target_": "Invertd", "keys": "pred", **back}] if kind == "volumes" else []), save]


def _table(written: Classes) -> list[int]:
    """The mask value for every combination of classes; bit k of the position says whether class k is there."""
    n = len(written)
    masks = np.array([[[position >> k & 1] for position in range(2**n)] for k in range(n)], np.uint8)
    table: list[int] = mask_values(masks, written)[:, 0].tolist()
    return table


def metadata(
    title: str, card: Sequence[tuple[str, str]], loaded: Loaded, versions: Mapping[str, str]
) -> dict[str, Any]:
    """configs/metadata.json, by the keys of MONAI's schema."""
    shape, classes = loaded.shape, loaded.classes
    side = {"type": "image", "dtype": "float32", "is_patch_data": len(shape) == 4, "spatial_shape": list(shape[1:])}
    channels = {str(i): name for i, name in enumerate(classes)}
    named = "modality {}" if loaded.modalities else "image"
    return {
        "version": "1.0.0",
        "changelog": {"1.0.0": "exported by fedce"},
        "monai_version": versions["monai"],
        "pytorch_version": versions["torch"].split("+")[0],
        "numpy_version": versions["numpy"],
        "required_packages_version": {"nibabel": "5.3", "pillow": "10.0"},
        "task": f"segmentation of {', '.join(classes)}",
        "name": title,
        "description": " ".join(answer for _, answer in card),
        "intended_use": next((answer for question, answer in card if question == "What it is for"), ""),
        "network_data_format": {
            "inputs": {
                "image": {
                    **side,
                    "format": "magnitude",
                    "num_channels": shape[0],
                    "value_range": [0, 255],
                    "channel_def": {str(i): named.format(i + 1) for i in range(shape[0])},
                }
            },
            "outputs": {
                "pred": {
                    **side,
                    "format": "segmentation",
                    "num_channels": len(classes),
                    "value_range": [],
                    "channel_def": channels,
                }
            },
        },
    }
