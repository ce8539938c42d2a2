"""Checking a run's ledger as a member would: the chain, the signatures, and every share from the recorded terms."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from fedce import algorithms
from fedce.algorithms import FedAvg, FedCE, Uniform
from fedce.algorithms.base import Account, Terms, normalise
from fedce.algorithms.guard import Claim, Signs, believed_novelty, judged, suspects_after
from fedce.errors import ReplyError, RunError
from fedce.fairness import fairness
from fedce.federation import SEEN_AT_THE_BORDER, Draw
from fedce.files import digest_of
from fedce.identity import is_signed
from fedce.messages import Evaluation
from fedce.record import FORMAT, NO_LINE, RunFolder, signed_text
from fedce.wire import ReplyForm
from fedce.words import printable

Entry = Mapping[str, Any]
Numbered = Sequence[tuple[int, Entry]]
"""Entries with the numbers of their lines."""
REPORTED = {"n_train": "n_train", "score": "score", "loss": "loss", "err": "error_without"}
"""What the ledger says of a site, and where the site said it."""
_DONE = {"start": "started", "resume": "continued"}


@dataclass(frozen=True)
class Verdict:
    """What was found."""

    problems: tuple[str, ...]
    facts: tuple[str, ...]
    """What was checked, in plain words."""
    unchecked: tuple[str, ...] = ()
    """What could not be checked, and why."""

    @property
    def sound(self) -> bool:
        return not self.problems


def verify(
    run: RunFolder,
    coordinator: str | None = None,
    head: str | None = None,
    keys: Mapping[str, str] | None = None,
) -> Verdict:
    """Check everything that can be checked.

    The coordinator's key, a line's hash and sites' keys are what a member knows from elsewhere.
    """
    entries: list[tuple[int, Entry]] = []
    problems: list[str] = []
    lines = run.lines()
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            problems.append(f"line {number} is not JSON")
            continue
        if isinstance(value, dict) and "kind" in value:
            entries.append((number, value))
        else:
            problems.append(f"line {number} is no entry of a ledger")
    if not entries:
        return Verdict((*problems, f"{run.ledger_file} is empty or missing"), ())
    hashes = [sha256(line.encode()).hexdigest() for line in lines]
    if head is not None and head not in hashes:
        problems.append(f"no line has the hash {head}: what was there when it was noted down is gone or changed")
    unchecked: list[str] = []
    facts = [f"{len(entries)} lines, chained; the last has the hash {hashes[-1]}"]
    problems += _chain(lines, hashes, entries)
    try:
        problems += _order(entries)
        if _tells_all(entries):
            problems += _config(run, entries)
        else:
            unchecked.append("the experiment file, models and Dice: an earlier version did not record them")
        for part in (
            _Draws(run, entries),
            _Signatures(run, entries, coordinator, keys or {}),
            _Replay(run, entries),
            _Results(run, entries),
        ):
            problems += part.problems
            facts += part.facts
            unchecked += part.unchecked
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, RunError) as error:
        problems.append(f"an entry has the wrong form ({type(error).__name__}: {error}); nothing after it was checked")
    return Verdict(tuple(problems), tuple(facts), tuple(unchecked))


def _chain(lines: Sequence[str], hashes: Sequence[str], entries: Numbered) -> Iterator[str]:
    """Every line holds the hash of the one before; where not, what must have happened."""
    number_by_hash = {NO_LINE: 0, **{found: number for number, found in enumerate(hashes, 1)}}
    first: dict[str, int] = {}
    for number, entry in entries:
        if (before := first.setdefault(lines[number - 1], number)) != number:
            yield f"line {number} repeats line {before}"
            continue
        follows = number_by_hash.get(str(entry.get("previous")))
        if follows == number - 1:
            continue
        if follows is None:
            yield f"line {number} does not follow from line {number - 1}: that was changed, or lines between are gone"
        else:
            yield f"line {number} follows from line {follows}, not from line {number - 1}: lines were moved or put in"


def _order(entries: Numbered) -> Iterator[str]:
    """A start, then every round once and in order, then perhaps an end."""
    if entries[0][1]["kind"] != "start":
        yield f"line {entries[0][0]} should be the start, and is {entries[0][1]['kind']!r}"
    expected = 0
    for number, entry in entries:
        if entry["kind"] != "round":
            continue
        if entry.get("round") != expected:
            yield f"line {number} is round {int(entry.get('round', -1)) + 1} where round {expected + 1} should be"
        expected = int(entry.get("round", expected)) + 1
    ended = next((number for number, entry in entries if entry["kind"] == "end"), None)
    for number, entry in entries:
        # A run that was killed between its end and its results is resumed to write those, and does nothing else.
        if ended is not None and number > ended and entry["kind"] in ("round", "end", "start"):
            yield f"line {number} is {entry['kind']!r}, and follows the end in line {ended}"


def _tells_all(entries: Numbered) -> bool:
    """Whether the experiment file, the models and what sites said of the final one are in it."""
    return int(entries[0][1].get("format", 1)) >= FORMAT


def _config(run: RunFolder, entries: Numbered) -> Iterator[str]:
    """The experiment that all else is checked by is the one that the run was started, and continued, with."""
    digest = digest_of(run.config_file)
    for number, entry in entries:
        if entry["kind"] in ("start", "resume") and entry.get("config_file") != digest:
            yield f"line {number}: {run.config_file.name} is not the file that the run was {_DONE[entry['kind']]} with"


class _Part:
    """What was found of one thing that is checked."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.facts: list[str] = []
        self.unchecked: list[str] = []


