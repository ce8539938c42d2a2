"""Checking a run's ledger as a member would: the chain, the signatures, and every share from the recorded terms."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from fedce.base.errors import RunError
from fedce.base.files import digest_of
from fedce.base.identity import held_key
from fedce.record.attendance import Attendance, Draws
from fedce.record.attestations import Attested
from fedce.record.ballots import BallotsHeld
from fedce.record.checks import Part
from fedce.record.drawn import Drawn
from fedce.record.entries import Continued, End, Line, Resume, Round, Session, Start, line_of
from fedce.record.folder import RunFolder
from fedce.record.ledger import NO_LINE, Ledger, check_format, content_of
from fedce.record.numbers import Replayed, ResultsAgain, Statistics
from fedce.record.planned import PlannedAgain
from fedce.record.signatures import Signatures
from fedce.record.standing import Standings

NEW_FIELDS: Mapping[int, Mapping[str, tuple[str, ...]]] = {
    2: {"start": ("config_file",), "end": ("files", "evaluations")},
    3: {
        "round": ("asked", "missing"),
        "end": ("missing", "reconstruction", "exchanges", "n_parameters", "n_values", "device"),
    },
}
"""Keys that every line of a kind holds from a format on, and no line of an earlier format."""
DRAWN_BEFORE = "asked"
"""Before format 3, a round's line names the asked sites only if sites are drawn."""
_DONE = {"start": "started", "resume": "continued", "continued": "continued"}


@dataclass(frozen=True)
class Verdict:
    """The outcome of all checks."""

    problems: tuple[str, ...]
    facts: tuple[str, ...]
    """What was checked, in plain words."""
    unchecked: tuple[str, ...] = ()
    """What could not be checked, and why."""
    doubt: str = ""
    """Why anybody could have written a ledger that is sound in itself, and what to give to be sure; empty: no doubt."""

    @property
    def sound(self) -> bool:
        return not self.problems

    @property
    def proves(self) -> Literal["signed", "consistent", "unsound"]:
        """signed: by a key that the caller gave or holds. consistent: no contradiction, and no trusted signature."""
        return "unsound" if self.problems else "consistent" if self.doubt else "signed"


@dataclass(frozen=True)
class FromElsewhere:
    """What a member knows that does not come from the run folder."""

    coordinator: str | None = None
    """The coordinator's public key."""
    head: str | None = None
    """The hash of a line."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Site to public key."""
    attestations: Sequence[Path] = ()
    """Attestations of the ledger that the member kept."""
    authority: Path | None = None
    """The certificates of a time-stamping authority."""


@dataclass(frozen=True)
class Checked:
    """A sound run's results, as they follow from its ledger."""

    results: dict[str, Any]
    doubt: str
    """The doubt of `Verdict`."""


def checked(run: RunFolder) -> Checked:
    """The results for payments and reports; the results of an unsound run are always refused."""
    stored = run.results
    verdict, results = _verified(run)
    if not verdict.sound or results is None:
        reason = verdict.problems[0] if verdict.problems else "it has no end"
        raise RunError(f"the record of {run.path} is not sound ({reason}); see 'fedce ledger verify {run.path}'")
    # The ledger of an earlier version does not hold everything that its results were made of.
    return Checked({**stored, **results} if run.ledger().format < 3 else results, verdict.doubt)


def verify(
    run: RunFolder,
    coordinator: str | None = None,
    head: str | None = None,
    keys: Mapping[str, str] | None = None,
    attestations: Sequence[Path] = (),
    authority: Path | None = None,
) -> Verdict:
    """Check everything that can be checked.

    The arguments are what a member knows from elsewhere (`FromElsewhere`). Without a coordinator's key, this machine's
    own key counts, if there is one. Attestations in the run folder are found by themselves.
    """
    return _verified(run, FromElsewhere(coordinator, head, keys or {}, attestations, authority))[0]


