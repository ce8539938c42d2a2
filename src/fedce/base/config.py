"""An experiment file (TOML) as checked values. `fedce run --set train.lr=0.01` and Python use the same names."""

import tomllib
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import AfterValidator, BaseModel, Field, ValidationError, field_validator, model_validator

from fedce.base.errors import ConfigError, first_problem, nearest
from fedce.base.recipes import PLAN, PLANNED, PLANNED_IF_NEEDED, RECIPES, SMALL, filled, value_at
from fedce.base.tables import (
    BUILT_IN,
    ROUNDS_BY_SCALE,
    ROUNDS_OF_A_FOLDER,
    AlgorithmConfig,
    DataConfig,
    EngineConfig,
    FreeRiderConfig,
    Guard,
    ModelConfig,
    Pack,
    Positive,
    Table,
    TrainConfig,
    WorthConfig,
)
from fedce.base.trackers import checked


def _recipe(name: str) -> str:
    if name not in RECIPES:
        raise ValueError(f"unknown recipe{nearest(name, RECIPES)}; known: {', '.join(RECIPES)}")
    return name


class Config(Table):
    """One experiment.

    >>> config = parse({"seed": 3, "train": {"lr": 0.01}})
    >>> config.seed, config.train.lr, config.train.batch_size
    (3, 0.01, 8)
    """

    recipe: Annotated[str, AfterValidator(_recipe)] = SMALL
    """A named set of values for keys that are left out: small (the defaults on this page), paper (the paper's network,
    256x256 pixels and 200 rounds; a GPU is advised), or plan (made from the data: docs/plan.md). Without an experiment
    file the recipe is plan."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of the initial weights and of local training."""
    rounds: Positive | None = None
    """Number of rounds; unset: 3, 150 or 200 for the scales tiny, demo and paper, and 100 for a folder."""
    patience: Positive | None = None
    """Stop when the sites' mean validation score, smoothed over five rounds, has not risen for this many rounds."""
    audit: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Probability with which a round is drawn for an audit; at least one round of a run is. What the sites need to
    reproduce their answers in drawn rounds is kept (docs/trust.md). 0: none is drawn."""
    leave_out: tuple[str, ...] = ()
    """Sites that are evaluated but do not train; leave-one-out and Shapley values use this key."""
    sites_per_round: Annotated[int, Field(ge=2)] | None = None
    """Number of sites that take part in a round, all equally often; unset: all sites in every round."""
    reconstruction: bool = False
    """Also value the sites by Shapley values of every round's models; 2^N validation passes a round up to ten sites."""
    guard: Guard = "standard"
    """For every algorithm, leave out updates and running statistics that are harmful, not just unusual (docs/trust.md).
    off: replies are checked only for form, range, layout and finite numbers, and the arithmetic is the paper's."""
    max_length: Annotated[float, Field(gt=1)] = 6.0
    """With guard = "standard": shorten an update that is longer than this multiple of the round's median length; inf:
    never."""
    pack: Pack = "none"
    """How models travel to sites on other machines and back (docs/scale.md). none: 4 bytes a number. lossless: the same
    bits in three quarters of the bytes or less. fp16: updates have 16-bit numbers, and what rounding leaves out is
    added to the next round's update; about half of the bytes, and other results, which are the same on every engine."""
    alone: bool = False
    """Also train each site alone, with as many steps, so that the results say what the site gains by the federation."""
    personalise: Annotated[int, Field(ge=0)] = 0
    """Rounds of local training after the last round. Each site then keeps the common model, unless its own
    validation cases show that the personalised one or, with alone = true, the one trained alone is better."""
    metrics: tuple[str, ...] = ("dice",)
    """Measured on each site's test cases at the end (below). Dice always is, and contributions rest on Dice alone."""
    surface_tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """For surface_dice: the distance within which two surfaces count as equal, in the unit of lengths (see below)."""
    tracking: tuple[Annotated[str, AfterValidator(checked)], ...] = ()
    """Where rounds are shown beside the ledger: csv, tensorboard:DIR, mlflow:URI, or your own at package.module:NAME
    (docs/tracking.md). No result depends on this key."""
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    freerider: FreeRiderConfig = FreeRiderConfig()
    worth: WorthConfig = WorthConfig()
    engine: EngineConfig = EngineConfig()
    unplanned: tuple[str, ...] = ()
    """Written by fedce: the keys that the coordinator plans from the sites' fingerprints before round 1, with
    recipe = "plan" in the experiment of a federation on other machines (docs/plan.md)."""

    @field_validator("tracking", mode="before")
    @classmethod
    def _one_or_several(cls, trackers: Any) -> Any:
        return (trackers,) if isinstance(trackers, str) else trackers

    @model_validator(mode="before")
    @classmethod
    def _follow_the_recipe(cls, tree: Any) -> Any:
        """Fill missing keys from the recipe; a value that is not a table, and an unknown recipe, fail later."""
        name = tree.get("recipe") if isinstance(tree, Mapping) else None
        if name == PLAN and (missing := [key for key in PLANNED if value_at(tree, key) is None]):
            if value_at(tree, "engine.name") not in (None, "local"):
                every = (*PLANNED, *PLANNED_IF_NEEDED)
                return {**tree, "unplanned": tuple(key for key in every if value_at(tree, key) is None)}
            raise ValueError(
                f'recipe = "plan" takes {missing[0]} from the data, which is not looked at here; make the experiment '
                "with 'fedce plan DATA --out plan.toml', or from the sites' fingerprints"
            )
        return filled(tree, RECIPES[name]) if isinstance(name, str) and name in RECIPES else tree

    @model_validator(mode="after")
    def _fill_rounds(self) -> "Config":
        if self.rounds is None:
            built_in = self.data.source in BUILT_IN
            rounds = ROUNDS_BY_SCALE[self.data.scale] if built_in else ROUNDS_OF_A_FOLDER
            object.__setattr__(self, "rounds", rounds)
        return self

    @property
    def n_rounds(self) -> int:
        assert self.rounds is not None
        return self.rounds


