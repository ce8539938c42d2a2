"""The remote engine without any network: real sites behind a courier that loses, repeats and delays as it is told."""

import json
from base64 import b64encode
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.bits import rounds_of
from safetensors.numpy import load_file

import fedce as package
from fedce.base.config import load
from fedce.base.errors import ConfigError, ReplyError, RunError
from fedce.base.identity import Identity, is_signed
from fedce.base.keys import checked_key
from fedce.base.tables import AlgorithmConfig
from fedce.core.messages import Task
from fedce.engines import remote
from fedce.engines.joining import Event, Known, Reports, Rules, check_is_no_second_name
from fedce.engines.remote import RemoteEngine
from fedce.engines.shared import Shelf
from fedce.engines.starting import coordinate, execute
from fedce.federation.plan import Plan, resolve
from fedce.federation.session import Observer
from fedce.record.folder import RunFolder
from fedce.record.verify import verify
from fedce.site.resident import Resident
from fedce.site.wire import Parcel, Signed, task_parcel
from remote_sites import (
    TINY,
    Clock,
    crash_in_round_three,
    no_waiting,  # noqa: F401 (a fixture)
    post_of,
    replace_engine,
    resident,
    signed_anew,
)
from support import Post, chained, contents_of, events_of, params


@pytest.fixture
def config():
    return load(None, {**TINY, "engine.members": {f"site{i}": "" for i in range(1, 7)}, "engine.deadline_seconds": 60})


@pytest.fixture
def hospitals(tmp_path: Path, config) -> dict[str, Resident]:
    return {name: resident(config, name, tmp_path / "homes" / name) for name in config.engine.members}


@pytest.mark.parametrize("most", [2**29, 0], ids=["in memory", "in a file"])
def test_same_bits_as_the_local_engine(tmp_path: Path, config, hospitals, monkeypatch, most):
    monkeypatch.setattr("fedce.engines.starting.Shelf", lambda folder: Shelf(folder, most))
    here = execute(replace_engine(config, "local"), tmp_path / "local", report=False)
    there = coordinate(config, tmp_path / "remote", post_of(hospitals))
    assert there.values["model_sha256"] == here.values["model_sha256"]
    assert there.contributions == here.contributions
    assert there.dice == here.dice
    assert rounds_of(tmp_path / "remote") == rounds_of(tmp_path / "local")
    assert (tmp_path / "remote" / "model.safetensors").read_bytes() == (
        tmp_path / "local" / "model.safetensors"
    ).read_bytes()


def test_drawn_sites_give_the_same_bits_as_the_local_engine(tmp_path: Path, config, hospitals):
    drawn = config.model_copy(update={"sites_per_round": 3, "rounds": 5})
    here = execute(replace_engine(drawn, "local"), tmp_path / "local", report=False)
    there = coordinate(drawn, tmp_path / "remote", post_of(hospitals))
    assert there.values["model_sha256"] == here.values["model_sha256"]
    assert there.contributions == here.contributions
    assert rounds_of(tmp_path / "remote") == rounds_of(tmp_path / "local")
    assert all(len(entry["sites"]) == 3 for entry in rounds_of(tmp_path / "remote"))


def test_a_site_that_labels_only_some_classes_gives_the_same_bits_as_the_local_engine(tmp_path: Path, config):
    partly = config.model_copy(update={"data": config.data.model_copy(update={"labelled": {"site3": ["disc"]}})})
    here = execute(replace_engine(partly, "local"), tmp_path / "local", report=False)
    hospitals = {name: resident(partly, name, tmp_path / "homes" / name) for name in config.engine.members}
    there = coordinate(partly, tmp_path / "remote", post_of(hospitals))
    assert there.values["model_sha256"] == here.values["model_sha256"]
    assert there.values["dice_by_class"] == here.values["dice_by_class"]
    assert list(there.values["dice_by_class"]["site3"]) == ["disc"]
    assert verify(RunFolder(tmp_path / "remote")).problems == ()
    whole = execute(replace_engine(config, "local"), tmp_path / "whole", report=False)
    assert whole.values["model_sha256"] != here.values["model_sha256"]


