"""Checking a run's ledger as a member would: the chain, the signatures, and every share from the recorded terms."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Literal

from fedce import algorithms, federation
from fedce.core.algorithm import Algorithm
from fedce.errors import ReplyError, RunError
from fedce.federation import FAR_STATISTICS, HARMFUL_STATISTICS, SEEN_AT_THE_BORDER, Draw
from fedce.files import digest_of
from fedce.forms import check_line
from fedce.guard.signs import Signs
from fedce.guard.statistics import FAR, is_harmful
from fedce.identity import held_key, is_signed
from fedce.messages import Evaluation
from fedce.ranges import NOVELTY, SCORE
from fedce.record import NO_LINE, RunFolder, check_format, entry_of, format_of, signed_text
from fedce.results import results_of
from fedce.wire import ReplyForm
from fedce.words import printable

Entry = Mapping[str, Any]
Numbered = Sequence[tuple[int, Entry]]
"""Entries with the numbers of their lines."""
REPORTED = {"n_train": "n_train", "score": "score", "loss": "loss", "err": "error_without"}
"""What the ledger says of a site, and where the site said it."""
ASKED_FOR = ("score_local", "loss_before")
"""What the ledger says of a site where it was asked."""
NEW_FIELDS: Mapping[int, Mapping[str, tuple[str, ...]]] = {
    2: {"start": ("config_file",), "end": ("files", "evaluations")},
    3: {
        "round": ("asked", "missing"),
        "end": ("missing", "reconstruction", "exchanges", "n_parameters", "n_values", "device"),
    },
}
"""What every line of a kind holds from a format on, and no line before it."""
DRAWN_BEFORE = "asked"
"""Before format 3, a round's line says who was asked only where sites are drawn."""
SAME_SHARE = 1e-12
SAME_RESULT = 1e-9
"""Two machines may differ by as much in a share worked out again, and in a result (relative to it, above 1)."""
STEADY = {
    *("algorithm", "data", "rounds", "seed", "contributions", "dice", "dice_by_class", "dice_without"),
    *("validation_dice", "fairness", "images", "train_images", "seconds", "model_sha256"),
}
"""Results that every version has worked out in the same way; others of an earlier format can't be compared."""
COVERED = {"config.toml", "ledger.jsonl", "results.json", "models", ".lock"}
"""What is checked in a run folder, beside the files that the end names."""
_DONE = {"start": "started", "resume": "continued"}


@dataclass(frozen=True)
class Verdict:
    """What was found."""

    problems: tuple[str, ...]
    facts: tuple[str, ...]
    """What was checked, in plain words."""
    unchecked: tuple[str, ...] = ()
    """What could not be checked, and why."""
    doubt: str = ""
    """Why anybody could have written what is sound in itself, and what to give to know better; empty: nobody could."""

    @property
    def sound(self) -> bool:
        return not self.problems

    @property
    def proves(self) -> Literal["signed", "consistent", "unsound"]:
        """signed: by a key that the caller gave or holds. consistent: nothing speaks against it, and nobody for it."""
        return "unsound" if self.problems else "consistent" if self.doubt else "signed"


@dataclass(frozen=True)
class Checked:
    """A sound run's results, as they follow from its ledger."""

    results: dict[str, Any]
    doubt: str
    """As in `Verdict`."""


def checked(run: RunFolder) -> Checked:
    """The results for whoever pays or tells by them; those of an unsound run are refused, whatever anybody says."""
    stored = run.results
    verdict, results = _verified(run)
    if not verdict.sound or results is None:
        reason = verdict.problems[0] if verdict.problems else "it has no end"
        raise RunError(f"the record of {run.path} is not sound ({reason}); see 'fedce ledger verify {run.path}'")
    # An earlier version's ledger does not hold all that its results were made of.
    return Checked({**stored, **results} if format_of(run.ledger()) < 3 else results, verdict.doubt)


def verify(
    run: RunFolder,
    coordinator: str | None = None,
    head: str | None = None,
    keys: Mapping[str, str] | None = None,
) -> Verdict:
    """Check everything that can be checked.

    The coordinator's key, a line's hash and sites' keys are what a member knows from elsewhere. Without a coordinator's
    key, this machine's own counts, where there is one.
    """
    return _verified(run, coordinator, head, keys or {})[0]


