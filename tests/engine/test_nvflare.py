"""NVFlare with real processes on loopback: the same bits as the local engine, whatever happens to the processes."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from time import sleep
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install -c constraints.txt -e '.[nvflare]'")

from benchmarks.bits import same
from benchmarks.nvflare_consortium import Consortium
from nvflare.collab.api.exceptions import RunAborted

from fedce.base import registry
from fedce.base.config import load
from fedce.base.errors import ConfigError, EngineError
from fedce.engines.nvflare import client, keeping, launch, server, settings
from fedce.engines.nvflare.server import Coordinator, NvflareCourier
from fedce.federation.session import Observer
from fedce.learning.metrics import METRICS
from fedce.record.folder import RunFolder
from fedce.site.wire import Parcel
from sockets import Watcher, wait_for
from support import HOSPITALS, VOLUMES

ROOT = Path(__file__).parents[2]
SMALL = {
    "model.channels": [4, 8],
    # Who is away is waited for, however slowly a busy machine starts it.
    "engine.min_sites": len(HOSPITALS),
    "rounds": 3,
    "engine.name": "nvflare",
    "engine.members": dict.fromkeys(HOSPITALS, ""),
}
LIMIT = 300.0
"""Seconds; a run that takes longer hangs."""


def test_killed_and_resumed_it_gives_the_same_bits_and_nobody_outside_is_spoken_to(tmp_path: Path, volumes: Path):
    """The images are volumes, for which the engine is the same."""
    out, mark = tmp_path / "run", secrets.token_hex(8)
    begin = [sys.executable, "-m", "fedce", "run"]
    first = [*begin, "--engine", "nvflare", *VOLUMES, "--track", "csv"]
    first += ["--set", "engine.min_sites=3", "--set", "pack=lossless"]
    environment = {**os.environ, "FEDCE_MARK": mark}
    with Watcher(mark) as watcher:
        with subprocess.Popen([*map(str, first), "--out", out], env=environment, stdout=-3, stderr=-3) as process:
            wait_for(lambda: RunFolder(out).rounds(), LIMIT, "no round")
            process.send_signal(signal.SIGKILL)
        # NVFlare's processes notice within a second that nobody is there any more; then it can be resumed.
        wait_for(lambda: not watcher.processes(), LIMIT, "processes are left")
        again = [*begin, "--resume", str(out)]
        done = subprocess.run(again, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
        assert done.returncode == 0, done.stderr
        wait_for(lambda: not watcher.processes(), LIMIT, "processes are left")
    assert same(out, volumes)
    assert RunFolder(out).results["gain"] == RunFolder(volumes).results["gain"]
    assert watcher.n_processes > 3
    assert watcher.outside == set()
    kinds = [line.kind for line in RunFolder(out).ledger()]
    assert kinds.count("round") == 4
    assert len(RunFolder(out).rounds_file.read_text("utf-8").splitlines()) == 1 + 4 * 3, "each round once"
    RunFolder(out).check_chain()


def test_a_provisioned_federation_survives_kills_with_the_same_bits(tmp_path: Path, images: Path, planned: Path):
    """As in docs/nvflare.md: mutual TLS, nobody may send code; the coordinator and the one who keeps it are killed.

    The experiment leaves the plan to the hospitals, whose fingerprints come over the network.
    """
    consortium = Consortium(tmp_path, HOSPITALS, str(images))
    experiment = load(None, {**SMALL, "recipe": "plan", "alone": True, "data.source": "elsewhere"})
    launch.write_job(experiment, tmp_path / "job", "federation", "test")
    run = RunFolder(consortium.runs / "federation")
    with consortium.programs as programs:
        consortium.start()
        command = [sys.executable, "-m", "fedce.engines.nvflare.keeping", str(tmp_path / "job")]
        programs.start("keeper", [*command, "--kit", str(consortium.admin)])
        wait_for(lambda: run.rounds(), LIMIT, "no round")
        consortium.kill("keeper")
        os.kill(consortium.job_processes("localhost")[0], signal.SIGKILL)
        programs.start("keeper", [*command, "--kit", str(consortium.admin)])
        wait_for(lambda: programs.running["keeper"].poll() is not None, LIMIT, "the run did not end")
        assert programs.running["keeper"].returncode == 0, programs.tail("keeper")
        assert programs.tail("keeper").rstrip().endswith("the folder 'federation' among its runs")
    assert same(run.path, planned)
    assert set(json.loads(run.fingerprints_file.read_text("utf-8"))["sites"]) == set(HOSPITALS)
    assert [line.kind for line in run.ledger()].count("resume") <= 1
    run.check_chain()
    assert (tmp_path / "sites" / "east" / "key.pem").stat().st_mode & 0o777 == 0o600
    told = (tmp_path / "logs" / "localhost.log").read_text()
    assert str(images) not in told
    assert "federation - INFO - round 3 is done, mean validation Dice" in told


def test_the_drop_in_example_runs_in_nvflares_own_recipe(tmp_path: Path):
    """Ten marked lines; the client script is one for NVFlare's own FedCE."""
    shutil.copytree(ROOT / "examples" / "nvflare_drop_in", tmp_path / "examples" / "nvflare_drop_in")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "examples.nvflare_drop_in.job", "2"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = dict(line.split(": ") for line in done.stdout.splitlines() if line.endswith(" %"))
    assert sorted(told) == ["site-1", "site-2", "site-3"]
    assert sum(float(share.removesuffix(" %")) for share in told.values()) == pytest.approx(100, abs=0.2)
    marked = (ROOT / "examples" / "nvflare_drop_in" / "job.py").read_text().count("# fedce\n")
    assert marked <= 10


