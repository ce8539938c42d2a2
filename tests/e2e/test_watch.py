"""fedce watch: a local page that follows a run, tells when it stands still, and shows itself to nobody else."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from fedce.base.files import append_line
from fedce.pictures import plots
from fedce.present.pages import live
from fedce.present.watch import Watch, WatchServer, open_browser
from fedce.record.entries import line_of
from fedce.record.folder import RunFolder
from fedce.record.ledger import Ledger
from support import open_page

NO_TIME_TO_LOSE = "--virtual-time-budget=5000"
"""Chromium's clock runs ahead, so that the page asks again at once."""


class Growing:
    """A copy of a run folder whose ledger is written line by line."""

    def __init__(self, finished: Path, path: Path) -> None:
        path.mkdir()
        self.finished, self.path = finished, path
        self.lines = (finished / "ledger.jsonl").read_text("utf-8").splitlines()
        self.n_written = 0
        shutil.copy(finished / "config.toml", path)

    def write(self, n_lines: int) -> None:
        for line in self.lines[self.n_written : self.n_written + n_lines]:
            append_line(self.path / "ledger.jsonl", line)
        self.n_written += n_lines

    def finish(self) -> None:
        self.write(len(self.lines) - self.n_written)
        for name in ("results.json", "report.html"):
            shutil.copy(self.finished / name, self.path)

    def clock(self) -> float:
        """A second after the last line."""
        return json.loads(self.lines[max(0, self.n_written - 1)])["time"] + 1


@pytest.fixture
def growing(tiny_run: Path, tmp_path: Path) -> Growing:
    return Growing(tiny_run, tmp_path / "run")


@contextmanager
def served(path: Path, clock: Callable[[], float]) -> Iterator[WatchServer]:
    with WatchServer(Watch(RunFolder.open(path), clock)) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def get(server: WatchServer, path: str = "state", method: str = "GET", **headers: str) -> str:
    with urlopen(Request(server.address + path, method=method, headers=headers), timeout=60) as answer:
        return answer.read().decode()


def test_it_follows_a_run_from_its_start_to_its_report(growing: Growing):
    growing.write(1)
    with served(growing.path, growing.clock) as server:
        assert "Starting: no round of 4 is done yet." in get(server)
        for n_rounds in (1, 2, 3):
            growing.write(1)
            state = get(server)
            assert f"Round {n_rounds} of 4, mean validation Dice" in state
            assert f'<progress max="4" value="{n_rounds}"' in state
            assert state.count("<svg") == 2 * 2
        last = json.loads(growing.lines[3])
        for facts in last["sites"].values():
            assert f"{facts['score']:.3f}" in state
            assert f"{100 * facts['share']:.1f} %" in state
        growing.write(1)
        assert "All 4 rounds are done" in get(server)
        assert "/report.html" not in get(server)
        growing.finish()
        state = get(server)
        assert "Finished: 4 rounds in" in state
        assert "Test Dice" in state
        assert '<a href="/report.html">' in state
        assert get(server, "report.html") == (growing.path / "report.html").read_text("utf-8")
        assert "<title>4/4 " in get(server, "")


def test_a_line_that_is_being_written_is_waited_for(growing: Growing):
    growing.write(2)
    with served(growing.path, growing.clock) as server, (growing.path / "ledger.jsonl").open("a") as ledger:
        ledger.write(growing.lines[2][:200])
        ledger.flush()
        assert "Round 1 of 4" in get(server)
        ledger.write(growing.lines[2][200:] + "\n")
        ledger.flush()
        assert "Round 2 of 4" in get(server)


def test_it_writes_nothing(growing: Growing):
    growing.write(3)
    before = {file: file.stat().st_mtime_ns for file in (growing.path, *growing.path.rglob("*"))}
    with served(growing.path, growing.clock) as server:
        get(server, "")
        get(server)
    assert {file: file.stat().st_mtime_ns for file in (growing.path, *growing.path.rglob("*"))} == before


def test_a_run_that_stands_still_is_said_to_and_how_to_go_on(growing: Growing):
    growing.write(3)
    last = growing.clock() - 1
    patience = live.SECONDS_OF_PATIENCE + RunFolder(growing.path).config.engine.checkpoint_seconds
    for waited, stands_still in ((patience - 1, False), (patience + 1, True)):
        with served(growing.path, lambda waited=waited: last + waited) as server:
            state = get(server)
        assert ("The run is not advancing" in state) == stands_still
        assert (f"fedce run --resume {growing.path}" in state) == stands_still
        assert (" left." in state) != stands_still
    growing.finish()
    with served(growing.path, lambda: last + 1e6) as server:
        assert "not advancing" not in get(server)


