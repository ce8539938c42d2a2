"""The tables of an experiment file: data, model, train, algorithm, engine and freerider, each key with its default."""

import re
from math import inf, prod
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from fedce.base.errors import nearest
from fedce.base.keys import checked_key
from fedce.base.registry import full_name

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Level = Annotated[int, Field(ge=0, le=255)]
Colour = tuple[Level, Level, Level]
"""Red, green and blue."""
MOST_COLOURS = 255
Millimetres = Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)]
PatchSide = Annotated[int, Field(ge=4, le=1024)]
LARGEST_PATCH = 2**25
"""Voxels; a network's activations for more do not fit into any computer's memory."""
BUILT_IN = ("fundus6", "prostate6", "volume6")
OF_VOLUMES = ("volume6",)
"""Built-in federations of volumes; the others are of 2-D images."""
ROUNDS_BY_SCALE = {"tiny": 3, "demo": 150, "paper": 200}
ROUNDS_OF_A_FOLDER = 100
Guard = Literal["standard", "off"]
Pack = Literal["none", "lossless", "fp16"]
SITE_NAME = r"^\w[\w .\-]{0,99}$"
"""A site on another machine: its name becomes the name of a folder there and here."""
LONGEST_NAME = 120
"""Bytes: a site's name, with a prefix and a suffix, becomes the name of a file."""


def key_or_none(text: str) -> str:
    return checked_key(text) if text else text


def short_enough(name: str) -> str:
    if len(name.encode()) > LONGEST_NAME:
        raise ValueError(f"should have at most {LONGEST_NAME} bytes")
    return name


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _one_of(name: str, known: tuple[str, ...], group: str, own: str) -> str:
    """A built-in name or an import path as it is; a name that an installed package registers becomes its path."""
    path = full_name(name, known, group)
    if path not in known and ":" not in path:
        raise ValueError(f"input should be {', '.join(map(repr, known))} or {own}{nearest(name, known)}")
    return path


DATA_KINDS = ("auto", "images", "volumes", "dicom", "datalist")


def _format(name: str) -> str:
    return _one_of(name, DATA_KINDS, "fedce.formats", "package.module:NAME")


