"""What NVFlare itself costs a round: no training, a model of 1.6 million parameters to six sites and back.

Our engine (tasks, signed replies, checks) over NVFlare's published functions, beside NVFlare's own FedCE recipe with
clients that send zeros. Both in its simulator on this machine. Bytes are those of one client's connections, as `ss`
counts them, over the bytes of two models.

    python benchmarks/engines_nvflare.py [--rounds 20] [--skip-recipe]
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep

import numpy as np
from nvflare.collab import collab

import fedce
from fedce.engines.launching import Programs
from fedce.engines.nvflare import settings
from fedce.engines.nvflare.server import NvflareCourier
from fedce.engines.remote import RemoteEngine, Rules
from fedce.files import read_json, write_json
from fedce.identity import Identity
from fedce.messages import Reply, Task
from fedce.params import Entry, Layout, Params
from fedce.wire import Hello, MemberForm, Parcel, Signed, TaskForm, kind_of, reply_form, task_from
from nvflare_consortium import family, wait_for

N_SITES, N_PARAMETERS = 6, 1_600_000
LAYOUT = Layout((Entry("w", (N_PARAMETERS,), "trainable"),))
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


class EchoServer:
    """Rounds without anything in them; seconds go to a file."""

    def __init__(self, n_rounds: int, folder: str) -> None:
        self.n_rounds, self.folder = n_rounds, folder

    @collab.main
    def run(self) -> None:
        courier = NvflareCourier({client.name: client for client in collab.clients})
        rules = Rules("00", dict.fromkeys(CLIENTS, ""), N_SITES, LIMIT, None, fedce.__version__)
        engine = RemoteEngine(courier, rules, lambda event: None)
        engine.gather()
        engine.bind(LAYOUT, 1)
        params = Params(LAYOUT, np.random.default_rng(0).normal(size=N_PARAMETERS).astype(np.float32))
        seconds = []
        for round_no in range(self.n_rounds):
            began = monotonic()
            assert len(engine.ask([Task(site, round_no, params) for site in CLIENTS])) == N_SITES
            seconds.append(monotonic() - began)
            write_json(Path(self.folder) / "seconds.json", seconds)
        sleep(2)  # So that the last round's bytes can be counted.


class EchoHospital:
    """Sends the model back, signed, as a site does."""

    def __init__(self) -> None:
        self.identity = Identity.at(Path(tempfile.mkdtemp()) / "key.pem")

    @collab.publish
    def here(self) -> list[str]:
        return []

    @collab.publish
    def answer(self, ticket: str, parcel: bytes) -> bytes:
        received = Parcel.from_bytes(parcel)
        arrays = {}
        if kind_of(received.about) == "hello":
            content = self._introduce(Hello.read(received.about)).model_dump_json()
        else:
            task = task_from(TaskForm.read(received.about), received.arrays, LAYOUT)
            reply = Reply(task.site, task.round_no, 10, task.params, score=0.5, loss=0.5)
            content = reply_form(reply, "00", task.action).model_dump_json()
            arrays = {"params": task.params.vector}
        signed = Signed(content=content, signature=self.identity.sign(content))
        return Parcel(signed.model_dump_json(), arrays).to_bytes()

    def _introduce(self, hello: Hello) -> MemberForm:
        counts = {"n_train": 10, "n_validation": 10, "n_test": 10}
        about = {"shape": (1, 64, 64), "classes": {"disc": [1]}, "fingerprint": "00", "key": self.identity.public}
        versions = {"fedce": fedce.__version__}
        return MemberForm(run=hello.run, nonce=hello.nonce, name=collab.site_name, versions=versions, **counts, **about)


def bytes_of(pid: int) -> int:
    """Sent and received over all connections of a process; 0 where `ss` is not installed."""
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
    """Seconds of each round; bytes of one client a round."""
    here = "engines_nvflare"
    args = {"n_rounds": n_rounds, "folder": str(folder)}
    server = {"id": "echo", "path": f"{here}.EchoServer", "args": args}
    client = {"id": "echo", "path": f"{here}.EchoHospital", "args": {}}
    controller = {"id": "controller", "path": settings.CONTROLLER, "args": {"server_obj_id": "echo"}}
    executor = {"tasks": ["*"], "executor": {"path": settings.EXECUTOR, "args": {"client_obj_id": "echo"}}}
    config = folder / "job" / "app" / "config"
    deploy_map = {"app": ["@ALL"]}
    write_json(folder / "job" / "meta.json", {"name": "echo", "min_clients": N_SITES, "deploy_map": deploy_map})
    version = {"format_version": 2}
    write_json(config / "config_fed_server.json", {**version, "workflows": [controller], "components": [server]})
    write_json(config / "config_fed_client.json", {**version, "executors": [executor], "components": [client]})
    allowed = [settings.CONTROLLER, settings.EXECUTOR, server["path"], client["path"]]
    write_json(folder / "workspace" / "local" / "resources.json", {**version, "class_allow_list": allowed})
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with Programs(folder / "logs", {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}) as programs:
        command = [sys.executable, "-m", "fedce.engines.nvflare.simulator", folder / "job", folder / "workspace"]
        programs.start("simulator", [*map(str, command), ",".join(CLIENTS)])

        def seconds() -> list[float]:
            return read_json(folder / "seconds.json") if (folder / "seconds.json").exists() else []

        wait_for(seconds, LIMIT, "no round")
        pid = client_process(programs.running["simulator"].pid)
        first, n_first = bytes_of(pid), len(seconds())
        wait_for(lambda: len(seconds()) == n_rounds, LIMIT, "the rounds did not end")
        return seconds()[1:], (bytes_of(pid) - first) / (n_rounds - n_first)


def recipe(folder: Path, n_rounds: int) -> tuple[list[float], float]:
    """The same of NVFlare's own FedCE."""
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
    times = [when for _, when in lines()]
    return [later - earlier for earlier, later in pairwise(times)], n_bytes / (n_rounds - n_first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--skip-recipe", action="store_true")
    given = parser.parse_args()
    two_models = 2 * 4 * N_PARAMETERS
    with tempfile.TemporaryDirectory() as temporary:
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