def test_slow_rounds_are_given_their_time():
    def record(times: Sequence[float]) -> live.Record:
        empty = {"kind": "round", "seconds": 9.0, "mean_score": 0.5, "sites": {}, "rejected": {}, "notes": []}
        rounds = [line_of({**empty, "round": i, "time": t}, "a round") for i, t in enumerate(times)]
        return live.Record(live.Config(), Ledger(tuple(rounds)), None, has_report=False)

    assert record([0]).round_seconds == 9
    stopped_for_a_night = record([0, 100, 200, 50_000, 50_100, 50_200])
    assert stopped_for_a_night.round_seconds == 100
    checkpoint = stopped_for_a_night.config.engine.checkpoint_seconds
    assert not stopped_for_a_night.stands_still(50_200 + 500 + checkpoint)
    assert stopped_for_a_night.stands_still(50_201 + 500 + checkpoint)


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        ("state", "GET", {"Host": "evil.example"}, 403),
        ("state", "GET", {"Host": "127.0.0.1:1"}, 403),
        ("", "GET", {"Host": "localhost"}, 403),
        ("report.html", "GET", {}, 404),
        ("config.toml", "GET", {}, 404),
        ("../config.toml", "GET", {}, 404),
        ("state/", "GET", {}, 404),
        ("state", "POST", {}, 405),
        ("", "HEAD", {}, 405),
        ("", "DELETE", {}, 405),
    ],
)
def test_all_else_is_refused(growing: Growing, path: str, method: str, headers: dict[str, str], status: int):
    growing.write(1)
    with served(growing.path, growing.clock) as server, pytest.raises(HTTPError) as refused:
        get(server, path, method, **headers)
    assert refused.value.code == status
    refused.value.close()


def test_only_this_machine_is_answered(growing: Growing):
    growing.write(1)
    with served(growing.path, growing.clock) as server:
        assert server.server_address[0] == "127.0.0.1"
        assert get(server, Host=f"localhost:{server.server_port}")
        policy = get(server, "").split('Content-Security-Policy" content="')[1].split('"')[0]
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src 'self'" in policy
    assert "script-src 'sha256-" in policy


def test_hostile_names_are_shown_not_run(growing: Growing):
    evil = "<img src=x onerror=alert(1)>"
    growing.lines = [line.replace("site1", evil) for line in growing.lines]
    facts = json.loads(growing.lines[2])
    growing.lines[2] = json.dumps({**facts, "rejected": {evil: evil}, "notes": [evil]})
    growing.write(3)
    with served(growing.path, growing.clock) as server:
        page = get(server, "")
    assert "<img" not in page
    assert page.count("<script") == 1
    assert "Round 2: reply of &lt;img src=x onerror=alert(1)&gt; rejected (&lt;img" in page


def test_who_was_not_drawn_is_shown_as_last_heard_of(growing: Growing):
    entry = json.loads(growing.lines[2])
    score = json.loads(growing.lines[1])["sites"]["site1"]["score"]
    del entry["sites"]["site1"]
    entry.pop("ballot", None)
    growing.lines[2] = json.dumps(entry)
    growing.write(3)
    with served(growing.path, growing.clock) as server:
        known = live.known_so_far(live.Record.read(RunFolder.open(growing.path)))
        page = get(server)
    assert known["last_score"]["site1"] == score
    assert f">{score:.3f}<" in page


def test_a_finished_run_shows_its_final_shares(growing: Growing):
    for i, share in ((3, 0.9999), (4, None)):
        entry = json.loads(growing.lines[i])
        if share is None:
            del entry["sites"]["site1"]
        else:
            entry["sites"]["site1"]["share"] = share
        growing.lines[i] = json.dumps(entry)
    growing.write(5)
    with served(growing.path, growing.clock) as server:
        assert ">100.0 %<" in get(server), "as last heard of"
        growing.finish()
        state = get(server)
    assert ">100.0 %<" not in state
    results = json.loads((growing.path / "results.json").read_text("utf-8"))
    assert f">{100 * results['contributions']['site1']:.1f} %<" in state
    assert "Contributions are those of the whole run" in state