class DataConfig(Table):
    """The images, and how they become tensors."""

    source: str = "fundus6"
    """A built-in federation (fundus6, prostate6, volume6), a folder of sites, a folder of datalists
    client_<site>.json, or one data set whose sites site_pattern or site_column tells apart."""
    scale: Literal["tiny", "demo", "paper"] = "demo"
    """Size of a built-in federation."""
    format: Annotated[str, AfterValidator(_format)] = "auto"
    """What a folder holds: image files, volumes (NIfTI, MetaImage, NRRD), a folder for each DICOM series, or lists; a
    format of your own, at package.module:NAME, is read beside all of these."""
    images: str | Annotated[dict[str, str], Field(min_length=1)] | None = None
    """A site's images, as a path in its folder with at least one *, e.g. images/* or sub-*/anat/*_T2w.nii.gz; a table
    with a path for each modality, e.g. {t2 = "*_t2.nii.gz", adc = "*_adc.nii.gz"}, makes them channels in this order;
    unset: detected."""
    masks: str | None = None
    """A site's masks; each * stands for the same text as in images."""
    root: str | None = None
    """Folder that the paths in datalists start from, and must not leave; unset: the folder of the lists."""
    size: Annotated[int, Field(ge=32, le=4096)] | None = None
    """Side of the square images in pixels; unset: that of the scale, or of the files."""
    resize: Literal["stretch", "pad", "crop"] = "stretch"
    """How images get the size: stretch the whole image, pad it with black bars, or crop its middle square."""
    intensity: Literal["auto", "percentile", "minmax"] | tuple[float, float] = "auto"
    """How grey values of each image or volume are mapped to 0..255: from the 0.5th to the 99.5th percentile, from the
    smallest to the largest, or from [low, high]; auto: 8-bit values stay as they are, others by percentile."""
    slices: Literal["foreground", "all"] = "foreground"
    """Slices of a volume that are trained on: slices with something marked, or all. Volumes are always scored whole."""
    empty_slices: Annotated[float, Field(ge=0, le=1)] = 0.1
    """With slices = "foreground": the fraction of the training volumes' empty slices that is trained on as well."""
    plane: Literal["axial", "coronal", "sagittal"] = "axial"
    """The plane in which a volume is cut into slices."""
    dims: Literal[2, 3] | None = None
    """2: the network sees 2-D images and slices of volumes. 3: it sees volumes, in patches (docs/volumes.md). Unset: 3
    for volume6, 2 otherwise."""
    spacing: tuple[Millimetres, Millimetres, Millimetres] | None = None
    """With dims = 3: resample every volume to this distance in mm between slices, rows and columns; unset: as the files
    are (volume6: 3, 1.5, 1.5)."""
    patch: tuple[PatchSide, PatchSide, PatchSide] | None = None
    """With dims = 3: slices, rows and columns that the network sees at a time; unset: 32, 64, 64 (volume6: all of a
    volume)."""
    overlap: Annotated[float, Field(ge=0, lt=1)] = 0.25
    """With dims = 3: overlap of neighbouring windows, as a part of the patch, where a whole volume is segmented."""
    sites: tuple[str, ...] = ()
    """Use only these sites; empty: all sites."""
    site_pattern: str | None = None
    """For one data set of all sites: a regular expression whose group is the site in a case's name, e.g. ([A-Z]+)_.*"""
    site_column: str | None = None
    """Instead of site_pattern: a column of cases.csv (with a column file) or of BIDS's participants.tsv, or a key of a
    datalist's entries; unset: site, if entries or participants have it."""
    fold: Annotated[int, Field(ge=0, le=1000)] = 0
    """For datalists with folds: this fold validates and the next one tests (after the last comes the first)."""
    shards: Positive = 1
    """Cut each site into this many sites, by cases, to try a larger federation."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the built-in images and of the split; it is not the training seed, so that runs can share a split."""
    split: tuple[Share, Annotated[float, Field(ge=0, lt=1)], Share] = (0.5, 0.25, 0.25)
    """Fractions of the cases for training, validation and test. With 0 for validation the training cases validate too,
    for sites of two cases; every share then rests on cases that the model was trained on."""
    case_pattern: str | None = None
    """A regular expression whose group is the case in a file's name, e.g. (P[0-9]+)_.*; unset: each file is a case."""
    case_column: str | None = None
    """Instead of case_pattern: a column of <site>/cases.csv (with a column file), or a key of a datalist's entries."""
    groups: list[Annotated[list[str], Field(min_length=2)]] = []
    """Groups of files that are too alike to be in two splits, e.g. [["frame-1", "frame-2"]]."""
    classes: dict[str, list[Annotated[int, Field(ge=1, le=255)]]] | None = None
    """Which mask values belong to which class, e.g. {disc = [128, 255], cup = [255]}; unset: the labels in the data
    set's dataset.json or, without one, any non-zero value."""
    colors: dict[str, list[Colour]] | None = None
    """Instead of classes, for masks in colours: each class's colours as [red, green, blue], e.g. {polyp = [255, 0, 0]}
    or {disc = [[0, 255, 0], [0, 0, 255]], cup = [0, 0, 255]}. Black is the background."""
    labelled: dict[str, Annotated[list[str], Field(min_length=1)]] = {}
    """Sites that label only some of the classes, e.g. {site3 = ["disc"]}. Their loss and scores leave the others
    out."""
    normalize: Literal["unit", "zscore"] = "unit"
    """Scale grey values to [0, 1], or each image and channel to mean 0 and standard deviation 1."""

    @field_validator("split")
    @classmethod
    def _sums_to_one(cls, split: tuple[float, float, float]) -> tuple[float, float, float]:
        if abs(sum(split) - 1) > 1e-6:
            raise ValueError("training, validation and test shares must sum to 1")
        return split

    @model_validator(mode="after")
    def _one_kind_of_classes(self) -> "DataConfig":
        if self.source in BUILT_IN and (self.classes is not None or self.colors is not None):
            way_out = "leave out data.classes and data.colors"
            if "source" not in self.model_fields_set:
                way_out += ", or add --data DIR"
            raise ValueError(f"{self.source} has its own classes; {way_out}")
        if self.classes is not None and self.colors is not None:
            raise ValueError("set classes (for masks of values) or colors (for masks in colours), not both")
        if self.colors is not None and len({colour for own in self.colors.values() for colour in own}) > MOST_COLOURS:
            raise ValueError(f"colors: expected at most {MOST_COLOURS} colours")
        return self

    @model_validator(mode="after")
    def _is_2d_or_3d(self) -> "DataConfig":
        if self.dims is None:
            object.__setattr__(self, "dims", 3 if self.source in OF_VOLUMES else 2)
        # An experiment for hospitals leaves the source out: each of them has its own.
        is_flat = "source" in self.model_fields_set and self.source in set(BUILT_IN) - set(OF_VOLUMES)
        if self.dims == 3 and is_flat:
            raise ValueError(f"{self.source} has 2-D images; leave out data.dims = 3, or take {', '.join(OF_VOLUMES)}")
        if self.dims == 3 and self.size is not None:
            raise ValueError("data.size is for 2-D images; with data.dims = 3 set data.spacing and data.patch")
        if self.dims == 2 and (self.spacing or self.patch):
            raise ValueError("data.spacing and data.patch are for volumes; set data.dims = 3 as well")
        if self.patch and prod(self.patch) > LARGEST_PATCH:
            raise ValueError(f"data.patch has {prod(self.patch):,} voxels; at most {LARGEST_PATCH:,} are possible")
        return self

    @field_validator("images", "masks")
    @classmethod
    def _have_stars(cls, pattern: str | dict[str, str] | None) -> str | dict[str, str] | None:
        for one in pattern.values() if isinstance(pattern, dict) else [pattern] if pattern is not None else []:
            if "*" not in one or "**" in one or ".." in one.split("/") or one.startswith("/"):
                raise ValueError(
                    "expected a path inside the site's folder with at least one *, such as images/* or *_image.png"
                )
        return pattern

    @field_validator("colors", mode="before")
    @classmethod
    def _lists_of_colours(cls, colors: Any) -> Any:
        """A class with one colour may state it without a list around it."""
        if not isinstance(colors, dict):
            return colors
        return {
            name: [own] if isinstance(own, list | tuple) and own and isinstance(own[0], int) else own
            for name, own in colors.items()
        }

    @field_validator("colors")
    @classmethod
    def _has_colours(cls, colors: dict[str, list[Colour]] | None) -> dict[str, list[Colour]] | None:
        if colors is not None and (not colors or not all(colors.values())):
            raise ValueError("every class needs at least one colour")
        if colors is not None and any((0, 0, 0) in own for own in colors.values()):
            raise ValueError("black, [0, 0, 0], is the background; give the class another colour")
        return colors

    @field_validator("case_pattern", "site_pattern")
    @classmethod
    def _is_an_expression(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"is not a regular expression ({error})") from None
        return pattern

    @field_validator("intensity")
    @classmethod
    def _is_a_window(cls, intensity: str | tuple[float, float]) -> str | tuple[float, float]:
        if isinstance(intensity, tuple) and not -inf < intensity[0] < intensity[1] < inf:
            raise ValueError("expected a window [low, high] with low below high, both finite")
        return intensity

    @model_validator(mode="after")
    def _both_or_neither(self) -> "DataConfig":
        if (self.images is None) != (self.masks is None):
            raise ValueError("set both images and masks, or neither")
        patterns = self.images.values() if isinstance(self.images, dict) else [self.images or ""]
        for pattern in patterns:
            if pattern.count("*") != (self.masks or "").count("*"):
                raise ValueError(f"images {pattern!r} and masks {self.masks!r} need the same number of *")
        if self.site_pattern is not None and self.site_column is not None:
            raise ValueError("set site_pattern or site_column, not both")
        if self.case_pattern is not None and self.case_column is not None:
            raise ValueError("set case_pattern or case_column, not both")
        return self

    @field_validator("classes")
    @classmethod
    def _has_values(cls, classes: dict[str, list[int]] | None) -> dict[str, list[int]] | None:
        if classes is not None and (not classes or not all(classes.values())):
            raise ValueError("every class needs at least one mask value")
        return classes


