"""Keys that change and hospitals that leave: every step is a signed line, and holds from the next round on."""

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fedce.base.config import load
from fedce.base.errors import RunError
from fedce.base.identity import Identity, coordinator
from fedce.engines import remote
from fedce.engines.starting import coordinate
from fedce.federation.lines import versions
from fedce.federation.plan import resolve
from fedce.federation.session import Observer
from fedce.present.pages.run import write_report
from fedce.record.attestations import Attestation, attest, countersign
from fedce.record.entries import Change
from fedce.record.folder import RunFolder
from fedce.record.notices import enter, line_for, read_notice, signed_notice, take_waiting, write_notice
from fedce.record.standing import Standing, Standings
from fedce.record.verify import verify
from fedce.site.resident import Resident, at_hospital
from support import Post, Stopped, chained, contents_of, events_of, made_anew, rewrite

SITES = ("site1", "site2", "site3")
TINY = {"data.scale": "tiny", "data.sites": list(SITES), "model.channels": [4, 8], "engine.name": "flower", "rounds": 5}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(remote, "MEET_SECONDS", 0.0)
    monkeypatch.setattr(remote, "POLL_SECONDS", 0.01)


@dataclass
class Federation:
    """Three hospitals and a coordinator in one process."""

    folder: Path
    changes: dict = field(default_factory=dict)

    def __post_init__(self):
        members = {"engine.members": dict.fromkeys(SITES, ""), "engine.deadline_seconds": 9}
        self.config = load(None, {**TINY, **members, **self.changes})
        self.hospitals = {name: self.hospital(name) for name in SITES}
        self.run = RunFolder(self.folder / "run")

    def hospital(self, name: str) -> Resident:
        return Resident(at_hospital(resolve(self.config), name, "fundus6"), name, self.folder / name, versions())

    def go(self, after=None, nodes=SITES) -> RunFolder:
        """Run the rounds that are left; `after` maps a round, counted from 1, to what happens after it."""
        notices: list[str] = []

        def seen(done):
            (after or {}).get(done.round_no + 1, lambda: None)()

        post = Post({f"node-{name}": lambda parcel, name=name: self.hospitals[name].answer(parcel) for name in nodes})
        coordinate(self.config, self.run.path, post, observer=Observer(notice=notices.append, round=seen))
        self.notices = notices
        return RunFolder(self.run.path)

    @property
    def name(self) -> str:
        return RunFolder(self.run.path).ledger().begun.run

    def key(self, site: str) -> Identity:
        return Identity.at(self.folder / site / "key.pem")

    def wait(self, kind: str, site: str, signer: Identity | None = None, new=None) -> None:
        """Put a notice where the coordinator finds it at the next round boundary."""
        key = Standings.of(RunFolder(self.run.path).ledger()).by_site[site].key
        signed = signed_notice(kind, self.name, site, key, signer or self.key(site), new)
        write_notice(self.run.notices_folder / f"{kind}-{site}.json", signed)

    def rotate(self, site: str) -> None:
        self.wait("rotate", site, new=Identity.at(self.folder / site / "key-next.pem"))


def kinds(run: RunFolder) -> list[str]:
    return [line.kind for line in run.ledger() if line.kind not in ("join", "event")]


def asked(run: RunFolder) -> list[list[str]]:
    return [list(done.asked) for done in run.rounds()]


@pytest.fixture(scope="module")
def rotated(tmp_path_factory) -> Federation:
    federation = Federation(tmp_path_factory.mktemp("rotated"))
    federation.before = federation.key("site2").public
    federation.go({2: lambda: federation.rotate("site2")})
    return federation


@pytest.fixture(scope="module")
def withdrawn(tmp_path_factory) -> Federation:
    federation = Federation(tmp_path_factory.mktemp("withdrawn"))
    federation.go({3: lambda: federation.wait("withdraw", "site3")})
    return federation


