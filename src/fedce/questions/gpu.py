"""fedce doctor --gpu: the tiny trainings on the CPU and on the GPU, with and without mixed precision, compared."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import torch

from fedce.base.config import parse
from fedce.base.errors import ConfigError, FedceError
from fedce.engines.starting import execute
from fedce.questions.finding import Finding

FEDERATIONS = ("fundus6", "volume6")
"""One of 2-D images, one of volumes."""
ROUNDS = 20
TOLERANCE = {"off": 0.03, "bf16": 0.05, "fp16": 0.05}
"""By how much the mean Dice may differ from the CPU's: sums in another order, and fewer digits, change a training."""


@dataclass(frozen=True)
class Trial:
    """One tiny training."""

    data: str
    device: str
    amp: str = "off"


@dataclass(frozen=True)
class Trained:
    dice: float
    seconds: float


def train(trial: Trial) -> Trained:
    """The mean test Dice of a tiny training, and how long it took."""
    config = parse(
        {
            "rounds": ROUNDS,
            "data": {"source": trial.data, "scale": "tiny", "normalize": "zscore"},
            "train": {"amp": trial.amp, "lr": 3e-3, "loss": "dice-ce"},
            "algorithm": {"name": "fedavg"},
            "engine": {"device": trial.device, "workers": 1},
        }
    )
    with TemporaryDirectory() as folder:
        start = perf_counter()
        dice = execute(config, Path(folder, "run"), report=False).dice
        return Trained(sum(dice.values()) / len(dice), perf_counter() - start)


def check_gpu(n_gpus: int | None = None, train: Callable[[Trial], Trained] = train) -> Iterator[Finding]:
    """Findings for each federation and precision; an error where the machine has no GPU."""
    n = torch.cuda.device_count() if n_gpus is None else n_gpus
    if n == 0:
        raise ConfigError(
            "--gpu: torch sees no CUDA device here; docs/volumes.md says how to install torch for CUDA. "
            "Leave out --gpu to check everything else"
        )
    yield Finding("gpu", "ok", f"{n} CUDA {'device' if n == 1 else 'devices'}")
    for data in FEDERATIONS:
        on_cpu = train(Trial(data, "cpu"))
        for amp in TOLERANCE:
            yield _compared(Trial(data, "cuda", amp), on_cpu, train)


def _compared(trial: Trial, on_cpu: Trained, train: Callable[[Trial], Trained]) -> Finding:
    what = f"gpu, {trial.data}, amp {trial.amp}"
    try:
        found = train(trial)
    except (FedceError, RuntimeError) as error:
        return Finding(what, "problem", f"the training fails ({error})", "set train.amp = off, or engine.device = cpu")
    apart, allowed = abs(found.dice - on_cpu.dice), TOLERANCE[trial.amp]
    told = (
        f"Dice {found.dice:.3f} in {found.seconds:.1f} s, on the CPU {on_cpu.dice:.3f} in {on_cpu.seconds:.1f} s; "
        f"{apart:.3f} apart, allowed are {allowed:g}"
    )
    if apart > allowed:
        return Finding(what, "problem", told, "do not use this precision on this GPU, and report it to us")
    return Finding(what, "ok", told)