def test_a_site_is_scored_on_exactly_the_classes_that_it_joined_with(tmp_path: Path, config, hospitals):
    post = post_of(hospitals)
    easy = {"validation_dice": 0.5, "test_dice_by_class": {"disc": 1.0}, "test_dice_without": None}
    post.when = lambda node, about, answer: (
        signed_anew(hospitals["site3"], answer, evaluation=easy)
        if node == "node-site3" and '"evaluate"' in about
        else answer
    )
    assert "site3" not in coordinate(config, tmp_path / "run", post).dice
    assert "it evaluated the classes disc" in (tmp_path / "run" / "ledger.jsonl").read_text()


@pytest.mark.parametrize("algorithm", ["fedce", "fedci"])
def test_what_a_site_keeps_for_itself_gives_the_same_bits_as_the_local_engine(tmp_path: Path, config, algorithm):
    """FedCI also has the sites score models in the middle of a round, with what stays at each of them."""
    own = config.model_copy(
        update={
            "algorithm": AlgorithmConfig(name=algorithm),
            "model": config.model.model_copy(update={"norm": "site"}),
            "alone": True,
            "personalise": 1,
        }
    )
    here = execute(replace_engine(own, "local"), tmp_path / "local", report=False)
    hospitals = {name: resident(own, name, tmp_path / "homes" / name) for name in config.engine.members}
    post = post_of(hospitals)
    there = coordinate(own, tmp_path / "remote", post)
    for key in ("model_sha256", "contributions", "dice", "alone", "gain", "gain_interval", "keeps"):
        assert there.values[key] == here.values[key], key
    assert rounds_of(tmp_path / "remote") == rounds_of(tmp_path / "local")
    sizes = {parcel.arrays["params"].size for _, parcel in post.sent if "params" in parcel.arrays}
    whole = sum(value.size for value in load_file(tmp_path / "remote" / "model.safetensors").values())
    assert len(sizes) == 1
    assert sizes.pop() < whole, "statistics are not sent"


def test_who_is_expelled_is_not_asked_again_although_still_connected(tmp_path: Path, config):
    strict = config.model_copy(update={"algorithm": AlgorithmConfig(name="cffl", coef=0.95), "rounds": 4})
    execute(replace_engine(strict, "local"), tmp_path / "local", report=False)
    hospitals = {name: resident(strict, name, tmp_path / "homes" / name) for name in config.engine.members}
    coordinate(strict, tmp_path / "remote", post_of(hospitals))
    rounds = rounds_of(tmp_path / "remote")
    assert 2 <= len(rounds[-1]["sites"]) < 6
    assert rounds == rounds_of(tmp_path / "local")
    gone = set(config.engine.members) - set(rounds[-1]["sites"])
    assert rounds[-1]["missing"] == dict.fromkeys(gone, "expelled")
    assert set(rounds[-1]["asked"]) == set(rounds[-1]["sites"])


def test_names_of_files_stay_at_the_site(tmp_path: Path, config, hospitals):
    post = post_of(hospitals)
    seen: list[str] = []
    post.when = lambda node, about, answer: (seen.append(answer.about), answer)[1]
    coordinate(config, tmp_path / "run", post)
    assert seen
    assert not any(".png" in text or str(tmp_path) in text for text in seen)
    assert not (tmp_path / "run" / "splits.json").exists()


def test_a_site_learns_its_own_share_alone(tmp_path: Path, config, hospitals):
    post = post_of(hospitals)
    coordinate(config, tmp_path / "run", post)
    tasks = [(node, json.loads(parcel.about)) for node, parcel in post.sent if '"task"' in parcel.about]
    assert all(set(task["shares"]) <= {node.removeprefix("node-")} for node, task in tasks)
    run = json.loads((tmp_path / "run" / "ledger.jsonl").read_text().splitlines()[0])["run"]
    told = (tmp_path / "homes" / "site5" / run / "rounds.jsonl").read_text().splitlines()
    assert set(json.loads(told[-1])["shares"]) == {"site5"}


def test_the_config_may_tell_all(tmp_path: Path, config, hospitals):
    post = post_of(hospitals)
    telling = config.model_copy(update={"engine": config.engine.model_copy(update={"tell": "all"})})
    coordinate(telling, tmp_path / "run", post)
    last = json.loads([parcel.about for _, parcel in post.sent if '"train"' in parcel.about][-1])
    assert set(last["shares"]) == set(config.engine.members)