def test_many_notes_are_cut_short(growing: Growing):
    entry = json.loads(growing.lines[1])
    noted = [json.dumps({**entry, "round": i, "notes": [f"note {i}"]}) for i in range(live.SHOWN_NOTES + 2)]
    growing.lines[1:] = noted
    growing.write(len(growing.lines))
    with served(growing.path, growing.clock) as server:
        state = get(server)
    assert "<li>and 2 earlier notes</li>" in state
    assert f"note {live.SHOWN_NOTES + 1}</li>" in state
    assert "note 0" not in state


def test_nothing_is_read_or_drawn_twice(growing: Growing, monkeypatch: pytest.MonkeyPatch):
    calls = []
    for owner, name in ((RunFolder, "ledger"), (plots, "contributions")):
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda given, name=name, real=real: calls.append(name) or real(given))
    growing.write(2)
    with served(growing.path, growing.clock) as server:
        for _ in range(3):
            get(server)
        assert calls == ["ledger", "contributions"]
        growing.write(1)
        assert "Round 2 of 4" in get(server)
        assert calls == ["ledger", "contributions", "ledger"], "rests after drawing"
        growing.finish()
        get(server)
        get(server)
        assert calls == ["ledger", "contributions", "ledger", "ledger", "contributions"]


def test_a_folder_that_goes_away_leaves_what_was_known(growing: Growing):
    growing.write(3)
    with served(growing.path, growing.clock) as server:
        assert "be read now" not in get(server)
        (growing.path / "config.toml").rename(growing.path / "aside")
        state = get(server)
        assert "The run folder can&#39;t be read now" in state
        assert "Round 2 of 4" in state
        (growing.path / "aside").rename(growing.path / "config.toml")
        assert "be read now" not in get(server)


def test_bad_input_is_one_line(growing: Growing, tmp_path: Path, fedce):
    growing.write(1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for arguments, line in (
            ((tmp_path / "nothing",), "there is no folder"),
            ((growing.path, "--port", port), f"--port {port} can't be used: Address already in use"),
        ):
            run = fedce("watch", *arguments, "--no-browser")
            assert run.exit_code == 2
            assert line in run.stderr
            assert len(run.stderr.splitlines()) == 1


def test_ctrl_c_ends_it_without_a_word(growing: Growing):
    growing.write(1)
    command = [sys.executable, "-m", "fedce", "watch", growing.path, "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        line = running.stdout.readline()
        assert line.startswith(f"watching {growing.path} at http://127.0.0.1:")
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=120)
    assert (running.returncode, out, err) == (0, "", "")


def test_a_machine_without_browsers_is_no_failure(monkeypatch: pytest.MonkeyPatch):
    opened = []
    for browser in (webbrowser.GenericBrowser("lynx"), None):
        monkeypatch.setattr(webbrowser, "get", lambda browser=browser: browser or _no_browser())
        monkeypatch.setattr(webbrowser.GenericBrowser, "open", lambda self, address: opened.append(address))
        open_browser("http://127.0.0.1:1/")
    assert not opened


def _no_browser() -> None:
    raise webbrowser.Error("could not locate runnable browser")


def test_the_page_updates_itself_in_chromium(growing: Growing, tmp_path: Path, chromium: str, monkeypatch):
    growing.write(2)
    with served(growing.path, growing.clock) as server:
        first = server.watch.page

        def page_and_then_a_round() -> bytes:
            page = first()
            growing.finish()
            return page

        monkeypatch.setattr(server.watch, "page", page_and_then_a_round)
        shown, picture = open_page(chromium, server.address, tmp_path, NO_TIME_TO_LOSE)
    assert "Finished: 4 rounds" in shown.stdout
    assert "<title>4/4 " in shown.stdout
    assert '<th scope="row">site6</th>' in shown.stdout
    assert shown.stdout.count("</svg>") == 2 * 2
    assert '<p id="connection" role="alert"></p>' in shown.stdout
    assert "CONSOLE" not in shown.stderr
    assert picture.stat().st_size > 10_000


def test_the_page_says_that_its_server_went_away(growing: Growing, tmp_path: Path, chromium: str, monkeypatch):
    growing.write(2)
    with served(growing.path, growing.clock) as server:
        monkeypatch.setattr(server.watch, "state", lambda: None)
        shown, _ = open_page(chromium, server.address, tmp_path, NO_TIME_TO_LOSE)
    assert "Connection lost at" in shown.stdout
    assert "Round 1 of 4" in shown.stdout, "what was known stays"
