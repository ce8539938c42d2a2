"""What an engine itself costs: rounds without training, six sites, 1.6 million parameters.

    python benchmarks/engines.py [--engines local,flower] [--rounds 10]

Seconds are medians over rounds, from the ledger. Bytes are counted between the nodes and the SuperLink, by a relay, and
divided by the least that could be sent: one model to the site and one back.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import monotonic, sleep

import numpy as np
from PIL import Image

from fedce.algorithms.shared import Alike
from fedce.base.config import load
from fedce.core.algorithm import hyperparameters
from fedce.core.messages import Reply, Task
from fedce.core.params import Params
from fedce.core.site import Memory, Site
from fedce.record.folder import RunFolder

ROOT = Path(__file__).parents[1]
N_SITES = 6
CHANNELS = [24, 48, 96, 192, 408]


@hyperparameters
class Echo(Alike):
    """An algorithm without training, which only makes each site's model different: the engine's cost remains.

    Flower stores arrays by content, so it would not send back an unchanged model at all.
    """

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        own = Params(task.params.layout, task.params.vector + np.float32(len(site.name) + ord(site.name[-1])))
        return Reply(site.name, task.round_no, site.n_train, own, score=0.5), Memory(task.round_no, own)


def write_sites(root: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(N_SITES):
        for part in ("images", "masks"):
            (root / f"site{i + 1}" / part).mkdir(parents=True)
        for j in range(8):
            image = rng.integers(0, 255, (32, 32)).astype(np.uint8)
            Image.fromarray(image).save(root / f"site{i + 1}" / "images" / f"{j}.png")
            Image.fromarray((image > 128).astype(np.uint8) * 255).save(root / f"site{i + 1}" / "masks" / f"{j}.png")


def seconds_a_round(run: Path) -> tuple[float, float, float]:
    """Median, smallest and largest number of seconds between the ends of two rounds."""
    times = [done.time for done in RunFolder(run).rounds()]
    steps = np.diff(times).tolist()
    return median(steps), min(steps), max(steps)


def changes_of(data: Path, rounds: int) -> dict[str, object]:
    return {
        "data.source": str(data),
        "model.channels": CHANNELS,
        "algorithm.name": "benchmarks.engines:Echo",
        "rounds": rounds,
    }


def run_local(data: Path, out: Path, rounds: int, engine: str) -> float:
    """Run the command as a user would; returns the seconds from its start to its end."""
    changes = [f"--set={key}={json.dumps(value)}" for key, value in changes_of(data, rounds).items()]
    command = [sys.executable, "-m", "fedce", "run", "--engine", engine, "--out", str(out), *changes]
    command += ["--set", "recipe=small"]
    began = monotonic()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return monotonic() - began


def run_flower(data: Path, folder: Path, rounds: int) -> tuple[Path, float]:
    """Run with a relay between the nodes and the SuperLink; returns the run folder, and bytes for a site and round."""
    os.environ["PYTHONPATH"] = str(ROOT)
    from benchmarks.kills import Coordinator
    from benchmarks.relay import Relay

    made = Coordinator(folder, changes_of(data, rounds))
    relay = Relay(made.federation.port)
    made.federation.port_for_nodes = relay.port
    with made.programs:
        made.federation.start()
        made.federation.submit(made.app)
        made.wait(lambda self: self.n_rounds >= 1)
        before, first = relay.n_bytes, made.n_rounds
        made.wait(lambda self: self.n_rounds >= rounds)
        n_bytes = (relay.n_bytes - before) / (rounds - first) / N_SITES
        made.wait()
        sleep(1)
    return made.out, n_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", default="local,flower")
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sites(folder / "data")
        config = load(None, changes_of(folder / "data", given.rounds))
        from fedce.data import load_sites
        from fedce.federation.plan import Participants

        n_parameters = Participants(config, load_sites(config.data)).layout.size
        print(f"{N_SITES} sites, {n_parameters / 1e6:.2f} million parameters, {given.rounds} rounds without training")
        print("| engine | seconds a round | range | bytes a site and round / two models |")
        print("|---|---:|---|---:|")
        for engine in given.engines.split(","):
            ratio = ""
            if engine == "flower":
                out, n_bytes = run_flower(folder / "data", folder / "flower", given.rounds)
                ratio = f"{n_bytes / (2 * 4 * n_parameters):.3f}"
            else:
                out = folder / engine
                run_local(folder / "data", out, given.rounds, engine)
            middle, low, high = seconds_a_round(out)
            print(f"| {engine} | {middle:.2f} | {low:.2f} to {high:.2f} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