def test_a_lost_answer_is_asked_for_again_and_changes_nothing(tmp_path: Path, config, hospitals, monkeypatch):
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.01)
    whole = coordinate(config, tmp_path / "whole", post_of(hospitals))
    again = {name: resident(config, name, tmp_path / "again" / name) for name in hospitals}
    post, lost = post_of(again), []

    def lose_one(node, about, answer):
        if node == "node-site2" and '"round_no":1' in about and not lost:
            lost.append(node)
            return "its process ended"
        return answer

    post.when = lose_one
    assert coordinate(config, tmp_path / "run", post).contributions == whole.contributions
    assert lost
    assert "site2 no answer: its process ended" in events_of(tmp_path / "run")


def test_a_restarted_site_keeps_its_name_its_memory_and_its_credit(tmp_path: Path, config, hospitals, monkeypatch):
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.01)
    whole = coordinate(config, tmp_path / "whole", post_of(hospitals))
    again = {name: resident(config, name, tmp_path / "again" / name) for name in hospitals}
    post, killed = post_of(again), []

    def kill_one(node, about, answer):
        if node == "node-site3" and '"round_no":1' in about and '"task"' in about and not killed:
            killed.append(node)
            # Its old address is still there for a while, as a network does not know that somebody is dead.
            post.answers["node-reborn"] = resident(config, "site3", tmp_path / "again" / "site3").answer
            return None
        return answer

    post.when = kill_one
    result = coordinate(config, tmp_path / "run", post)
    assert killed
    assert result.contributions == whole.contributions
    assert result.values["model_sha256"] == whole.values["model_sha256"]
    assert "site3 came back under another address" in events_of(tmp_path / "run")


def test_an_absent_site_costs_nobody_anything(tmp_path: Path, config, hospitals):
    post = post_of(hospitals)
    away = {"node-site4": post.answers["node-site4"]}

    def leave(node, about, answer):
        if '"round_no":1' in about and '"train"' in about:
            post.answers.pop("node-site4", None)
        if '"round_no":2' in about and node == "node-site1":
            post.answers.update(away)
        return answer

    post.when = leave
    coordinate(config, tmp_path / "run", post)
    first, second, third = RunFolder(tmp_path / "run").rounds()
    assert "site4" in first.sites
    assert "site4" not in second.sites
    assert (first.missing, second.missing) == ({}, {"site4": "no reply"})
    assert verify(RunFolder(tmp_path / "run")).problems == ()
    for entry in (first, second, third):
        assert sum(facts.weight for facts in entry.sites.values()) == pytest.approx(1)
    assert {"site4 left", "site4 is absent", "site4 came back"} <= set(events_of(tmp_path / "run"))


def first_tasks(plan):
    state = plan.initial_state()
    return [plan.algorithm.task(state, site) for site in state.sites]


def test_a_slow_site_is_not_waited_for(tmp_path: Path, config, hospitals):
    clock = Clock()
    post, notes = post_of(hospitals), []
    rules = Rules("00", config.engine.members, 2, 10, 5.0, package.__version__)
    engine = RemoteEngine(post, rules, Reports(notes.append), clock=clock, pause=clock.pause)
    plan = Plan(resolve(config), engine.gather())
    engine.bind(plan.layout, plan.n_channels)
    held = []

    def hold(node, about, answer):
        if node == "node-site6" and '"task"' in about and not held:
            held.append(answer)
            return None
        return answer

    post.when = hold
    tasks = first_tasks(plan)
    assert {reply.site for reply in engine.ask(tasks)} == set(config.engine.members) - {"site6"}
    assert Event(0, "site6", "is too slow") in notes
    # The answer comes at last, when the next round is on.
    ticket = next(ticket for ticket in engine._over)
    post.late = [(ticket, held[0])]
    replies = engine.ask([replace(task, round_no=1) for task in tasks])
    assert len(replies) == 6
    assert any("arrived after that round had ended and was ignored" in event.what for event in notes)


