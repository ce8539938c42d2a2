"""Checking a run's ledger as a member would: the chain, the signatures, and every share from the recorded terms."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from fedce.base.errors import RunError
from fedce.base.files import digest_of
from fedce.base.identity import held_key
from fedce.base.words import printable
from fedce.record.attendance import Attendance, Draws
from fedce.record.checks import Entry, Numbered, Part
from fedce.record.folder import NO_LINE, RunFolder, check_format, entry_of, format_of
from fedce.record.forms import check_line
from fedce.record.numbers import Replayed, ResultsAgain, Statistics
from fedce.record.signatures import Signatures

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
        parts: Sequence[Callable[[], Part]] = (
            lambda: Attendance(run, entries),
            lambda: Draws(run, entries),
            lambda: Signatures(run, entries, coordinator, trusted, keys or {}),
            lambda: Statistics(run, entries),
            lambda: Replayed(run, entries),
            lambda: ResultsAgain(run, entries),
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