def load(path: Path | None = None, changes: Mapping[str, Any] | None = None) -> Config:
    """An experiment file with changes applied; keys of changes are dotted: {"train.lr": 0.01}."""
    return parse(written(path, changes or {}), str(path) if path else None)


def written(path: Path | None, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The experiment as a person wrote it, unchecked: a file, and changes with dotted keys."""
    return _changed(_tree_of(path) if path else {}, changes)


def _tree_of(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"can't read the experiment file {path}: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(f"{path} is not an experiment file: it is nested too deeply") from None
    except ValueError as error:  # Not TOML, not UTF-8, or a number of thousands of digits.
        raise ConfigError(f"{path} is not a TOML file: {error}") from None


def _changed(tree: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in changes.items():
        *tables, name = key.split(".")
        table = tree
        for part in tables:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{key}: {part!r} is a value, not a table")
        table[name] = value
    return tree


def stated_in(config: Config) -> dict[str, Any]:
    """The keys of an experiment that are not left to a plan."""
    tree: dict[str, Any] = config.model_dump(mode="json", exclude_none=True, exclude={"unplanned"})
    for key in config.unplanned:
        table, _, name = key.rpartition(".")
        (tree[table] if table else tree).pop(name, None)
    return tree


def with_planned(config: Config, values: Mapping[str, Any]) -> Config:
    """The experiment with planned values for keys that it left to the plan; no other key can be changed."""
    if strangers := sorted(values.keys() - set(config.unplanned)):
        raise ConfigError(f"the plan sets {strangers[0]}, which the experiment does not leave to a plan")
    return parse(_changed(stated_in(config), values))


def as_tree(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with dotted keys, with tables, or with both, as an experiment file has them.

    >>> as_tree({"train.lr": 0.01, "train": {"epochs": 2}, "rounds": 5})
    {'rounds': 5, 'train': {'epochs': 2, 'lr': 0.01}}
    """
    # In the order of their names, a table comes before its own dotted keys, which win.
    return _changed({}, {key: deepcopy(settings[key]) for key in sorted(settings)})


def load_recorded(path: Path, changes: Mapping[str, Any] | None = None) -> Config:
    """The experiment of a run folder, with keys as earlier versions wrote them: the guard as an option of FedCE, and
    model.weights in place of model.start."""
    tree = _tree_of(path)
    algorithm = tree.get("algorithm")
    if isinstance(algorithm, dict) and "guard" in algorithm and "guard" not in tree:
        tree["guard"] = algorithm.pop("guard")
    model = tree.get("model")
    if isinstance(model, dict) and "weights" in model:
        model["start"] = model.pop("weights")
    return parse(_changed(tree, changes or {}), str(path))


def parse(tree: Mapping[str, Any], origin: str | None = None) -> Config:
    """Check a configuration; the first problem becomes one line."""
    prefix = f"{origin}: " if origin else ""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        if problem["type"] != "extra_forbidden":
            raise ConfigError(f"{prefix}{first_problem(error)}") from None
        *tables, key = (str(part) for part in problem["loc"])
        known = _keys_of(tables)
        raise ConfigError(
            f"{prefix}unknown key {'.'.join([*tables, key])!r}{nearest(key, known)}; known here: {', '.join(known)}"
        ) from None


def _keys_of(tables: list[str]) -> list[str]:
    model: type[BaseModel] = Config
    for table in tables:
        annotation = model.model_fields[table].annotation
        assert isinstance(annotation, type)
        model = annotation
    return list(model.model_fields)


def parse_assignment(text: str) -> tuple[str, Any]:
    """ "train.lr=0.01" as ("train.lr", 0.01); a value that is not TOML is a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"expected key=value, for example train.lr=0.01, got {text!r}")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):  # Not TOML, or too long or too nested for Python.
        return key.strip(), value.strip()


def dumps(config: Config) -> str:
    """The resolved experiment as TOML; keys whose value is None are left out, because TOML has no None."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))
