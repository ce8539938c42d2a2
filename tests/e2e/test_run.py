"""A run from the command line: its folder, its bits, its resumption."""

import io
import itertools
import json
import os
import random
import re
import shutil
import signal
import time
from collections import Counter
from hashlib import sha256
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from fedce import load_sites, run
from fedce.base import files
from fedce.base.files import read_tensors
from fedce.engines.starting import resume
from fedce.federation.session import Observer
from fedce.present.results import flag_lines, results_table, shares_tables
from fedce.record.folder import RunFolder
from fedce.record.ledger import NO_LINE
from processes import Started
from support import write_site

SMALL = ("--scale", "tiny", "--set", "model.channels=[4,8]")
QUICK = (*SMALL, "--set", "engine.checkpoint_seconds=0")
LIMIT = 300.0
"""Seconds; what takes longer hangs."""


def results(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text())


def same_result(a: Path, b: Path) -> None:
    ours, theirs = results(a), results(b)
    for key in ("contributions", "dice", "dice_without", "validation_dice", "model_sha256"):
        assert ours[key] == theirs[key], key
    for left, right in zip(RunFolder(a).rounds(), RunFolder(b).rounds(), strict=True):
        for site in left.sites:
            drop = {"seconds": 0}
            assert {**left.facts[site], **drop} == {**right.facts[site], **drop}
    models = sorted(path.relative_to(a) for path in a.rglob("model*/*.safetensors")) or ["model.safetensors"]
    for name in (*models, "splits.json"):
        assert (a / name).read_bytes() == (b / name).read_bytes()


def test_a_run_folder_holds_the_record(tiny_run: Path):
    names = {path.name for path in tiny_run.iterdir()}
    assert {"config.toml", "ledger.jsonl", "checkpoint", "results.json", "model.safetensors", "report.html"} <= names
    found = results(tiny_run)
    assert sum(found["contributions"].values()) == pytest.approx(1)
    assert found["contributions"].keys() == found["dice"].keys() == {f"site{i}" for i in range(1, 7)}
    assert all(0 <= value <= 1 for value in found["dice"].values())
    assert found["versions"]["torch"]


