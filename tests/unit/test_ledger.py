"""A ledger that members can check: whatever is changed is found, and named by its line."""

import json
import os
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedce import load_sites
from fedce import run as run_here
from fedce.algorithms import make
from fedce.base.config import load
from fedce.base.files import digest_of
from fedce.base.identity import Identity, coordinator
from fedce.base.tables import EngineConfig
from fedce.engines import starting
from fedce.federation.lines import versions
from fedce.federation.plan import resolve
from fedce.guard.border import HARMFUL_STATISTICS
from fedce.record.entries import Join
from fedce.record.folder import RunFolder
from fedce.record.verify import NEW_FIELDS, verify
from fedce.site.resident import Resident, at_hospital
from support import Post, chained, contents_of, made_anew, rewrite

SITES = ("site1", "site2", "site3")
HARMFUL = HARMFUL_STATISTICS.text


@pytest.fixture(scope="module")
def signed_run(tmp_path_factory) -> Path:
    """A finished run whose sites signed what they said."""
    return signed_at(tmp_path_factory.mktemp("signed"))


def signed_at(folder: Path, changes=None) -> Path:
    tiny = {"data.scale": "tiny", "data.sites": list(SITES), "model.channels": [4, 8], "rounds": 4, **(changes or {})}
    config = load(None, {**tiny, "engine.name": "flower", "engine.members": dict.fromkeys(SITES, "")})
    sites = {
        name: Resident(at_hospital(resolve(config), name, "fundus6"), name, folder / name, versions()) for name in SITES
    }
    starting.coordinate(config, folder / "run", Post({name: site.answer for name, site in sites.items()}))
    return folder / "run"