def _verified(
    run: RunFolder, coordinator: str | None = None, head: str | None = None, keys: Mapping[str, str] | None = None
) -> tuple[Verdict, dict[str, Any] | None]:
    """The verdict, and the results that follow from the ledger; none where it has no end or can't be read."""
    trusted = coordinator or held_key()
    lines = run.lines()
    entries, problems = _read(lines)
    if not entries:
        return Verdict((*problems, f"{run.ledger_file} is empty or missing"), ()), None
    check_format([entries[0][1]], run.ledger_file)
    hashes = [sha256(line.encode()).hexdigest() for line in lines]
    if head is not None and head not in hashes:
        problems.append(f"no line has the hash {head}: what was there when it was noted down is gone or changed")
    unchecked: list[str] = []
    facts = [f"{len(entries)} lines, chained; the last has the hash {hashes[-1]}"]
    problems += _chain(lines, hashes, entries)
    doubt = ""
    results: dict[str, Any] | None = None
    try:
        problems += _order(entries)
        problems += _format(entries)
        if format_of([entries[0][1]]) >= 2:
            problems += _config(run, entries)
        else:
            unchecked.append("the experiment file, models and Dice: an earlier version did not record them")
        parts: Sequence[Callable[[], _Part]] = (
            lambda: _Attendance(run, entries),
            lambda: _Draws(run, entries),
            lambda: _Signatures(run, entries, coordinator, trusted, keys or {}),
            lambda: _Statistics(run, entries),
            lambda: _Replay(run, entries),
            lambda: _Results(run, entries),
        )
        for check in parts:  # One after the other, so that what was found is told also where a later one can't be made.
            part = check()
            problems += part.problems
            facts += part.facts
            unchecked += part.unchecked
            doubt, results = doubt or part.doubt, results or part.results
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, RunError) as error:
        problems.append(f"an entry has the wrong form ({type(error).__name__}: {error}); nothing after it was checked")
    return Verdict(tuple(problems), tuple(facts), tuple(unchecked), doubt), results


def _read(lines: Sequence[str]) -> tuple[list[tuple[int, Entry]], list[str]]:
    """The entries, and what is wrong with lines that are none or that no other command could read."""
    entries: list[tuple[int, Entry]] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        try:
            value = entry_of(line)
        except (ValueError, RecursionError) as error:
            problems.append(f"line {number} is not as fedce writes it ({error})")
            continue
        try:
            check_line(value, f"line {number}")
        except RunError as error:
            problems.append(str(error))
        if isinstance(value, dict) and isinstance(value.get("kind"), str):
            entries.append((number, value))
    return entries, problems


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
        if entry["kind"] == "start" and number > 1:
            yield f"line {number} is a second start"
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


def _format(entries: Numbered) -> Iterator[str]:
    """The ledger is of the format that its first line states: it holds what that format has, and nothing later."""
    stated = format_of([entries[0][1]])
    for number, entry in entries:
        if entry["kind"] == "resume" and entry.get("format", 1) != stated:
            yield f"line {number} has format {entry.get('format', 1)}, and line 1 format {stated}"
        # Where sites are elsewhere, the coordinator does not know their splits.
        if entry["kind"] == "start" and ("splits" in entry) != (stated >= 3 and "run" not in entry):
            yield f"line {number} and the format {stated} that it states don't agree about 'splits'"
        for since, fields in NEW_FIELDS.items():
            for name in fields.get(entry["kind"], ()):
                if (name in entry) == (stated >= since) or (name == DRAWN_BEFORE and stated < since):
                    continue
                what = f"lacks {name!r}" if stated >= since else f"holds {name!r}"
                yield f"line {number} {what}, and line 1 states format {stated}: one of them was changed"


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
        self.doubt = ""
        self.results: dict[str, Any] | None = None


