"""Writes docs/configuration.md from the configuration itself, so that the two can't disagree."""

import ast
import inspect
import json
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel

from fedce.algorithms import ALGORITHMS, READING_OPTIONS, make, options_of, settings_of
from fedce.base import config
from fedce.learning.metrics import METRICS

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"


def docstrings(cls: type) -> dict[str, str]:
    """The docstring below each field."""
    body = ast.parse(inspect.getsource(cls)).body[0].body  # type: ignore[attr-defined]
    return {
        before.target.id: " ".join(after.value.value.split())
        for before, after in pairwise(body)
        if isinstance(before, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }


def default(value: object) -> str:
    return "unset" if value is None else f"`{json.dumps(value, default=list)}`"


def table(title: str, cls: type, values: dict[str, object]) -> list[str]:
    notes = docstrings(cls)
    lines = [f"## {title}", "", (cls.__doc__ or "").split("\n\n")[0], "", "| key | default | |", "|---|---|---|"]
    lines += [f"| `{key}` | {default(value)} | {notes.get(key, '')} |" for key, value in values.items()]
    return [*lines, ""]


def page() -> str:
    whole = config.Config()
    plain = {key: value for key, value in whole if not isinstance(value, BaseModel)}
    lines = [
        "# The experiment file",
        "",
        "TOML; every key is optional. `fedce run FILE --set train.lr=3e-4` changes one for a run.",
        "(This page is written by `tools/configuration_page.py`.)",
        "",
        *table("Top level", config.Config, {**plain, "rounds": None}),
    ]
    for name, value in whole:
        if isinstance(value, BaseModel) and name != "algorithm":
            lines += table(f"[{name}]", type(value), dict(value))
    lines += [
        "## [algorithm]",
        "",
        f'`name` (default `"fedce"`): {", ".join(f"`{name}`" for name in ALGORITHMS)};',
        "or your own at `package.module:Class`. Further keys, by algorithm:",
        "",
        "| algorithm | key | default | |",
        "|---|---|---|---|",
    ]
    kinds: dict[type, list[str]] = {}
    for name, (kind, _) in ALGORITHMS.items():
        kinds.setdefault(kind, []).append(name)
    for kind, names in kinds.items():
        notes = docstrings(kind) | {key: note for key, (_, note) in READING_OPTIONS.items()}
        settings, allowed = settings_of(make(names[0], {})), options_of(names[0])
        lines += [
            f"| {', '.join(f'`{name}`' for name in names)} | `{key}` | {default(value)} | {notes.get(key, '')} |"
            for key, value in settings.items()
            if key in allowed
        ]
    return "\n".join([*lines, *metrics()]) + "\n"


def metrics() -> list[str]:
    rows = [
        f"| `{metric.name}` | {metric.title}{', a length' * metric.is_length} | {metric.bounds} | "
        f"{'higher' if metric.higher_is_better else 'lower'} | {metric.undefined} |"
        for metric in METRICS.values()
    ]
    return [
        "",
        "## Metrics",
        "",
        '`metrics` names those that are measured beside Dice, e.g. `metrics = ["dice", "iou"]`. A volume is',
        "measured whole, a case by the mean of its images, a site by the mean of its cases, as for Dice. Images and",
        "volumes where a metric is undefined are left out of the mean and counted. A length, and",
        "`surface_tolerance`, is in millimetres where all test images of a site have a known spacing (volumes, DICOM),",
        "otherwise in pixels of the resized image. One of your own is named by its import path, `package.module:NAME`",
        "([example](../examples/own_metric.py)).",
        "",
        "| metric | what | range | better | undefined |",
        "|---|---|---|---|---|",
        *rows,
    ]


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