class Answers:
    """A client as NVFlare shows it: called with options, then by the name of a published function."""

    def __init__(self, answer=None, here=lambda: []) -> None:
        self._answer, self._here = answer, here

    def __call__(self, timeout: float) -> "Answers":
        return self

    def answer(self, ticket: str, parcel: bytes) -> bytes:
        return self._answer(ticket, parcel)

    def here(self) -> list[str]:
        return self._here()


def collected(courier: NvflareCourier) -> list:
    came: list = []
    wait_for(lambda: came.extend(courier.collect()) or came, LIMIT, "nothing came")
    return came


def test_a_courier_brings_answers_and_says_why_there_are_none():
    def fail(ticket, parcel):
        raise RuntimeError("its process ended\nTraceback: /home/secret")

    parcel = Parcel("{}", {})
    clients = {"good": Answers(lambda ticket, sent: sent), "bad": Answers(fail), "odd": Answers(lambda *_: b"rubbish")}
    courier = NvflareCourier(clients)
    wait_for(lambda: sorted(courier.nodes()) == ["bad", "good", "odd"], LIMIT, "not heard")
    ticket = courier.send("good", parcel, 0)
    ((known, answer),) = collected(courier)
    assert (known, answer.about) == (ticket, "{}")
    courier.send("bad", parcel, 0)
    assert collected(courier)[0][1] == "its process ended"
    courier.send("odd", parcel, 0)
    assert "can't be read" in collected(courier)[0][1].about


def test_a_call_that_nobody_has_in_hand_was_lost(monkeypatch):
    monkeypatch.setattr(server, "PING_SECONDS", 0.01)
    never, held = Event(), []
    client = Answers(lambda ticket, sent: never.wait(), here=lambda: held)
    courier = NvflareCourier({"site": client})
    held.append(courier.send("site", Parcel("{}", {}), 0))
    monkeypatch.setattr(server, "LOST_SECONDS", 0.05)
    sleep(0.3)
    assert list(courier.collect()) == []
    held.clear()
    assert collected(courier) == [("site/0", "the call was lost on its way")]
    never.set()


def test_who_is_not_heard_any_more_is_gone(monkeypatch):
    monkeypatch.setattr(server, "PING_SECONDS", 0.01)
    monkeypatch.setattr(server, "GONE_SECONDS", 0.3)
    lives = [True]

    def here():
        if not lives:
            raise TimeoutError
        return []

    courier = NvflareCourier({"site": Answers(here=here)})
    wait_for(lambda: courier.nodes() == ["site"], LIMIT, "not heard")
    lives.clear()
    wait_for(lambda: courier.nodes() == [], LIMIT, "still there")
    lives.append(True)
    wait_for(lambda: courier.nodes() == ["site"], LIMIT, "not back")


