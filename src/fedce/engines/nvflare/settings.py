"""Settings of a server or a client, in the file fedce.toml of its own `local` folder, which never leaves the machine.

`python -m fedce.engines.nvflare.settings WORKSPACE --data FOLDER` writes it, and lets NVFlare load fedce's classes.
"""

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError

from fedce.base.errors import ConfigError, FedceError, first_problem
from fedce.base.files import read_json, write_bytes, write_json
from fedce.base.tables import BUILT_IN

FILE = "fedce.toml"
EXPERIMENT, STARTED = "experiment.toml", "started.json"
"""The experiment's file in a job; and the file beside a run folder that says when its coordinator started."""
NODES, PAUSE = "fedce.nodes", "fedce.pause"
"""Commands of an administrator to a running job: which nodes are there, and pause."""
SERVER_CLASS = "fedce.engines.nvflare.server.Coordinator"
CLIENT_CLASS = "fedce.engines.nvflare.client.Hospital"
CONTROLLER = "nvflare.collab.runtime.controller.CollabController"
EXECUTOR = "nvflare.collab.runtime.executor.CollabExecutor"
ALLOWED = (SERVER_CLASS, CLIENT_CLASS, CONTROLLER, EXECUTOR)
"""All classes that fedce's jobs name. Jobs bring no code, and NVFlare loads only classes that a site allows."""


NVFLARES_CHOICE = "/tmp/nvflare"


class Settings(BaseModel):
    """The content of fedce.toml; folders are those of this machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: str = ""
    """A client's images: the site's folder, or the folder that holds it, or a built-in federation."""
    home: str = "~/.fedce/sites"
    """Folder in which a client keeps its key, memory and log, in a folder with the name of its site."""
    site: str = ""
    """The site's name; unset: the client's name in NVFlare."""
    sites: dict[str, str] = {}
    """Client to the site's name, for several clients that share this file, as simulated ones do."""
    allow: tuple[str, ...] = ()
    """Code (package.module:Name) that this client runs if an experiment names it."""
    runs: str = "~/.fedce/runs"
    """Folder in which a server keeps its run folders."""

    def site_of(self, client: str) -> str:
        return self.sites.get(client) or self.site or client

    def home_of(self, site: str) -> Path:
        return Path(self.home).expanduser() / site


def load(local: Path) -> Settings:
    path = local / FILE
    if not path.exists():
        return Settings()
    try:
        return Settings.model_validate(tomllib.loads(path.read_text("utf-8")))
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_problem(error)}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} can't be read as TOML ({error})") from None


def write(local: Path, settings: Settings) -> None:
    """Write the settings, and the permission to load fedce's classes."""
    stated = settings.model_dump(exclude_defaults=True)
    write_bytes(local / FILE, tomli_w.dumps(stated).encode())
    own, default = local / "resources.json", local / "resources.json.default"
    before = own if own.exists() else default
    resources: dict[str, Any] = read_json(before) if before.exists() else {"format_version": 2}
    allowed = resources.get("class_allow_list", [])
    resources["class_allow_list"] = [*allowed, *(name for name in ALLOWED if name not in allowed)]
    write_json(own, resources)


def keep_jobs_in(local: Path, folder: Path) -> None:
    """Let a server keep its jobs in this folder: NVFlare's own choice is in /tmp, which a restart empties."""
    resources = local / "resources.json"
    write_bytes(resources, resources.read_text("utf-8").replace(NVFLARES_CHOICE, str(folder)).encode())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m fedce.engines.nvflare.settings",
        description="Make an NVFlare startup kit ready for fedce: at a hospital with --data, at the server without.",
    )
    parser.add_argument("workspace", type=Path, help="the kit's folder, with startup/ and local/ in it")
    parser.add_argument("--data", help="hospital: the folder of its images")
    parser.add_argument("--home", help="hospital: where its key and memory are kept (default ~/.fedce/sites)")
    parser.add_argument("--site", help="hospital: its name (default: the client's name in NVFlare)")
    parser.add_argument(
        "--allow", action="append", metavar="CODE", help="hospital: package.module:Name that an experiment may name"
    )
    parser.add_argument("--runs", help="server: where run folders are kept (default ~/.fedce/runs)")
    given = vars(parser.parse_args(arguments))
    workspace: Path = given.pop("workspace")
    try:
        if not (workspace / "local").is_dir():
            raise ConfigError(f"{workspace} is not a startup kit: it has no folder local")
        # Paths are made absolute, because NVFlare's processes work in folders of their own.
        folders = {key: _whole(given[key]) for key in ("data", "home", "runs") if given[key]}
        site = {"site": given["site"]} if given["site"] else {}
        write(workspace / "local", Settings(**folders, **site, allow=tuple(given["allow"] or ())))
        if given["runs"]:
            keep_jobs_in(workspace / "local", workspace.resolve() / "jobs")
    except FedceError as error:
        print(f"fedce: {error}", file=sys.stderr)  # noqa: T201 (a command)
        sys.exit(2)
    print(f"written: {workspace / 'local' / FILE}; {len(ALLOWED)} classes allowed in resources.json")  # noqa: T201


def _whole(folder: str) -> str:
    path = Path(folder).expanduser()
    return folder if folder in BUILT_IN else str(path.resolve())


if __name__ == "__main__":
    main()
