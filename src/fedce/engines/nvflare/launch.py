"""An NVFlare job as files, and a run of it on one machine with NVFlare's simulator."""

import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from fedce.base.config import Config, dumps
from fedce.base.errors import ConfigError, EngineError, RunError
from fedce.base.files import write_bytes, write_json
from fedce.engines.launching import Follower, Programs, Trial, begun, need
from fedce.engines.nvflare import settings
from fedce.engines.nvflare.settings import EXPERIMENT, STARTED
from fedce.federation.plan import code_of, resolve
from fedce.federation.session import Observer, Result
from fedce.record.folder import OUTCOME

START_SECONDS = 120.0
"""The simulator sometimes waits for ever for its own clients (1 of 11 starts): after this time it is restarted."""
MAX_STARTS = 3
SYNC_SECONDS = 300
SIMULATOR, MODULE = "simulator", "fedce.engines.nvflare.simulator"


def deploy(config: Config, out: Path) -> str:
    """Write the job; returns a line that says how to start it."""
    if out.exists() and any(out.iterdir()):
        raise RunError(f"{out} is not empty; choose another --out")
    write_job(config, out, out.resolve().name, "")
    return (
        f"written to {out}: 'nvflare job submit -j {out}' starts it, or continues it when submitted again; "
        "docs/nvflare.md takes a consortium there step by step"
    )


def write_job(config: Config, out: Path, run: str, command: str) -> None:
    """Configuration only: fedce is installed at the server and at every site, and no code travels."""
    server = {
        "format_version": 2,
        "workflows": [
            {
                "id": "controller",
                "path": settings.CONTROLLER,
                "args": {"server_obj_id": "coordinator", "sync_task_timeout": SYNC_SECONDS},
            }
        ],
        "components": [
            {"id": "coordinator", "path": settings.SERVER_CLASS, "args": {"run": run, "command": command}},
        ],
    }
    client = {
        "format_version": 2,
        "executors": [
            {"tasks": ["*"], "executor": {"path": settings.EXECUTOR, "args": {"client_obj_id": "hospital"}}},
        ],
        "components": [{"id": "hospital", "path": settings.CLIENT_CLASS, "args": {}}],
    }
    meta: dict[str, Any] = {
        "name": run,
        "resource_spec": {},
        "min_clients": config.engine.min_sites,
        "deploy_map": {"app": ["@ALL"]},
    }
    write_json(out / "meta.json", meta)
    write_json(out / "app" / "config" / "config_fed_server.json", server)
    write_json(out / "app" / "config" / "config_fed_client.json", client)
    write_bytes(out / "app" / "config" / EXPERIMENT, dumps(resolve(config)).encode())


def run_here(
    config: Config, out: Path, observer: Observer, command: str, *, resume: bool = False, replace: bool = False
) -> Result:
    """NVFlare's simulator with a client for each site, on this machine; all end with the run."""
    need("nvflare", "nvflare")
    if any(character.isspace() for character in str(out.resolve())):
        raise ConfigError(
            f"{out.resolve()}: NVFlare's simulator can't work in a path with spaces; choose another --out"
        )
    trial = begun(config, out, observer, resume=resume, replace=replace)
    if trial.is_finished:
        return trial.result
    write_job(trial.config, trial.fresh("job"), out.resolve().name, command)
    follower = trial.follower(observer)
    for attempt in range(1, MAX_STARTS + 1):
        if _simulate(trial, follower):
            trial.raise_any()
            return trial.result
        observer.notice(f"NVFlare's simulator did not start within {START_SECONDS:.0f} s (attempt {attempt})")
    raise EngineError(f"NVFlare's simulator did not start, {MAX_STARTS} times; its log is in {trial.folder / 'logs'}")


def _simulate(trial: Trial, follower: Follower) -> bool:
    """Run the simulator to its end; returns whether it started."""
    folder, workspace = trial.folder, trial.fresh("workspace")
    for name in (OUTCOME, STARTED):
        (folder / name).unlink(missing_ok=True)
    clients = {f"site-{number}": site for number, site in enumerate(trial.sites, 1)}
    runs = str(trial.run_folder.path.resolve().parent)
    data, home = trial.config.data.source, str(folder / "sites")
    allow = tuple(code_of(trial.config).values())  # All clients run on this machine, for its user.
    own = settings.Settings(data=data, home=home, runs=runs, sites=clients, allow=allow)
    settings.write(workspace / "local", own)
    # One thread for each process: there are as many processes as sites.
    with Programs(folder / "logs", {"OMP_NUM_THREADS": "1"}) as programs:
        inputs = [str(folder / "job"), str(workspace), ",".join(clients)]
        programs.start(SIMULATOR, [sys.executable, "-m", MODULE, *inputs])
        began = monotonic()
        while not (folder / OUTCOME).exists():
            follower.look()
            if not (folder / STARTED).exists() and monotonic() - began > START_SECONDS:
                return False
            if programs.running[SIMULATOR].poll() is not None and not (folder / OUTCOME).exists():
                programs.check()
            sleep(0.2)
        follower.look()
    return True