def test_a_pause_ends_the_job_between_two_rounds_and_an_abort_at_once():
    aborted = []
    courier = NvflareCourier({"site": Answers(lambda ticket, sent: sent)}, lambda: bool(aborted))
    courier.send("site", Parcel("{}", {}), 4)
    assert courier.command(settings.NODES)["paused"] is False
    courier.said = "Round 5: waiting for site; connected: 1."
    assert courier.command(settings.PAUSE) == {
        "round": 4,
        "nodes": ["site"],
        "paused": True,
        "said": "Round 5: waiting for site; connected: 1.",
    }
    courier.send("site", Parcel("{}", {}), 4)
    with pytest.raises(EngineError, match="submit the job again"):
        courier.send("site", Parcel("{}", {}), 5)
    aborted.append(True)
    with pytest.raises(RunAborted):
        list(courier.collect())
    with pytest.raises(RunAborted):
        courier.nodes()


def test_a_simulator_that_does_not_start_is_started_anew_and_then_given_up(tmp_path: Path, images: Path, monkeypatch):
    monkeypatch.setattr(launch, "START_SECONDS", 0.5)
    monkeypatch.setattr(launch, "MODULE", "asleep")
    (tmp_path / "asleep.py").write_text("import time; time.sleep(3600)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    told: list[str] = []
    config = load(None, {**SMALL, "data.source": str(images)})
    with pytest.raises(EngineError, match=r"did not start, 3 times; its log is in"):
        launch.run_here(config, tmp_path / "run", Observer(notice=told.append), "test")
    assert sum("did not start within" in message for message in told) == 3


def test_a_run_that_fails_says_so_in_one_line(tmp_path: Path, images: Path, fedce):
    run = fedce(
        *("run", "--engine", "nvflare", "--data", images, "--rounds", 1, "--out", tmp_path / "with space"),
    )
    assert run.exit_code == 2
    assert "can't work in a path with spaces" in run.stderr
    assert run.stderr.splitlines()[-1].startswith("fedce: ")


def test_deploy_writes_a_job_without_code(tmp_path: Path, images: Path, fedce):
    config = tmp_path / "experiment.toml"
    config.write_text(f'[data]\nsource = "{images}"\n[engine.members]\neast = ""\nnorth = ""\n')
    run = fedce("deploy", "nvflare", config, "--out", tmp_path / "job")
    assert run.exit_code == 0, run.output
    assert "nvflare job submit" in run.stdout
    written = sorted(path.name for path in (tmp_path / "job").rglob("*") if path.is_file())
    assert written == ["config_fed_client.json", "config_fed_server.json", "experiment.toml", "meta.json"]
    meta = json.loads((tmp_path / "job" / "meta.json").read_text())
    assert (meta["name"], meta["min_clients"], meta["deploy_map"]) == ("job", 2, {"app": ["@ALL"]})
    named = json.dumps([json.loads(path.read_text()) for path in (tmp_path / "job" / "app").rglob("*.json")])
    assert all(name in named for name in settings.ALLOWED)
    assert load(tmp_path / "job" / "app" / "config" / "experiment.toml").engine.name == "nvflare"
    again = fedce("deploy", "nvflare", config, "--out", tmp_path / "job")
    assert again.exit_code == 2
    assert "is not empty" in again.stderr


def test_a_server_keeps_its_jobs_in_its_kit_and_not_where_a_restart_empties_them(tmp_path: Path):
    local = tmp_path / "kit" / "local"
    local.mkdir(parents=True)
    (local / "resources.json.default").write_text('{"snapshot": "/tmp/nvflare/snapshots", "jobs": "/tmp/nvflare/jobs"}')
    settings.main([str(tmp_path / "kit"), "--runs", str(tmp_path / "runs")])
    found = json.loads((local / "resources.json").read_text())
    store = tmp_path / "kit" / "jobs"
    assert (found["snapshot"], found["jobs"]) == (str(store / "snapshots"), str(store / "jobs"))


def test_a_kit_is_made_ready_and_its_own_list_of_classes_is_kept(tmp_path: Path, capsys):
    local = tmp_path / "kit" / "local"
    local.mkdir(parents=True)
    (local / "resources.json.default").write_text('{"class_allow_list": ["nvflare.a.B"], "client": {"retry": 3}}')
    settings.main([str(tmp_path / "kit"), "--data", str(tmp_path), "--site", "A"])
    resources = json.loads((local / "resources.json").read_text())
    assert resources == {"class_allow_list": ["nvflare.a.B", *settings.ALLOWED], "client": {"retry": 3}}
    own = settings.load(local)
    assert (own.data, own.site_of("client-1")) == (str(tmp_path), "A")
    assert own.home_of("A") == Path.home() / ".fedce" / "sites" / "A"
    settings.main([str(tmp_path / "kit"), "--data", str(tmp_path)])
    assert json.loads((local / "resources.json").read_text()) == resources
    assert settings.load(local).site_of("client-1") == "client-1"
    settings.main([str(tmp_path / "kit"), "--data", "fundus6"])
    assert settings.load(local).data == "fundus6"
    (local / "fedce.toml").write_text('dataa = "x"')
    with pytest.raises(ConfigError, match="dataa"):
        settings.load(local)
    with pytest.raises(SystemExit):
        settings.main([str(tmp_path), "--data", "x"])
    assert "is not a startup kit" in capsys.readouterr().err


def test_a_site_that_cant_take_part_tells_its_own_log_alone(tmp_path: Path, caplog):
    from fedce.engines.nvflare.client import resident

    (tmp_path / "experiment.toml").write_text("")
    (tmp_path / "fedce.toml").write_text('data = "/patients/of/jane"')
    with pytest.raises(EngineError) as raised:
        resident("east", tmp_path, tmp_path / "experiment.toml")
    assert "jane" not in str(raised.value)
    assert "jane" in caplog.text


@pytest.mark.parametrize("name", ["", "..", "../elsewhere", "/tmp/elsewhere", "a/b"])
def test_a_job_cant_choose_where_the_server_writes(name):
    with pytest.raises(ConfigError, match="can't be the name"):
        Coordinator(name)


def test_a_returned_client_is_seen_once(monkeypatch):
    seen = keeping.Seen()
    jobs = {"a": {"1"}, "b": {"None"}}
    assert [seen.returned(jobs, "1") for _ in range(3)] == [set(), set(), {"b"}]
    seen.paused_for |= {"b"}
    seen.begin()
    # In the new job it is again not there, as it can't be: nobody ends a job for it a second time.
    assert [seen.returned(jobs, "1") for _ in range(4)] == [set()] * 4
    seen.returned({"a": {"1"}, "b": {"1"}}, "1")
    assert [seen.returned(jobs, "1") for _ in range(3)][-1] == {"b"}


def test_jobs_that_end_early_and_without_a_round_are_given_up(monkeypatch):
    seen = keeping.Seen()
    for _ in range(keeping.MAX_FRUITLESS):
        assert not seen.is_hopeless()
        seen.begin()
    assert seen.is_hopeless()
    seen.progress(0)
    assert not seen.is_hopeless()
    for _ in range(keeping.MAX_FRUITLESS):
        seen.begin()
    monkeypatch.setattr(keeping, "EARLY_SECONDS", -1)
    assert not seen.is_hopeless()


def test_the_keeper_says_for_whom_it_waits_what_the_coordinator_says_and_when_it_is_done(tmp_path: Path, monkeypatch):
    launch.write_job(load(None, {**SMALL, "data.source": "elsewhere"}), tmp_path / "job", "first", "test")
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "fed_admin.json").touch()
    looks = iter(
        [
            *(["RUNNING", {"round": n, "paused": False, "said": said}] for n, said in enumerate(["a", "a", "b"])),
            ["FINISHED:COMPLETED", {}],
        ]
    )
    clients = iter([[], ["north"], list(HOSPITALS)])
    now: list = []

    class Session:
        def get_connected_client_list(self):
            return [SimpleNamespace(name=name) for name in next(clients)]

        def get_job_status(self, job_id):
            now[:] = next(looks)
            return now[0]

        def do_app_command(self, job_id, topic, data):
            return now[1]

        def list_jobs(self, *filters):
            return []

        def submit_job(self, path):
            return "42"

        def get_client_job_status(self):
            return [{"client_name": name, "job_id": "42"} for name in HOSPITALS]

    monkeypatch.setattr(keeping, "_session", lambda kit, tell: nullcontext(Session()))
    monkeypatch.setattr(keeping, "sleep", lambda seconds: None)
    told: list[str] = []
    keeping.keep(tmp_path / "job", tmp_path, told.append)
    assert told == [
        "waiting for clients: 0 of 3 are connected, not connected: east, north, south",
        "waiting for clients: 1 of 3 are connected, not connected: east, south",
        "submitted as 42",
        "a",
        "b",
        "done: the run is finished; at the server it is the folder 'first' among its runs",
    ]