class ModelConfig(Table):
    """The network."""

    name: str = "unet"
    """unet, dynunet or segresnet (MONAI's), unet-classic (the paper's, 2-D only), another of MONAI's
    (monai.networks.nets:AttentionUnet), or your own (package.module:Class)."""
    channels: tuple[Annotated[int, Field(ge=1, le=65536)], ...] = (16, 32, 64, 128)
    """Channels of each level of a U-Net; segresnet takes the first, and doubles it at each level."""
    res_units: Annotated[int, Field(ge=0)] = 0
    """Residual units of each level of unet."""
    norm: Literal["batch", "instance", "group", "site", "site-affine"] = "batch"
    """Normalisation of a U-Net. site: batch norm whose running statistics stay at each site; site-affine: its scale
    and shift stay there too (FedBN). Both also apply to the norm layers of a network given by import path."""
    options: dict[str, Any] = {}
    """Constructor arguments of dynunet, segresnet or a network given by import path. A network of MONAI gets its
    spatial_dims, in_channels and out_channels from the data."""
    start: str | None = None
    """Weights to start from. A run's folder, or an exported file or bundle, must fit the network as a whole. A file of
    another program (safetensors, or a plain state dict) is used where name and shape of a tensor fit."""

    @property
    def stays(self) -> Literal["nothing", "statistics", "norms"]:
        """The part of the model that never leaves a site during training."""
        kept: dict[str, Literal["statistics", "norms"]] = {"site": "statistics", "site-affine": "norms"}
        return kept.get(self.norm, "nothing")


