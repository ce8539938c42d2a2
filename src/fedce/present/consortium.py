"""The folder of a new consortium: experiment, certificates, who starts what, and a page for each hospital's IT."""

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import tomli_w
from jinja2 import Environment, PackageLoader, StrictUndefined

from fedce.base.certificates import certificates_for
from fedce.base.errors import ConfigError, RunError
from fedce.base.files import private_folder, write_bytes, write_private

Engine = Literal["flower", "nvflare"]
PACKAGES = {"flower": "flwr", "nvflare": "nvflare"}
NAME, HOST = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}"
"""Names that can be part of a shell's command, a folder, a key in TOML, and a certificate."""
INNER_PORT, FIRST_NODE_PORT = 9093, 9094
"""Flower's own ports for a SuperLink, and for a SuperNode."""
HERE = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Consortium:
    """Who takes part, and where the server is."""

    name: str
    sites: tuple[str, ...]
    host: str
    port: int
    engine: Engine

    def __post_init__(self) -> None:
        if not re.fullmatch(HOST, self.host):
            raise ConfigError(f"--server: expected a host name such as fl.example.org, got {self.host!r}")
        for what, text in (("NAME", self.name), *(("--sites", site) for site in self.sites)):
            if not re.fullmatch(NAME, text):
                raise ConfigError(f"{what}: expected letters, digits, '-' and '_', got {text!r}")
        if len(set(self.sites)) < max(2, len(self.sites)):
            raise ConfigError(f"--sites: expected two or more different names, got {', '.join(self.sites) or 'none'}")

    @property
    def values(self) -> dict[str, Any]:
        return {
            **vars(self),
            "admin": f"admin@{self.name}.org",
            "inner_port": INNER_PORT,
            "is_trial": self.host in HERE,
            "package": PACKAGES[self.engine],
            "versions": _versions(PACKAGES[self.engine]),
        }


def write_consortium(consortium: Consortium, folder: Path, planned: str | None) -> list[Path]:
    """Write the folder, with the plan's experiment if there is one; returns what to read, in order."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} is not empty; choose another name, or --out")
    values = consortium.values
    experiment = planned or _text("consortium_experiment.toml.j2", values)
    experiment += _text("consortium_engine.toml.j2", values)
    versions = "".join(f"{name}=={number}\n" for name, number in values["versions"].items())
    shared = {"experiment.toml": experiment, "versions.txt": versions}
    own = private_folder(folder / "coordinator")
    if consortium.engine == "flower":
        shared["ca.pem"] = _write_flower(consortium, own)
    else:
        _write(own / "project.yml", _text("consortium_project.yml.j2", values))
    _write(folder / "README.md", _text("consortium_coordinator.md.j2", values))
    for name in ("experiment.toml", "versions.txt"):
        _write(folder / name, shared[name])
    for number, site in enumerate(consortium.sites):
        place = folder / "hospitals" / site
        about = {**values, "site": site, "node_port": FIRST_NODE_PORT + number}
        for name, text in {"README.md": _text("consortium_hospital.md.j2", about), **shared}.items():
            _write(place / name, text)
    return [folder / name for name in ("README.md", "experiment.toml", "versions.txt", "coordinator", "hospitals")]


def _write_flower(consortium: Consortium, folder: Path) -> str:
    """Certificates, the web server's file, and how 'flwr' finds the SuperLink; returns the authority's certificate."""
    made = certificates_for(consortium.name, consortium.host)
    for name, content in (("ca.key", made.authority_key), ("server.key", made.server_key)):
        write_private(folder / name, content)
    for name, content in (("ca.pem", made.authority), ("server.pem", made.server)):
        write_bytes(folder / name, content)
    values = {**consortium.values, "folder": folder.resolve()}
    if not values["is_trial"]:
        _write(folder / "nginx.conf", _text("consortium_nginx.conf.j2", values))
    link = {"address": f"127.0.0.1:{INNER_PORT}", "root-certificates": str(folder.resolve() / "ca.pem")}
    _write(folder / "flwr" / "config.toml", tomli_w.dumps({"superlink": {"default": "consortium", "consortium": link}}))
    return made.authority.decode()


def _versions(package: str) -> dict[str, str]:
    """The versions of this machine that all machines need; an engine that is not installed here is left out."""
    found = {"fedce": version("fedce")}
    try:
        return {**found, package: version(package)}
    except PackageNotFoundError:
        return found


def _write(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def _text(template: str, values: dict[str, Any]) -> str:
    # Not HTML, and every name is checked: nothing to escape.
    environment = Environment(
        loader=PackageLoader("fedce.present.pages", "templates"),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**values)
