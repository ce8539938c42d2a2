"""A round on volumes over a plain PyTorch and MONAI loop that does the same, and windows over MONAI's own.

The loop is FedAvg as one would write it in a script: a network and an Adam of each site, patches cut from tensors at
random places and normalised by their volume, MONAI's Dice loss, and in each round a validation of the received model
by MONAI's sliding windows. The engine does the same with ledger and checkpoints; once more it runs with the guard,
which the loop lacks. volume6 in patches of 16x32x32, so that a volume takes several windows. All runs take turns in
this process, so that the machine's load cancels. Memory is the peak of a process that makes one such run alone. Linux
only.

    python -m benchmarks.volumes [--repeats 5]
"""

import subprocess
import sys
import tempfile
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from benchmarks.figures import Figure, main
from monai.inferers import sliding_window_inference
from monai.losses import DiceLoss
from monai.networks.nets import UNet

import fedce
from fedce.base.tables import ModelConfig, TrainConfig
from fedce.federation.session import Observer
from fedce.learning.batches import Volumes, Windows, to_input
from fedce.learning.learner import Learner
from fedce.learning.networks import build

N_ROUNDS = 4
PATCH, OVERLAP, PATCHES, BATCH = (16, 32, 32), 0.25, 2, 2
FOREGROUND = 1 / 3
CHANNELS = (16, 32, 64, 128)
CPU = torch.device("cpu")


def federation() -> fedce.Sites:
    return fedce.load_sites("volume6", scale="demo", patch=PATCH, normalize="zscore")


def tensors_of(data, rows) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Whole volumes, normalised, with their masks."""
    volumes = Volumes.of(data.images, data.masks, data.stacks(rows), PATCH, CPU)
    return [(to_input(seen.unit, "zscore", seen.moments)[0], seen.masks[0]) for seen in volumes.whole(1)]


def network() -> UNet:
    torch.manual_seed(0)
    return UNet(3, 1, 2, CHANNELS, (2, 2, 2), norm="batch")


def patch_of(volume: torch.Tensor, masks: torch.Tensor, on_marked: bool) -> tuple[torch.Tensor, torch.Tensor]:
    if on_marked:
        voxels = masks[torch.randint(len(masks), (1,)).item()].nonzero()
        middle = voxels[torch.randint(len(voxels), (1,)).item()]
        at = [min(max(int(m) - p // 2, 0), n - p) for m, p, n in zip(middle, PATCH, volume.shape[1:], strict=True)]
    else:
        at = [int(torch.randint(n - p + 1, (1,))) for p, n in zip(PATCH, volume.shape[1:], strict=True)]
    where = (slice(None), *(slice(a, a + p) for a, p in zip(at, PATCH, strict=True)))
    return volume[where], masks[where]


def epoch(net, optimizer, volumes, loss_of) -> None:
    net.train()
    for rows in torch.randperm(len(volumes) * PATCHES).split(BATCH):
        drawn = [patch_of(*volumes[row % len(volumes)], on_marked=row % 3 == 2) for row in rows.tolist()]
        images, masks = (torch.stack(part) for part in zip(*drawn, strict=True))
        optimizer.zero_grad()
        loss_of(net(images), masks).backward()
        optimizer.step()


@torch.inference_mode()
def dice(net, volumes) -> float:
    net.eval()
    found = []
    for volume, masks in volumes:
        predicted = sliding_window_inference(volume[None], PATCH, 4, net, OVERLAP, mode="gaussian")[0] > 0
        truth = masks.bool()
        found.append(float(2 * (predicted & truth).sum() / (predicted.sum() + truth.sum())))
    return sum(found) / len(found)


def loop(sites: fedce.Sites) -> float:
    """The median round of the plain loop."""
    train = {data.name: tensors_of(data, data.split.train) for data in sites}
    validation = {data.name: tensors_of(data, data.split.validation) for data in sites}
    nets = {name: network() for name in train}
    optimizers = {name: torch.optim.Adam(net.parameters(), 1e-3, fused=True) for name, net in nets.items()}
    loss_of, common, seconds = DiceLoss(sigmoid=True), deepcopy(network().state_dict()), []
    n = {name: len(volumes) / sum(map(len, train.values())) for name, volumes in train.items()}
    for _ in range(N_ROUNDS):
        start = perf_counter()
        for name, net in nets.items():
            net.load_state_dict(common)
            dice(net, validation[name])
            epoch(net, optimizers[name], train[name], loss_of)
        states = {name: net.state_dict() for name, net in nets.items()}
        common = {
            key: sum(n[name] * state[key] for name, state in states.items()).to(value.dtype)
            for key, value in common.items()
        }
        seconds.append(perf_counter() - start)
    return median(seconds[1:])


def engine(sites: fedce.Sites, guard: str = "off") -> float:
    """The median round of the local engine with one worker."""
    ends: list[float] = []
    observer = Observer(start=lambda *_: ends.append(perf_counter()), round=lambda _: ends.append(perf_counter()))
    train = {"batch_size": BATCH, "patches": PATCHES, "foreground": FOREGROUND}
    settings = {
        "recipe": "small",
        "train": train,
        "model.channels": list(CHANNELS),
        "engine.workers": 1,
        "worth.every": 0,
        "guard": guard,
    }
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        fedce.run(sites, "fedavg", rounds=N_ROUNDS, out=out, progress=observer, settings=settings)
    return median(after - before for before, after in pairwise(ends[1:]))


def windows(sites: fedce.Sites) -> tuple[float, float]:
    """Seconds of scoring whole volumes: ours, and MONAI's function with the same network."""
    data = sites[2]
    rows = data.split.train
    net = build(ModelConfig(channels=CHANNELS), 1, 2, 0, PATCH)
    ours = Learner(net, TrainConfig(), "zscore", CPU, windows=Windows(PATCH, OVERLAP))
    mine, theirs = ours.volumes(data.images, data.masks, data.stacks(rows)), tensors_of(data, rows)
    plain, params, found = network(), ours.params, []
    for _ in range(2):  # The first pass warms caches.
        start = perf_counter()
        ours.counts([params], mine)
        middle = perf_counter()
        dice(plain, theirs)
        found.append((middle - start, perf_counter() - middle))
    return found[-1]


def peak_megabytes(function: str) -> float:
    """The most memory of a process that makes one run alone; getrusage would count this process too."""
    code = (
        "import torch; torch.set_num_threads(1); from benchmarks import volumes; "
        f"volumes.{function}(volumes.federation()); "
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1]) / 1024


def measure(repeats: int) -> list[Figure]:
    torch.set_num_threads(1)
    sites = federation()
    engine(sites)
    found = [(loop(sites), engine(sites), *windows(sites)) for _ in range(repeats)]
    guarded = [engine(sites, "standard") / engine(sites) for _ in range(repeats)]
    memory = {name: peak_megabytes(name) for name in ("engine", "loop")}
    return [
        Figure(
            "engine / plain loop, a round on volumes", [ours / theirs for theirs, ours, _, _ in found], at_most=1.03
        ),
        Figure("whole volumes by windows / MONAI's own", [ours / theirs for _, _, ours, theirs in found], at_most=1.05),
        Figure("engine with the guard / without", guarded),
        Figure("a round of the engine, one worker", [ours for _, ours, _, _ in found], "s"),
        Figure("peak memory of the engine's process", [memory["engine"]], "MB"),
        Figure("peak memory of the loop's process", [memory["loop"]], "MB"),
    ]


if __name__ == "__main__":
    main(__doc__, measure, repeats=5)
