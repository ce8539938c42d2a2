"""A Flower app as files, and a run of it on one machine with a real SuperLink and real SuperNodes."""

import json
import os
import secrets
import subprocess
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import tomli_w

from fedce.base.config import Config, dumps
from fedce.base.errors import EngineError, RunError
from fedce.base.files import write_bytes
from fedce.engines.launching import Follower, Programs, begun, free_ports, need, program, until
from fedce.federation.plan import resolve
from fedce.federation.session import Observer, Result
from fedce.record.folder import OUTCOME

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    # A SuperNode's executor looks for a new message this often; its own default is once a second.
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
}
LOOPBACK = Path(__file__).parent / "loopback"
START_SECONDS = 60.0
STATUS_SECONDS = 10.0
APP_PY = '''"""Written by fedce deploy."""

from pathlib import Path

from fedce.engines.flower import {kind}

app = {kind}(Path(__file__).parent / "experiment.toml")
'''


def deploy(config: Config, out: Path) -> str:
    """Write the app; returns a line that says how to start it."""
    if out.exists() and any(out.iterdir()):
        raise RunError(f"{out} is not empty; choose another --out")
    write_app(config, out, "runs/federation", "")
    return (
        f"written to {out}: 'flwr run {out} NAME' starts it on the SuperLink NAME; docs/flower.md takes a consortium "
        "there step by step"
    )


def write_app(config: Config, out: Path, run_folder: str, command: str) -> None:
    project = {
        "project": {
            "name": "fedce-app",
            "version": "1.0.0",
            "description": f"{config.algorithm.name} by fedce",
            "license": "Apache-2.0",
            # Nothing to install: fedce is already installed at the coordinator and at every site.
            "dependencies": [],
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "fedce",
                    "components": {
                        "serverapp": "fedce_app.server_app:app",
                        "clientapp": "fedce_app.client_app:app",
                    },
                    "config": {"out": run_folder, "command": command},
                }
            }
        },
    }
    write_bytes(out / "pyproject.toml", tomli_w.dumps(project).encode())
    package = out / "fedce_app"
    write_bytes(package / "__init__.py", b"")
    write_bytes(package / "experiment.toml", dumps(resolve(config)).encode())
    for kind in ("client_app", "server_app"):
        write_bytes(package / f"{kind}.py", APP_PY.format(kind=kind).encode())


def run_here(
    config: Config, out: Path, observer: Observer, command: str, *, resume: bool = False, replace: bool = False
) -> Result:
    """SuperLink, one SuperNode for each site, and the app, on this machine; all end with the run."""
    need("flwr", "flower")
    trial = begun(config, out, observer, resume=resume, replace=replace)
    if trial.is_finished:
        return trial.result
    app = trial.fresh("app")
    write_app(trial.config, app, str(out.resolve()), command)
    with Programs(trial.folder / "logs", {**QUIET, **credential()}) as programs:
        federation = Federation(programs, trial.folder, trial.sites, trial.config.data.source)
        federation.start()
        follower = trial.follower(observer)
        run_id = federation.submit(app)
        _wait(federation, follower, run_id)
    trial.raise_any()
    return trial.result


def credential() -> dict[str, str]:
    """Environment of programs whose servers on this machine answer each other alone: see loopback/sitecustomize.py."""
    if not (LOOPBACK / "sitecustomize.py").is_file():  # Without it nobody would be asked for the token.
        raise EngineError(f"{LOOPBACK / 'sitecustomize.py'} is missing; install fedce again")
    path = os.pathsep.join([str(LOOPBACK), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, "FEDCE_LOOPBACK_TOKEN": secrets.token_hex(32)}


class Federation:
    """A SuperLink and a SuperNode for each site, on this machine."""

    def __init__(self, programs: Programs, folder: Path, sites: Sequence[str], data: str) -> None:
        self.programs, self.folder, self.data = programs, folder, data
        self.port, *ports = free_ports(1 + len(sites))
        self.port_for_nodes = self.port
        self.port_by_site = dict(zip(sites, ports, strict=True))
        self.home = folder / "flwr"
        self.programs.environment["FLWR_HOME"] = str(self.home)
        self.server_security = ["--insecure"]
        self.node_security = {site: ["--insecure"] for site in sites}
        self.connection: dict[str, Any] = {"address": f"127.0.0.1:{self.port}", "insecure": True}

    def start(self) -> None:
        self.start_superlink()
        for site in self.port_by_site:
            self.start_supernode(site)

    def start_superlink(self) -> None:
        connections = {"superlink": {"default": "here", "here": self.connection}}
        write_bytes(self.home / "config.toml", tomli_w.dumps(connections).encode())
        self.programs.start(
            "superlink",
            [
                *(program("flower-superlink"), "--host", "127.0.0.1", "--port", str(self.port), *self.server_security),
                *("--disable-runtime-dependency-installation", "--database", str(self.folder / "superlink.db")),
            ],
        )

    def start_supernode(self, site: str) -> None:
        settings = {"site": site, "data": self.data, "home": str(self.folder / "sites" / site)}
        node_config = " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
        self.programs.start(
            f"supernode-{site}",
            [
                *(
                    program("flower-supernode"),
                    "--superlink",
                    f"127.0.0.1:{self.port_for_nodes}",
                    *self.node_security[site],
                ),
                *("--port", str(self.port_by_site[site]), "--node-config", node_config),
            ],
        )

    def submit(self, app: Path) -> str:
        """Submit the app to the SuperLink as soon as it listens; returns the run's number."""
        said = ""
        for _ in until(START_SECONDS, 0.5):
            self.programs.check()
            answer = self.flwr("run", str(app), "here", "--format", "json")
            if answer.get("success"):
                return str(answer["run-id"])
            said = str(answer)
        raise EngineError(f"the SuperLink did not take the app: {said[:300]}", self.programs.tail("superlink"))

    def status(self, run_id: str) -> str:
        """A run's status at the SuperLink; Flower's command line returns exit code 0 even for a failed run."""
        runs = self.flwr("list", "here", "--run-id", run_id, "--format", "json").get("runs") or [{}]
        return str(runs[0].get("status", ""))

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Call Flower's command line; returns its JSON output."""
        done = subprocess.run(
            [program("flwr"), *arguments], env=self.programs.environment, capture_output=True, text=True, check=False
        )
        start = done.stdout.find("{")
        try:
            value = json.loads(done.stdout[start:]) if start >= 0 else {}
        except ValueError:
            value = {}
        return value if isinstance(value, dict) and value else {"said": done.stdout[-500:] + done.stderr[-500:]}


def _wait(federation: Federation, follower: Follower, run_id: str) -> None:
    """Wait until the ServerApp records how it ended, or has gone."""
    outcome = federation.folder / OUTCOME
    next_look = monotonic() + STATUS_SECONDS
    while not outcome.exists():
        federation.programs.check()
        follower.look()
        if monotonic() > next_look:
            next_look = monotonic() + STATUS_SECONDS
            found = federation.status(run_id)
            if found.startswith("finished") and not outcome.exists():
                raise EngineError(f"Flower reports the run as {found}", federation.programs.tail("superlink"))
        sleep(0.2)
    follower.look()
