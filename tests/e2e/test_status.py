"""fedce status and fedce runs: how a run stands, and which runs there are."""

import fcntl
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedce.base.files import append_line, write_json
from fedce.record.connections import Connections
from fedce.record.folder import OUTCOME, RunFolder

HOLDER = (
    "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); input()"
)


def begun(finished: Path, path: Path, n_lines: int) -> RunFolder:
    """The beginning of a run: as many lines of its ledger."""
    path.mkdir(parents=True)
    shutil.copy(finished / "config.toml", path)
    for line in (finished / "ledger.jsonl").read_text("utf-8").splitlines()[:n_lines]:
        append_line(path / "ledger.jsonl", line)
    return RunFolder(path)


@pytest.fixture
def folder(tiny_run: Path, tmp_path: Path) -> Path:
    """Runs in all states but 'running'."""
    runs = tmp_path / "runs"
    begun(tiny_run, runs / "stopped", 3)
    failed = begun(tiny_run, runs / "failed", 2)
    failed.log_file.write_text("Traceback")
    remote = begun(tiny_run, runs / "refused", 1)
    remote.engine_folder.mkdir()
    write_json(remote.engine_folder / OUTCOME, {"error": "no site could evaluate the model"})
    begun(tiny_run, runs / "edited", 1).ledger_file.write_text("{}\n")
    shutil.copytree(tiny_run, runs / "ours")
    (runs / "not-a-run").mkdir()
    (runs / "note.txt").write_text("not a run")
    return runs


def test_runs_lists_every_run_with_its_state(folder: Path, tiny_run: Path, fedce):
    result = fedce("runs", folder, "--json")
    assert result.exit_code == 0, result.output
    found = {one["name"]: one for one in json.loads(result.stdout)}
    assert {name: one["state"] for name, one in found.items()} == {
        "stopped": "unfinished",
        "failed": "failed",
        "refused": "failed",
        "edited": "unreadable",
        "ours": "finished",
    }
    rounds = RunFolder(tiny_run).rounds()
    ours, stopped = found["ours"], found["stopped"]
    assert (ours["round"], ours["rounds"], ours["algorithm"], ours["data"]) == (4, 4, "fedce", "fundus6")
    assert ours["dice"] == RunFolder(tiny_run).results["fairness"]["mean"]
    assert (stopped["round"], stopped["dice"], stopped["time"]) == (2, rounds[1].mean_score, rounds[1].time)
    assert found["refused"]["reason"] == "no site could evaluate the model"
    assert found["failed"]["reason"].endswith("error.log says what happened")
    times = [one["time"] or 0 for one in json.loads(result.stdout)]
    assert times == sorted(times)


def test_runs_for_people(folder: Path, fedce):
    result = fedce("runs", folder)
    assert result.exit_code == 0, result.output
    row = next(line for line in result.stdout.splitlines() if "stopped" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")][:5] == [
        "stopped",
        "unfinished",
        "2/4",
        "fedce",
        "fundus6",
    ]
    assert "refused (failed): no site could evaluate the model" in result.stderr
    assert fedce("runs", folder / "not-a-run").stdout.strip().endswith("holds no run")
    nowhere = fedce("runs", folder / "nowhere")
    assert nowhere.exit_code == 2
    assert len(nowhere.stderr.splitlines()) == 1


def test_a_run_that_a_process_works_on_is_running(folder: Path, fedce):
    run = RunFolder(folder / "stopped")
    run.lock_file.touch()
    command = [sys.executable, "-c", HOLDER, str(run.lock_file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        assert json.loads(fedce("status", run.path, "--json").stdout)["state"] == "running"
        with run.lock_file.open("r+") as file, pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder.communicate("\n")
    assert json.loads(fedce("status", run.path, "--json").stdout)["state"] == "unfinished"


def test_status_says_how_to_go_on(folder: Path, fedce):
    for name, expected in (
        ("stopped", "Round 2 of 4, mean validation Dice"),
        ("stopped", f"continue with 'fedce run --resume {folder / 'stopped'}'"),
        ("refused", "no site could evaluate the model; continue with"),
        ("ours", "Finished: 4 rounds in"),
    ):
        result = fedce("status", folder / name)
        assert result.exit_code == 0, result.output
        assert expected in " ".join(result.stdout.split())
    assert "continue" not in fedce("status", folder / "ours").stdout
    assert fedce("status", folder / "not-a-run").exit_code == 2


def test_status_shows_who_is_late(tiny_run: Path, tmp_path: Path, fedce, monkeypatch):
    run = begun(tiny_run, tmp_path / "run", 3)
    now = run.ledger().lines[-1].time + 500
    monkeypatch.setattr("fedce.cli.federation.time", lambda: now)
    sites = sorted(run.ledger().part.sites)
    here = sites[:-1]
    run.write_connections(Connections(time=now - 5, since=now - 300, round_no=2, here=here, waiting_for=sites[-2:]))
    result = fedce("status", run.path, "--json")
    found = {site["site"]: site for site in json.loads(result.stdout)["sites"]}
    assert [found[site]["standing"] for site in sites] == [*["answered"] * 4, "late", "not connected"]
    assert found[sites[-2]]["seconds"] == pytest.approx(300)
    assert found[sites[-2]]["last_round"] == 2
    text = " ".join(fedce("status", run.path).stdout.split())
    assert f"Round 3: waiting for {sites[-2]}, {sites[-1]} (not connected); connected: 5." in text
    assert "late, awaited for 5 min 00 s, usually" in text