def test_who_joins_late_is_asked_from_the_next_round_on(tmp_path: Path, config, hospitals):
    """The member that round 1 did not wait for any longer."""
    quick = config.model_copy(update={"engine": config.engine.model_copy(update={"join_seconds": 0.05})})
    post = post_of(hospitals)
    newcomer = post.answers.pop("node-site6")

    def arrive(node, about, answer):
        if '"round_no":1' in about:
            post.answers["node-site6"] = newcomer
        return answer

    post.when = arrive
    result = coordinate(quick, tmp_path / "run", post)
    first, _, third = RunFolder(tmp_path / "run").rounds()
    assert "site6" not in first.sites
    assert "site6" in third.sites
    assert result.contributions["site6"] > 0
    assert sum(result.contributions.values()) == pytest.approx(1)


def test_a_killed_server_goes_on_at_the_round_it_was_in(tmp_path: Path, config, hospitals):
    whole = coordinate(config, tmp_path / "whole", post_of(hospitals))
    again = {name: resident(config, name, tmp_path / "again" / name) for name in hospitals}
    post = post_of(again)
    post.when = crash_in_round_three
    with pytest.raises(KeyboardInterrupt):
        coordinate(config, tmp_path / "run", post)
    asked = len(RunFolder(tmp_path / "run").rounds())
    assert asked == 2
    result = coordinate(config, tmp_path / "run", post_of(again))
    assert result.contributions == whole.contributions
    assert result.values["model_sha256"] == whole.values["model_sha256"]
    kinds = [line.kind for line in RunFolder(tmp_path / "run").ledger()]
    assert kinds.count("resume") == 1
    assert kinds.count("round") == 3
    RunFolder(tmp_path / "run").check_chain()


def test_a_round_that_was_saved_and_not_written_down_is_written_down(tmp_path: Path, config, hospitals, monkeypatch):
    post = post_of(hospitals)
    append = RunFolder.append

    def cut_off(self, entry):
        if entry["kind"] == "round" and entry["round"] == 1:
            raise KeyboardInterrupt
        append(self, entry)

    monkeypatch.setattr(RunFolder, "append", cut_off)
    with pytest.raises(KeyboardInterrupt):
        coordinate(config, tmp_path / "run", post)
    monkeypatch.setattr(RunFolder, "append", append)
    coordinate(config, tmp_path / "run", post_of(hospitals))
    assert [done.round_no for done in RunFolder(tmp_path / "run").rounds()] == [0, 1, 2]


class Impostors:
    """Answers that must not be taken."""

    @staticmethod
    def of(kind: str, config, home: Path) -> Callable[[Parcel], Parcel]:
        if kind == "unknown name":
            stranger = resident(config, "site1", home)
            stranger.__dict__["sites"] = replace(stranger.sites, members=(replace(stranger.data, name="stranger"),))
            return stranger.answer
        thief = resident(config, "site1", home)  # With a key of its own.
        if kind == "somebody's name":
            return thief.answer
        if kind == "unsigned":
            return lambda parcel: Parcel(
                Signed(content=Signed.read(thief.answer(parcel).about).content, signature="AAAA").model_dump_json(), {}
            )
        return lambda parcel: Parcel("no json", {})


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("unknown name", "'stranger' is not among the members"),
        ("somebody's name", "another key than the site 'site1' that joined before"),
        ("unsigned", "does not hold the key that it shows"),
        ("rubbish", "its message has the wrong form"),
    ],
)
def test_who_may_not_come_in_is_refused_and_recorded(tmp_path: Path, config, hospitals, kind, reason):
    post = post_of(hospitals)
    post.answers["node-z"] = Impostors.of(kind, config, tmp_path / "impostor")
    whole = coordinate(config, tmp_path / "run", post)
    assert set(whole.contributions) == set(config.engine.members)
    assert any(reason in event for event in events_of(tmp_path / "run"))
    assert not any(node == "node-z" and '"task"' in parcel.about for node, parcel in post.sent)