class _Attendance(_Part):
    """No round is missing, and no site is missing in a round without a reason that can be so."""

    def __init__(self, run: RunFolder, entries: Numbered) -> None:
        super().__init__()
        self.config = run.config
        start = entries[0][1]
        self.is_local = self.config.engine.name == "local" and "run" not in start
        self._rounds(entries, start)
        if format_of([start]) < 3:
            self.unchecked.append("why sites have no part in a round: an earlier version did not record it")
            return
        members = set(start["sites"])
        n_rounds = 0
        for number, entry in entries:
            if entry["kind"] == "join":
                members.add(str(entry["site"]))
            elif entry["kind"] == "round":
                self._round(f"line {number}", entry, members)
                n_rounds += 1
            elif entry["kind"] == "end":
                reasons = dict.fromkeys(entry["missing"], () if self.is_local else (federation.NO_REPLY,))
                self._present(f"line {number}", entry["evaluations"], entry, members, reasons)
        self.facts.append(f"in {n_rounds} rounds every site took part, or the ledger says why not")

    def _rounds(self, entries: Numbered, start: Entry) -> None:
        n_rounds = sum(entry["kind"] == "round" for _, entry in entries)
        has_end = any(entry["kind"] == "end" for _, entry in entries)
        expected = self.config.n_rounds if set(start["sites"]) - set(self.config.leave_out) else 0
        if has_end and n_rounds != expected:
            self.problems.append(f"the run ended after {n_rounds} rounds, and its experiment has {expected}")

    def _round(self, where: str, entry: Entry, members: Collection[str]) -> None:
        asked = set(entry["asked"])
        if unasked := sorted(entry["sites"].keys() - asked):
            self.problems.append(f"{where}: {', '.join(unasked)} took part and was not asked")
        reasons = {site: self._reasons(site, site in asked) for site in entry["missing"]}
        self._present(where, entry["sites"], entry, members, reasons)

    def _reasons(self, site: str, was_asked: bool) -> tuple[str, ...]:
        """Why this site may have no part in a round of this experiment."""
        config = self.config
        if site in config.leave_out:
            return (federation.LEFT_OUT,)
        if was_asked:
            return () if self.is_local else (federation.NO_REPLY,)
        algorithm = algorithms.built_in(config)
        expels = algorithm is None or algorithm.traits.expels
        return (
            *((federation.EXPELLED,) if expels else ()),
            *((federation.ABSENT, federation.NOT_DRAWN) if config.sites_per_round is not None else ()),
            *(() if self.is_local else (federation.NOT_THERE,)),
        )

    def _present(
        self,
        where: str,
        there: Collection[str],
        entry: Entry,
        members: Collection[str],
        reasons: Mapping[str, tuple[str, ...]],
    ) -> None:
        missing, rejected = entry["missing"], entry["rejected"]
        for site in sorted({*members, *missing}):
            if site in missing and (site in there or site in rejected):
                self.problems.append(f"{where}: {site} took part and is said to be missing ({missing[site]})")
            elif site in missing and missing[site] not in reasons[site]:
                self.problems.append(f"{where}: {site} is missing as {missing[site]!r}, which can't be in this run")
            elif site not in missing and site not in there and site not in rejected:
                self.problems.append(f"{where}: {site} is missing, and the ledger does not say why")


class _Draws(_Part):
    """Where not all take part in every round: nobody was passed over."""

    def __init__(self, run: RunFolder, entries: Numbered) -> None:
        super().__init__()
        config = run.config
        if config.sites_per_round is None:
            return
        if (algorithm := algorithms.built_in(config)) is not None and algorithm.traits.expels:
            self.unchecked.append(f"who is drawn: {config.algorithm.name} expels sites")
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

    def __init__(
        self,
        run: RunFolder,
        entries: Numbered,
        expected: str | None,
        trusted: str | None,
        pinned: Mapping[str, str],
    ) -> None:
        super().__init__()
        self.n_signed = self.n_lines_signed = 0
        start = entries[0][1]
        self.algorithm = algorithms.built_in(run.config, format_of([start]))
        key = str(start.get("coordinator", ""))
        if expected is not None and key != expected:
            self.problems.append(f"the coordinator's key is {key or 'missing'}, not {expected}")
        self.doubt = "" if key and key == trusted else _doubt(key)
        engine = run.config.engine
        stated = {**{site: own for site, own in engine.members.items() if own}, **pinned}
        keys = self._keys(entries, stated)
        for site in sorted(pinned.keys() - keys.keys()):
            self.problems.append(f"{site}, whose key you stated, never joined")
        # Where nobody has a key, all sites were the coordinator's own processes.
        have_keys = bool(keys or stated) or engine.name != "local" or "run" in start
        self.run = str(start.get("run", ""))
        before: Mapping[str, Entry] = {}
        round_no = 0
        for number, entry in entries:
            self._line(number, entry, expected or key)
            if have_keys and entry["kind"] == "round":
                round_no = entry["round"] + 1
                for site, facts in entry["sites"].items():
                    self._answer(f"line {number}, {site}", site, facts, keys.get(site), round_no - 1, before)
                before = entry["sites"]
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
            if "signature" in entry:
                self.problems.append(f"line {number} is signed, and line 1 names no coordinator: it was changed")
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
        self, where: str, site: str, facts: Entry, key: str | None, round_no: int, before: Mapping[str, Entry]
    ) -> None:
        """What is recorded of a site's answer is what it signed; `before` is what is recorded of the round before."""
        if (form := self._form(where, site, facts, key, round_no)) is None:
            return
        said = {name: getattr(form, field) for name, field in REPORTED.items()}
        said["err_replicates"] = [round(error, 5) for error in form.error_replicates]
        said |= {name: getattr(form, name) for name in ASKED_FOR if name in facts}
        if self.algorithm is not None:
            said |= self.algorithm.signed(form, before.get(site, {}))
        for name, value in said.items():
            if facts.get(name) != value:
                self.problems.append(f"{where}: {name} is {facts.get(name)}, and it signed {value}")

    def _evaluation(self, where: str, site: str, facts: Entry, key: str | None, round_no: int) -> None:
        if (form := self._form(where, site, facts, key, round_no)) is None:
            return
        if form.evaluation is None or form.evaluation.model_dump() != asdict(Evaluation.recorded(facts)):
            self.problems.append(f"{where}: it signed another evaluation of the final model")


