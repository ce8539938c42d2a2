"""Trackers show what the ledger holds, each round once, and nothing in a run depends on them."""

import csv
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedce.base.config import load, parse
from fedce.base.errors import ConfigError, RunError
from fedce.base.files import digest_of
from fedce.engines.starting import conduct, execute, resume
from fedce.federation.lines import versions
from fedce.federation.plan import resolve
from fedce.federation.session import Observer
from fedce.present.reported import complete, coordinate, files_to_show, track
from fedce.questions.jobs import Store
from fedce.record.entries import Start
from fedce.record.folder import RunFolder
from fedce.record.results import worth_so_far
from fedce.record.verify import verify
from fedce.site.resident import Resident, at_hospital
from fedce.tracking import check_installed, following
from fedce.tracking.following import Tracking
from fedce.tracking.tracker import RoundValues, TrackedRun, Tracker
from support import Post

TINY = {"data.scale": "tiny", "model.channels": [4, 8], "engine.workers": 1, "rounds": 4}
WHY = "the trackers are not installed: pip install -c constraints.txt -e '.[tracking]'"


def trained(out: Path, *trackers: str, observer: Observer | None = None, **changes) -> RunFolder:
    observer = observer or Observer()
    result = execute(load(None, {**TINY, **changes, "tracking": trackers}), out, observer=observer)
    complete(result, observer)
    return RunFolder(out)


class Stop(Exception):
    """What a test raises in the middle of a run."""


def stops_after(n_rounds: int) -> Observer:
    def count(done) -> None:
        if done.round_no + 1 == n_rounds:
            raise Stop

    return Observer(round=count)


def resumed(out: Path, observer: Observer | None = None) -> RunFolder:
    observer = observer or Observer()
    complete(resume(out, observer=observer), observer)
    return RunFolder(out)


def ledger_values(run: RunFolder, key: str, site: str) -> list[float]:
    return [getattr(done.sites[site], key) for done in run.rounds()]


# --- each built-in tracker, read back by its own client


def test_the_table_holds_what_the_ledger_holds(tmp_path: Path):
    run = trained(tmp_path / "run", "csv")
    with run.rounds_file.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(int(row["round"]), row["site"]) for row in rows] == [
        (number, f"site{i}") for number in range(1, 5) for i in range(1, 7)
    ]
    for row in rows:
        facts = run.rounds()[int(row["round"]) - 1].sites[row["site"]]
        assert [float(row[key]) for key in ("dice", "share", "loss", "seconds")] == [
            facts.score,
            facts.share,
            facts.loss,
            facts.seconds,
        ]
    worth = worth_so_far(run.config, run.ledger())["worth"]["share"]
    assert {row["site"]: float(row["worth"]) for row in rows[-6:]} == worth
    run.remove()
    assert not any(run.path.iterdir()), "the table belongs to the run"


def scalars_in(folder: Path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason=WHY)
    found = accumulator.EventAccumulator(str(folder))
    found.Reload()
    return found


def test_tensorboard_reads_each_round_once_even_after_a_stop(tmp_path: Path):
    pytest.importorskip("tensorboard", reason=WHY)
    board = f"tensorboard:{tmp_path / 'board'}"
    with pytest.raises(Stop):
        trained(tmp_path / "run", board, observer=stops_after(3))
    run = resumed(tmp_path / "run")
    found = scalars_in(tmp_path / "board" / "run")
    for name, key in (("dice", "score"), ("share", "share"), ("loss", "loss"), ("seconds", "seconds")):
        events = found.Scalars(f"{name}/site3")
        assert [event.step for event in events] == [1, 2, 3, 4]
        assert [event.value for event in events] == pytest.approx(ledger_values(run, key, "site3"), rel=1e-6)
    assert [event.wall_time for event in found.Scalars("dice/mean")] == [done.time for done in run.rounds()]
    assert [event.step for event in found.Scalars("test_dice/site3")] == [4]
    assert found.Scalars("test_dice/site3")[0].value == pytest.approx(run.results["dice"]["site3"])
    assert found.Scalars("worth/site3")[-1].value == pytest.approx(run.results["worth"]["share"]["site3"])
    assert "report.html" in found.Tensors("files/text_summary")[0].tensor_proto.string_val[0].decode()


def mlflow_client(folder: Path):
    mlflow = pytest.importorskip("mlflow", reason=WHY)
    return mlflow.MlflowClient(tracking_uri=folder.as_uri())


def mlflow_runs(client) -> list:
    return client.search_runs([client.get_experiment_by_name("fedce").experiment_id])