@pytest.fixture(scope="module")
def replaced(tmp_path_factory) -> Federation:
    """The key of site1 is stolen: the coordinator revokes it after round 1 and enters another one after round 3."""
    federation = Federation(tmp_path_factory.mktemp("replaced"))
    federation.before = federation.key("site1").public
    federation.new = Identity.at(federation.folder / "new.pem")

    def give():
        shutil.copy(federation.folder / "new.pem", federation.folder / "site1" / "key.pem")
        federation.wait("replace", "site1", coordinator(), federation.new.public)

    federation.go({1: lambda: federation.wait("revoke", "site1", coordinator()), 3: give})
    return federation


def copy_of(federation: Federation, tmp_path: Path) -> RunFolder:
    shutil.copytree(federation.run.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def test_a_key_is_changed_without_a_missed_round(rotated: Federation):
    run = RunFolder(rotated.run.path)
    assert kinds(run) == ["start", "round", "round", "rotate", "round", "round", "round", "end"]
    assert asked(run) == [list(SITES)] * 5
    assert all(set(done.sites) == set(SITES) for done in run.rounds())
    verdict = verify(run, keys={"site2": rotated.before})
    assert verdict.problems == ()
    assert verify(run, keys={"site2": rotated.key("site2").public}).problems == ()
    assert any(f"{len(SITES) * 6} answers signed by 3 sites" in fact for fact in verdict.facts)
    new = run.ledger().of(Change)[0].new
    assert rotated.key("site2").public == new
    (earlier,) = (rotated.folder / "site2").glob("key-before-*.pem")
    assert Identity.at(earlier).public == rotated.before
    assert rotated.notices == [f"site2 changed its key to {new}"]
    assert not list(run.notices_folder.iterdir())


def test_a_countersignature_counts_by_a_key_that_was_valid_then_or_came_later(rotated: Federation, tmp_path: Path):
    run = copy_of(rotated, tmp_path)
    (earlier,) = (rotated.folder / "site2").glob("key-before-*.pem")
    signers = {"site1": rotated.key("site1"), "old": Identity.at(earlier), "new": rotated.key("site2")}
    at = next(n for n, line in enumerate(run.ledger(), 1) if isinstance(line, Change))
    whole = run.lines()
    run.results_file.unlink()
    for n_lines, known, unknown in ((at - 1, "site1, site2, site2", None), (at, "site1, site2", signers["old"].public)):
        rewrite(run, whole[:n_lines])
        attested = attest(RunFolder(run.path))
        for signer in signers.values():
            countersign(Attestation.read(attested.path), signer)
        rewrite(run, whole)
        verdict = verify(run)
        assert verdict.problems == ()
        (fact,) = [fact for fact in verdict.facts if attested.path.name in fact]
        assert f"countersigned by {known};" in fact
        doubts = [reason for reason in verdict.unchecked if "no member had this key then" in reason]
        assert [unknown in doubt for doubt in doubts] == ([] if unknown is None else [True])
        attested.path.unlink()


def test_an_answer_by_a_key_that_was_changed_is_found(rotated: Federation, tmp_path: Path):
    (earlier,) = (rotated.folder / "site2").glob("key-before-*.pem")
    entries = contents_of(copy := copy_of(rotated, tmp_path))
    number = next(n for n, entry in enumerate(entries) if entry["kind"] == "rotate") + 1
    signed = entries[number]["sites"]["site2"]["signed"]
    signed["signature"] = Identity.at(earlier).sign(signed["content"])
    rewrite(copy, chained(entries, coordinator()))
    assert any(
        problem.startswith(f"line {number + 1}, site2: the signature is not by the key that the site has since")
        for problem in verify(copy).problems
    )


def test_a_coordinator_can_neither_drop_nor_move_a_change_of_keys(rotated: Federation, tmp_path: Path):
    copy = copy_of(rotated, tmp_path)
    made_anew(copy, lambda entries: entries.remove(next(e for e in entries if e["kind"] == "rotate")))
    assert any("the signature is not by the key" in problem for problem in verify(copy).problems)


@pytest.mark.parametrize("change", ["site", "new", "key", "by", "proof", "signature"])
def test_a_changed_notice_is_found(rotated: Federation, tmp_path: Path, change: str):
    other = {"site": "site1", "new": Identity.at(tmp_path / "other.pem").public, "by": "coordinator"}

    def forge(entries):
        entry = next(entry for entry in entries if entry["kind"] == "rotate")
        place = entry["signed"] if change in ("proof", "signature") else entry
        place[change] = other.get(change, other["new"])

    copy = made_anew(copy_of(rotated, tmp_path), forge, results=False)
    assert any("(rotate site" in problem for problem in verify(copy).problems)


def test_from_its_withdrawal_on_a_hospital_is_not_asked(withdrawn: Federation, tmp_path: Path, fedce):
    run = RunFolder(withdrawn.run.path)
    assert kinds(run) == ["start", "round", "round", "round", "withdraw", "round", "round", "end"]
    assert asked(run) == [list(SITES)] * 3 + [list(SITES[:2])] * 2
    assert [done.missing for done in run.rounds()][3:] == [{"site3": "withdrawn"}] * 2
    assert run.ledger().end.missing == {"site3": "withdrawn"}
    assert verify(run).problems == ()
    assert "site3" not in run.results["dice"]
    assert run.results["contributions"]["site3"] > 0, "what it earned stays"
    assert not any("site3" in event for event in events_of(run.path)), (
        "its node is not asked who it is, again and again"
    )
    assert "site3 withdrew from the run" in fedce("ledger", "show", run.path).output
    sentence = "site3 withdrew after round 3: its later answers are not used, and what it earned before stays."
    assert sentence in write_report(copy := copy_of(withdrawn, tmp_path)).read_text()
    page = tmp_path / "member.html"
    assert fedce("publish", copy.path, "--site", "site3", "--out", page).exit_code == 0
    assert sentence in page.read_text()
    assert fedce("publish", copy.path, "--site", "site1", "--out", page).exit_code == 0
    assert "withdrew" not in page.read_text()


def test_a_coordinator_who_uses_updates_after_a_withdrawal_is_found(withdrawn: Federation, tmp_path: Path):
    def earlier(entries):
        at = next(n for n, entry in enumerate(entries) if entry["kind"] == "withdraw")
        entries.insert(at - 1, entries.pop(at))

    copy = made_anew(copy_of(withdrawn, tmp_path), earlier)
    problems = verify(copy).problems
    assert any("site3 was asked, although the ledger says before: withdrawn" in problem for problem in problems)
    assert any("site3: its answer was used, although the ledger says before" in problem for problem in problems)


def test_a_coordinator_who_leaves_a_hospital_out_without_its_signature_is_found(withdrawn: Federation, tmp_path: Path):
    copy = copy_of(withdrawn, tmp_path)
    made_anew(copy, lambda entries: entries.remove(next(e for e in entries if e["kind"] == "withdraw")))
    assert any(
        "is missing as 'withdrawn', which this run does not allow" in problem for problem in verify(copy).problems
    )


def test_a_stolen_key_is_revoked_and_a_lost_one_replaced_by_the_coordinator(replaced: Federation, tmp_path: Path):
    run = RunFolder(replaced.run.path)
    assert kinds(run) == ["start", "round", "revoke", "round", "round", "replace", "round", "round", "end"]
    assert asked(run)[1:3] == [["site2", "site3"]] * 2
    assert [done.missing for done in run.rounds()][1:3] == [{"site1": "key revoked"}] * 2
    assert set(run.rounds()[-1].sites) == set(SITES), "with its new key it is back"
    verdict = verify(run)
    assert verdict.problems == ()
    (doubt,) = [reason for reason in verdict.unchecked if "whether site1 agreed" in reason]
    assert "--site site1=KEY" in doubt
    own = verify(run, keys={"site1": replaced.new.public})
    assert own.problems == ()
    assert not any("agreed" in reason for reason in own.unchecked)
    (problem,) = verify(run, keys={"site1": replaced.before}).problems
    assert "the coordinator replaced the key that you stated for site1" in problem
    page = write_report(copy_of(replaced, tmp_path)).read_text()
    assert "The key of site1 was revoked by the coordinator after round 1." in page
    assert "replaced the key of site1 after round 3, without a signature of the earlier key." in page


def test_nobody_but_the_coordinator_replaces_a_key(replaced: Federation, tmp_path: Path):
    def forge(entries):
        entry = next(entry for entry in entries if entry["kind"] == "replace")
        entry["signed"]["signature"] = replaced.new.sign(entry["signed"]["content"])

    copy = made_anew(copy_of(replaced, tmp_path), forge, results=False)
    assert any("(replace site1): it is not signed by the coordinator" in problem for problem in verify(copy).problems)


def stop() -> None:
    raise Stopped


def test_what_comes_while_a_run_is_stopped_holds_when_it_goes_on(tmp_path: Path):
    federation = Federation(tmp_path)
    with pytest.raises(Stopped):
        federation.go({2: stop})
    federation.wait("withdraw", "site1")
    run = federation.go(nodes=("site2", "site3"))  # Without waiting for the hospital that has withdrawn.
    assert kinds(run) == ["start", "round", "round", "withdraw", "resume", "round", "round", "round", "end"]
    assert asked(run)[2:] == [["site2", "site3"]] * 3
    assert verify(run).problems == ()


def test_a_round_that_was_saved_and_not_recorded_comes_before_a_change(tmp_path: Path, monkeypatch):
    federation = Federation(tmp_path)
    append = RunFolder.append

    def killed(self, content):
        if content.get("round") == 1 and content["kind"] == "round":
            raise Stopped
        append(self, content)

    monkeypatch.setattr(RunFolder, "append", killed)
    with pytest.raises(Stopped):
        federation.go()
    monkeypatch.setattr(RunFolder, "append", append)
    federation.wait("withdraw", "site1")
    run = federation.go()
    assert kinds(run)[:5] == ["start", "round", "round", "withdraw", "resume"]
    assert verify(run).problems == ()


def test_a_key_is_replaced_while_a_run_is_stopped_that_can_not_go_on_without_the_site(tmp_path: Path):
    federation = Federation(tmp_path, {"engine.min_sites": 3})
    with pytest.raises(Stopped):
        federation.go({2: stop})
    (tmp_path / "site1" / "key.pem").unlink()
    federation.hospitals["site1"] = federation.hospital("site1")
    federation.wait("replace", "site1", coordinator(), federation.key("site1").public)
    run = federation.go()
    assert all(set(done.sites) == set(SITES) for done in run.rounds())
    assert verify(run).problems == ()


def test_if_all_withdraw_the_run_ends_with_one_line(tmp_path: Path):
    federation = Federation(tmp_path)
    with pytest.raises(ValueError, match=r"round 2: no site is left .*site1: withdrawn"):
        federation.go({1: lambda: [federation.wait("withdraw", site) for site in SITES]})


def test_a_site_that_takes_part_in_another_run_still_has_the_key_that_is_known_there(rotated: Federation, tmp_path):
    """A new coordinator is shown the new key; a run that knows the earlier one asks for it."""
    home = tmp_path / "homes"
    for site in SITES:
        shutil.copytree(rotated.folder / site, home / site)
    federation = Federation(home, {"engine.members": {"site1": "", "site2": rotated.before, "site3": ""}, "rounds": 1})
    run = federation.go()
    assert [line.key for line in run.ledger() if line.kind == "join" and line.site == "site2"] == [rotated.before]
    assert verify(run).problems == ()


@pytest.fixture
def standings(tmp_path: Path) -> Standings:
    keys = {site: Identity.at(tmp_path / f"{site}.pem").public for site in ("north", "south")}
    by_site = {site: Standing(key) for site, key in keys.items()}
    return Standings("00", coordinator().public, by_site, {key: site for site, key in keys.items()})


@pytest.mark.parametrize(
    ("kind", "signer", "change", "words"),
    [
        ("withdraw", "north", {}, None),
        ("revoke", "north", {}, None),
        ("revoke", None, {}, None),
        ("rotate", "north", {"new": "fresh"}, None),
        ("replace", None, {"new": "fresh"}, None),
        ("withdraw", "south", {}, "it is not signed by the site"),
        ("withdraw", None, {}, "it is not signed by the site"),
        ("rotate", None, {"new": "fresh"}, "it is not signed by the site"),
        ("rotate", "fresh", {"new": "fresh"}, "it is not signed by the site"),
        ("replace", "north", {"new": "fresh"}, "it is not signed by the coordinator"),
        ("revoke", "south", {}, "it is not signed by the site or the coordinator"),
        ("rotate", "north", {}, "it names no new key"),
        ("rotate", "north", {"new": "south"}, "was used before"),
        ("rotate", "north", {"new": "north"}, "was used before"),
        ("withdraw", "north", {"run": "11"}, "it is for the run 11, and this is 00"),
        ("withdraw", "north", {"site": "west"}, "west has not joined this run"),
        ("withdraw", "north", {"site": "south"}, "it is about the key"),
    ],
)
def test_only_the_right_key_changes_anything(standings, tmp_path: Path, kind, signer, change, words):
    author = Identity.at(tmp_path / f"{signer}.pem") if signer else coordinator()
    new = Identity.at(tmp_path / f"{change['new']}.pem") if "new" in change else None
    about = {"run": "00", "site": "north", **{name: value for name, value in change.items() if name != "new"}}
    key = Identity.at(tmp_path / "north.pem").public
    signed = signed_notice(kind, about["run"], about["site"], key, author, new)
    if words is None:
        assert line_for(signed, standings, "it")["by"] == ("site" if signer else "coordinator")
    else:
        with pytest.raises(RunError, match=words):
            line_for(signed, standings, "it")


def test_a_revoked_key_signs_nothing_more_and_a_withdrawal_is_final(standings, tmp_path: Path):
    north = Identity.at(tmp_path / "north.pem")
    fresh = Identity.at(tmp_path / "fresh.pem")
    leave = signed_notice("withdraw", "00", "north", north.public, north)
    give = signed_notice("replace", "00", "north", north.public, coordinator(), fresh.public)
    standings.by_site["north"] = Standing(north.public, "key revoked")
    with pytest.raises(RunError, match="is revoked; the coordinator must replace it first"):
        line_for(leave, standings, "it")
    assert line_for(give, standings, "it")["new"] == fresh.public
    standings.by_site["north"] = Standing(north.public, "withdrawn")
    with pytest.raises(RunError, match="north has withdrawn"):
        line_for(give, standings, "it")


def test_the_commands_of_a_hospital_and_its_coordinator(rotated: Federation, tmp_path: Path, fedce):
    run, home, name = copy_of(rotated, tmp_path), tmp_path / "home", rotated.name
    shutil.copytree(rotated.folder / "site1", home)
    key, first, second = home / "key.pem", tmp_path / "rotation.json", tmp_path / "withdrawal.json"
    about = ("--site", "site1", "--run", name)
    made = fedce("keys", "rotate", key, *about, "--out", first)
    assert made.exit_code == 0, made.output
    new = Identity.at(home / "key-next.pem").public
    assert new in made.output
    entered = fedce("ledger", "add", run.path, first)
    assert "is entered in the ledger" in entered.output
    assert "is in the ledger already" in fedce("ledger", "add", run.path, first).output
    assert fedce("withdraw", key, *about, "--out", second).exit_code == 0
    refused = fedce("ledger", "add", run.path, second)
    assert refused.exit_code == 2, "the key was changed since"
    assert f"the key of site1 is {new}" in refused.output
    assert fedce("keys", "revoke", run.path, "--site", "site1").exit_code == 0
    lost = fedce("keys", "replace", run.path, "--site", "site1", "--new", Identity.at(tmp_path / "lost.pem").public)
    assert lost.exit_code == 0, lost.output
    second.unlink()
    fedce("withdraw", tmp_path / "lost.pem", *about, "--out", second)
    assert fedce("ledger", "add", run.path, second).exit_code == 0
    assert kinds(run)[-5:] == ["end", "rotate", "revoke", "replace", "withdraw"]
    assert verify(run).problems == ()
    shown = fedce("ledger", "show", run.path).output
    assert "the coordinator revoked the key of site1" in shown
    assert "the coordinator, without the old key, replaced the key of site1" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["keys", "rotate", "nowhere.pem", "--site", "a", "--run", "00", "--out", "x"], "nowhere.pem does not exist"),
        (["keys", "revoke", "KEY", "--site", "a"], "a site's key is revoked with --run and --out"),
        (["keys", "revoke", "RUN", "--site", "a", "--run", "00"], "--run and --out are for a site's key FILE"),
        (["keys", "revoke", "RUN", "--site", "nobody"], "no site 'nobody' has joined"),
        (["keys", "replace", "RUN", "--site", "site1", "--new", "short"], "--new: 'short' is not a public key"),
        (["withdraw", "KEY", "--site", "a", "--run", "../x", "--out", "x"], "--run: expected the run's name"),
        (["withdraw", "KEY", "--site", "a", "--run", "00", "--out", "KEY"], "exists; choose another --out"),
        (["ledger", "add", "RUN", "KEY"], "is not valid JSON"),
    ],
)
def test_bad_notices_are_one_line(rotated: Federation, tmp_path: Path, fedce, arguments, words):
    places = {"RUN": rotated.run.path, "KEY": rotated.folder / "site1" / "key.pem"}
    result = fedce(*(places.get(word, word) for word in arguments), cwd=tmp_path)
    assert result.exit_code == 2
    assert words in result.output