class _Draws(_Part):
    """Where not all take part in every round: nobody was passed over."""

    def __init__(self, run: RunFolder, entries: Numbered) -> None:
        super().__init__()
        config = run.config
        if config.sites_per_round is None:
            return
        if config.algorithm.name == "cffl":
            self.unchecked.append("who is drawn: CFFL expels sites")
            return
        self._check(Draw(config.sites_per_round, config.seed), config.leave_out, entries)

    def _check(self, lot: Draw, leave_out: Collection[str], entries: Numbered) -> None:
        draws = dict.fromkeys((site for site in entries[0][1]["sites"] if site not in leave_out), 0)
        n_checked = 0
        for number, entry in entries:
            if entry["kind"] == "join" and entry["site"] not in (*draws, *leave_out):
                # From which round on a late comer may be drawn is not in the ledger.
                self.unchecked.append(f"who is drawn after round {n_checked}: {entry['site']} joined late")
                return
            if entry["kind"] != "round":
                continue
            here = {site: n for site, n in draws.items() if site not in entry["absent"]}
            asked, expected = set(entry["asked"]), set(lot.sites(here, entry["round"]))
            if asked != expected:
                passed_over, instead = ", ".join(sorted(expected - asked)), ", ".join(sorted(asked - expected))
                self.problems.append(f"line {number}: {passed_over} was passed over for {instead or 'nobody'}")
                return
            if unasked := sorted(entry["sites"].keys() - asked):
                self.problems.append(f"line {number}: {', '.join(unasked)} took part and was not drawn")
                return
            draws |= {site: draws[site] + 1 for site in asked}
            n_checked += 1
        self.facts.append(f"the sites of {n_checked} rounds drawn again")