@pytest.fixture(params=["local", "signed"])
def run(request, tmp_path: Path, tiny_run: Path, signed_run: Path) -> RunFolder:
    source = tiny_run if request.param == "local" else signed_run
    shutil.copytree(source, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def test_a_ledger_as_it_was_written_is_sound(run: RunFolder):
    verdict = verify(run)
    assert verdict.problems == ()
    assert any("worked out again" in fact for fact in verdict.facts)


def test_the_sites_signatures_are_there(signed_run: Path):
    assert "15 answers signed by 3 sites" in verify(RunFolder(signed_run)).facts


def test_single_cases_stay_at_a_site_elsewhere(signed_run: Path):
    assert not (signed_run / "cases.csv").exists()
    for site in SITES:
        (own,) = (signed_run.parent / site).glob("*/cases.csv")
        assert own.read_text().startswith(f"site,case,class,dice\n{site},")


def test_a_dropped_a_doubled_and_a_moved_line_are_named(run: RunFolder):
    lines = run.lines()
    first = next(i for i, entry in enumerate(run.ledger()) if entry.kind == "round")
    rewrite(run, [*lines[: first + 1], *lines[first + 2 :]])
    problems = verify(run).problems
    assert any(f"line {first + 2} does not follow from line {first + 1}" in problem for problem in problems)
    assert any("is round 3 where round 2 should be" in problem for problem in problems)
    rewrite(run, [*lines[: first + 1], lines[first], *lines[first + 1 :]])
    assert f"line {first + 2} repeats line {first + 1}" in verify(run).problems
    rewrite(run, [*lines[:first], lines[first + 1], lines[first], *lines[first + 2 :]])
    assert any("lines were moved or put in" in problem for problem in verify(run).problems)
    rewrite(run, lines[:-1])
    assert "the run has results, but the ledger has no end: its last lines are gone" in verify(run).problems


def test_a_forger_who_makes_the_chain_anew_lacks_the_key(run: RunFolder, tmp_path: Path):
    entries = contents_of(run)
    entry = next(entry for entry in entries if entry["kind"] == "round")
    next(iter(entry["sites"].values()))["share"] += 0.1
    rewrite(run, chained(entries))
    problems = verify(run).problems
    assert any("is not signed by the coordinator" in problem for problem in problems)
    # With a key of the forger's own the signatures are right, but not by whom members know.
    forger = Identity.at(tmp_path / "forger.pem")
    known = entries[0]["coordinator"]
    for entry in entries:
        if "coordinator" in entry:
            entry["coordinator"] = forger.public
    rewrite(run, chained(entries, forger))
    assert any("the coordinator's key is" in problem for problem in verify(run, coordinator=known).problems)


def test_a_coordinator_who_changes_shares_is_found_by_the_terms(run: RunFolder):
    """The coordinator has its key, so chain and signatures are right; the arithmetic is not."""
    entries = contents_of(run)
    number, entry = next((i, entry) for i, entry in enumerate(entries, 1) if entry["kind"] == "round")
    site = next(iter(entry["sites"]))
    entry["sites"][site]["share"] += 0.1
    rewrite(run, chained(entries, Identity.at(Path(os.environ["FEDCE_KEY"]))))
    assert any(problem.startswith(f"line {number}, {site}: its share is") for problem in verify(run).problems)


def test_a_coordinator_who_changes_what_a_site_said_is_found_by_its_signature(signed_run: Path, tmp_path: Path):
    shutil.copytree(signed_run, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    entries = contents_of(run)
    entry = [entry for entry in entries if entry["kind"] == "round"][2]
    entry["sites"]["site2"]["err"] *= 0.5
    key = Identity.at(Path(os.environ["FEDCE_KEY"]))
    rewrite(run, chained(entries, key))
    assert any("site2: err is" in problem and "but the site signed" in problem for problem in verify(run).problems)
    entry["sites"]["site2"]["signed"] = entry["sites"]["site1"]["signed"]
    rewrite(run, chained(entries, key))
    assert any("site2: the signature is not by the key" in problem for problem in verify(run).problems)


def forged(run: RunFolder, change) -> tuple[str, ...]:
    """What is found when a coordinator changes its own ledger, and signs it."""
    return verify(made_anew(run, change, results=False)).problems


def test_a_coordinator_who_pays_other_shares_is_found(run: RunFolder):
    site = next(iter(run.results["contributions"]))
    results = run.results
    results["contributions"][site] += 0.05
    run.write_results(results)
    problems = forged(run, lambda entries: entries[-1]["shares"].__setitem__(site, results["contributions"][site]))
    assert any(problem.startswith(f"the end gives {site}") for problem in problems)


def test_trust_that_does_not_follow_from_the_signs_is_found(run: RunFolder):
    def favour(entries):
        facts = [entry for entry in entries if entry["kind"] == "round"][1]["sites"]["site2"]
        facts["trust"] = 0.0

    def suspect(entries):
        signs = [entry for entry in entries if entry["kind"] == "round"][1]["sites"]["site2"]["signs"]
        signs["suspected"] = not signs["suspected"]

    lines = run.lines()
    assert any("site2: the trust in it does not follow from what the guard saw" in p for p in forged(run, favour))
    rewrite(run, lines)
    found = "site2: what the guard saw does not follow from the ledger"
    assert any(found in problem for problem in forged(run, suspect))
    rewrite(run, lines)

    def lie(entries):
        signs = [entry for entry in entries if entry["kind"] == "round"][2]["sites"]["site2"]["signs"]
        signs["excess"] = 0.9

    assert any(found in problem for problem in forged(run, lie))
    rewrite(run, lines)

    def forget(entries):
        facts = [entry for entry in entries if entry["kind"] == "round"][2]["sites"]["site2"]
        facts.update(trust=0.3, signs={})

    assert any("an entry has the wrong form" in problem for problem in forged(run, forget))


@pytest.mark.parametrize(
    ("flags", "harm", "is_sound"),
    [([HARMFUL], None, False), ([], 0.5, False), ([], 0.01, True), ([HARMFUL], 0.5, True)],
)
def test_statistics_are_left_out_by_their_harm_and_not_otherwise(run: RunFolder, flags, harm, is_sound):
    def change(entries):
        facts = next(entry for entry in entries if entry["kind"] == "round")["sites"]["site1"]
        facts |= {"flags": flags, "statistics_harm": harm}

    found = "site1: what is said of its running statistics does not follow from their harm"
    assert any(found in problem for problem in forged(run, change)) is not is_sound


def test_a_ghost_and_a_swapped_key_are_found(signed_run: Path, tmp_path: Path):
    shutil.copytree(signed_run, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    own = next(join.key for join in run.ledger().of(Join) if join.site == "site2")

    def add_a_ghost(entries):
        sites = next(entry for entry in entries if entry["kind"] == "round")["sites"]
        sites["ghost"] = {key: value for key, value in sites["site1"].items() if key != "signed"}

    assert any("ghost never joined" in problem for problem in forged(run, add_a_ghost))
    shutil.copy(signed_run / "ledger.jsonl", run.ledger_file)

    def swap(entries):
        next(entry for entry in entries if entry["kind"] == "join" and entry["site"] == "site2")["key"] = other
        for entry in entries:
            if entry["kind"] == "round":
                content = entry["sites"]["site2"]["signed"]["content"]
                entry["sites"]["site2"]["signed"]["signature"] = forger.sign(content)
            if entry["kind"] == "end":
                signed = entry["evaluations"]["site2"]["signed"]
                signed["signature"] = forger.sign(signed["content"])

    forger = Identity.at(tmp_path / "forger.pem")
    other = forger.public
    assert forged(run, swap) == ()
    # Nobody but the site itself knows better, and it may say so.
    assert any("joins with the key" in problem for problem in verify(run, keys={"site2": own}).problems)


def test_a_coordinator_who_strips_all_signatures_is_found(signed_run: Path, tmp_path: Path):
    shutil.copytree(signed_run, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    own = next(join.key for join in run.ledger().of(Join) if join.site == "site2")

    def strip(entries):
        entries[:] = [entry for entry in entries if entry["kind"] != "join"]
        entries[0].pop("run")
        for entry in entries:
            for facts in (entry["sites"] if entry["kind"] == "round" else entry.get("evaluations", {})).values():
                facts.pop("signed")

    assert any("site1 never joined" in problem for problem in forged(run, strip))
    # Also where the experiment is said to have been another one from the start.
    run.write_config(run.config.model_copy(update={"engine": EngineConfig()}))

    def start_anew(entries):
        strip(entries)
        entries[0].update(config_file=digest_of(run.config_file), splits="0" * 64)

    shutil.copy(signed_run / "ledger.jsonl", run.ledger_file)
    assert forged(run, start_anew) == ()
    assert "site2, whose key you stated, never joined" in verify(run, keys={"site2": own}).problems


def test_another_experiment_than_it_was_started_with_is_found(run: RunFolder):
    text = run.config_file.read_text("utf-8")
    run.config_file.write_text(text.replace('name = "fedce"', 'name = "fedprox"'), "utf-8")
    assert "line 1: config.toml is not the file that the run was started with" in verify(run).problems


NO_ENDS = {"level": 0.95, "low": {}, "high": {}, "sentences": []}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda results: results["contributions"].pop("site1"), "are not of the same sites: 'site1' is only in one"),
        (lambda results: results["dice"].update(site1=0.99), "gives dice.site1 as 0.99"),
        (lambda results: results["validation_dice"].update(site1=0.9), "gives validation_dice.site1 as 0.9"),
        (lambda results: results["fairness"].update(mean=0.9), "gives fairness.mean as 0.9"),
        (lambda results: results["train_images"].update(site1=99999), "gives train_images.site1 as 99999"),
        (lambda results: results["train_images_used"].update(site1=9), "gives train_images_used.site1 as 9"),
        (lambda results: results["flags"].update(site1=["noise"]), "gives flags.site1 as ['noise']"),
        (lambda results: results.update(device="cuda"), "gives device as 'cuda'"),
        (lambda results: results.update(n_parameters=1), "gives n_parameters as 1"),
        (lambda results: results.update(intervals=NO_ENDS), "gives intervals as {'level': 0.95"),
        (lambda results: results.update(command="rm"), "gives command as 'rm'"),
        (lambda results: results["versions"].update(fedce="9"), "gives versions.fedce as '9'"),
        (lambda results: results["reconstruction"].update(site1=1.0), "gives reconstruction.site1 as 1.0"),
    ],
)
def test_results_other_than_the_ledgers_end_are_found(run: RunFolder, change, problem):
    results = run.results
    change(results)
    run.write_results(results)
    assert any(problem in found for found in verify(run).problems)


def test_another_model_file_is_found(run: RunFolder):
    assert "model.safetensors is the file that the ledger ends with" in verify(run).facts
    content = bytearray(run.model_file.read_bytes())
    content[-1] ^= 1
    run.model_file.write_bytes(bytes(content))
    assert "model.safetensors is not the file that the ledger ends with" in verify(run).problems
    run.model_file.unlink()
    assert verify(run).sound
    assert "model.safetensors: the file is not here" in verify(run).unchecked


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda end: end["shares"].update(friend=0.5), "the end gives friend 0.5, but the rounds None"),
        (lambda end: end["files"].update({"../../x": "0"}), "a file outside of the run folder"),
        (lambda end: end["evaluations"].clear(), "site1 is missing, and the ledger does not say why"),
        (lambda end: end["evaluations"]["site1"].update(validation_dice=0.9), "signed another evaluation"),
    ],
)
def test_an_end_that_does_not_follow_is_found(signed_run: Path, tmp_path: Path, change, problem):
    shutil.copytree(signed_run, tmp_path / "run")
    assert any(problem in found for found in forged(RunFolder(tmp_path / "run"), lambda entries: change(entries[-1])))