def test_a_key_in_the_experiment_settles_who_a_member_is(tmp_path: Path, config, hospitals):
    keys = {name: hospital.identity.public for name, hospital in hospitals.items()}
    strict = config.model_copy(update={"engine": config.engine.model_copy(update={"members": keys})})
    post = post_of(hospitals)
    # The thief is there first, which would do without keys.
    post.answers = {"node-0": resident(config, "site1", tmp_path / "thief").answer, **post.answers}
    coordinate(strict, tmp_path / "run", post)
    assert any("another key than the member 'site1'" in event for event in events_of(tmp_path / "run"))
    assert all(len(done.sites) == 6 for done in RunFolder(tmp_path / "run").rounds())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda p: Parcel(p.about, {"params": p.arrays["params"][:-1]}), "expected a model of"),
        (lambda p: Parcel(p.about, {"params": p.arrays["params"] + 1}), "is not the one that it signed"),
        (lambda p: Parcel(p.about, {}), "expected a model of"),
        (lambda p: Parcel(p.about.replace("0.", "1.", 1), p.arrays), "not signed with its key"),
        (lambda p: Parcel("x" * 2_000_000, p.arrays), "characters long"),
    ],
)
def test_a_changed_answer_is_refused_and_the_round_goes_on(tmp_path: Path, config, hospitals, change, reason):
    post = post_of(hospitals)
    post.when = lambda node, about, answer: (
        change(answer) if node == "node-site2" and '"train"' in about and '"round_no":1' in about else answer
    )
    coordinate(config, tmp_path / "run", post)
    entry = RunFolder(tmp_path / "run").rounds()[1]
    assert "site2" not in entry.sites
    assert sum(facts.weight for facts in entry.sites.values()) == pytest.approx(1)
    assert any(reason in event for event in events_of(tmp_path / "run") if event.startswith("site2 refused"))


def test_a_failing_site_tells_its_own_log_and_not_the_server(tmp_path: Path, config, hospitals, monkeypatch):
    def fail(*_):
        raise OSError("/patients/jane-doe.nii is not readable")

    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(hospitals["site1"], "_work", fail)
    coordinate(config, tmp_path / "run", post_of(hospitals))
    told = (tmp_path / "run" / "ledger.jsonl").read_text()
    assert "a fault of the program, OSError" in told
    assert "jane-doe" not in told
    assert "jane-doe" in (tmp_path / "homes" / "site1" / "site.log").read_text()


def test_other_data_than_before_is_refused(tmp_path: Path, config, hospitals):
    post = post_of(hospitals)
    changed = resident(config, "site2", tmp_path / "homes" / "site2")
    changed.__dict__["sites"] = replace(
        changed.sites, members=(replace(changed.data, images=255 - np.asarray(changed.data.images)),)
    )

    def swap(node, about, answer):
        if '"round_no":1' in about:
            post.answers.pop("node-site2", None)
            post.answers["node-other"] = changed.answer
        return answer

    post.when = swap
    coordinate(config, tmp_path / "run", post)
    assert any("its data differ from those it joined with" in event for event in events_of(tmp_path / "run"))


def test_a_key_is_private_and_signs(tmp_path: Path):
    one, other = Identity.at(tmp_path / "a" / "key.pem"), Identity.at(tmp_path / "b" / "key.pem")
    assert (tmp_path / "a" / "key.pem").stat().st_mode & 0o777 == 0o600
    assert Identity.at(tmp_path / "a" / "key.pem").public == one.public
    signature = one.sign("text")
    assert is_signed("text", signature, one.public)
    assert not is_signed("text.", signature, one.public)
    assert not is_signed("text", signature, other.public)
    assert not is_signed("text", "no base64!", one.public)