class _Signatures(_Part):
    """The coordinator's on every line, and the sites' on what they said."""

    def __init__(self, run: RunFolder, entries: Numbered, expected: str | None, pinned: Mapping[str, str]) -> None:
        super().__init__()
        self.n_signed = self.n_lines_signed = 0
        algorithm = algorithms.built_in(run.config)
        self.is_measured_by_sites = isinstance(algorithm, FedCE) and algorithm.estimate == "site"
        self.is_guarded = isinstance(algorithm, FedCE) and algorithm.guard == "standard"
        start = entries[0][1]
        key = str(start.get("coordinator", ""))
        if expected is not None and key != expected:
            self.problems.append(f"the coordinator's key is {key or 'missing'}, not {expected}")
        engine = run.config.engine
        stated = {**{site: own for site, own in engine.members.items() if own}, **pinned}
        keys = self._keys(entries, stated)
        for site in sorted(pinned.keys() - keys.keys()):
            self.problems.append(f"{site}, whose key you stated, never joined")
        # Where nobody has a key, all sites were the coordinator's own processes.
        have_keys = bool(keys or stated) or engine.name != "local" or "run" in start
        self.run = str(start.get("run", ""))
        before: dict[str, Terms] = {}
        round_no = 0
        for number, entry in entries:
            self._line(number, entry, expected or key)
            if have_keys and entry["kind"] == "round":
                round_no = entry["round"] + 1
                for site, facts in entry["sites"].items():
                    self._answer(f"line {number}, {site}", site, facts, keys.get(site), round_no - 1, before)
                before = {site: Terms.from_record(facts) for site, facts in entry["sites"].items()}
            if have_keys and entry["kind"] == "end":
                for site, facts in entry.get("evaluations", {}).items():
                    self._evaluation(f"line {number}, {site}", site, facts, keys.get(site), round_no)
        if key:
            self.facts.append(f"{self.n_lines_signed} lines signed by the coordinator {key}")
        else:
            self.unchecked.append("who wrote it: no coordinator signed it")
        if have_keys:
            self.facts.append(f"{self.n_signed} answers signed by {len(keys)} sites")
        else:
            self.unchecked.append(
                "what the sites said: all were processes of the coordinator, without keys of their own"
            )

    def _keys(self, entries: Numbered, stated: Mapping[str, str]) -> dict[str, str]:
        """The key that each site joined with."""
        keys: dict[str, str] = {}
        for number, entry in entries:
            if entry["kind"] != "join":
                continue
            site, key = str(entry["site"]), str(entry["key"])
            if site in keys:
                self.problems.append(f"line {number}: {site} joins a second time")
            if stated.get(site, key) != key:
                self.problems.append(f"line {number}: {site} joins with the key {key}, and its key is {stated[site]}")
            keys[site] = key
        return keys

    def _line(self, number: int, entry: Entry, key: str) -> None:
        if not key:
            return
        if entry.get("coordinator", key) != key:
            self.problems.append(f"line {number}: the run was continued by another coordinator, {entry['coordinator']}")
        elif not is_signed(signed_text(entry), str(entry.get("signature", "")), key):
            self.problems.append(f"line {number} is not signed by the coordinator")
        else:
            self.n_lines_signed += 1

    def _form(self, where: str, site: str, facts: Entry, key: str | None, round_no: int) -> ReplyForm | None:
        """What the site signed; None, and a problem, where it did not."""
        signed = facts.get("signed")
        if key is None or not isinstance(signed, dict):
            self.problems.append(f"{where}: its answer is not signed" if key else f"{where} never joined")
            return None
        content = str(signed.get("content", ""))
        if not is_signed(content, str(signed.get("signature", "")), key):
            self.problems.append(f"{where}: the signature is not by the key that it joined with")
            return None
        try:
            form = ReplyForm.read(content)
        except ReplyError as error:
            self.problems.append(f"{where}: {error}")
            return None
        if (form.run, form.site, form.round_no) != (self.run, site, round_no):
            self.problems.append(
                f"{where}: it signed an answer of {form.site}, round {form.round_no + 1}, another time"
            )
        self.n_signed += 1
        return form

    def _answer(
        self, where: str, site: str, facts: Entry, key: str | None, round_no: int, before: Mapping[str, Terms]
    ) -> None:
        """What is recorded of a site's answer is what it signed; `before` are the terms of the round before."""
        if (form := self._form(where, site, facts, key, round_no)) is None:
            return
        said = {name: getattr(form, field) for name, field in REPORTED.items()}
        said["err_replicates"] = [round(error, 5) for error in form.error_replicates]
        if self.is_measured_by_sites:
            said["cos"] = believed_novelty(form.novelty, before.get(site, Terms())) if self.is_guarded else form.novelty
        for name, value in said.items():
            if facts.get(name) != value:
                self.problems.append(f"{where}: {name} is {facts.get(name)}, and it signed {value}")

    def _evaluation(self, where: str, site: str, facts: Entry, key: str | None, round_no: int) -> None:
        if (form := self._form(where, site, facts, key, round_no)) is None:
            return
        if form.evaluation is None or form.evaluation.model_dump() != asdict(Evaluation.recorded(facts)):
            self.problems.append(f"{where}: it signed another evaluation of the final model")


