"""A provisioned NVFlare federation on this machine, as docs/nvflare.md sets one up: certificates, mutual TLS, loopback.

For the tests and for kills_nvflare.py: programs are started, killed and started again as at a hospital.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import yaml

from fedce.base.files import write_json
from fedce.engines.launching import Programs, free_ports, program
from fedce.engines.nvflare import settings

ADMIN = "admin@consortium.org"
RIGHTS = {
    **dict.fromkeys(["submit_job", "manage_job", "view", "operate"], "any"),
    "byoc": "none",
    "shell_commands": "none",
}
STRICT = {"format_version": "1.0", "permissions": {"project_admin": RIGHTS}}
"""The classes that a hospital allows if it trusts no foreign code."""
BUILDERS: list[dict[str, Any]] = [
    {
        "path": "nvflare.lighter.impl.workspace.WorkspaceBuilder",
        "args": {"template_file": ["master_template.yml"]},
    },
    {"path": "nvflare.lighter.impl.static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
    {"path": "nvflare.lighter.impl.cert.CertBuilder"},
    {"path": "nvflare.lighter.impl.signature.SignatureBuilder"},
]


class Consortium:
    """A server, a client for each site, and an administrator."""

    def __init__(self, folder: Path, sites: Sequence[str], data: str) -> None:
        self.folder, self.sites = folder, tuple(sites)
        self.runs = folder / "runs"
        quiet = {"OMP_NUM_THREADS": "1", "HOME": str(folder / "home")}
        self.programs = Programs(folder / "logs", quiet)
        self._provision(data)

    def _provision(self, data: str) -> None:
        (port,) = free_ports(1)
        server = {"name": "localhost", "type": "server", "org": "consortium", "fed_learn_port": port}
        admin = {"name": ADMIN, "type": "admin", "org": "consortium", "role": "project_admin"}
        clients = [{"name": site, "type": "client", "org": site} for site in self.sites]
        project = {"api_version": 3, "name": "fedce", "participants": [server, admin, *clients], "builders": BUILDERS}
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "home").mkdir()
        (self.folder / "project.yml").write_text(yaml.safe_dump(project))
        subprocess.run(
            [program("nvflare"), "provision", "-p", "project.yml", "-w", "kits"],
            cwd=self.folder,
            env=self.programs.environment,
            check=True,
            capture_output=True,
        )
        settings.write(self.kit("localhost") / "local", settings.Settings(runs=str(self.runs)))
        settings.keep_jobs_in(self.kit("localhost") / "local", self.folder / "store")
        for site in self.sites:
            own = settings.Settings(data=data, home=str(self.folder / "sites"))
            settings.write(self.kit(site) / "local", own)
            write_json(self.kit(site) / "local" / "authorization.json", STRICT)

    def kit(self, name: str) -> Path:
        return self.folder / "kits" / "fedce" / "prod_00" / name

    @property
    def admin(self) -> Path:
        return self.kit(ADMIN)

    def start(self, *names: str) -> None:
        for name in names or ("localhost", *self.sites):
            self.programs.start(name, ["bash", str(self.kit(name) / "startup" / "sub_start.sh"), "--once"])

    def kill(self, name: str) -> None:
        """Kill a program and all that it started, as when a machine loses its power."""
        process = self.programs.running.pop(name)
        for pid in family(process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def job_processes(self, name: str) -> list[int]:
        """The processes that the server or a client has started for jobs."""
        return family(self.programs.running[name].pid)[1:]


def family(pid: int) -> list[int]:
    """A process and all processes that it started."""
    pids = [pid]
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                pids += family(int(child))
    return pids


def wait_for(condition: Any, seconds: float, what: str) -> None:
    end = monotonic() + seconds
    while not condition():
        if monotonic() > end:
            raise TimeoutError(f"{what}, {seconds:.0f} s")
        sleep(0.2)