def test_keys_by_the_command_line(tmp_path: Path, fedce):
    made = fedce("keys", "new", tmp_path / "key.pem")
    assert made.exit_code == 0
    assert made.stdout.strip() == Identity.at(tmp_path / "key.pem").public
    assert fedce("keys", "show", tmp_path / "key.pem").stdout == made.stdout
    again = fedce("keys", "new", tmp_path / "key.pem")
    assert again.exit_code == 2
    assert "exists" in again.stderr
    assert fedce("keys", "show", tmp_path / "none.pem").exit_code == 2


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path):
    Identity.at(tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Identity.at(tmp_path / "key.pem")


def test_tasks_go_to_the_site_that_they_name(tmp_path: Path, config, hospitals):
    hospital = hospitals["site1"]
    task = Task("site2", 0, params([0.0]))
    answer = hospital.answer(task_parcel(task, "00", 3))
    assert '"failure"' in Signed.read(answer.about).content


@pytest.mark.parametrize("algorithm", ["fedci", "standalone", "ditto", "cgsv", "qfedavg", "fedadam"])
def test_other_algorithms_give_the_same_bits(tmp_path: Path, config, algorithm: str):
    """With the sites' processes restarted before every message, so that only what is on their disks counts."""
    other = config.model_copy(update={"algorithm": config.algorithm.model_copy(update={"name": algorithm})})
    here = execute(replace_engine(other, "local"), tmp_path / "local", report=False)
    homes = {name: tmp_path / "homes" / name for name in config.engine.members}
    post = Post({name: lambda parcel, name=name: resident(other, name, homes[name]).answer(parcel) for name in homes})
    there = coordinate(other, tmp_path / "remote", post)
    assert there.values["model_sha256"] == here.values["model_sha256"]
    assert there.contributions == here.contributions
    assert there.dice == here.dice


def test_who_is_left_out_is_evaluated_all_the_same(tmp_path: Path, config, hospitals):
    without = config.model_copy(update={"leave_out": ("site2",)})
    here = execute(replace_engine(without, "local"), tmp_path / "local", report=False)
    there = coordinate(without, tmp_path / "remote", post_of(hospitals))
    assert there.dice == here.dice
    assert "site2" in there.dice


@pytest.mark.parametrize(
    ("action", "changes", "reason"),
    [
        ("train", {"seconds": float("nan")}, "seconds"),
        ("train", {"seconds": -1.0}, "seconds"),
        ("train", {"n_train": 10**9}, "claims 1000000000 training images, and joined with"),
        ("train", {"n_train": 10**400}, "wrong form"),
        ("evaluate", {"evaluation": {"validation_dice": 0.5, "test_dice_by_class": {}, "test_dice_without": None}}, ""),
        (
            "evaluate",
            {
                "evaluation": {
                    "validation_dice": 7.0,
                    "test_dice_by_class": {"disc": 1.0, "cup": 1.0},
                    "test_dice_without": None,
                }
            },
            "evaluation.validation_dice: input should be less than or equal to 1 (got 7.0)",
        ),
        (
            "evaluate",
            {
                "evaluation": {
                    "validation_dice": 0.5,
                    "test_dice_by_class": {"disc": 1.0, "cup": 1.0},
                    "test_dice_without": None,
                    "test_interval": [0.9, 0.1],
                }
            },
            "sent an interval whose low end is above its high end",
        ),
        ("evaluate", {"evaluation": None}, "sent no evaluation"),
    ],
)
def test_a_member_that_lies_can_only_be_left_out(tmp_path: Path, config, hospitals, action, changes, reason):
    post = post_of(hospitals)
    post.when = lambda node, about, answer: (
        signed_anew(hospitals["site3"], answer, **changes)
        if node == "node-site3" and f'"{action}"' in about
        else answer
    )
    result = coordinate(config, tmp_path / "run", post)
    ledger = (tmp_path / "run" / "ledger.jsonl").read_text()
    assert reason in ledger
    if action == "train":
        assert all("site3" not in done.sites for done in RunFolder(tmp_path / "run").rounds())
    else:
        assert "site3" not in result.dice


def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, config, hospitals):
    open_to_all = config.model_copy(
        update={"engine": config.engine.model_copy(update={"members": {}, "join_seconds": 0.2})}
    )
    post = post_of(hospitals)
    wanderer = resident(config, "site1", tmp_path / "wanderer")
    post.answers["node-z"] = lambda parcel: signed_anew(wanderer, wanderer.answer(parcel), name="../../outside")
    coordinate(open_to_all, tmp_path / "run", post)
    assert set(RunFolder(tmp_path / "run").results["contributions"]) == set(config.engine.members)
    assert any("was refused" in event for event in events_of(tmp_path / "run"))


def test_a_node_that_fails_is_asked_again_after_growing_pauses(config, hospitals):
    clock, notes = Clock(), []
    post = post_of(hospitals)
    asked_at: list[float] = []

    def out_of_order(parcel):
        asked_at.append(clock.now)
        return hospitals["site6"].answer(parcel) if clock.now > 100 else Parcel("", {})

    post.answers["node-site6"] = lambda parcel: out_of_order(parcel)
    post.when = lambda node, about, answer: (
        "its disk is not mounted" if node == "node-site6" and clock.now <= 100 else answer
    )
    rules = Rules("00", config.engine.members, 2, 1000, None, package.__version__)
    members = RemoteEngine(post, rules, Reports(notes.append), clock=clock, pause=lambda s: clock.pause(0.5)).gather()
    assert "site6" in members
    gaps = np.diff(asked_at)
    assert len(asked_at) < 10
    assert (np.diff(gaps) > 0).all()
    assert sum("did not name its site" in event.what for event in notes) == 1