class _Replay(_Part):
    """All weights and shares once more, from what was recorded of each round."""

    def __init__(self, run: RunFolder, entries: Numbered) -> None:
        super().__init__()
        rounds = [(number, entry) for number, entry in entries if entry["kind"] == "round"]
        algorithm = algorithms.built_in(run.config)
        if not isinstance(algorithm, FedCE | FedAvg | Uniform):
            self.unchecked.append(
                f"the shares: those of {run.config.algorithm.name} don't follow from the ledger alone"
            )
            return
        accounts: Mapping[str, Account] = {}
        shares: Mapping[str, float] = {}
        suspects: tuple[str, ...] = ()
        entered: Mapping[str, float] = {}
        for number, entry in rounds:
            sites = entry["sites"]
            if isinstance(algorithm, FedCE):
                suspects = self._guard(number, sites, suspects, algorithm.guard == "standard", entered)
                entered = {site: float(facts["weight"]) for site, facts in sites.items()}
                accounts, rho, shares = self._fedce(algorithm, accounts, sites)
            else:
                one_each = isinstance(algorithm, Uniform)
                rho = normalise({site: 1.0 if one_each else float(facts["n_train"]) for site, facts in sites.items()})
            self._compare(number, sites, "weight", rho)
            self._compare(number, sites, "share", shares)
        what = "weights and shares" if isinstance(algorithm, FedCE) else "weights"
        self.facts.append(f"{what} of {len(rounds)} rounds worked out again")
        for ended in (entry["shares"] for _, entry in entries if entry["kind"] == "end" and shares):
            for site in sorted({*shares, *ended}):
                if abs(ended.get(site, 0.0) - shares.get(site, 0.0)) > 1e-12:
                    self.problems.append(f"the end gives {site} {ended.get(site)}, and the rounds {shares.get(site)}")

    def _fedce(
        self, algorithm: FedCE, accounts: Mapping[str, Account], sites: Mapping[str, Entry]
    ) -> tuple[Mapping[str, Account], Mapping[str, float], Mapping[str, float]]:
        n_train = {site: int(facts["n_train"]) for site, facts in sites.items()}
        terms = {site: Terms.from_record(facts) for site, facts in sites.items()}
        after = algorithm.earn(accounts, terms)
        rho = algorithm.weights_of_round(accounts, after, terms, n_train)
        return after, rho, algorithm.shares(after) if after else rho

    def _guard(
        self,
        number: int,
        sites: Mapping[str, Entry],
        suspects: tuple[str, ...],
        is_on: bool,
        entered: Mapping[str, float],
    ) -> tuple[str, ...]:
        """What the guard made of each site must follow from what it saw, and that from what is known.

        `entered` are the weights of the round before; returns who is suspected from here on.
        """
        terms = {site: Terms.from_record(facts) for site, facts in sites.items()}
        for site, term in terms.items():
            plain = Terms(term.cos, term.err)
            if not is_on:
                followed = term == plain
            elif not term.signs:
                followed = False
            else:
                signs, score = Signs(**term.signs), sites[site]["score"]
                excess = Claim(score, term.err, ()).excess
                known = (signs.suspected, signs.excess, signs.weight)
                if known != (site in suspects, excess, entered.get(site, 0.0)):
                    self.problems.append(f"line {number}, {site}: what the guard saw does not follow from the ledger")
                followed = judged(plain, signs) == term
            if not followed:
                self.problems.append(f"line {number}, {site}: the trust in it does not follow from what the guard saw")
            faults = Signs(**term.signs).faults if term.signs else []
            if not set(faults) <= set(sites[site]["flags"]) <= {*faults, *SEEN_AT_THE_BORDER}:
                self.problems.append(f"line {number}, {site}: its flags do not follow from what the guard saw")
        return suspects_after(suspects, terms)

    def _compare(self, number: int, sites: Mapping[str, Entry], name: str, found: Mapping[str, float]) -> None:
        for site, facts in sites.items():
            if site in found and abs(facts[name] - found[site]) > 1e-12:
                self.problems.append(
                    f"line {number}, {site}: its {name} is {facts[name]:.6f}, and {found[site]:.6f} by the terms"
                )


