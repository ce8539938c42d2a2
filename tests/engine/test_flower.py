"""Flower with real processes on loopback: the same bits as the local engine, whatever happens to the processes."""

import json
import os
import random
import re
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep

import httpx
import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install -c constraints.txt -e '.[flower]'")

from benchmarks.bits import same
from benchmarks.kills import Coordinator, check_credit
from benchmarks.relay import Relay
from benchmarks.secured import register, secure, write_certificates
from flwr.app import Array, ArrayRecord, RecordDict

from fedce.base.config import load
from fedce.base.errors import EngineError, ReplyError
from fedce.engines.flower.launch import QUIET, Federation, credential
from fedce.engines.flower.parcels import ABOUT, ARRAYS, from_record, to_record
from fedce.engines.launching import Programs
from fedce.record.entries import Join
from fedce.record.folder import RunFolder
from fedce.site.wire import Parcel
from sockets import Watcher, connections_of, is_outside, wait_for
from support import HOSPITALS, OF_VOLUMES, PLANNED, events_of

SMALL = {"model.channels": [4, 8], "rounds": 3}
WAITING = {**SMALL, "engine.min_sites": len(HOSPITALS)}
"""Who is away is waited for: on a busy machine a start may take longer than Flower waits until it calls a node gone."""
LIMIT = 300.0
"""Seconds; a run that takes longer hangs."""
REFUSED = "another key than the member 'east'"


