"""What NVFlare itself costs a round: no training, a model of 1.6 million parameters to six sites and back.

`fedce run --engine nvflare` (tasks, signed replies, checks, a checkpoint and a ledger's line in every round) beside
NVFlare's own FedCE recipe with clients that send zeros; both in its simulator on this machine. Bytes are those of one
client's connections, as `ss` counts them, over the bytes of two models.

    python benchmarks/engines_nvflare.py [--rounds 20] [--skip-recipe]
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from engines import N_SITES, ROOT, changes_of, write_sites
from fedce.engines.launching import Programs
from fedce.record.folder import RunFolder
from nvflare_consortium import family, wait_for

CHANNELS, N_PARAMETERS = [24, 48, 96, 192, 427], 1_600_000
CLIENTS = [f"site-{i + 1}" for i in range(N_SITES)]
LIMIT = 300.0
SCRIPT = """
import os, time
from pathlib import Path
import torch
import nvflare.client as flare

flare.init()
me = flare.get_site_name()
while flare.is_running():
    model = flare.receive()
    if model is None:
        break
    zeros = {name: torch.zeros_like(torch.as_tensor(value)) for name, value in model.params.items()}
    with (Path(os.environ["ECHO_FOLDER"]) / f"{me}.txt").open("a") as file:
        file.write(f"{os.getpid()} {time.monotonic()}\\n")
    meta = {"fedce_minus_val": 0.5}
    flare.send(flare.FLModel(params=zeros, params_type="DIFF", metrics={"accuracy": 0.5}, meta=meta))
"""
RECIPE = """
import sys, torch
from nvflare.app_opt.pt.recipes.fedce import FedCERecipe
from nvflare.recipe import SimEnv

workspace, script, n_clients, n_rounds, n_parameters = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
recipe = FedCERecipe(
    model=torch.nn.Linear(n_parameters, 1, bias=False), min_clients=n_clients, num_rounds=n_rounds, train_script=script
)
recipe.execute(SimEnv(num_clients=n_clients, num_threads=n_clients, workspace_root=workspace))
"""


def bytes_of(pid: int) -> int:
    """Bytes sent and received over all connections of a process; 0 if `ss` is not installed."""
    if not shutil.which("ss"):
        return 0
    lines = subprocess.run(["ss", "-tinpH"], capture_output=True, text=True, check=True).stdout.splitlines()
    total = 0
    for socket, details in zip(lines[::2], lines[1::2], strict=False):
        if f"pid={pid}," in socket:
            total += sum(int(n) for n in re.findall(r"bytes_(?:acked|received):(\d+)", details))
    return total


def client_process(pid: int) -> int:
    """The process of the first client, among all that the simulator started."""
    for one in family(pid):
        command = Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")
        if b"--client" in command and CLIENTS[0].encode() in command:
            return one
    raise ProcessLookupError("no client")


def ours(folder: Path, n_rounds: int) -> tuple[list[float], float]:
    """Seconds of each round of fedce over NVFlare, and bytes of one client in a round."""
    write_sites(folder / "data")
    values = {**changes_of(folder / "data", n_rounds), "model.channels": CHANNELS}
    changes = [f"--set={key}={json.dumps(value)}" for key, value in values.items()]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    run = RunFolder(folder / "run")
    with Programs(folder / "logs", {"PYTHONPATH": path}) as programs:
        command = [sys.executable, "-m", "fedce", "run", "--engine", "nvflare", "--out", str(run.path), *changes]
        command += ["--set", "recipe=small"]
        programs.start("run", command)
        wait_for(run.rounds, LIMIT, "no round")
        pid = client_process(programs.running["run"].pid)
        first, n_first = bytes_of(pid), len(run.rounds())
        wait_for(lambda: len(run.rounds()) == n_rounds, LIMIT, "the rounds did not end")
        n_bytes = bytes_of(pid) - first
        wait_for(run.results_file.exists, LIMIT, "the run did not end")
    times = [done.time for done in run.rounds()]
    return [later - earlier for earlier, later in pairwise(times)], n_bytes / (n_rounds - n_first)


def recipe(folder: Path, n_rounds: int) -> tuple[list[float], float]:
    """Seconds of each round of NVFlare's own FedCE, and bytes of one client in a round."""
    (folder / "echo.py").write_text(SCRIPT)
    (folder / "recipe.py").write_text(RECIPE)
    with Programs(folder / "logs", {"ECHO_FOLDER": str(folder), "OMP_NUM_THREADS": "1"}) as programs:
        command = [sys.executable, folder / "recipe.py", folder / "workspace", folder / "echo.py"]
        programs.start("recipe", [str(part) for part in (*command, N_SITES, n_rounds, N_PARAMETERS)])

        def lines() -> list[tuple[int, float]]:
            file = folder / f"{CLIENTS[0]}.txt"
            rows = file.read_text().splitlines() if file.exists() else []
            return [(int(row.split()[0]), float(row.split()[1])) for row in rows]

        wait_for(lines, LIMIT, "no round")
        first, n_first = bytes_of(lines()[0][0]), len(lines())
        wait_for(lambda: len(lines()) == n_rounds, LIMIT, "the rounds did not end")
        n_bytes = bytes_of(lines()[0][0]) - first
        # The recipe's processes are in groups of their own, so they can only end by themselves.
        wait_for(lambda: programs.running["recipe"].poll() is not None, LIMIT, "the recipe did not end")
    times = [when for _, when in lines()]
    return [later - earlier for earlier, later in pairwise(times)], n_bytes / (n_rounds - n_first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--skip-recipe", action="store_true")
    given = parser.parse_args()
    two_models = 2 * 4 * N_PARAMETERS
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        table = {}
        for name, measure in [("fedce over NVFlare", ours), ("NVFlare's FedCE recipe", recipe)]:
            if measure is recipe and given.skip_recipe:
                continue
            folder = Path(temporary) / measure.__name__
            folder.mkdir()
            seconds, n_bytes = measure(folder, given.rounds)
            table[name] = statistics.median(seconds), min(seconds), n_bytes / two_models
    base = table["fedce over NVFlare"][0]
    print(f"{N_SITES} sites, {N_PARAMETERS / 1e6:.1f} million parameters, {given.rounds} rounds, no training")
    print(f"{'':24} s a round (median)  least  ratio  bytes/2 models")
    for name, (median, least, share) in table.items():
        print(f"{name:24} {median:18.3f} {least:6.3f} {median / base:6.1f} {share:15.3f}")


if __name__ == "__main__":
    main()