def test_a_metric_other_than_the_site_signed_is_found(tmp_path: Path):
    run = RunFolder(signed_at(tmp_path, {"metrics": ["dice", "iou", "surface_dice"], "rounds": 2}))
    assert verify(run).problems == ()
    assert run.results["metrics"].keys() == {"dice", "iou", "surface_dice"}

    def embellished(entries):
        entries[-1]["evaluations"]["site1"]["metrics"]["iou"]["by_class"]["disc"] = 1.0

    assert any("signed another evaluation" in found for found in forged(run, embellished))


def test_flags_and_replicates_that_a_coordinator_made_up_are_found(tmp_path: Path):
    # Half of eight cases would be too few to resample.
    signed_at(tmp_path, {"data.split": [0.2, 0.6, 0.2]})

    def slander(entries):
        facts = [entry for entry in entries if entry["kind"] == "round"][1]["sites"]["site1"]
        facts["flags"] = ["its updates are noise"]
        facts["err_replicates"][0] += 0.1

    problems = forged(RunFolder(tmp_path / "run"), slander)
    assert any("site1: its flags do not follow" in problem for problem in problems)
    assert any("site1: err_replicates is" in problem for problem in problems)


def test_a_novelty_other_than_the_site_signed_is_found(tmp_path: Path):
    run = RunFolder(signed_at(tmp_path, {"algorithm.estimate": "site"}))
    assert verify(run).problems == ()

    def favour(entries):
        [entry for entry in entries if entry["kind"] == "round"][2]["sites"]["site1"]["cos"] = 1.9

    assert any("site1: cos is 1.9, but the site signed" in problem for problem in forged(run, favour))