class _Results(_Part):
    """What was published is what the ledger ends with."""

    def __init__(self, run: RunFolder, entries: Numbered) -> None:
        super().__init__()
        end = next((entry for _, entry in entries if entry["kind"] == "end"), None)
        is_whole = _tells_all(entries)
        if end is not None and is_whole:
            self._files(run, end["files"])
        if not run.results_file.exists():
            return
        if end is None:
            self.problems.append("the run has results, and the ledger no end: its last lines are gone")
            return
        results = run.results
        if results["model_sha256"] != end["model"]:
            self.problems.append("the model in results.json is not the one that the ledger ends with")
        shares = dict.fromkeys(results["contributions"], 0.0) | end["shares"]
        self._compare("", results["contributions"], shares)
        if not is_whole:
            self.facts.append("contributions in results.json are those of the ledger's end")
            return
        evaluations = {site: Evaluation.recorded(recorded) for site, recorded in end["evaluations"].items()}
        dice = {site: found.test_dice for site, found in evaluations.items()}
        self._compare("Dice ", results["dice"], dice)
        self._compare("validation Dice ", results["validation_dice"], _each(evaluations, "validation_dice"))
        for key, name in (("dice_interval", "test_interval"), ("validation_interval", "validation_interval")):
            if key in results:  # Earlier versions gave none.
                given = {site: tuple(ends) if ends else None for site, ends in results[key].items()}
                self._compare(f"{key.replace('_', ' ')} ", given, _each(evaluations, name))
        self._compare("Dice by class ", results["dice_by_class"], _each(evaluations, "test_dice_by_class"))
        self._compare("Dice without it ", results["dice_without"], _each(evaluations, "test_dice_without"))
        if not dice or results["fairness"] != fairness(list(dice.values())).as_dict():
            self.problems.append("the fairness in results.json does not follow from the Dice")
        self.facts.append("contributions and Dice in results.json are those of the ledger's end")

    def _files(self, run: RunFolder, files: Mapping[str, str]) -> None:
        for name, digest in files.items():
            file = run.path / name
            if not file.resolve().is_relative_to(run.path.resolve()):
                self.problems.append(f"the end names a file outside of the run folder, {name}")
            elif not file.exists():
                self.unchecked.append(f"{name}: it is not here")
            elif digest_of(file) != digest:
                self.problems.append(f"{name} is not the file that the ledger ends with")
            else:
                self.facts.append(f"{name} is the file that the ledger ends with")

    def _compare(self, what: str, given: Mapping[str, Any], ended: Mapping[str, Any]) -> None:
        for site in sorted({*given, *ended}):
            if given.get(site) != ended.get(site):
                self.problems.append(
                    f"results.json gives {site} {what}{given.get(site)}, the ledger ends with {ended.get(site)}"
                )


def _each(evaluations: Mapping[str, Evaluation], name: str) -> dict[str, Any]:
    return {site: getattr(evaluation, name) for site, evaluation in evaluations.items()}


def summary_of(entry: Entry) -> str:
    """One line for people; what a site may have put into it can't do anything to a terminal."""
    return printable(_summary(entry))


def _summary(entry: Entry) -> str:
    kind = entry["kind"]
    if kind in ("start", "resume"):
        return f"{len(entry['sites'])} sites; {entry.get('command') or 'no command'}"
    if kind == "join":
        return f"{entry['site']} with {entry['member']['n_train']} training images, key {entry['key']}"
    if kind == "event":
        return f"{entry['site']} {entry['what']}"
    if kind in ("end", "publish"):
        noise = f"epsilon {entry['epsilon']:g}, " if kind == "publish" else ""
        return f"{noise}shares " + ", ".join(f"{site} {100 * share:.1f} %" for site, share in entry["shares"].items())
    shares = ", ".join(f"{site} {100 * facts['share']:.1f} %" for site, facts in entry["sites"].items())
    rejected = "".join(f"; {site} rejected: {reason}" for site, reason in entry["rejected"].items())
    return f"round {entry['round'] + 1}, Dice {entry['mean_score']:.3f}, shares {shares}{rejected}"