def test_clients_with_names_of_their_own_are_counted():
    assert keeping._awaited({"site-1"}, HOSPITALS, 3) == "waiting for clients: 1 of 3 are connected"


@pytest.mark.parametrize("missing", ["job", "kit"])
def test_keeping_needs_a_job_and_a_kit(tmp_path: Path, missing: str):
    if missing == "kit":
        (tmp_path / "app" / "config").mkdir(parents=True)
        (tmp_path / "app" / "config" / "experiment.toml").write_text("")
    with pytest.raises(ConfigError, match=f"is not {'a job of fedce' if missing == 'job' else 'the startup kit'}"):
        keeping.keep(tmp_path, tmp_path)


def test_a_hospital_runs_no_code_that_it_has_not_allowed(tmp_path: Path, monkeypatch):
    experiment = tmp_path / "experiment.toml"
    mark = tmp_path / "ran"
    experiment.write_text(f'[model]\nname = "subprocess:run"\noptions = {{args = ["touch", "{mark}"]}}\n')
    (tmp_path / "kit" / "local").mkdir(parents=True)
    settings.main([str(tmp_path / "kit"), "--data", "fundus6", "--home", str(tmp_path / "home")])
    with pytest.raises(EngineError, match="can't take part"):
        client.resident("site1", tmp_path / "kit" / "local", experiment)
    assert not mark.exists()
    kit = [str(tmp_path / "kit"), "--data", "fundus6", "--home", str(tmp_path / "home"), "--allow", "subprocess:run"]
    settings.main(kit)
    assert client.resident("site1", tmp_path / "kit" / "local", experiment).site == "site1"
    assert (tmp_path / "home" / "site1").stat().st_mode & 0o777 == 0o700


def test_a_name_that_a_package_gives_its_code_has_to_be_allowed_too(tmp_path: Path, monkeypatch):
    """A coordinator may send the name in place of the path."""
    offered = [SimpleNamespace(value="ours.metrics:DEPTH")]
    monkeypatch.setattr(registry, "entry_points", lambda group, name: offered if name == "depth" else [])
    experiment = tmp_path / "experiment.toml"
    experiment.write_text('metrics = ["dice", "depth"]\n')
    (tmp_path / "kit" / "local").mkdir(parents=True)
    kit = [str(tmp_path / "kit"), "--data", "fundus6", "--home", str(tmp_path / "home")]
    settings.main(kit)
    monkeypatch.setattr(registry, "load_object", lambda path, key: METRICS["iou"])
    with pytest.raises(EngineError, match="can't take part"):
        client.resident("site1", tmp_path / "kit" / "local", experiment)
    settings.main([*kit, "--allow", "ours.metrics:DEPTH"])
    resident = client.resident("site1", tmp_path / "kit" / "local", experiment)
    assert [metric.name for metric in resident.measures.metrics] == ["ours.metrics:DEPTH"]
