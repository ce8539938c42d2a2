"""What the image and the services do, without Docker: the same scripts, with the variables of compose.yaml."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

pytest.importorskip("flwr", reason="Flower is not installed: pip install -c constraints.txt -e '.[flower]'")

from fedce.engines.launching import free_ports
from fedce.record.folder import RunFolder
from sockets import wait_for

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVICES = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
LIMIT = 300.0
"""Seconds; what takes longer hangs."""


@contextmanager
def container(name: str, folder: Path, **ports: str) -> Iterator[dict[str, str]]:
    """A service of compose.yaml as a process; yields its environment. It must end by itself when it is asked to."""
    service = SERVICES[name]
    beside = str(Path(sys.executable).parent)
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("FEDCE_")},
        "PATH": os.pathsep.join([beside, os.environ["PATH"]]),
        **service["environment"],
        "FEDCE_HOME": str(folder / name),
        **ports,
    }
    with (folder / f"{name}.log").open("wb") as log:
        command = [DEPLOY / "scripts" / "start.sh", *service["command"]]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            yield environment
            assert process.poll() is None, (folder / f"{name}.log").read_text()[-2000:]
            process.terminate()
            process.wait(30)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def is_healthy(environment: dict[str, str]) -> bool:
    script = DEPLOY / "scripts" / "healthy.sh"
    return subprocess.run([script], env=environment, capture_output=True, check=False).returncode == 0


def test_a_server_and_three_sites_train_and_go(tmp_path: Path):
    port, *node_ports = map(str, free_ports(4))
    short = tmp_path / "experiment.toml"
    text = (DEPLOY / "experiment.toml").read_text("utf-8").replace("rounds = 3", "rounds = 1")
    short.write_text(f"{text}\n[model]\nchannels = [4, 8]\n")
    own = {"FEDCE_HOST": "127.0.0.1", "FEDCE_PORT": port}
    with ExitStack() as stack:
        server = stack.enter_context(container("server", tmp_path, **own))
        wait_for(lambda: is_healthy(server), LIMIT, "the server is not healthy")
        sites = {
            name: {"FEDCE_SERVER": f"127.0.0.1:{port}", "FEDCE_NODE_PORT": node_port}
            for name, node_port in zip((name for name in SERVICES if name != "server"), node_ports, strict=True)
        }
        assert not is_healthy({**server, "FEDCE_SITE": "site1", **sites["site1"]}), "no site is there yet"
        for name, ports in sites.items():
            site = stack.enter_context(container(name, tmp_path, **ports))
            wait_for(lambda site=site: is_healthy(site), LIMIT, f"{name} is not healthy")
        done = subprocess.run(
            [DEPLOY / "scripts" / "submit.sh", short, "first"],
            env=server,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    run = RunFolder(tmp_path / "server" / "runs" / "first")
    assert sorted(run.results["contributions"]) == sorted(sites)
    assert run.report_file.exists()
    assert run.rounds_file.exists(), "the experiment names a tracker"
    assert (tmp_path / "server" / "key.pem").exists(), "the ledger is signed with the server's own key"
    assert not is_healthy(server), "the server has ended"


def test_the_images_install_step(tmp_path: Path):
    """The step itself, but with the packages that are installed here instead of a gigabyte of downloads."""
    fedce = tmp_path / "opt"
    quick = ["--quiet", "--no-deps"]
    subprocess.run([DEPLOY / "scripts" / "install.sh", fedce, *quick], check=True, timeout=LIMIT)
    here = next(folder for folder in sys.path if folder.endswith("site-packages"))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": here, "FEDCE_HOME": str(tmp_path / "home")}
    where = [fedce / "bin" / "python", "-c", "import fedce; print(fedce.__file__)"]
    started = [fedce / "deploy" / "start.sh", "--version"]
    for command, expected in ((where, str(fedce)), (started, "fedce, version")):
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert expected in done.stdout