def test_mlflow_reads_each_round_once_even_after_a_stop(tmp_path: Path):
    pytest.importorskip("mlflow", reason=WHY)
    store = tmp_path / "mlruns"
    with pytest.raises(Stop):
        trained(tmp_path / "run", f"mlflow:{store}", observer=stops_after(3))
    client = mlflow_client(store)
    (stopped,) = mlflow_runs(client)
    assert stopped.info.status == "KILLED"
    run = resumed(tmp_path / "run")
    (found,) = mlflow_runs(client)
    assert (found.info.run_id, found.info.run_name, found.info.status) == (stopped.info.run_id, "run", "FINISHED")
    for name, key in (("dice", "score"), ("share", "share"), ("loss", "loss"), ("seconds", "seconds")):
        history = client.get_metric_history(found.info.run_id, f"{name}/site3")
        assert [metric.step for metric in history] == [1, 2, 3, 4]
        assert [metric.value for metric in history] == ledger_values(run, key, "site3")
    assert found.data.metrics["test_dice/site3"] == run.results["dice"]["site3"]
    assert found.data.metrics["worth/site3"] == run.results["worth"]["share"]["site3"]
    assert found.data.params["algorithm.name"] == "fedce"
    assert not any(str(tmp_path) in value for value in found.data.params.values()), "no path of this machine"
    artifacts = tmp_path / "got"
    artifacts.mkdir()
    for name in ("report.html", "model.safetensors"):
        client.download_artifacts(found.info.run_id, name, str(artifacts))
    assert digest_of(artifacts / "model.safetensors") == digest_of(run.model_file)
    # The run folder's report shows a test image of each site; a tracker is perhaps open to more people.
    assert "<img" in run.report_file.read_text("utf-8")
    sent = (artifacts / "report.html").read_text("utf-8")
    assert "<img" not in sent
    assert "site3" in sent


def test_mlflow_sends_no_telemetry(tmp_path: Path, monkeypatch):
    utils = pytest.importorskip("mlflow.telemetry.utils", reason=WHY)
    for name in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(utils, "_IS_IN_CI_ENV_OR_TESTING", False)
    assert not utils.is_telemetry_disabled()
    trained(tmp_path / "run", f"mlflow:{tmp_path / 'mlruns'}", rounds=1)
    assert utils.is_telemetry_disabled()


def test_mlflow_makes_no_client_for_telemetry_where_fedce_was_imported_before(tmp_path: Path):
    """MONAI imports MLflow, also in runs without this tracker."""
    pytest.importorskip("mlflow", reason=WHY)
    asked = "from mlflow.telemetry.client import get_telemetry_client as client; print(client() is not None)"
    path = os.pathsep.join(sys.path)

    def has_client(script: str, home: Path) -> bool:
        # Without the variables by which MLflow sees that it is tested.
        alone = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": path}
        home.mkdir()
        done = subprocess.run([sys.executable, "-c", script], env=alone, check=True, capture_output=True, text=True)
        return done.stdout.strip() == "True"

    assert has_client(asked, tmp_path / "plain")
    assert list((tmp_path / "plain").rglob("telemetry.json"))
    assert not has_client(f"import fedce; {asked}", tmp_path / "ours")
    assert not list((tmp_path / "ours").rglob("telemetry.json"))


def test_flags_reach_every_tracker(tmp_path: Path):
    pytest.importorskip("mlflow", reason=WHY)
    board, store = tmp_path / "board", tmp_path / "mlruns"
    plant = {"freerider.plant": {"site2": "zero"}}
    run = trained(tmp_path / "run", "csv", f"tensorboard:{board}", f"mlflow:{store}", **plant)
    flagged = [done.round_no + 1 for done in run.rounds() if done.sites["site2"].flag_texts]
    words = run.rounds()[flagged[0] - 1].sites["site2"].flag_texts[0]
    with run.rounds_file.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["flags"]]
    assert [int(row["round"]) for row in rows if row["site"] == "site2"] == flagged
    assert words in rows[0]["flags"]
    found = scalars_in(board / "run")
    assert [event.step for event in found.Scalars("flags/site2") if event.value] == flagged
    assert words in found.Tensors("flags/site2/text_summary")[0].tensor_proto.string_val[0].decode()
    (logged,) = mlflow_runs(mlflow_client(store))
    assert words in logged.data.tags["flags/site2"]


# --- a run does not depend on its trackers