def test_another_coordinator_enters_nothing(rotated: Federation, tmp_path: Path, monkeypatch):
    run = copy_of(rotated, tmp_path)
    signed = signed_notice("withdraw", rotated.name, "site1", rotated.key("site1").public, rotated.key("site1"))
    monkeypatch.setenv("FEDCE_KEY", str(tmp_path / "other.pem"))
    with pytest.raises(RunError, match="belongs to the coordinator"):
        enter(run, signed, "it")
    assert not list(run.notices_folder.glob("*"))


def test_sites_of_the_local_engine_have_no_keys(tiny_run: Path, tmp_path: Path):
    signed = signed_notice("withdraw", "00", "site1", (own := Identity.at(tmp_path / "key.pem")).public, own)
    with pytest.raises(RunError, match="a run of the local engine, whose sites have no keys"):
        enter(RunFolder(tiny_run), signed, "it")


def test_a_waiting_notice_that_is_wrong_is_put_aside(rotated: Federation, tmp_path: Path):
    run, said = copy_of(rotated, tmp_path), []
    run.sign = coordinator().sign
    (run.notices_folder / "a.json").write_text("{}")
    write_notice(run.notices_folder / "b.json", read_rotation(rotated))
    assert take_waiting(run, said.append) == []
    assert len(said) == 1, "a notice that is in the ledger already is only removed"
    assert "a.json holds no notice" in said[0]
    assert [path.name for path in run.notices_folder.iterdir()] == ["a.refused"]


def read_rotation(rotated: Federation):
    path = rotated.folder / f"again-{os.getpid()}.json"
    line = RunFolder(rotated.run.path).ledger().of(Change)[0]
    path.write_text(json.dumps(line.signed.model_dump()))
    return read_notice(path)