def test_a_question_that_is_lost_before_the_first_round_is_asked_again(config, hospitals):
    """A courier may lose a node's answer for good; the federation must not wait for it without end."""
    clock, post = Clock(), post_of(hospitals)
    asked_at: list[float] = []

    def lose_three(node, about, answer):
        if node != "node-site6":
            return answer
        asked_at.append(clock.now)
        return answer if len(asked_at) == 4 else None

    post.when = lose_three
    rules = Rules("00", config.engine.members, 2, 10_000, None, package.__version__)
    engine = RemoteEngine(post, rules, Reports(lambda event: None), clock=clock, pause=lambda s: clock.pause(0.5))
    assert "site6" in engine.gather()
    assert np.diff(asked_at) == pytest.approx([60, 120, 240], abs=1)
    engine.sites(())
    assert len(asked_at) == 4


def test_a_slow_site_is_not_given_more_than_it_can_do(config, hospitals):
    """One message at a time, and two and a half deadlines for each: it still comes to its turns."""
    clock, notes = Clock(), []
    rules = Rules("00", config.engine.members, 2, 10, 4.0, package.__version__)
    post = post_of(hospitals)
    engine = RemoteEngine(post, rules, Reports(notes.append), clock=clock, pause=clock.pause)
    plan = Plan(resolve(config), engine.gather())
    engine.bind(plan.layout, plan.n_channels)
    due: list[tuple[float, str, Parcel]] = []

    def slowly(node, about, answer):
        if node != "node-site6":
            return answer
        due.append((clock.now + 10.0, next(t for t, other, _ in current if other == node), answer))
        return None

    current: list[tuple[str, str, Parcel]] = []
    collect = post.collect

    def collect_slowly():
        current[:] = post.waiting
        came = collect()
        came += [(ticket, answer) for when, ticket, answer in due if when <= clock.now]
        due[:] = [entry for entry in due if entry[0] > clock.now]
        return came

    post.collect, post.when = collect_slowly, slowly
    longest = 0
    for round_no in range(12):
        engine.ask([replace(task, round_no=round_no) for task in first_tasks(plan)])
        longest = max(longest, len(due))
    assert longest == 1
    assert any("is too slow: still at round" in event.what for event in notes)


def test_with_too_few_sites_the_run_waits(tmp_path: Path, config, hospitals, monkeypatch):
    """One of two fails again and again, and then not."""
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.01)
    two = config.model_copy(
        update={
            "engine": config.engine.model_copy(update={"members": {"site1": "", "site2": ""}}),
            "data": config.data.model_copy(update={"sites": ("site1", "site2")}),
        }
    )
    post = post_of({name: hospitals[name] for name in ("site1", "site2")})
    failed = []

    def fail(node, about, answer):
        if node == "node-site2" and '"round_no":1' in about and len(failed) < 7:
            failed.append(node)
            return "its process ended"
        return answer

    post.when = fail
    coordinate(two, tmp_path / "run", post)
    assert len(failed) == 7
    assert all(len(done.sites) == 2 for done in RunFolder(tmp_path / "run").rounds())


def test_what_goes_wrong_before_the_first_round_is_told(tmp_path: Path, config, hospitals):
    told: list[str] = []
    quick = config.model_copy(update={"engine": config.engine.model_copy(update={"join_seconds": 0.3})})
    post = post_of(hospitals)
    post.answers["node-site1"] = lambda parcel: Parcel("no json", {})
    coordinate(quick, tmp_path / "run", post, observer=Observer(notice=told.append))
    assert any("was refused" in line for line in told)


