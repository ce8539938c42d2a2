"""How an image or a volume becomes the network's input, and its output a mask: in words, for other programs."""

from fedce.base.tables import DataConfig
from fedce.data.pixels import PERCENTILES
from fedce.data.shape import spacing_of
from fedce.questions.loading import Loaded

LOW, HIGH = PERCENTILES
WINDOWS = {
    "auto": f"8-bit values stay as they are; wider values and volumes: linearly from their {LOW}th and {HIGH}th "
    "percentile to 0 and 255, values beyond are cut off",
    "percentile": f"linearly from their {LOW}th and {HIGH}th percentile to 0 and 255; values beyond are cut off",
    "minmax": "linearly from their smallest and largest value to 0 and 255",
}
RESIZE = {
    "stretch": "the whole image is stretched to this size",
    "pad": "the whole image is scaled to fit, with black bars around it",
    "crop": "the largest middle part with these proportions is cut out and scaled",
}


def preprocessing_text(data: DataConfig, loaded: Loaded) -> str:
    """Every step from a file to the mask."""
    steps = _of_volumes(data, loaded) if loaded.learner.windows else _of_images(data, loaded)
    return "\n".join(f"{i}. {step}" for i, step in enumerate(steps, start=1))


def _of_images(data: DataConfig, loaded: Loaded) -> list[str]:
    n_channels, size = loaded.shape[0], " x ".join(map(str, loaded.shape[1:]))
    return [
        f"Read the image as {_kind(loaded)}: {n_channels} x height x width. A volume is "
        f"turned to the patient's axes and cut into {data.plane} slices; each slice is an image.",
        f"Grey values, over the whole image or volume: {_intensity(data)}. Round to whole numbers.",
        f"Size: {size} pixels (height x width), bilinear with anti-aliasing; {RESIZE[data.resize]}. "
        "Round to whole numbers.",
        f"Normalise: {_normalised(data, 'image')}.",
        f"The network gives {len(loaded.classes)} x {size} logits; a class is where its logit is above 0.",
        "Undo step 3 for each class (nearest neighbour), and for volumes the turning of step 1.",
        _values(loaded),
    ]


def _of_volumes(data: DataConfig, loaded: Loaded) -> list[str]:
    n_channels, patch = loaded.shape[0], " x ".join(map(str, loaded.shape[1:]))
    spacing = spacing_of(data)
    resample = (
        f"Resample to {' x '.join(f'{mm:g}' for mm in spacing)} mm between slices, rows and columns, linearly, with "
        "anti-aliasing where voxels become larger; the number of voxels is rounded. Round to whole numbers."
        if spacing
        else "The voxels stay as they are; they are not resampled."
    )
    return [
        f"Read the volume as {_kind(loaded)}, and turn it to the patient's axes: {n_channels} x "
        f"slices x rows x columns, with {data.plane} slices.",
        f"Grey values, over the whole volume: {_intensity(data)}. Round to whole numbers.",
        resample,
        f"Normalise: {_normalised(data, 'whole volume')}. A volume that is smaller than a window lies in its middle, "
        "with black (0 before this step) around.",
        f"Cut into windows of {patch} voxels (slices x rows x columns) that overlap by {data.overlap:g} of a side. For "
        f"each the network gives {len(loaded.classes)} x {patch} logits; where windows overlap, take the mean with "
        "Gaussian weights. A class is where its logit is above 0.",
        "Undo step 3 for each class (nearest neighbour), and the turning of step 1.",
        _values(loaded),
    ]


def _kind(loaded: Loaded) -> str:
    if loaded.modalities:
        return f"{loaded.shape[0]} modalities, in the order of the training"
    return "grey" if loaded.shape[0] == 1 else "colour (red, green, blue)"


def _intensity(data: DataConfig) -> str:
    if isinstance(data.intensity, str):
        return WINDOWS[data.intensity]
    return f"linearly from {data.intensity[0]:g} and {data.intensity[1]:g} to 0 and 255; values beyond are cut off"


def _normalised(data: DataConfig, over: str) -> str:
    if data.normalize == "unit":
        return "divide by 255"
    return (
        f"divide by 255; then, for each {over} and channel, subtract the mean and divide by the standard deviation "
        "(at least 1e-6)"
    )


def _values(loaded: Loaded) -> str:
    values = ", ".join(f"{name} = {' or '.join(map(str, own))}" for name, own in loaded.written.items())
    return f"Mask values: {values}. A value that several classes have stands where all of them are."