def _verified(run: RunFolder, known: FromElsewhere | None = None) -> tuple[Verdict, dict[str, Any] | None]:
    """The verdict, and the results that follow from the ledger; None if it has no end or can't be read."""
    known = known or FromElsewhere()
    lines = run.lines()
    hashes = [sha256(line.encode()).hexdigest() for line in lines]
    contents, problems = _contents(lines)
    if not contents:
        gone = Attested(_attestations(run, known), lines, known.coordinator or "", lambda n: {}, known.authority)
        return Verdict((*problems, f"{run.ledger_file} is empty or missing", *gone.problems), ()), None
    check_format(contents.get(1), run.ledger_file)
    found = Part()
    found.problems += problems
    if known.head is not None and known.head not in hashes:
        found.problems.append(
            f"no line has the hash {known.head}: what was there when it was noted down is gone or changed"
        )
    found.problems += _chain(lines, hashes, contents)
    found.facts.append(f"{len(contents)} lines, chained; the last has the hash {hashes[-1]}")
    ledger, problems = _ledger(contents)
    found.problems += problems
    _check_attested(run, lines, ledger, known, found)
    if len(ledger) < len(lines):
        found.unchecked.append("everything else: some lines can't be read")
    else:
        trusted = known.coordinator or held_key()
        _check(run, ledger, found, lambda: Signatures(run, ledger, known.coordinator, trusted, known.keys))
    return Verdict(tuple(found.problems), tuple(found.facts), tuple(found.unchecked), found.doubt), found.results


def _attestations(run: RunFolder, known: FromElsewhere) -> list[Path]:
    beside = run.attestation_files
    there = {path.resolve() for path in beside}
    return [*beside, *(path for path in known.attestations if path.resolve() not in there)]


def _check_attested(run: RunFolder, lines: Sequence[str], ledger: Ledger, known: FromElsewhere, found: Part) -> None:
    """Compare the ledger with its attestations, even if some of its lines can't be read."""
    files = _attestations(run, known)
    key = known.coordinator or (ledger.start.coordinator if ledger.start else "")
    standings = Standings.of(ledger) if ledger.start else Standings("", "")
    pinned = {own: site for site, own in known.keys.items()}
    found.add(Attested(files, lines, key, lambda n: standings.site_by_key(n) | pinned, known.authority))
    if not files and known.head is None:
        found.unchecked.append(
            "whether lines at the end were cut off, or all made anew: no attestation is here; "
            "give one that you kept, with --attestation"
        )


def _check(run: RunFolder, ledger: Ledger, found: Part, signatures: Callable[[], Part]) -> None:
    """Add the outcome for a ledger whose lines can all be read."""
    try:
        found.problems += _order(ledger)
        found.problems += _format(ledger)
        if ledger.format >= 2:
            found.problems += _config(run, ledger)
        else:
            found.unchecked.append("the experiment file, models and Dice: an earlier version did not record them")
        parts: Sequence[Callable[[], Part]] = (
            lambda: Attendance(run, ledger),
            lambda: Draws(run, ledger),
            signatures,
            lambda: Statistics(run, ledger),
            lambda: BallotsHeld(run, ledger),
            lambda: Drawn(run, ledger),
            lambda: PlannedAgain(run, ledger),
            lambda: Replayed(run, ledger),
            lambda: ResultsAgain(run, ledger),
        )
        for check in parts:  # One after the other: if a check can't be made, the outcome of earlier ones is kept.
            found.add(check())
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, RunError) as error:
        found.problems.append(
            f"an entry has the wrong form ({type(error).__name__}: {error}); nothing after it was checked"
        )


def _contents(lines: Sequence[str]) -> tuple[dict[int, Any], list[str]]:
    """The content of each line by its number, and problems of lines that can't be read."""
    contents: dict[int, Any] = {}
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        try:
            contents[number] = content_of(line)
        except (ValueError, RecursionError) as error:
            problems.append(f"line {number} is not as fedce writes it ({error})")
    return contents, problems