def test_a_run_that_names_code_is_checked_without_running_it(tmp_path: Path, tiny_run: Path, monkeypatch, fedce):
    shutil.copytree(tiny_run, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("import pathlib; pathlib.Path('ran').touch()\n")
    config = tmp_path / "run" / "config.toml"
    text = config.read_text("utf-8")
    config.write_text(text.replace('name = "fedce"', 'name = "evil:Algorithm"'), "utf-8")
    assert fedce("ledger", "verify", "run").exit_code == 1
    config.write_text(text.replace('name = "unet"', 'name = "evil:Network"'), "utf-8")
    for command in (
        ("predict", "run", "x.png", "--out", "masks"),
        ("ledger", "audit", "run", "--site", "site1", "--data", "fundus6"),
    ):
        refused = fedce(*command)
        assert refused.exit_code == 2
        assert "names code that would be run (model.name = evil:Network)" in refused.stderr
    assert not (tmp_path / "ran").exists()
    assert fedce("predict", "run", "x.png", "--out", "masks", "--trust-code").exit_code == 2
    assert (tmp_path / "ran").exists()


def grow_young(entries: list[dict], stated: int) -> None:
    """As an earlier version would have written it."""
    for entry in entries:
        for since, fields in NEW_FIELDS.items():
            if since > stated:
                for name in fields.get(entry["kind"], ()):
                    del entry[name]
    start, end = entries[0], entries[-1]
    start.pop("splits", None)
    end.pop("example_dice", None)
    start["format"] = stated
    if stated == 1:
        del start["format"]


def test_a_ledger_of_format_2_is_checked_as_far_as_it_goes(run: RunFolder, fedce):
    """What today's folders hold: shares, Dice and models are checked, and what the results were made of is not."""
    assert forged(run, lambda entries: grow_young(entries, 2)) == ()
    results = run.results
    for key in ("initial_dice", "train_images_used", "validation_interval"):
        del results[key]
    run.write_results(results)
    verdict = verify(run)
    assert verdict.proves == "signed"
    assert any("an earlier version did not record it" in reason for reason in verdict.unchecked)
    assert fedce("report", run.path).exit_code == 0
    paid = fedce("allocate", run.path, "--budget", 100, "--rule", "samples", "--json")
    assert paid.exit_code == 0, paid.output
    results["dice"]["site1"] = 0.99
    run.write_results(results)
    assert any("gives dice.site1 as 0.99" in problem for problem in verify(run).problems)


def test_a_run_of_an_earlier_format_is_not_gone_on_with(tiny_run: Path, tmp_path: Path, fedce):
    shutil.copytree(tiny_run, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    made_anew(run, lambda entries: grow_young(entries, 2), results=False)
    rewrite(run, run.lines()[:-1])
    run.results_file.unlink()
    refused = fedce("run", "--resume", run.path)
    assert refused.exit_code == 2
    assert (
        "has format 2, and this version of fedce writes format 4; go on with the version that began" in refused.stderr
    )


@pytest.mark.parametrize("stated", [1, 2])
def test_a_downgraded_format_is_found(run: RunFolder, stated):
    def downgrade(entries):
        entries[0]["format"] = stated

    problems = forged(run, downgrade)
    assert any(f"but line 1 states format {stated}: one of them was changed" in problem for problem in problems)


@pytest.mark.parametrize("stated", [True, "3", 3.0, 0, -1, None])
def test_a_format_that_is_no_number_is_found(run: RunFolder, stated):
    entries = contents_of(run)
    entries[0]["format"] = stated
    rewrite(run, chained(entries, coordinator()))
    assert not verify(run).sound


def test_a_format_of_a_later_version_is_one_line(run: RunFolder, fedce):
    made_anew(run, lambda entries: entries[0].update(format=4), results=False)
    entries = contents_of(run)
    entries[0]["format"] = 5
    rewrite(run, chained(entries, coordinator()))
    for command in (("ledger", "verify"), ("ledger", "show"), ("report",)):
        refused = fedce(*command, run.path)
        assert refused.exit_code == 2
        assert "has format 5, and this version of fedce reads formats up to 4; install" in refused.stderr


def test_a_ledger_of_an_earlier_version_is_checked_as_far_as_it_goes(run: RunFolder, fedce):
    assert forged(run, lambda entries: grow_young(entries, 1)) == ()
    assert any("an earlier version did not record them" in reason for reason in verify(run).unchecked)
    assert fedce("report", run.path).exit_code == 0
    assert fedce("allocate", run.path, "--budget", 100, "--rule", "samples").exit_code == 0
    refused = fedce("ledger", "audit", run.path, "--site", "site1", "--data", "fundus6")
    assert refused.exit_code == 2
    assert "is of an earlier version" in refused.stderr


@pytest.mark.parametrize(
    ("algorithm", "fact"),
    [
        ("fedavg", "weights and shares of 2 rounds worked out again"),
        ("fedprox", "weights and shares of 2 rounds worked out again"),
        ("uniform", "weights and shares of 2 rounds worked out again"),
        ("standalone", "weights and shares of 2 rounds worked out again"),
        ("krum", "shares of 2 rounds worked out again"),
    ],
)
def test_shares_of_plain_methods_are_worked_out_again(tmp_path: Path, fedce, algorithm, fact):
    out = tmp_path / "run"
    done = fedce(
        *("run", "--scale", "tiny", "--algorithm", algorithm, "--rounds", 2, "--workers", 1, "--out", out),
        *("--set", "model.channels=[4,8]"),
    )
    assert done.exit_code == 0, done.output
    run = RunFolder(out)
    assert verify(run).problems == ()
    assert fact in verify(run).facts

    def favour(entries):
        told = {f"site{i}": 0.7 if i == 1 else 0.06 for i in range(1, 7)}
        for entry in (entry for entry in entries if entry["kind"] == "round"):
            for site, facts in entry["sites"].items():
                facts["share"] = told[site]
        entries[-1]["shares"] = told

    problems = verify(made_anew(run, favour)).problems
    assert any("the end gives site1 0.7, but the rounds" in problem for problem in problems)
    assert any("site1: its share is 0.700000" in problem for problem in problems)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_entry_of_another_form_breaks_nothing(signed_run: Path, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("form") / "run"
    folder.mkdir()
    for name in ("config.toml", "results.json", "ledger.jsonl"):
        shutil.copy(signed_run / name, folder / name)
    run = RunFolder(folder)

    def spoil(entries):
        entry = data.draw(st.sampled_from(entries))
        if entry["kind"] == "round" and data.draw(st.booleans()):
            entry = entry["sites"][data.draw(st.sampled_from(sorted(entry["sites"])))]
        key = data.draw(st.sampled_from(sorted(entry)))
        value = data.draw(st.none() | st.text(max_size=5) | st.lists(st.integers(), max_size=2) | st.just({}))
        if value is None:
            del entry[key]
        else:
            entry[key] = value

    forged(run, spoil)


def test_a_hash_that_a_member_noted_down_must_still_be_there(run: RunFolder):
    noted = sha256(run.lines()[2].encode()).hexdigest()
    assert verify(run, head=noted).sound
    assert not verify(run, head="0" * 64).sound


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_is_found(signed_run: Path, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("byte") / "run"
    folder.mkdir()
    for name in ("config.toml", "results.json"):
        shutil.copy(signed_run / name, folder / name)
    content = bytearray((signed_run / "ledger.jsonl").read_bytes())
    place = data.draw(st.integers(0, len(content) - 2))
    new = data.draw(st.integers(0, 255).filter(lambda value: value != content[place]))
    content[place] = new
    (folder / "ledger.jsonl").write_bytes(bytes(content))
    verdict = verify(RunFolder(folder))
    assert not verdict.sound


def test_results_that_were_changed_are_found(run: RunFolder):
    results = run.results
    site = next(iter(results["contributions"]))
    results["contributions"][site] += 0.01
    run.write_results(results)
    assert any(f"results.json gives contributions.{site} as" in problem for problem in verify(run).problems)


def test_by_the_command_line(run: RunFolder, fedce):
    good = fedce("ledger", "verify", run.path)
    assert good.exit_code == 0
    assert good.stdout.splitlines()[-1] == "the ledger is sound"
    assert json.loads(fedce("ledger", "verify", run.path, "--json").stdout)["proves"] == "signed"
    shown = fedce("ledger", "show", run.path)
    assert shown.stdout.count("round ") >= 4
    lines = run.lines()
    rewrite(run, [*lines[:2], *lines[3:]])
    bad = fedce("ledger", "verify", run.path)
    assert bad.exit_code == 1
    assert "WRONG: line 3 does not follow from line 2" in bad.stdout
    told = json.loads(fedce("ledger", "verify", run.path, "--json").stdout)
    assert (told["sound"], told["proves"]) == (False, "unsound")
    assert fedce("ledger", "verify", run.path.parent / "nothing").exit_code == 2


def test_a_key_that_nobody_vouches_for_proves_nothing(run: RunFolder, tmp_path: Path, fedce, monkeypatch):
    """Whoever holds neither the coordinator's key nor its name learns that the ledger is consistent, and no more."""
    key = coordinator().public
    monkeypatch.setenv("FEDCE_KEY", str(tmp_path / "none.pem"))
    doubted = fedce("ledger", "verify", run.path)
    assert doubted.exit_code == 3
    last = doubted.stdout.splitlines()[-1]
    assert last.startswith(f"the ledger is consistent, but it is signed by {key}, a key that nobody vouches for")
    assert "--coordinator KEY" in last
    assert not (tmp_path / "none.pem").exists()
    told = json.loads(fedce("ledger", "verify", run.path, "--json").stdout)
    assert (told["sound"], told["proves"]) == (True, "consistent")
    assert fedce("ledger", "verify", run.path, "--coordinator", key).exit_code == 0
    other = Identity.at(tmp_path / "other.pem").public
    assert fedce("ledger", "verify", run.path, "--coordinator", other).exit_code == 1
    assert "These numbers are not confirmed" in fedce("allocate", run.path, "--budget", 9, "--rule", "equal").stderr
    assert fedce("report", run.path).exit_code == 0
    assert "These numbers are not confirmed" in run.report_file.read_text("utf-8")


def test_stripped_signatures_prove_nothing(run: RunFolder, fedce):
    """Somebody without any key makes the chain anew, and leaves the signatures out."""
    entries = contents_of(run)
    for entry in entries:
        entry.pop("signature")
        entry.pop("coordinator", None)
    rewrite(run, chained(entries))
    doubted = fedce("ledger", "verify", run.path)
    assert doubted.exit_code == 3, doubted.output
    assert "consistent, but no coordinator signed it" in doubted.stdout.splitlines()[-1]
    known = fedce("ledger", "verify", run.path, "--coordinator", coordinator().public)
    assert known.exit_code == 1
    entries[1]["signature"] = "x"
    rewrite(run, chained(entries))
    assert "line 2 is signed, but line 1 names no coordinator: line 1 was changed" in verify(run).problems


def test_stripped_answers_are_found_where_sites_had_keys(signed_run: Path, tmp_path: Path, fedce):
    shutil.copytree(signed_run, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    entries = contents_of(run)
    for entry in entries:
        entry.pop("signature")
        entry.pop("coordinator", None)
        if entry["kind"] == "round":
            for facts in entry["sites"].values():
                facts.pop("signed")
    rewrite(run, chained(entries))
    assert fedce("ledger", "verify", run.path).exit_code == 1
    assert any("its answer is not signed" in problem for problem in verify(run).problems)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda line: line.replace('"time": ', '"time":  ', 1),
        lambda line: line + " ",
        lambda line: line.replace('"kind"', '"\\u006bind"', 1),
        lambda line: line.replace('"time": ', '"time": NaN, "times": ', 1),
        lambda line: line.replace('"time": ', '"time": 1e999, "times": ', 1),
        lambda line: line.replace("{", '{"kind": "start", ', 1),
        lambda line: line.replace('"seconds": ', '"seconds": 1e0, "more": ', 1),
    ],
    ids=["space", "end", "escape", "nan", "infinity", "twice", "number"],
)
def test_a_line_in_any_other_writing_is_found(run: RunFolder, fedce, spoil):
    lines = run.lines()
    number = next(i for i, entry in enumerate(run.ledger()) if entry.kind == "round")
    assert spoil(lines[number]) != lines[number]
    lines[number] = spoil(lines[number])
    rewrite(run, lines)
    assert any(f"line {number + 1} is not as fedce writes it" in problem for problem in verify(run).problems)
    refused = fedce("ledger", "show", run.path)
    assert refused.exit_code == 2
    assert f"line {number + 1}, is not as fedce writes it" in refused.stderr


def test_missing_rounds_are_found(run: RunFolder):
    """Also where the coordinator leaves the last rounds out and makes everything else follow."""

    def cut(entries):
        last = [i for i, entry in enumerate(entries) if entry["kind"] == "round"][-1]
        entries[-1]["shares"] = {site: facts["share"] for site, facts in entries[last - 1]["sites"].items()}
        del entries[last]

    problems = verify(made_anew(run, cut)).problems
    assert "the run ended after 3 rounds, but its experiment has 4" in problems


@pytest.mark.parametrize(
    ("reason", "problem"),
    [
        (None, "site2 is missing, and the ledger does not say why"),
        ("no reply", "site2 is missing as 'no reply', which this run does not allow"),
        ("not drawn", "site2 is missing as 'not drawn', which this run does not allow"),
        ("left out by the experiment", "site2 is missing as 'left out by the experiment', which this run"),
    ],
)
def test_a_site_that_is_missing_without_a_reason_is_found(tiny_run: Path, tmp_path: Path, reason, problem):
    shutil.copytree(tiny_run, tmp_path / "run")

    def drop(entries):
        entry = [entry for entry in entries if entry["kind"] == "round"][2]
        del entry["sites"]["site2"]
        entry["missing"] = {} if reason is None else {"site2": reason}

    assert any(problem in found for found in forged(RunFolder(tmp_path / "run"), drop))


def test_who_is_missing_for_a_reason_is_no_problem(signed_run: Path, tmp_path: Path):
    """A site on another machine may give no answer; what the others earned then follows without it."""
    done = RunFolder(signed_run).rounds()[1]
    assert done.asked == list(SITES)
    assert done.missing == {}
    shutil.copytree(signed_run, tmp_path / "run")

    def drop(entries):
        entry = next(entry for entry in entries if entry["kind"] == "round")
        del entry["sites"]["site2"]
        entry["missing"] = {"site2": "no reply"}

    assert not any("is missing" in found for found in forged(RunFolder(tmp_path / "run"), drop))


def test_splits_and_examples_are_covered_and_other_pages_are_not(tiny_run: Path, tmp_path: Path, fedce):
    shutil.copytree(tiny_run, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    for name in ("value-loo.json", "member-a.html", "allocation.html"):
        (run.path / name).write_text("")
    verdict = verify(run)
    assert verdict.problems == ()
    assert "examples.png is the file that the ledger ends with" in verdict.facts
    assert "splits.json is the file that the run was started with" in verdict.facts
    (beside,) = [reason for reason in verdict.unchecked if reason.endswith("not covered by the ledger")]
    assert "allocation.html, checkpoint, member-a.html, report.html, value-loo.json: " in beside
    for file in (run.splits_file, run.examples_file):
        content = file.read_bytes()
        file.write_bytes(content + b" ")
        assert any(f"{file.name} is not the file that" in problem for problem in verify(run).problems)
        file.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.replace('"seconds": ', '"seconds": NaN, "more": '), "NaN is not a number in JSON"),
        (
            lambda text: text.replace('"seconds": ', '"seconds": -Infinity, "more": '),
            "-Infinity is not a number in JSON",
        ),
        (lambda text: text.replace('"seed": ', '"seed": 7, "seed": '), "the key 'seed' is there twice"),
    ],
)
def test_results_that_two_readers_could_read_in_two_ways_are_found(run: RunFolder, fedce, change, reason):
    run.results_file.write_text(change(run.results_file.read_text("utf-8")), "utf-8")
    assert any(reason in problem for problem in verify(run).problems)
    refused = fedce("report", run.path)
    assert refused.exit_code == 2
    assert reason in refused.stderr


def test_what_no_command_can_read_is_not_sound(run: RunFolder, fedce):
    """A Dice just above 1, as an earlier border let through."""
    entries = contents_of(run)
    entries[-1]["evaluations"]["site1"]["validation_dice"] = 1.0000005
    rewrite(run, chained(entries, coordinator()))
    assert any("has the wrong form (evaluations.site1.validation_dice" in problem for problem in verify(run).problems)
    assert fedce("ledger", "show", run.path).exit_code == 2


def test_a_key_of_ones_own_that_cant_be_used_is_one_line(run: RunFolder, tmp_path: Path, fedce, monkeypatch):
    """It says nothing about the ledger."""
    own = tmp_path / "own.pem"
    own.write_text("no key")
    own.chmod(0o600)
    monkeypatch.setenv("FEDCE_KEY", str(own))
    refused = fedce("ledger", "verify", run.path)
    assert refused.exit_code == 2
    assert "own.pem is not a private key in PEM form" in refused.stderr
    key = run.ledger().begun.coordinator
    assert fedce("ledger", "verify", run.path, "--coordinator", key).exit_code == 0


def test_a_second_start_is_found(run: RunFolder):
    def start_again(entries):
        entries.insert(2, {**entries[0], "sites": {**entries[0]["sites"], "friend": entries[0]["sites"]["site1"]}})

    assert "line 3 is a second start" in forged(run, start_again)


def test_shares_that_cant_be_worked_out_again_are_at_least_those_of_the_last_round(tmp_path: Path):
    settings = {"model": {"channels": [4, 8]}}
    run_here(load_sites("fundus6", scale="tiny"), "afl", out=tmp_path / "run", rounds=2, settings=settings)
    run = RunFolder(tmp_path / "run")
    assert verify(run).problems == ()
    made_anew(run, lambda entries: entries[-1]["shares"].update(site1=0.9))
    assert any("the end gives site1 0.9, but the rounds" in problem for problem in verify(run).problems)


@pytest.mark.parametrize("algorithm", ["qfedavg", "cffl", "cgsv", "afl"])
def test_weights_of_published_variants_are_worked_out_again(tmp_path: Path, algorithm):
    published, settings = make(algorithm, {"variant": "published"}), {"model": {"channels": [4, 8]}}
    run_here(load_sites("fundus6", scale="tiny"), published, out=tmp_path / "run", rounds=3, settings=settings)
    run = RunFolder(tmp_path / "run")
    verdict = verify(run)
    assert verdict.problems == ()
    assert "weights and shares of 3 rounds worked out again" in verdict.facts
    forgery = made_anew(run, lambda entries: entries[3]["sites"]["site1"].update(weight=0.5), results=False)
    assert any("site1: its weight is 0.5" in problem for problem in verify(forgery).problems)


def test_a_coordinator_who_passes_over_a_site_is_found(tmp_path: Path):
    settings = {"sites_per_round": 3, "model": {"channels": [4, 8]}}
    run_here(load_sites("fundus6", scale="tiny"), out=tmp_path / "run", rounds=3, settings=settings)
    run = RunFolder(tmp_path / "run")
    verdict = verify(run)
    assert verdict.sound
    assert "the sites of 3 rounds drawn again" in verdict.facts
    shutil.copy(run.ledger_file, tmp_path / "kept")

    def change(entries):
        asked = next(entry for entry in entries if entry["kind"] == "round" and entry["round"] == 1)["asked"]
        asked[0] = next(f"site{i}" for i in range(1, 7) if f"site{i}" not in asked)

    assert any("was passed over for" in problem for problem in forged(run, change))
    shutil.copy(tmp_path / "kept", run.ledger_file)

    def smuggle(entries):
        entry = next(entry for entry in entries if entry["kind"] == "round" and entry["round"] == 1)
        taken = next(f"site{i}" for i in range(1, 7) if f"site{i}" not in entry["asked"])
        entry["sites"][taken] = entry["sites"].pop(entry["asked"][0])

    assert any("took part but was not drawn" in problem for problem in forged(run, smuggle))


def test_where_who_was_drawn_cant_be_checked_it_is_said(tmp_path: Path):
    settings = {"sites_per_round": 3, "model": {"channels": [4, 8]}}
    run_here(load_sites("fundus6", scale="tiny"), out=tmp_path / "run", rounds=3, settings=settings)
    run = RunFolder(tmp_path / "run")

    def join(entries):
        second = next(i for i, entry in enumerate(entries) if entry["kind"] == "round") + 1
        member = {"name": "site9", "n_train": 5, "n_validation": 1, "n_test": 1, "fingerprint": ""}
        entries.insert(second, {"kind": "join", "time": 0.0, "round": 1, "site": "site9", "key": "", "member": member})

    forged(run, join)
    assert "which sites are drawn after round 1: site9 joined late" in verify(run).unchecked