def _doubt(key: str) -> str:
    """Why a coordinator's key that the caller neither gave nor holds proves nothing, and what to give."""
    if not key:
        return (
            "no coordinator signed it, so that anybody could have written it; "
            "--head HASH, with the hash of a line that the coordinator tells you, shows that it is the same"
        )
    return (
        f"it is signed by {key}, a key that nobody vouches for; "
        "give the key that the coordinator told you, with --coordinator KEY"
    )


class _Statistics(_Part):
    """Whose running statistics were not used follows from what the other sites' scores lost by them."""

    def __init__(self, run: RunFolder, entries: Numbered) -> None:
        super().__init__()
        is_off = run.config.guard == "off"
        before: set[str] = set()
        for number, entry in entries:
            if entry["kind"] != "round":
                continue
            left_out = {HARMFUL_STATISTICS, FAR_STATISTICS}
            now = {site for site, facts in entry["sites"].items() if left_out & set(facts["flags"])}
            for site, facts in entry["sites"].items():
                harm, distance = facts.get("statistics_harm"), facts.get("statistics_distance")
                follows = {HARMFUL_STATISTICS} if harm is not None and is_harmful(harm, site in before) else set()
                follows |= {FAR_STATISTICS} if distance is not None and distance > FAR else set()
                if left_out & set(facts["flags"]) != follows or (is_off and (harm, distance) != (None, None)):
                    self.problems.append(
                        f"line {number}, {site}: what is said of its running statistics does not follow from their harm"
                    )
            before = now


class _Replay(_Part):
    """All weights and shares once more, from what was recorded of each round."""

    def __init__(self, run: RunFolder, entries: Numbered) -> None:
        super().__init__()
        rounds = [(number, entry) for number, entry in entries if entry["kind"] == "round"]
        stated, name = format_of([entries[0][1]]), run.config.algorithm.name
        self.algorithm = algorithms.built_in(run.config, stated)
        ends = [entry["shares"] for _, entry in entries if entry["kind"] == "end"]
        if self.algorithm is None or not self._is_recorded(self.algorithm, rounds):
            if rounds:
                last = {site: float(facts["share"]) for site, facts in rounds[-1][1]["sites"].items()}
                self._ended([{site: share for site, share in end.items() if site in last} for end in ends], last)
            self.unchecked.append(f"the shares: those of {name} don't follow from the ledger alone")
            return
        if stated >= 3:
            self._ranges(rounds)
        replayer = self.algorithm.replay()
        shares: Mapping[str, float] = {}
        for number, entry in rounds:
            sites = entry["sites"]
            rho, shares, problems = replayer.round(sites)
            self.problems += [f"line {number}, {site}: {what}" for site, what in problems]
            self._flags(number, sites)
            self._compare(number, sites, "weight", rho)
            self._compare(number, sites, "share", shares)
        what = "weights and shares"
        if self.algorithm.traits.weights_are_measured:
            what = "shares"
            self.unchecked.append(
                f"the weights: those of {name} follow from the models, which the ledger does not hold"
            )
        self.facts.append(f"{what} of {len(rounds)} rounds worked out again")
        self._ended(ends, shares)

    def _is_recorded(self, algorithm: Algorithm, rounds: Numbered) -> bool:
        """Whether the ledger holds what shares follow from; a later line that lacks it was changed."""
        try:
            return not rounds or bool(algorithm.read(rounds[0][1]["sites"]))
        except LookupError:
            return False

    def _ended(self, ends: Sequence[Mapping[str, float]], shares: Mapping[str, float]) -> None:
        """The end's shares are those of the last round."""
        for ended in ends:
            for site in sorted({*shares, *ended}):
                if not abs(ended.get(site, 0.0) - shares.get(site, 0.0)) <= SAME_SHARE:
                    self.problems.append(f"the end gives {site} {ended.get(site)}, and the rounds {shares.get(site)}")

    def _ranges(self, rounds: Numbered) -> None:
        for number, entry in rounds:
            for site, facts in entry["sites"].items():
                for name, allowed in (("cos", NOVELTY), ("err", SCORE)):
                    if (value := facts.get(name)) is not None and value not in allowed:
                        self.problems.append(f"line {number}, {site}: {name} is {value}, which is not in {allowed}")

    def _flags(self, number: int, sites: Mapping[str, Entry]) -> None:
        """What is said of a site follows from what was seen of it."""
        for site, facts in sites.items():
            faults = Signs(**facts["signs"]).faults if facts.get("signs") else []
            if not set(faults) <= set(facts["flags"]) <= {*faults, *SEEN_AT_THE_BORDER}:
                self.problems.append(f"line {number}, {site}: its flags do not follow from what the guard saw")

    def _compare(self, number: int, sites: Mapping[str, Entry], name: str, found: Mapping[str, float]) -> None:
        for site, facts in sites.items():
            if site in found and not abs(facts[name] - found[site]) <= SAME_SHARE:
                self.problems.append(
                    f"line {number}, {site}: its {name} is {facts[name]:.6f}, and {found[site]:.6f} by the terms"
                )