def test_trackers_change_neither_the_model_nor_the_experiments_identity(tmp_path: Path):
    with_tracker, without = trained(tmp_path / "with", "csv"), trained(tmp_path / "without")
    assert digest_of(with_tracker.model_file) == digest_of(without.model_file)
    (one,), (other,) = with_tracker.ledger().of(Start), without.ledger().of(Start)
    assert one.config == other.config
    assert with_tracker.results["contributions"] == without.results["contributions"]
    assert verify(with_tracker).problems == ()
    store = Store(tmp_path / "store")
    assert store.path(with_tracker.config) == store.path(without.config)


def test_trainings_of_a_study_are_not_tracked(tmp_path: Path):
    config = load(None, {**TINY, "rounds": 1, "tracking": ("csv",)})
    (result,) = Store(tmp_path / "store").run([config], workers=1)
    assert not RunFolder(result.folder).rounds_file.exists()


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_server_that_is_down_is_named_once_and_the_run_goes_on(tmp_path: Path, monkeypatch):
    pytest.importorskip("mlflow", reason=WHY)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(following, "RETRY_SECONDS", 0.0)
    address, told = f"mlflow:http://127.0.0.1:{closed_port()}", []
    run = trained(tmp_path / "run", address, "csv", observer=Observer(notice=told.append))
    assert run.results["rounds"] == 4
    (line,) = [notice for notice in told if "tracking" in notice]
    assert line.startswith(f"tracking by {address} failed (")
    assert f"'fedce track {tmp_path / 'run'}' sends what is missing" in line
    assert "\n" not in line
    assert len(run.rounds_file.read_text("utf-8").splitlines()) == 1 + 4 * 6, "another tracker is not affected"
    with pytest.raises(RunError, match="tracking by mlflow:http"):
        track(run, [address])


class Shaky:
    """A tracker in memory that can be out of order for some calls."""

    held: dict[str, list[int]]
    broken: int

    def __init__(self, run: TrackedRun, target: str) -> None:
        self.mine = Shaky.held.setdefault(run.identity, [])
        self.n_rounds = len(self.mine)

    def round(self, values: RoundValues) -> None:
        if Shaky.broken > 0:
            Shaky.broken -= 1
            raise OSError("out of order\nfor a while")
        self.mine.append(values.number)

    def finish(self, results, files) -> None:
        assert "report.html" in files

    def close(self, *, stopped: bool) -> None:
        pass


SHAKY = Tracker(Shaky)


@pytest.fixture
def shaky(monkeypatch) -> str:
    monkeypatch.setattr(Shaky, "held", {}, raising=False)
    monkeypatch.setattr(Shaky, "broken", 0, raising=False)
    # pytest imports this file under a name of its own.
    monkeypatch.setitem(sys.modules, "our_trackers", SimpleNamespace(SHAKY=SHAKY))
    return "our_trackers:SHAKY"


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_a_tracker_that_comes_back_gets_what_it_missed(tmp_path: Path, shaky: str, monkeypatch, seconds: float):
    """Within the hour only the end tries again; without a pause the next round does."""
    monkeypatch.setattr(following, "RETRY_SECONDS", seconds)
    Shaky.broken = 2 if seconds == 0.0 else 1
    told: list[str] = []
    trained(tmp_path / "run", shaky, observer=Observer(notice=told.append))
    assert list(Shaky.held.values()) == [[1, 2, 3, 4]]
    (line,) = [notice for notice in told if "tracking" in notice]
    assert "out of order for a while" in line


def test_a_tracker_that_failed_rests(tmp_path: Path, shaky: str, monkeypatch):
    run = trained(tmp_path / "run")
    Shaky.broken = 10
    with Tracking(run, [shaky], lambda message: None) as tracking:
        for _ in range(5):
            tracking.look()
    assert Shaky.broken == 9, "one attempt a minute"


def test_a_run_that_has_ended_is_sent_as_a_whole_and_only_once(tmp_path: Path, shaky: str):
    run = trained(tmp_path / "run")
    assert track(run, [shaky]) == {shaky: 4}
    assert track(run, [shaky]) == {shaky: 4}
    assert list(Shaky.held.values()) == [[1, 2, 3, 4]]


def test_a_run_that_goes_on_stays_one_run_of_the_tracker(tmp_path: Path, shaky: str):
    trained(tmp_path / "run", shaky)
    complete(conduct(None, tmp_path / "run", more={"rounds": 6}), Observer())
    assert list(Shaky.held.values()) == [[1, 2, 3, 4, 5, 6]]


def test_the_coordinator_of_sites_elsewhere_tracks(tmp_path: Path, shaky: str):
    members = {f"site{i}": "" for i in range(1, 7)}
    config = load(None, {**TINY, "engine.members": members, "rounds": 2, "tracking": (shaky, "csv")})
    post = Post(
        {
            name: Resident(at_hospital(resolve(config), name, "fundus6"), name, tmp_path / name, versions()).answer
            for name in members
        }
    )
    coordinate(config, tmp_path / "run", post)
    assert list(Shaky.held.values()) == [[1, 2]]
    assert RunFolder(tmp_path / "run").rounds_file.exists()