@pytest.mark.parametrize("turned", [False, True])
def test_the_experiment_decides_the_classes_and_not_who_comes_first(tmp_path: Path, config, hospitals, turned: bool):
    stated = {name: tuple(values) for name, values in hospitals["site2"].sites.classes.items()}
    size = hospitals["site2"].data.images.shape[-1]
    rules = Rules("00", {}, 2, 0.2, None, package.__version__, classes=stated, size=size)
    notes: list[Event] = []
    odd = resident(config, "site1", tmp_path / "odd")
    # In another order, the site's masks would be those of other outputs of the network.
    other = dict(reversed(odd.sites.classes.items())) if turned else {"cup": (1,)}
    odd.__dict__["sites"] = replace(odd.sites, classes=other)
    post = Post({"node-0": odd.answer, **post_of({n: hospitals[n] for n in ("site2", "site3")}).answers})
    engine = RemoteEngine(post, rules, Reports(notes.append))
    assert set(engine.gather()) == {"site2", "site3"}
    assert any("its classes are" in event.what for event in notes)


def test_a_folder_of_the_local_engine_is_not_taken_over(tmp_path: Path, config, hospitals):
    execute(replace_engine(config, "local"), tmp_path / "run", report=False)
    (tmp_path / "run" / "results.json").unlink()
    with pytest.raises(RunError, match="holds a run of the local engine"):
        coordinate(config, tmp_path / "run", post_of(hospitals))


def test_an_experiment_may_change_until_it_has_begun(tmp_path: Path, config, hospitals):
    class Gone(Post):
        def nodes(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        coordinate(config, tmp_path / "run", Gone({}))
    longer = config.model_copy(update={"rounds": 2})
    coordinate(longer, tmp_path / "run", post_of(hospitals))
    assert RunFolder(tmp_path / "run").config.rounds == 2
    assert len(RunFolder(tmp_path / "run").rounds()) == 2


@pytest.mark.parametrize(
    "raw",
    [
        "0100000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000080",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    ],
)
def test_a_key_whose_signatures_prove_nothing_is_none(raw):
    key = b64encode(bytes.fromhex(raw)).decode()
    anything = b64encode(b"\x01" + bytes(63)).decode()
    assert not is_signed("I said 0.1", anything, key)
    with pytest.raises(ValueError, match="is not a public key"):
        checked_key(key)


def test_a_site_that_refuses_to_score_trains_and_has_no_vote(tmp_path: Path, config):
    """Votes come over the network signed, and a file in a site's folder is enough to keep its images out of them."""
    homes = {name: tmp_path / "homes" / name for name in config.engine.members}
    hospitals = {name: resident(config, name, home) for name, home in homes.items()}
    (homes["site2"] / "no-scoring").touch()
    coordinate(config, tmp_path / "run", post_of(hospitals))
    run = RunFolder(tmp_path / "run")
    held = [done.ballot for done in run.rounds() if done.ballot]
    assert len(held) == 3
    for ballot in held:
        assert set(ballot.scores) == set(ballot.signed) == set(homes) - {"site2"}
        assert "site2" in ballot.without
    assert "site2" in run.results["worth"]["share"]
    assert verify(run).sound
    entries = contents_of(run)
    changed = next(entry for entry in entries if entry.get("ballot"))
    changed["ballot"]["scores"]["site1"][1] = 0.5
    run.ledger_file.write_text("".join(f"{line}\n" for line in chained(entries)))
    assert any("vote of site1: the site signed other scores" in problem for problem in verify(run).problems)


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (SimpleNamespace(name="south", key="k1", fingerprint="f2"), "it has the key of 'north'"),
        (SimpleNamespace(name="south", key="k2", fingerprint="f1"), "it has the same images as 'north'"),
        (SimpleNamespace(name="south", key="k2", fingerprint="f3"), ""),
        (SimpleNamespace(name="north", key="k1", fingerprint="f1"), ""),
        (SimpleNamespace(name="south", key="k2", fingerprint="f2"), ""),
    ],
)
def test_a_hospital_joins_under_one_name(form, reason):
    """One that lost its key, and whose old name may no longer take part, may come back with its images."""
    member = {name: SimpleNamespace(fingerprint=f"f{i}") for i, name in enumerate(("north", "west"), 1)}
    known = {"north": Known("k1", member["north"]), "west": Known("k3", member["west"], gone="it withdrew")}
    with pytest.raises(ReplyError, match=reason) if reason else nullcontext():
        check_is_no_second_name(form, known)