def test_the_same_bits_and_nobody_outside_is_spoken_to(tmp_path: Path, images: Path, planned: Path):
    mark = secrets.token_hex(8)
    command = [sys.executable, "-m", "fedce", "run", "--engine", "flower", "--data", images, *PLANNED]
    command += ["--set", "engine.min_sites=3", "--set", "pack=lossless", "--track", "csv", "--out", tmp_path / "run"]
    with Watcher(mark) as watcher:
        done = subprocess.run(
            [str(part) for part in command],
            env={**os.environ, "FEDCE_MARK": mark},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert same(tmp_path / "run", planned)
    assert RunFolder(tmp_path / "run").results["gain"] == RunFolder(planned).results["gain"]
    n_rounds = len(RunFolder(tmp_path / "run").rounds())
    table = (tmp_path / "run" / "rounds.csv").read_text("utf-8").splitlines()
    assert len(table) == 1 + n_rounds * len(HOSPITALS), "the coordinator tracks"
    assert watcher.n_processes > 2 * len(HOSPITALS)
    assert watcher.outside == set()
    # Whatever was started has ended; the sites' own processes notice it within a second.
    wait_for(lambda: not watcher.processes(), LIMIT, "processes are left")


def test_the_watcher_sees_what_goes_outside():
    """A datagram socket that is only connected sends nothing."""
    mark = secrets.token_hex(8)
    code = (
        "import socket, time; s = socket.socket(type=socket.SOCK_DGRAM); s.connect(('192.0.2.1', 9)); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "FEDCE_MARK": mark})
    try:
        wait_for(lambda: "192.0.2.1:9" in connections_of([process.pid], is_outside), LIMIT, "not seen")
    finally:
        process.kill()
        process.wait()


def test_a_killed_site_a_cut_network_and_a_killed_coordinator_change_nothing(tmp_path: Path, volumes: Path):
    """One after another, each in a round of its own, and the images are volumes."""
    made = Coordinator(tmp_path, {**OF_VOLUMES, "engine.min_sites": 3})
    relay = Relay(made.federation.port)
    made.federation.port_for_nodes = relay.port
    with made.programs:
        made.federation.start()
        made.federation.submit(made.app)
        made.wait(lambda self: self.n_rounds >= 1)
        sleep(random.uniform(0, 1))
        made.kill("supernode-site4")
        made.federation.start_supernode("site4")
        made.wait(lambda self: self.n_rounds >= 2)
        sleep(random.uniform(0, 1))
        _cut_for_five_seconds(made, relay)
        made.wait(lambda self: self.n_rounds >= 3)
        made.kill("superlink")
        made.federation.start_superlink()
        made.federation.submit(made.app)
        made.wait()
    assert same(made.out, volumes)
    assert any(event.startswith("site4 came back") for event in events_of(made.out))
    kinds = [line.kind for line in RunFolder(made.out).ledger()]
    assert "resume" in kinds
    assert kinds.count("round") == 4
    check_credit(RunFolder(made.out))


def _cut_for_five_seconds(made: Coordinator, relay: Relay) -> None:
    """All hospitals lose the coordinator in the middle of a round, and find it again."""
    relay.cut()
    n_bytes = relay.n_bytes
    sleep(5)
    assert relay.n_bytes == n_bytes
    assert not made.finished
    relay.restore()


def test_with_certificates_and_keys_nobody_else_comes_in(tmp_path: Path, images: Path, planned: Path):
    """As in docs/flower.md: TLS, registered keys; then a stranger, a wrong certificate, and a thief of a name.

    The experiment leaves the plan to the hospitals, whose fingerprints come over the network.
    """
    made = Coordinator(tmp_path, {**WAITING, "recipe": "plan", "alone": True, "data.source": str(images)})
    federation = made.federation
    keys = tmp_path / "keys"
    write_certificates(tmp_path / "other")
    extra = {"thief": keys, "stranger": keys, "mistaken": tmp_path / "other"}
    secure(federation, keys, {**dict.fromkeys(HOSPITALS, keys), **extra})
    ports = iter(Federation(made.programs, tmp_path / "engine", (*HOSPITALS, *extra), "").port_by_site.values())
    federation.port_by_site = {site: next(ports) for site in (*HOSPITALS, *extra)}
    with made.programs:
        federation.start_superlink()
        for name in (*HOSPITALS, "thief", "mistaken"):
            register(federation, keys, name)
        for site in HOSPITALS:
            federation.start_supernode(site)
        made.federation.submit(made.app)
        made.wait(lambda self: self.n_rounds >= 1)
        # However slowly they start, the run must not end before they have come.
        os.killpg(made.programs.running["supernode-south"].pid, signal.SIGSTOP)
        _start_as(federation, "thief", "east")
        federation.start_supernode("stranger")
        federation.start_supernode("mistaken")
        # The two that Flower refuses end by themselves, or keep trying; the federation goes on without them.
        made.programs.check = lambda: None
        made.wait(lambda self: any(REFUSED in event for event in events_of(self.out)))
        made.wait(lambda self: re.search("SSL|certificate", self.programs.tail("supernode-mistaken")) is not None)
        os.killpg(made.programs.running["supernode-south"].pid, signal.SIGCONT)
        made.wait()
        listed = federation.flwr("supernode", "list", "here", "--format", "json")
    assert same(made.out, planned)
    assert set(json.loads(RunFolder(made.out).fingerprints_file.read_text("utf-8"))["sites"]) == set(HOSPITALS)
    joined = [join.site for join in RunFolder(made.out).ledger().of(Join)]
    assert sorted(joined) == list(HOSPITALS)
    online = [node for node in listed["nodes"] if node["status"] == "online"]
    assert len(online) == len(HOSPITALS) + 1


def _start_as(federation: Federation, node: str, site: str) -> None:
    """A node that may connect, and says that it is somebody else."""
    federation.port_by_site[site], kept = federation.port_by_site[node], federation.port_by_site[site]
    security, homes = federation.node_security[site], federation.folder
    federation.node_security[site] = federation.node_security[node]
    federation.folder = homes / "thief"
    running = federation.programs.running.pop(f"supernode-{site}")
    federation.start_supernode(site)
    federation.programs.running[f"supernode-{node}"] = federation.programs.running.pop(f"supernode-{site}")
    federation.programs.running[f"supernode-{site}"] = running
    federation.folder, federation.node_security[site], federation.port_by_site[site] = homes, security, kept


def test_an_experiment_may_leave_a_plan_to_the_sites(tmp_path: Path, fedce):
    (tmp_path / "plan.toml").write_text('recipe = "plan"\nrounds = 7\n')
    done = fedce("deploy", "flower", tmp_path / "plan.toml", "--out", tmp_path / "app")
    assert done.exit_code == 0, done.output
    config = load(tmp_path / "app" / "fedce_app" / "experiment.toml")
    assert (config.rounds, "rounds" in config.unplanned) == (7, False)
    assert {"train.loss", "model.channels", "data.size"} < set(config.unplanned)


def test_the_superlink_of_a_trial_asks_for_a_credential(tmp_path: Path):
    """Without it, any account of the machine could submit an app, which is code, or join."""
    own = credential()
    with Programs(tmp_path / "logs", {**QUIET, **own}) as programs:
        federation = Federation(programs, tmp_path / "engine", HOSPITALS, "")
        federation.start_superlink()

        def asked(path: str, **headers: str) -> int:
            try:
                answer = httpx.post(f"http://127.0.0.1:{federation.port}/v1/{path}", headers=headers, timeout=30)
            except httpx.TransportError:
                return 0
            return answer.status_code

        wait_for(lambda: asked("control/list-nodes"), LIMIT, "the SuperLink does not listen")
        for path in ("control/list-nodes", "control/start-run", "fleet/register-node", "fleet/pull-messages"):
            assert asked(path) == 401, path
            assert asked(path, **{"x-fedce-loopback": "0" * 64}) == 401, "a made-up one is none"
            assert asked(path, **{"x-fedce-loopback": own["FEDCE_LOOPBACK_TOKEN"]}) not in (0, 401), path
        done = federation.flwr("supernode", "list", "here", "--format", "json")
        assert done["nodes"] == [], "its own programs are answered, and nobody has joined"


def test_deploy_writes_an_app_that_flower_builds(tmp_path: Path, images: Path, fedce):
    config = tmp_path / "experiment.toml"
    config.write_text(f'[data]\nsource = "{images}"\n')
    run = fedce("deploy", "flower", config, "--out", tmp_path / "app")
    assert run.exit_code == 0, run.output
    assert "flwr run" in run.stdout
    assert load(tmp_path / "app" / "fedce_app" / "experiment.toml").engine.name == "flower"
    built = subprocess.run(
        [Path(sys.executable).with_name("flwr"), "build", "--app", tmp_path / "app"],
        cwd=tmp_path,
        env={**os.environ, **QUIET, "FLWR_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert list(tmp_path.glob("*.fab"))
    again = fedce("deploy", "flower", config, "--out", tmp_path / "app")
    assert again.exit_code == 2
    assert "is not empty" in again.stderr


def test_a_run_that_fails_says_so_in_one_line(tmp_path: Path, images: Path, fedce):
    """The ServerApp's error, not Flower's exit code, which is 0."""
    run = fedce(
        *("run", "--engine", "flower", "--data", images, "--rounds", 1, "--out", tmp_path / "run"),
        *("--set", "model.name=monai.networks.nets:DynUNet", "--set", 'data.sites=["east","north"]'),
    )
    assert run.exit_code == 2
    assert run.stderr.splitlines()[-1].startswith("fedce: ")


def test_programs_end_together_and_tell_who_died(tmp_path: Path):
    with Programs(tmp_path, {}) as programs:
        programs.start("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"])
        programs.start("quitter", [sys.executable, "-c", "print('why'); raise SystemExit(3)"])
        programs.running["quitter"].wait()
        with pytest.raises(EngineError, match="quitter ended with code 3") as caught:
            programs.check()
        assert "why" in caught.value.trace
        sleeper = programs.running["sleeper"]
    assert sleeper.poll() is not None


def test_a_parcel_is_a_record_of_flower_and_back():
    """Vectors and packets; an array of another kind is refused before anything reads it."""
    vector, packet = np.arange(5, dtype=np.float32), np.arange(7, dtype=np.uint8)
    record = to_record(Parcel("{}", {"params": vector, "model-0": packet}))
    came = from_record(record)
    assert came.about == "{}"
    for name, sent in (("params", vector), ("model-0", packet)):
        assert came.arrays[name].dtype == sent.dtype
        assert came.arrays[name].tobytes() == sent.tobytes()
    foreign = Array("float32", (5,), "numpy.ndarray", vector.tobytes())
    with pytest.raises(ReplyError, match="neither vectors of 32-bit numbers nor packed ones"):
        from_record(RecordDict({ABOUT: record[ABOUT], ARRAYS: ArrayRecord({"params": foreign})}))