# --- names


@pytest.mark.parametrize(
    ("tracker", "said"),
    [
        ("tensorbord:logs", "did you mean 'tensorboard'"),
        ("wandb", "package.module:NAME"),
        ("tensorboard", "expected tensorboard:DIR"),
        ("mlflow", "expected mlflow:URI"),
        ("mlflow:https://me:secret@example.org", "MLFLOW_TRACKING_PASSWORD"),
        ("nowhere.at_all:BOARD", "can't import 'nowhere.at_all:BOARD'"),
        ("fedce.tracking.csv:NUMBERS", "to be of class Tracker, got tuple"),
    ],
)
def test_a_wrong_tracker_is_one_line(tracker: str, said: str):
    with pytest.raises(ConfigError) as caught:
        resolve(parse({"tracking": [tracker]}))
    assert said in str(caught.value)
    assert "tracking" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_tracker_needs_no_list_and_paths_become_absolute(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse({"tracking": "csv"}).tracking == ("csv",)
    given = ["tensorboard:logs", "mlflow:mlruns", "mlflow:https://example.org:5000", "csv:out/rounds.csv"]
    assert resolve(parse({"tracking": given})).tracking == (
        f"tensorboard:{tmp_path / 'logs'}",
        f"mlflow:{(tmp_path / 'mlruns').as_uri()}",
        "mlflow:https://example.org:5000",
        f"csv:{tmp_path / 'out' / 'rounds.csv'}",
    )


def test_a_package_that_is_missing_is_named_before_the_run(monkeypatch):
    monkeypatch.setattr("fedce.tracking.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs mlflow; install it with pip install -c constraints.txt -e '\.\["):
        check_installed(["csv", "mlflow:mlruns"])


def test_the_doctor_names_a_tracker_that_can_not_be_used(fedce, monkeypatch, tmp_path: Path):
    tiny = ("--scale", "tiny", "--out", tmp_path / "run", "--set")
    fine = fedce("doctor", *tiny, "tracking=csv")
    assert (fine.exit_code, "tracking: csv" in fine.output) == (0, True), fine.output
    monkeypatch.setattr("fedce.tracking.find_spec", lambda name: None)
    missing = fedce("doctor", *tiny, "tracking=mlflow:mlruns")
    assert (missing.exit_code, "needs mlflow" in missing.output) == (2, True), missing.output


def test_the_command_line_names_trackers_and_sends_a_run_later(tmp_path: Path, fedce):
    small = ("--scale", "tiny", "--rounds", 2, "--workers", 1, "--set", "model.channels=[4,8]")
    own = f"examples.own_tracker:LINES:{tmp_path / 'lines.txt'}"
    done = fedce("run", *small, "--track", "csv", "--track", own, "--out", tmp_path / "run", "--json")
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)
    lines = (tmp_path / "lines.txt").read_text("utf-8").splitlines()
    assert [line.split(":")[0] for line in lines] == ["run", "round 1", "round 2", "done"]
    assert lines[-1] == f"done: mean test Dice {results['fairness']['mean']:.3f}"
    table = tmp_path / "run" / "rounds.csv"
    before = table.read_bytes()
    table.unlink()
    again = fedce("track", tmp_path / "run")
    assert (again.exit_code, table.read_bytes()) == (0, before), again.output
    assert "csv has 2 rounds" in again.output
    elsewhere = fedce("track", tmp_path / "run", f"csv:{tmp_path / 'new' / 'table.csv'}")
    assert (elsewhere.exit_code, (tmp_path / "new" / "table.csv").read_bytes()) == (0, before), elsewhere.output


def test_a_run_without_trackers_or_rounds_says_so(tmp_path: Path, fedce):
    RunFolder.create(tmp_path / "run", resolve(load(None, TINY)))
    nothing = fedce("track", tmp_path / "run")
    assert (nothing.exit_code, "names no tracker" in nothing.output) == (2, True)
    empty = fedce("track", tmp_path / "run", "csv")
    assert (empty.exit_code, "has no rounds yet" in empty.output) == (2, True)


def test_sites_without_a_common_model_show_their_own(tmp_path: Path):
    run = trained(tmp_path / "run", **{"algorithm.name": "standalone", "rounds": 1})
    with files_to_show(run) as files:
        assert set(files) == {"report.html", *(f"models/site{i}.safetensors" for i in range(1, 7))}