class TrainConfig(Table):
    """Training at a site. The defaults are the paper's (D12)."""

    loss: str = "dice"
    """dice, dice-ce, or an import path (package.module:NAME) of a loss on logits and masks: a class, or a function of
    the two."""
    loss_options: dict[str, Any] = {}
    """Arguments of a loss given by import path, e.g. {sigmoid = true} for monai.losses:TverskyLoss."""
    class_weights: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = ()
    """One weight for each class, in the order of the classes: the loss is the weighted mean of each class's own loss;
    empty: the loss takes all classes at once."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-3
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.99)
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """For sgd."""
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    augment: Literal["none", "flips", "standard"] = "none"
    """Random changes of training images: flips, or flips with rotation, scale, shift, brightness and contrast."""
    schedule: Literal["constant", "cosine", "poly", "late"] = "constant"
    """Learning rate over the rounds: constant, or falling to zero by a half cosine, by (1 - fraction done)^0.9, or
    late: by a half cosine over the last quarter of the rounds."""
    batch_size: Positive = 8
    epochs: Positive = 1
    """Local epochs per round."""
    optimizer_state: Literal["persist", "reset"] = "persist"
    """Keep the optimizer's moments from round to round, or reset them in each round."""
    patches: Positive = 2
    """With data.dims = 3: patches that are drawn from each training volume in an epoch."""
    foreground: Annotated[float, Field(ge=0, le=1)] = 1 / 3
    """With data.dims = 3: fraction of the patches whose centre is a marked voxel; the others lie anywhere."""
    amp: Literal["off", "bf16", "fp16"] = "off"
    """Mixed precision in training: bf16 (CUDA or CPU), or fp16 with scaled gradients (CUDA only)."""
    clip: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Shorten gradients whose norm is above this; 0: never."""

    @field_validator("class_weights")
    @classmethod
    def _weighs_something(cls, weights: tuple[float, ...]) -> tuple[float, ...]:
        if weights and not sum(weights):
            raise ValueError("at least one class needs a weight above 0")
        return weights

    @model_validator(mode="after")
    def _built_in_loss(self) -> "TrainConfig":
        if self.loss_options and ":" not in self.loss:
            raise ValueError(f"loss_options are for a loss by import path; {self.loss!r} has none, leave them out")
        return self


class AlgorithmConfig(BaseModel):
    """The algorithm; its options stand beside its name."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = "fedce"

    @model_validator(mode="before")
    @classmethod
    def _is_a_table(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError("is a table; write algorithm.name")
        return value

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


ENGINES = ("local", "flower", "nvflare")


def _engine(name: str) -> str:
    return _one_of(name, ENGINES, "fedce.engines", "package.module:function")


class EngineConfig(Table):
    """What carries out the run. Only the device can change the results."""

    name: Annotated[str, AfterValidator(_engine)] = "local"
    """local: processes on this machine; flower, nvflare: a real federation; or your own at package.module:function."""
    workers: Annotated[int, Field(ge=0)] = 0
    """Number of processes; 0: one for each core; 1: the run stays in one process."""
    device: str = "auto"
    """auto (CUDA, else MPS, else CPU), cpu, cuda, cuda:1, mps."""
    min_sites: Annotated[int, Field(ge=2)] = 2
    """The run stops at a round with fewer usable replies than this."""
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 20.0
    """A killed run loses at most this much work, or one round if a round takes longer; 0 saves after every round.
    Engines other than local, and runs with sites_per_round, always save after every round."""
    members: dict[
        Annotated[str, Field(pattern=SITE_NAME), AfterValidator(short_enough)],
        Annotated[str, AfterValidator(key_or_none)],
    ] = {}
    """Sites that may take part: name to public key ("" accepts the first key that comes); empty: any site. This key and
    those below are for engines whose sites are on other machines."""
    join_seconds: Annotated[float, Field(gt=0)] = 120.0
    """The first round starts when all members have joined, or after this time with at least min_sites."""
    deadline_seconds: Annotated[float, Field(gt=0)] | None = None
    """A round waits no longer than this for slow sites, as long as min_sites have replied; inf: without end. Unset: ten
    times as long as answers usually take, at least ten minutes, and in the first round without end."""
    tell: Literal["own", "all"] = "own"
    """Whose contributions a site gets to see: its own, or those of all sites."""


class WorthConfig(Table):
    """Measuring what each site gives to the others (docs/worth.md)."""

    every: Annotated[int, Field(ge=0)] | None = None
    """Measure in every round whose number is a multiple of this; 0: never; unset: in the first half of the rounds, so
    that over the whole run each site scores about one model more in a round."""
    reference: str | None = None
    """A labelled folder at the coordinator. If set, the coordinator scores the models on its images, and no site is
    asked to score."""
    scorers: tuple[str, ...] = ()
    """Sites that are asked to score; empty: all sites."""


class FreeRiderConfig(Table):
    """The free-rider detector, and planted cheats to try it on."""

    detect: bool = False
    """Score every site in every round; costs one more validation pass per round."""
    score: Literal["default", "literal"] = "default"
    """default: novelty times error difference (D13); literal: the paper's product, with local-global similarity."""
    plant: dict[str, str] = {}
    """Sites that cheat, to try the detector and the guard on: site to kind of cheating, some with a strength, as in
    {site2 = "overstate=0.1"} (docs/trust.md)."""