def test_the_ledger_is_a_chain(tiny_run: Path):
    lines = (tiny_run / "ledger.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    assert [entry["kind"] for entry in entries] == ["start", "round", "round", "round", "round", "end"]
    assert entries[0]["previous"] == NO_LINE
    for line, entry in zip(lines, entries[1:], strict=False):
        assert entry["previous"] == sha256(line.encode()).hexdigest()
    for entry in entries[1:-1]:
        assert sum(facts["weight"] for facts in entry["sites"].values()) == pytest.approx(1)


def test_the_resolved_config_gives_the_same_run_again(tiny_run: Path, tmp_path: Path, fedce):
    assert fedce("run", tiny_run / "config.toml", "--out", tmp_path / "again").exit_code == 0
    same_result(tiny_run, tmp_path / "again")


@pytest.mark.parametrize("algorithm", ["fedce", "fedce-sum", "standalone"])
def test_workers_do_not_change_a_bit(tmp_path: Path, fedce, algorithm):
    extra = ("--set", "algorithm.estimate=site") if algorithm == "fedce" else ()
    for workers in (1, 2, 3):
        about = ("--rounds", 4, "--workers", workers, "--out", tmp_path / str(workers))
        run = fedce("run", *QUICK, "--algorithm", algorithm, *about, *extra)
        assert run.exit_code == 0, run.output
    same_result(tmp_path / "1", tmp_path / "2")
    same_result(tmp_path / "1", tmp_path / "3")


def test_the_callers_threads_are_not_used_and_are_given_back(tmp_path: Path, undisturbed: Path):
    """Bits may depend on their number."""
    before, seen = torch.get_num_threads(), set()
    torch.set_num_threads(2)
    try:
        observer = Observer(round=lambda done: seen.add(torch.get_num_threads()))
        settings = {"recipe": "small", "model": {"channels": [4, 8]}, "engine": {"checkpoint_seconds": 0, "workers": 1}}
        sites = load_sites("fundus6", scale="tiny")
        run(sites, out=tmp_path / "run", rounds=12, progress=observer, settings=settings)
        assert (seen, torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(before)
    same_result(undisturbed, tmp_path / "run")


def test_another_seed_is_another_run_on_the_same_split(tiny_run: Path, tmp_path: Path, fedce):
    assert fedce("run", "--scale", "tiny", "--rounds", 4, "--seed", 1, "--out", tmp_path / "b").exit_code == 0
    assert results(tmp_path / "b")["model_sha256"] != results(tiny_run)["model_sha256"]
    assert (tmp_path / "b" / "splits.json").read_bytes() == (tiny_run / "splits.json").read_bytes()


@pytest.mark.parametrize("algorithm", ["fedce-cos", "fedce-err", "fedavg", "uniform", "standalone"])
def test_every_algorithm_runs_and_reports(tmp_path: Path, fedce, algorithm):
    run = fedce(
        "run", "--scale", "tiny", "--rounds", 2, "--algorithm", algorithm, "--out", tmp_path / "a", "--workers", 1
    )
    assert run.exit_code == 0, run.output
    assert "contribution" in run.output
    assert (tmp_path / "a" / "report.html").exists()
    personal = algorithm == "standalone"
    assert (tmp_path / "a" / "model.safetensors").exists() != personal
    assert (tmp_path / "a" / "models" / "site1.safetensors").exists() == personal


def test_the_other_federation_runs(tmp_path: Path, fedce):
    run = fedce("run", "--data", "prostate6", "--scale", "tiny", "--rounds", 2, "--out", tmp_path / "p", "--workers", 1)
    assert run.exit_code == 0, run.output


@pytest.fixture
def start(tmp_path: Path):
    """Start a run in a process of its own; what it prints as errors is in tmp_path/errors."""
    started = []

    def run(out: Path, *arguments: str) -> Started:
        command = ["run", *arguments, "--workers", "2", "--out", str(out)]
        started.append(Started(command, tmp_path / "errors"))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def wait_for_lines(path: Path, n: int, process: Started) -> None:
    deadline, ended = time.monotonic() + LIMIT, False
    while not path.exists() or path.read_text().count("\n") < n:
        if ended:
            pytest.fail("the run ended early")
        if time.monotonic() > deadline:
            pytest.fail(f"no {n} ledger lines in time")
        ended = process.poll() is not None  # Then once more, because it may have written them since.
        time.sleep(0.002)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, fedce) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    assert fedce("run", *QUICK, "--rounds", 12, "--out", out).exit_code == 0
    return out


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_run_resumes_to_the_same_bits(start, tmp_path: Path, undisturbed: Path, fedce, seed):
    rng = random.Random(seed)
    interval = rng.choice(["0", "0.5", "20"])
    out = tmp_path / "run"
    process = start(out, *SMALL, "--rounds", "12", "--set", f"engine.checkpoint_seconds={interval}")
    wait_for_lines(out / "ledger.jsonl", rng.randint(1, 12), process)
    time.sleep(rng.random() * 0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    resumed = fedce("run", "--resume", out, "--workers", rng.choice([1, 2]))
    assert resumed.exit_code == 0, resumed.output
    same_result(undisturbed, out)


def test_workers_end_when_their_parent_is_killed(start, tmp_path: Path):
    process = start(tmp_path / "run", *SMALL, "--rounds", "500")
    wait_for_lines(tmp_path / "run" / "ledger.jsonl", 3, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    process.kill()
    process.wait()
    deadline = time.monotonic() + LIMIT
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.05)


def test_a_killed_worker_stops_the_run_with_a_line_and_it_resumes(start, tmp_path: Path, undisturbed: Path, fedce):
    out = tmp_path / "run"
    process = start(out, *QUICK, "--rounds", "12")
    wait_for_lines(out / "ledger.jsonl", 4, process)
    child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
    os.kill(child, signal.SIGKILL)
    assert process.wait(timeout=LIMIT) == 2
    last = (tmp_path / "errors").read_text().strip().splitlines()[-1]
    assert "its worker process was ended by signal 9 (SIGKILL)" in last
    assert f"continue with 'fedce run --resume {out}'" in last
    assert fedce("run", "--resume", out).exit_code == 0
    same_result(undisturbed, out)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_is_clean_and_says_how_to_go_on(start, tmp_path: Path, undisturbed: Path, fedce, number, code):
    out = tmp_path / "run"
    process = start(out, *QUICK, "--rounds", "12")
    wait_for_lines(out / "ledger.jsonl", 4, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(number)
    assert process.wait(timeout=LIMIT) == code
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
    errors = (tmp_path / "errors").read_text()
    assert "continue with 'fedce run --resume" in errors
    assert "Traceback" not in errors
    assert fedce("run", "--resume", out).exit_code == 0
    same_result(undisturbed, out)


def test_a_full_disk_at_any_write_is_one_line_and_loses_nothing(tmp_path: Path, fedce, monkeypatch):
    whole = tmp_path / "whole"
    two = ("--set", "data.sites=['site1','site2']")
    arguments = ("run", *QUICK, *two, "--rounds", 2, "--workers", 1)
    assert fedce(*arguments, "--out", whole).exit_code == 0
    sync = os.fsync
    # Until a run makes fewer writes; how many it makes depends on the rounds that are drawn for an audit.
    for fail_at in count(1, 7):
        seen = 0

        def failing(descriptor, fail_at=fail_at):
            nonlocal seen
            seen += 1
            if seen == fail_at:
                raise OSError(28, "No space left on device")
            sync(descriptor)

        out = tmp_path / f"full-{fail_at}"
        monkeypatch.setattr(files.os, "fsync", failing)
        failed = fedce(*arguments, "--out", out)
        monkeypatch.setattr(files.os, "fsync", sync)
        if seen < fail_at:
            assert failed.exit_code == 0, failed.output
            assert fail_at > 30, "a run makes more writes than this"
            break
        assert failed.exit_code == 2, failed.output
        assert "No space left on device" in failed.stderr.splitlines()[-1]
        assert not list(out.rglob("*.tmp"))
        again = fedce("run", "--resume", out) if (out / "config.toml").exists() else fedce(*arguments, "--out", out)
        assert again.exit_code == 0, again.output
        same_result(whole, out)


def test_a_ledger_cut_in_the_middle_of_a_line_is_mended(start, tmp_path: Path, undisturbed: Path, fedce):
    out = tmp_path / "run"
    process = start(out, *QUICK, "--rounds", "12")
    wait_for_lines(out / "ledger.jsonl", 4, process)
    process.kill()
    process.wait()
    with (out / "ledger.jsonl").open("a") as ledger:
        ledger.write('{"kind": "round", "rou')
    assert fedce("run", "--resume", out).exit_code == 0
    same_result(undisturbed, out)


def test_resuming_a_finished_run_changes_nothing(tiny_run: Path, fedce):
    before = {path: path.read_bytes() for path in tiny_run.iterdir() if path.is_file()}
    again = fedce("run", "--resume", tiny_run)
    assert again.exit_code == 0
    assert "is finished" in again.stderr
    assert before == {path: path.read_bytes() for path in tiny_run.iterdir() if path.is_file()}


def test_data_that_changed_since_the_start_is_refused(tmp_path: Path, fedce):
    data = folder_of_sites(tmp_path / "data")
    out = tmp_path / "run"
    assert fedce("run", "--data", data, "--rounds", 2, "--workers", 1, "--out", out).exit_code == 0
    (out / "results.json").unlink()
    image = data / "north" / "images" / "0.png"
    Image.fromarray(255 - pixels(image)).save(image)
    refused = fedce("run", "--resume", out)
    assert refused.exit_code == 2
    assert "site 'north' has other data" in refused.stderr


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.array(image)


def folder_of_sites(root: Path) -> Path:
    rng = np.random.default_rng(0)
    for site in ("north", "south"):
        for part in ("images", "masks"):
            (root / site / part).mkdir(parents=True)
        for i in range(8):
            mask = np.zeros((32, 48), np.uint8)
            mask[8:20, 10 + i : 30 + i] = 255
            image = np.clip(mask * 0.5 + rng.normal(60, 20, mask.shape), 0, 255).astype(np.uint8)
            Image.fromarray(image).save(root / site / "images" / f"{i}.png")
            Image.fromarray(mask).save(root / site / "masks" / f"{i}.png")
    return root


def test_a_folder_trains_and_predicts(tmp_path: Path, fedce):
    data = folder_of_sites(tmp_path / "data")
    out = tmp_path / "run"
    of_use = ("--set", "model.channels=[16,32,64,128]")
    trained = fedce("run", "--data", data, "--rounds", 15, "--workers", 1, "--out", out, *of_use)
    assert trained.exit_code == 0, trained.output
    assert "<h1>fedce on data</h1>" in (out / "report.html").read_text()
    images = sorted((data / "north" / "images").iterdir())[:2]
    predicted = fedce("predict", out, *images, "--out", tmp_path / "masks")
    assert predicted.exit_code == 0, predicted.output
    names = sorted(path.name for path in (tmp_path / "masks").iterdir())
    assert names == ["0-overlay.png", "0.png", "1-overlay.png", "1.png"]
    mask, truth = (pixels(path) for path in (tmp_path / "masks" / "0.png", data / "north" / "masks" / "0.png"))
    assert mask.shape == truth.shape
    assert set(np.unique(mask)) <= {0, 255}
    overlap = 2 * ((mask > 0) & (truth > 0)).sum() / ((mask > 0).sum() + (truth > 0).sum())
    assert overlap > 0.7
    assert pixels(tmp_path / "masks" / "0-overlay.png").shape == (*truth.shape, 3)


def test_predict_draws_on_colour_and_on_grey_images(tmp_path: Path, tiny_run: Path, fedce):
    for name, mode in (("colour", "RGB"), ("grey", "L")):
        write_site(tmp_path, name, n=1, mode=mode)
        predicted = fedce(
            "predict", tiny_run, tmp_path / name / "images" / "0.png", "--out", tmp_path / f"{name}-masks"
        )
        assert predicted.exit_code == 0, predicted.output
        assert pixels(tmp_path / f"{name}-masks" / "0-overlay.png").shape == (32, 32, 3)


def test_the_saved_model_is_an_ordinary_safetensors_file(tiny_run: Path):
    tensors, about = read_tensors(tiny_run / "model.safetensors")
    assert tensors["model.0.conv.weight"].shape == (4, 3, 3, 3)
    assert tensors["model.0.adn.N.num_batches_tracked"].dtype == np.int64
    assert about["classes"] == {"disc": [128, 255], "cup": [255]}


def test_replacing_a_run_deletes_nothing_else(tmp_path: Path, fedce):
    data = folder_of_sites(tmp_path / "data")
    arguments = ("run", "--data", data, "--rounds", 1, "--workers", 1, "--out", tmp_path)
    (tmp_path / "config.toml").write_text("rounds = 1")
    refused = fedce(*arguments, "--replace")
    assert refused.exit_code == 2
    assert len(list(data.rglob("*.png"))) == 32
    out = tmp_path / "run"
    assert fedce(*arguments[:-1], out).exit_code == 0
    (out / "letter.txt").write_text("dear")
    assert fedce(*arguments[:-1], out, "--replace").exit_code == 0
    assert (out / "letter.txt").read_text() == "dear"


def test_a_run_that_was_cut_off_before_its_first_line_can_be_replaced_or_resumed(tmp_path: Path, fedce):
    out = tmp_path / "run"
    arguments = ("run", *SMALL, "--rounds", 1, "--workers", 1, "--out", out)
    assert fedce(*arguments).exit_code == 0
    for path in out.iterdir():
        if path.name not in ("config.toml", ".lock"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert fedce("run", "--resume", out).exit_code == 0
    (out / "ledger.jsonl").unlink()
    assert fedce(*arguments).exit_code == 2
    assert fedce(*arguments, "--replace").exit_code == 0


def test_a_run_that_was_paid_by_can_be_replaced(tmp_path: Path, fedce):
    out = tmp_path / "run"
    arguments = ("run", *SMALL, "--rounds", 1, "--workers", 1, "--out", out)
    assert fedce(*arguments).exit_code == 0
    assert fedce("allocate", out, "--budget", 100, "--rule", "samples").exit_code == 0
    assert fedce(*arguments, "--replace", "--seed", 1).exit_code == 0
    assert json.loads((out / "results.json").read_text())["seed"] == 1
    assert not (out / "allocation.html").exists()


def test_a_run_that_goes_on_is_not_replaced(tmp_path: Path, fedce):
    out = tmp_path / "run"
    arguments = ("run", *SMALL, "--rounds", 1, "--workers", 1, "--out", out)
    assert fedce(*arguments).exit_code == 0
    with RunFolder(out).lock():
        # A lock belongs to a process, so another one has to be refused.
        refused = Started([*arguments, "--replace"], tmp_path / "errors")
        assert refused.wait(LIMIT) == 2
    assert "another process is working on" in (tmp_path / "errors").read_text()
    assert (out / "results.json").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path, fedce):
    (tmp_path / "file").write_text("")
    refused = fedce("run", "--scale", "tiny", "--out", tmp_path / "file" / "run")
    assert refused.exit_code == 2
    assert "is a file; give --out a folder" in refused.stderr.splitlines()[-1]


def test_predict_never_overwrites_an_image(tmp_path: Path, tiny_run: Path, fedce):
    data = folder_of_sites(tmp_path / "data")
    images = data / "north" / "images"
    before = (images / "0.png").read_bytes()
    refused = fedce("predict", tiny_run, images / "0.png", "--out", images)
    assert refused.exit_code == 2
    assert "would be overwritten by its mask" in refused.stderr
    assert (images / "0.png").read_bytes() == before
    wrong = fedce("predict", tiny_run, images / "0.png", "--out", tmp_path / "m", "--site", "site1")
    assert "has one model for all sites" in wrong.stderr


def unfinished(out: Path, fedce, *arguments) -> Path:
    """A run whose last step is missing."""
    assert fedce("run", "--rounds", 2, "--workers", 1, "--out", out, *arguments).exit_code == 0
    (out / "results.json").unlink()
    return out


def test_a_site_that_was_added_or_removed_is_noticed(tmp_path: Path, fedce):
    data = folder_of_sites(tmp_path / "data")
    out = unfinished(tmp_path / "run", fedce, "--data", data)
    (data / "north").rename(data / "west")
    refused = fedce("run", "--resume", out)
    assert refused.exit_code == 2
    assert "site 'north' is gone" in refused.stderr or "at least two" in refused.stderr


def test_a_changed_config_or_ledger_is_noticed(tmp_path: Path, fedce):
    out = unfinished(tmp_path / "run", fedce, *SMALL)
    config = (out / "config.toml").read_text()
    (out / "config.toml").write_text(config.replace("lr = 0.001", "lr = 0.002"))
    assert "config.toml was changed" in fedce("run", "--resume", out).stderr
    (out / "config.toml").write_text(config)
    ledger = (out / "ledger.jsonl").read_text()
    (out / "ledger.jsonl").write_text(ledger.replace('"n_train": 4', '"n_train": 9', 1))
    refused = fedce("run", "--resume", out)
    assert refused.exit_code == 2
    assert "line 2, does not follow from line 1" in refused.stderr
    (out / "ledger.jsonl").write_text(ledger)
    assert fedce("run", "--resume", out).exit_code == 0


def test_two_processes_do_not_work_on_one_run(tmp_path: Path, start, fedce):
    out = tmp_path / "run"
    process = start(out, *SMALL, "--rounds", "500")
    wait_for_lines(out / "ledger.jsonl", 3, process)
    refused = fedce("run", "--resume", out)
    assert refused.exit_code == 2
    assert "another process is working on" in refused.stderr


def test_a_run_can_be_resumed_from_another_folder(tmp_path: Path, fedce):
    folder_of_sites(tmp_path / "data")
    first = fedce("run", "--data", "data", "--rounds", 2, "--workers", 1, "--out", "run", cwd=tmp_path)
    assert first.exit_code == 0, first.output
    (tmp_path / "run" / "results.json").unlink()
    assert fedce("run", "--resume", tmp_path / "run").exit_code == 0


def test_a_network_of_ones_own(tmp_path: Path, fedce):
    (tmp_path / "mynet.py").write_text(
        "from torch import nn\nclass Net(nn.Sequential):\n"
        "    def __init__(self, width):\n"
        "        super().__init__(nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 2, 1))\n"
    )
    run = fedce(
        *("run", "--scale", "tiny", "--rounds", 1, "--out", "run", "--set", "model.name=mynet:Net"),
        *("--set", "model.options={width=4}"),
        cwd=tmp_path,
    )
    assert run.exit_code == 0, run.output


def halted(tmp_path: Path, undisturbed: Path) -> Path:
    """A run that was stopped after its last round, before its end."""
    out = tmp_path / "run"
    shutil.copytree(undisturbed, out)
    for name in ("results.json", "model.safetensors", "report.html"):
        (out / name).unlink()
    lines = (out / "ledger.jsonl").read_text().splitlines()
    (out / "ledger.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    return out


def test_a_run_killed_between_its_end_and_its_results_stays_sound(tmp_path: Path, undisturbed: Path, fedce):
    out = tmp_path / "run"
    shutil.copytree(undisturbed, out)
    (out / "results.json").unlink()
    assert fedce("run", "--resume", out).exit_code == 0
    same_result(undisturbed, out)
    verified = fedce("ledger", "verify", out)
    assert verified.exit_code == 0, verified.output


def test_a_session_writes_no_page(tmp_path: Path, undisturbed: Path):
    """Whoever started it does, and the page of earlier results is gone meanwhile."""
    out = tmp_path / "run"
    shutil.copytree(undisturbed, out)
    (out / "results.json").unlink()
    resume(out)
    assert (out / "results.json").exists()
    assert not (out / "report.html").exists()


def test_a_run_killed_between_its_results_and_its_report_gets_its_report(tmp_path: Path, undisturbed: Path, fedce):
    out = tmp_path / undisturbed.name
    shutil.copytree(undisturbed, out)
    (out / "report.html").unlink()
    resumed = fedce("run", "--resume", out)
    assert resumed.exit_code == 0, resumed.output
    assert "is finished; nothing to do" in resumed.stderr
    assert (out / "report.html").read_bytes() == (undisturbed / "report.html").read_bytes()


@pytest.mark.parametrize("what", ["state", "memory"])
def test_a_half_written_checkpoint_is_named_and_can_be_thrown_away(tmp_path: Path, undisturbed: Path, fedce, what):
    """No kill leaves one, because files are renamed when they are whole; a failing disk may."""
    out = halted(tmp_path, undisturbed)
    folder = out / "checkpoint"
    broken = folder / "state.safetensors" if what == "state" else sorted((folder / "sites" / "site2").iterdir())[-1]
    broken.write_bytes(broken.read_bytes()[: broken.stat().st_size // 2])
    refused = fedce("run", "--resume", out)
    assert refused.exit_code == 2
    last = refused.stderr.strip().splitlines()[-1]
    assert f"{broken} is not a whole safetensors file" in last
    assert f"delete {folder}" in last
    shutil.rmtree(folder)
    again = fedce("run", "--resume", out)
    assert again.exit_code == 0, again.output
    same_result(undisturbed, out)
    assert fedce("ledger", "verify", out).exit_code == 0


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, undisturbed: Path, fedce, monkeypatch):
    jumps = itertools.cycle([2e9, 0.0, 1e9, 4e9, -5e8])
    for place in ("fedce.federation.lines.time", "fedce.engines.starting.time"):
        monkeypatch.setattr(place, lambda: next(jumps))
    out = tmp_path / "run"
    assert fedce("run", *QUICK, "--rounds", 12, "--out", out).exit_code == 0
    same_result(undisturbed, out)
    assert fedce("ledger", "verify", out).exit_code == 0
    shown = fedce("ledger", "show", out)
    assert shown.exit_code == 0, shown.output


@pytest.mark.parametrize("step", ["start", "resume", "report"])
def test_a_read_only_folder_is_one_line(tmp_path: Path, undisturbed: Path, fedce, monkeypatch, step):
    out = tmp_path / "new" if step == "start" else halted(tmp_path, undisturbed)
    if step == "report":
        shutil.copytree(undisturbed, out, dirs_exist_ok=True)
    opened, made = io.open, os.mkdir

    def refuse(path, mode="r", *arguments, **named):
        if str(path).startswith(str(out)) and not mode.startswith("r"):
            raise OSError(30, "Read-only file system", str(path))
        return opened(path, mode, *arguments, **named)

    def refuse_to_make(path, *arguments, **named):
        if str(path).startswith(str(out)):
            raise OSError(30, "Read-only file system", str(path))
        made(path, *arguments, **named)

    monkeypatch.setattr(io, "open", refuse)
    monkeypatch.setattr(os, "mkdir", refuse_to_make)
    arguments = {"start": ("run", *QUICK, "--rounds", 2, "--out", out), "resume": ("run", "--resume", out)}
    refused = fedce(*arguments.get(step, ("report", out)))
    assert refused.exit_code == 2, refused.output
    assert "Read-only file system" in refused.stderr.strip().splitlines()[-1]
    assert "Traceback" not in refused.stderr


def test_a_run_that_draws_its_sites_is_the_same_on_any_workers_and_resumes_to_the_same_bits(tmp_path: Path, fedce):
    sites = load_sites("fundus6", scale="tiny")
    one, two = ({"sites_per_round": 3, "model.channels": [4, 8], "engine.workers": n} for n in (1, 2))
    whole = run(sites, out=tmp_path / "one", rounds=8, settings=one)
    run(sites, out=tmp_path / "two", rounds=8, settings=two)
    same_result(tmp_path / "one", tmp_path / "two")

    def stop(done):
        if done.round_no == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(sites, out=tmp_path / "cut", rounds=8, progress=Observer(round=stop), settings=one)
    assert fedce("run", "--resume", tmp_path / "cut").exit_code == 0
    same_result(tmp_path / "one", tmp_path / "cut")
    asked = [done.asked for done in RunFolder(whole.folder).rounds()]
    assert all(len(names) == 3 for names in asked)
    assert Counter(name for names in asked for name in names) == dict.fromkeys(whole.contributions, 4)
    assert "sound" in fedce("ledger", "verify", whole.folder).output
    assert all(share > 0 for share in whole.contributions.values())
    assert fedce("report", whole.folder).exit_code == 0
    assert "In the last round, 3 of 6 sites took part" in RunFolder(whole.folder).report_file.read_text("utf-8")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("algorithm.estimate=site", "estimate='server'"),
        ("freerider.detect=true", "use one of them"),
        ("engine.min_sites=4", "engine.min_sites 4"),
    ],
)
def test_what_cannot_be_with_drawn_sites_is_refused(tmp_path: Path, fedce, change, line):
    result = fedce("run", "--scale", "tiny", "--set", "sites_per_round=3", "--set", change, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert line in result.output
    assert not (tmp_path / "run").exists()


def test_shares_on_the_way_are_in_the_order_of_the_first_line(tmp_path: Path, fedce):
    out = tmp_path / "run"
    about = ("--rounds", 2, "--workers", 1, "--set", "sites_per_round=3", "--out", out)
    run = fedce("run", *QUICK, *about)
    assert run.exit_code == 0, run.output
    first, last = re.findall(r"shares % ([-\d ]+?)  ", run.stderr)
    drawn = RunFolder(out).rounds()[0].asked
    assert [share != "-" for share in first.split(" ")] == [f"site{i}" in drawn for i in range(1, 7)]
    assert last.split(" ") == [f"{100 * share:.0f}" for share in results(out)["contributions"].values()]


@pytest.mark.parametrize(
    ("more", "longest_bar"),
    [("", 10), ("-hospital", 1), ("-hospital-of-the-north-west-and-of-the-south", 0), ("カタカナ病", 0)],
)
def test_a_narrow_terminal_cuts_no_name_and_no_number(tiny_run: Path, capsys, more, longest_bar):
    found = json.loads((tiny_run / "results.json").read_text("utf-8").replace("site1", f"site1{more}"))
    ends = {end: dict.fromkeys(found["contributions"], value) for end, value in (("low", 0.101), ("high", 0.222))}
    found["intervals"] = {"level": 0.95, **ends, "sentences": []}
    found["flags"] = {"site3": ["its updates are noise in 2 rounds from 3 on"] * 9, f"site1{more}": ["zero update"]}
    given = found.pop("worth")
    Console(width=80).print(results_table(found, 80, "fedce"))
    out = capsys.readouterr().out
    rows = [line.split("│")[1:-1] for line in out.splitlines() if line.startswith("│")]
    assert "".join(row[0].strip() for row in rows).startswith(f"site1{more}site2")
    assert out.count("(10.1-22.2)") == 6
    assert all(f"{value:.3f}" in out for value in found["dice"].values())
    assert len(rows) <= 9, "flags are no column"
    assert max(row[-1].count("█") for row in rows) == longest_bar, "the bar gives way first"
    assert [line.split(":")[0] for line in flag_lines(found)] == [f"site1{more}", "site3"]
    Console(width=80).print(*shares_tables({**found, "worth": given}, 80))
    beside = capsys.readouterr().out
    assert beside.count("(10.1-22.2)") == 6
    assert all(f"{100 * share:.1f} %" in beside for share in given["share"].values())


def test_amounts_stay_whole_in_a_narrow_terminal(tiny_run: Path, tmp_path: Path, fedce, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ("--budget", 1_000_000_000, "--yes", "--out", tmp_path / "page.html")
    shown = fedce("allocate", tiny_run, *arguments).stdout
    assert "1,000,000,000.00" in shown
    assert "…" not in shown
    assert all(f"by {rule}" in shown for rule in ("samples", "equal", "mix"))


def test_a_comparison_in_a_narrow_terminal_has_whole_names_and_no_empty_columns(tmp_path: Path, fedce, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    about = ("--scale", "tiny", "--rounds", 1, "--seeds", 0, "--store", tmp_path / "store", "--out", tmp_path / "out")
    shown = fedce("compare", "--algorithms", "fedavg,uniform,standalone", "--workers", 1, *about).stdout
    assert "…" not in shown
    assert all(shown.count(f" {name} ") == 2 for name in ("fedavg", "uniform", "standalone"))
    assert "r alone" in shown
    assert "truth " not in shown.split("cost")[1], "nobody asked for the truth"