class _Results(_Part):
    """What was published is what follows from the ledger."""

    def __init__(self, run: RunFolder, entries: Numbered) -> None:
        super().__init__()
        ledger = [entry for _, entry in entries]
        end = next((entry for entry in ledger if entry["kind"] == "end"), None)
        files: Mapping[str, str] = {} if end is None else end.get("files", {})
        self._files(run, files, "the ledger ends with")
        if digest := ledger[0].get("splits"):
            self._files(run, {run.splits_file.name: digest}, "the run was started with")
        self._uncovered(run, {*files, *((run.splits_file.name,) if digest else ())})
        if end is None:
            if run.results_file.exists():
                self.problems.append("the run has results, and the ledger no end: its last lines are gone")
            return
        if not run.results_file.exists():
            return
        stored = run.results
        self.results = results_of(run.config, ledger, over_rounds="intervals_over_rounds" in stored)
        self._compare(stored, format_of(ledger))

    def _compare(self, stored: Mapping[str, Any], stated: int) -> None:
        assert self.results is not None
        compared = self.results if stated >= 3 else {key: self.results[key] for key in STEADY & self.results.keys()}
        for key in sorted(compared):
            self.problems += _differences(key, stored.get(key), compared[key])
        if rest := sorted(stored.keys() - compared.keys()):
            self.unchecked.append(f"{', '.join(rest)} in results.json: they don't follow from the ledger")
        self.facts.append(f"{len(compared)} entries of results.json, contributions among them, follow from the ledger")

    def _files(self, run: RunFolder, files: Mapping[str, str], which: str) -> None:
        for name, digest in files.items():
            file = run.path / name
            if not file.resolve().is_relative_to(run.path.resolve()):
                self.problems.append(f"the end names a file outside of the run folder, {name}")
            elif not file.exists():
                self.unchecked.append(f"{name}: it is not here")
            elif digest_of(file) != digest:
                self.problems.append(f"{name} is not the file that {which}")
            else:
                self.facts.append(f"{name} is the file that {which}")

    def _uncovered(self, run: RunFolder, covered: Collection[str]) -> None:
        """Files beside those that the ledger covers: anybody may have changed them."""
        known = {*COVERED, *covered}
        beside = [file for file in sorted(run.path.iterdir()) if file.name not in known]
        models = [file for file in sorted((run.path / "models").glob("*")) if f"models/{file.name}" not in covered]
        names = [str(file.relative_to(run.path)) for file in (*beside, *models)]
        if names:
            self.unchecked.append(f"{', '.join(names)}: not covered by the ledger")


def _differences(where: str, stored: Any, followed: Any) -> Iterator[str]:
    """Where results.json differs from what follows from the ledger."""
    if isinstance(stored, Mapping) and isinstance(followed, Mapping):
        for key in sorted({*stored, *followed}, key=str):
            yield from _differences(f"{where}.{key}", stored.get(key), followed.get(key))
    elif isinstance(stored, list) and isinstance(followed, list | tuple) and len(stored) == len(followed):
        for i, (one, other) in enumerate(zip(stored, followed, strict=True)):
            yield from _differences(f"{where}.{i}", one, other)
    elif not _is_same(stored, followed):
        yield f"results.json gives {where} as {_short(stored)}, and by the ledger it is {_short(followed)}"


def _is_same(stored: Any, followed: Any) -> bool:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in (stored, followed)):
        return type(stored) is type(followed) and bool(stored == followed)
    return bool(abs(stored - followed) <= SAME_RESULT * max(1.0, abs(followed)))


def _short(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


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
