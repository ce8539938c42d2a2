"""A federation that waits says for whom: in words, and in the run folder, where pages and commands read it."""

from math import inf
from pathlib import Path

import pytest

import fedce as package
from fedce.base.config import load
from fedce.core.messages import Member, Task
from fedce.engines.joining import Known, Reports, Rules
from fedce.engines.launching import NOTICES, stream
from fedce.engines.remote import RemoteEngine
from fedce.engines.waiting import REMIND_SECONDS, SOON_SECONDS, Deadline, Waiting
from fedce.present.pages.live import Record, values_of
from fedce.present.status import status_of
from fedce.record.connections import FRESH_SECONDS, Connections, listed
from fedce.record.folder import RunFolder
from support import Post, layout, params

MEMBERS = {"north": "", "south": "", "west": ""}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Heard:
    def __init__(self, clock: Clock) -> None:
        self.said: list[tuple[float, str]] = []
        self.shown: list[Connections] = []
        self.reports = Reports(
            lambda event: None, lambda text: self.said.append((clock.now, text)), lambda found: self.shown.append(found)
        )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def heard(clock: Clock) -> Heard:
    return Heard(clock)


def test_absent_sites_are_named_soon_at_each_change_and_once_a_minute(clock: Clock, heard: Heard):
    waiting = Waiting(heard.reports, clock)
    here: list[str] = []
    while clock.now < 200:
        if clock.now == 20:
            here.append("west")
        waiting.look(here, sorted(MEMBERS.keys() - set(here)))
        clock.now += 0.5
    all_three = "Before round 1: waiting for north (not connected), south (not connected), west (not connected); "
    two = "Before round 1: waiting for north (not connected), south (not connected); connected: 1."
    assert heard.said == [
        (SOON_SECONDS, all_three + "connected: 0."),
        *((20 + i * REMIND_SECONDS, two) for i in range(3)),
    ]
    assert [found.here for found in heard.shown] == [[], ["west"], ["west"], ["west"]]


def test_sites_that_work_are_named_after_a_minute_and_only_the_awaited_ones(clock: Clock, heard: Heard):
    waiting = Waiting(heard.reports, clock)
    waiting.begin(2)
    for clock.now in (0.0, 1.0, 30.0, 59.0, 60.0):
        waiting.look(MEMBERS, ["south"] if clock.now >= 30 else ["north", "south"])
    assert heard.said == [(60.0, "Round 3: waiting for south; connected: 3.")]
    assert [found.waiting_for for found in heard.shown] == [["north", "south"], ["south"], ["south"]]


def test_quick_rounds_do_not_write_the_folder_each_time(clock: Clock, heard: Heard):
    waiting = Waiting(heard.reports, clock)
    for round_no in range(100):
        waiting.begin(round_no)
        waiting.look(MEMBERS, MEMBERS)
        waiting.look(MEMBERS, ())
        clock.now += 0.125
    assert len(heard.shown) <= 14
    assert heard.said == []


def test_machines_that_are_no_site_yet_are_counted(clock: Clock, heard: Heard):
    waiting = Waiting(heard.reports, clock)
    waiting.look([], ["west"])
    clock.now = SOON_SECONDS
    waiting.look([], ["west"], unnamed=1)
    assert [text for _, text in heard.said] == [
        "Before round 1: waiting for west (not connected); connected: 0, and 1 more, starting or refused."
    ]
    assert [found.unnamed for found in heard.shown] == [0, 1]


def test_many_names_are_cut_short():
    assert listed([str(i) for i in range(20)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 8 more"


def test_the_engine_says_for_whom_it_waits_in_a_round(clock: Clock, heard: Heard):
    known = {name: Known("", Member(name, 4, 2, 2, (3, 32, 32), {"x": (1,)}, "ff")) for name in MEMBERS}

    def pause(seconds: float) -> None:
        clock.now += seconds
        if clock.now > 30:
            raise KeyboardInterrupt

    rules = Rules("00", MEMBERS, 2, 10, None, package.__version__)
    engine = RemoteEngine(Post({}), rules, heard.reports, known, clock=clock, pause=pause)
    engine.bind(layout(2), 3)
    with pytest.raises(KeyboardInterrupt):
        engine.ask([Task(name, 4, params([0.0, 0.0])) for name in ("north", "south")])
    assert [text for _, text in heard.said] == [
        "Round 5: waiting for north (not connected), south (not connected); connected: 0."
    ]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    changes = {"engine.name": "flower", "engine.members": MEMBERS, "rounds": 7, "data.source": "hospitals"}
    return RunFolder.create(tmp_path / "run", load(None, changes))


def wait(run: RunFolder, **changes) -> Connections:
    about = {"time": 1000.0, "since": 700.0, "round_no": None, "here": ["north"], "waiting_for": ["south", "west"]}
    run.write_connections(Connections(**{**about, **changes}))
    return run.connections


def test_the_page_says_for_whom_a_federation_waits_that_has_no_ledger_yet(run: RunFolder):
    wait(run)
    values = values_of(Record.read(run), run.path, 1010.0)
    assert values["waits"] == (
        "Before round 1: waiting for south (not connected), west (not connected); connected: 1. "
        "This wait began 5 min 10 s ago."
    )
    assert values["warning"] is None, "a federation that waits is not stalled"


def test_a_coordinator_that_fell_silent_is_not_said_to_wait(run: RunFolder):
    wait(run)
    values = values_of(Record.read(run), run.path, 1000.0 + FRESH_SECONDS + 1)
    assert values["waits"] == ""
    assert values["warning"]["command"] == "flwr run APP SUPERLINK"


def test_status_tells_who_is_there_and_who_is_late(run: RunFolder):
    wait(run, round_no=0, here=["north", "south"], waiting_for=["south", "west"])
    found = status_of(run, 1010.0)
    assert {site.site: site.words for site in found.sites} == {
        "north": "answered",
        "south": "working, awaited for 5 min 10 s",
        "west": "not connected, awaited for 5 min 10 s",
    }
    assert (found.state, found.round, found.rounds) == ("unfinished", 0, 7)
    with run.lock():
        assert status_of(run, 1010.0).state == "unfinished", "a process does not see its own lock"


def test_after_the_coordinator_has_ended_nobody_waits(run: RunFolder):
    def stopped() -> None:
        with run.connections_shown():
            assert wait(run) is not None
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert run.connections is None


def test_notices_are_streamed_and_kept(run: RunFolder):
    said: list[str] = []
    run.engine_folder.mkdir()
    observer = stream(run, said.append)
    observer.notice("Before round 1: waiting for west (not connected); connected: 2.")
    assert said == (run.engine_folder / NOTICES).read_text("utf-8").splitlines()


def test_a_silent_site_is_waited_for_ten_times_as_long_as_the_others_take():
    first = Deadline(None)
    assert first.seconds == inf
    assert first.after([]).seconds == inf
    assert first.after([3.0, 4.0]).seconds == 600
    slow = first.after([100.0, 120.0, 9000.0])
    assert slow.seconds == 1200
    for _ in range(20):  # One stalling site of three does not move it.
        slow = slow.after([100.0, 120.0, slow.seconds])
    assert slow.seconds == 1200
    assert Deadline(60.0).after([100.0]).seconds == 60
