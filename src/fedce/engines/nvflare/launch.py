"""An NVFlare job as files, and a run of it on one machine with NVFlare's simulator."""

import shutil
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from fedce.config import Config, dumps
from fedce.data import load_sites
from fedce.engines.launching import NOTICES, Follower, Programs, need
from fedce.engines.nvflare import settings
from fedce.engines.nvflare.settings import EXPERIMENT, OUTCOME, STARTED
from fedce.errors import ConfigError, EngineError, RunError
from fedce.experiment import Observer, Result, resolve
from fedce.files import read_json, write_bytes, write_json
from fedce.record import RunFolder

START_SECONDS = 120.0
"""The simulator sometimes waits for ever for its own clients (1 of 11 starts): after this time it is started anew."""
MAX_STARTS = 3
SYNC_SECONDS = 300
SIMULATOR, MODULE = "simulator", "fedce.engines.nvflare.simulator"


def deploy(config: Config, out: Path) -> str:
    """Write the job; returns what to do with it."""
    if out.exists() and any(out.iterdir()):
        raise RunError(f"{out} is not empty; choose another --out")
    write_job(config, out, out.resolve().name, "")
    return (
        f"written to {out}: 'nvflare job submit -j {out}' starts it, and submitted again it goes on where it was; "
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
    config = resolve(config)
    sites = [site.name for site in load_sites(config.data, notify=observer.notice)]
    members = config.engine.members or dict.fromkeys(sites, "")
    config = config.model_copy(update={"engine": config.engine.model_copy(update={"members": members})})
    run_folder = RunFolder(out)
    engine_folder = out.with_name(f"{out.name}.engine").resolve()
    if not resume:
        RunFolder.create(out, config, replace=replace)
        shutil.rmtree(engine_folder, ignore_errors=True)
    elif run_folder.results_file.exists():
        observer.notice(f"{out} is finished; nothing to do")
        return Result(out, run_folder.results)
    job = engine_folder / "job"
    shutil.rmtree(job, ignore_errors=True)
    write_job(config, job, out.resolve().name, command)
    clients = {f"site-{number}": site for number, site in enumerate(sites, 1)}
    follower = Follower(run_folder, config, observer, engine_folder / NOTICES)
    for attempt in range(1, MAX_STARTS + 1):
        if _simulate(engine_folder, clients, config.data.source, out.resolve().parent, follower):
            return Result(out, run_folder.results)
        observer.notice(f"NVFlare's simulator did not start within {START_SECONDS:.0f} s (attempt {attempt})")
    raise EngineError(f"NVFlare's simulator did not start, {MAX_STARTS} times; its log is in {engine_folder / 'logs'}")


def _simulate(folder: Path, clients: dict[str, str], data: str, runs: Path, follower: Follower) -> bool:
    """Whether it started; then it has also ended."""
    for name in (OUTCOME, STARTED):
        (folder / name).unlink(missing_ok=True)
    workspace = folder / "workspace"
    shutil.rmtree(workspace, ignore_errors=True)
    source = settings.Settings(data=data, home=str(folder / "sites"), runs=str(runs), sites=clients)
    settings.write(workspace / "local", source)
    # One thread for each process: there are as many of these as sites.
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
    if (error := read_json(folder / OUTCOME)["error"]) is not None:
        raise EngineError(error)
    return True