def _ledger(contents: Mapping[int, Any]) -> tuple[Ledger, list[str]]:
    """The lines that have a known form, and problems of lines that no other command could read."""
    read: list[Line] = []
    problems: list[str] = []
    for number, content in contents.items():
        try:
            read.append(line_of(content, f"line {number}"))
        except RunError as error:
            problems.append(str(error))
    return Ledger(tuple(read)), problems


def _chain(lines: Sequence[str], hashes: Sequence[str], contents: Mapping[int, Any]) -> Iterator[str]:
    """Every line holds the hash of the line before; if not, what must have happened."""
    number_by_hash = {NO_LINE: 0, **{found: number for number, found in enumerate(hashes, 1)}}
    first: dict[str, int] = {}
    for number, content in contents.items():
        if (before := first.setdefault(lines[number - 1], number)) != number:
            yield f"line {number} repeats line {before}"
            continue
        follows = number_by_hash.get(str(content.get("previous")) if isinstance(content, dict) else "")
        if follows == number - 1:
            continue
        if follows is None:
            yield f"line {number} does not follow from line {number - 1}: one of them was changed, or lines are missing"
        else:
            yield f"line {number} follows from line {follows}, not from line {number - 1}: lines were moved or put in"


def _order(ledger: Ledger) -> Iterator[str]:
    """A start, then every round once and in order, then perhaps an end."""
    first = ledger.lines[0]
    if not isinstance(first, Start):
        yield f"line 1 should be the start, but is {first.kind!r}"
    expected = 0
    ended: int | None = None
    for number, line in enumerate(ledger, 1):
        if isinstance(line, Start) and number > 1:
            yield f"line {number} is a second start"
        if isinstance(line, Continued):
            if ended is None:
                yield f"line {number} continues a run that has not ended"
            if line.round_no != expected:
                yield f"line {number} continues after round {line.round_no}, but {expected} rounds are there"
            ended = None
        # A run that was killed between its end and its results is resumed only to write the results.
        if ended is not None and isinstance(line, Round | End | Start):
            yield f"line {number} is {line.kind!r}, and follows the end in line {ended}"
        if isinstance(line, End):
            ended = ended or number
        if isinstance(line, Round):
            if line.round_no != expected:
                yield f"line {number} is round {line.round_no + 1} where round {expected + 1} should be"
            expected = line.round_no + 1


def _format(ledger: Ledger) -> Iterator[str]:
    """The ledger is of the format that its first line states: it holds what that format has, and nothing later."""
    stated = ledger.format
    for number, line in enumerate(ledger, 1):
        if isinstance(line, Resume | Continued) and line.format != stated:
            yield f"line {number} has format {line.format}, but line 1 format {stated}"
        # If sites are on other machines, the coordinator does not know their splits.
        if isinstance(line, Start) and (line.splits is not None) != (stated >= 3 and line.run is None):
            yield f"line {number} and the format {stated} that it states don't agree about 'splits'"
        for since, fields in NEW_FIELDS.items():
            for name in fields.get(line.kind, ()):
                if (name in line.content) == (stated >= since) or (name == DRAWN_BEFORE and stated < since):
                    continue
                what = f"lacks {name!r}" if stated >= since else f"holds {name!r}"
                yield f"line {number} {what}, but line 1 states format {stated}: one of them was changed"


def _config(run: RunFolder, ledger: Ledger) -> Iterator[str]:
    """The experiment that the ledger is checked by is the one that the run was started, and continued, with."""
    continued = [number for number, line in enumerate(ledger, 1) if isinstance(line, Continued)]
    for number, line in enumerate(ledger, 1):
        if not isinstance(line, Session):
            continue
        # The experiment of an earlier part has the number of its rounds in its name.
        following = next((ledger.lines[later - 1] for later in continued if later > number), None)
        file = run.config_until(following.round_no) if isinstance(following, Continued) else run.config_file
        if not file.exists():
            yield f"line {number}: {file.name} is missing, with which the run was {_DONE[line.kind]}"
        elif line.config_file != digest_of(file):
            yield f"line {number}: {file.name} is not the file that the run was {_DONE[line.kind]} with"
