"""Where commands and Python functions write, unless somebody names another place."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedce.base.config import Config

RUNS = Path("runs")
STORE = RUNS / "store"
"""Where trainings are kept that several questions share."""


def run_name(config: "Config") -> str:
    """DATA-ALGORITHM-SEED."""
    return f"{Path(config.data.source).name}-{config.algorithm.name.replace(':', '.')}-{config.seed}"


def default_out(config: "Config") -> Path:
    """The folder of a run."""
    return RUNS / run_name(config)


def evaluation_folder(run: Path, folder: Path) -> Path:
    """The folder of an evaluation of a run's model."""
    return RUNS / f"evaluate-{run.resolve().name}-{folder.resolve().name}"


def comparison_folder(config: "Config") -> Path:
    """The folder of a comparison of algorithms."""
    return RUNS / f"compare-{Path(config.data.source).name}"
