"""The columns of the sites' table: one list, which the terminal, the report and the live page all show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedce.core.scoring import MIN_CASES
from fedce.learning.metrics import DICE, heading_of
from fedce.present.worth import is_about_needs, shares_given

Results = Mapping[str, Any]
"""A run's results; for a run that is still going on, the results known so far."""
Place = Literal["terminal", "shares", "report", "live", "metrics"]
"""`metrics` is a second table at each place, because the first one is as wide as a terminal or a page; `shares` is the
terminal's table of what each site gives and needs, if both are known."""
Kind = Literal["key", "number", "bar", "words"]
DASH: Mapping[Place, str] = {
    **dict.fromkeys(("terminal", "shares", "metrics"), "-"),
    **dict.fromkeys(("report", "live"), "\N{EN DASH}"),
}


@dataclass(frozen=True)
class Note:
    """The text beside a value: its interval, or why it has none."""

    text: str
    short: str
    """A short form of `text` for the narrow terminal."""


@dataclass(frozen=True)
class Column:
    """One column: its title at each place that shows it, and how a site's value is found and written.

    >>> dice = Column({"report": "Dice"}, of("dice"), digits(2))
    >>> dice.form(dice.value({"dice": {"north": 0.8123}}, "north"))
    '0.81'
    """

    titles: Mapping[Place, str]
    value: Callable[[Results, str], Any]
    """Gives a site's value; None if it is not known."""
    form: Callable[[Any], str] = str
    kind: Kind = "number"
    note: Callable[[Results, str], Note | None] = lambda results, site: None
    unknown: str = ""
    """The text for an unknown value, instead of a dash."""
    needs: str = ""
    """The column is left out of results without this key."""


COUNTED = "counted"
"""Under this key, which results.json does not have, those who show results add what is counted: images or volumes."""


def of(key: str) -> Callable[[Results, str], Any]:
    """A function that gives the results' value for a site under this key."""
    return lambda results, site: results[key].get(site)


def digits(n: int) -> Callable[[float], str]:
    return f"{{:.{n}f}}".format


def columns(results: Results) -> list[Column]:
    """All columns from left to right. A new column of the results is one more entry here."""
    classes = classes_of(results)
    # A terminal of 80 columns has no room for everything: if sites also trained alone, that matters more.
    counted = results.get(COUNTED, "images")
    also: dict[Place, str] = {} if "alone" in results else {"terminal": counted}
    without: dict[Place, str] = {} if "alone" in results else {"terminal": "Dice\nwithout", "report": "Dice without it"}
    return [
        Column(
            {"terminal": "site", "shares": "site", "report": "Site", "live": "Site", "metrics": "site"},
            lambda results, site: site,
            kind="key",
        ),
        # On a page the shares come first, where a phone shows them too; in a terminal, bars look best at the right.
        *_shares(results, ("report", "live")),
        Column({**also, "report": counted.capitalize()}, of("images")),
        Column({"live": f"Training {counted}"}, of("train_images")),
        Column({"live": "Validation Dice"}, of("last_score"), digits(3)),
        Column({"live": "Weight"}, of("last_weight"), digits(3)),
        Column(
            {"terminal": "Dice", "report": "Dice", "live": "Test Dice"},
            of("dice"),
            digits(3),
            note=_dice_interval,
            unknown="absent",  # The site was absent at the end: it has a share and no Dice.
            needs="dice",
        ),
        *(Column({"report": name}, _dice_of_class(name), digits(3)) for name in classes if len(classes) > 1),
        *(_metric(results, name) for name in results.get("metrics", {}) if name != DICE),
        Column({"terminal": "alone", "report": "Alone", "live": "Alone"}, of("alone"), digits(3), needs="alone"),
        Column(
            {"terminal": "gain", "report": "Gain", "live": "Gain"},
            of("gain"),
            "{:+.3f}".format,
            note=_gain_interval,
            needs="gain",
        ),
        Column({"report": "Keeps"}, of("keeps"), kind="words", needs="keeps"),
        Column(without, of("dice_without"), digits(3)),
        *_shares(results, ("terminal", "shares")),
        Column({"live": "Loss"}, of("last_loss"), digits(3)),
        Column({"live": "Seconds"}, of("last_seconds"), digits(2)),
        # Flags are too long for a column of the terminal: they are lines below its table.
        # On the report, a sentence says that there are none.
        Column({**({"report": "Flags"} if results["flags"] else {}), "live": "Flags"}, _flags, kind="words"),
    ]


def _shares(results: Results, places: Sequence[Place]) -> list[Column]:
    """What a site gives to the others, if it was measured, and its contribution: with FedCE, what it needs."""

    def column(
        titles: Mapping[Place, str], value: Callable[[Results, str], Any], note: Callable[..., Note | None]
    ) -> Column:
        here = {place: title for place, title in titles.items() if place in places}
        return Column(here, value, lambda share: f"{100 * share:.1f} %", kind="bar", note=note)

    if not shares_given(results):
        names: Mapping[Place, str] = {"terminal": "contribution", "report": "Contribution", "live": "Contribution"}
        return [column(names, of("contributions"), _share_interval)]
    gives: Mapping[Place, str] = {"shares": "gives", "report": "Gives", "live": "Gives"}
    title = "needs (contribution)" if is_about_needs(results) else "contribution"
    needs: Mapping[Place, str] = {"shares": title, "report": title.capitalize(), "live": title.capitalize()}
    return [
        column(gives, lambda results, site: shares_given(results).get(site), _gives_interval),
        column(needs, of("contributions"), _share_interval),
    ]


def _gives_interval(results: Results, site: str) -> Note | None:
    if site not in shares_given(results):
        return None
    low, high = (f"{100 * results['worth'][end][site]:.0f}" for end in ("low", "high"))
    return Note(f"{low} to {high} %", f"{low}-{high}")


def classes_of(results: Results) -> list[str]:
    """All classes for which some site has a Dice."""
    return list(dict.fromkeys(name for dice in results.get("dice_by_class", {}).values() for name in dice))


def presence_lines(results: Results) -> list[str]:
    """Which sites took part in only some of the rounds they were asked for."""
    part = {site: there for site, there in results.get("presence", {}).items() if there < 1}
    if not part:
        return []
    named = ", ".join(f"{site} in {100 * there:.0f} %" for site, there in part.items())
    return [f"Some sites took part in only some of the rounds, and their shares count by this part: {named}."]


def labelled_lines(results: Results) -> list[str]:
    """A footnote on sites that label only some of the classes: what their Dice is a mean of."""
    classes = classes_of(results)
    partly = {site: dice for site, dice in results.get("dice_by_class", {}).items() if len(dice) < len(classes)}
    if not partly:
        return []
    who = ", ".join(f"{site} ({', '.join(dice)})" for site, dice in partly.items())
    return [f"Sites that label only some of the classes, so that their scores are of these classes alone: {who}."]


def _metric(results: Results, name: str) -> Column:
    """A metric beside Dice, with its unit and its direction."""
    heading = heading_of(results, name)
    return Column(
        {"metrics": heading.line(results["metrics_unit"].get(name, {}).values())},
        lambda results, site: results["metrics"][name].get(site),
        digits(heading.digits),
        note=lambda results, site: _joined(_metric_interval(results, name, site), _undefined(results, name, site)),
    )


def _joined(*notes: Note | None) -> Note | None:
    there = [note for note in notes if note]
    return Note("; ".join(note.text for note in there), ", ".join(note.short for note in there)) if there else None


def _metric_interval(results: Results, name: str, site: str) -> Note | None:
    """The 95 % interval over the site's test cases; earlier versions gave none for metrics beside Dice."""
    if not (ends := results.get("metrics_interval", {}).get(name, {}).get(site)):
        return None
    low, high = (heading_of(results, name).text(end) for end in ends)
    return Note(f"{low} to {high}", f"{low}-{high}")


def _undefined(results: Results, name: str, site: str) -> Note | None:
    """The number of images or volumes without a value, summed over the classes: the mean leaves them out."""
    n = sum(results["metrics_undefined"].get(name, {}).get(site, {}).values())
    return Note(f"undefined in {n}", f"{n} undef.") if n else None


def _dice_of_class(name: str) -> Callable[[Results, str], float | None]:
    return lambda results, site: results["dice_by_class"].get(site, {}).get(name)


def _gain_interval(results: Results, site: str) -> Note | None:
    """The 95 % interval, over the site's test cases, of its gain over training alone."""
    if site not in results["gain"]:
        return None
    if ends := results["gain_interval"].get(site):
        low, high = (f"{end:+.2f}".replace("0.", ".") for end in ends)
        return Note("{:+.3f} to {:+.3f}".format(*ends), f"{low} {high}")
    return _no_interval(results.get("test_cases", {}).get(site, 0))


def _flags(results: Results, site: str) -> str:
    return "; ".join(results["flags"].get(site, [])) or "none"


def _dice_interval(results: Results, site: str) -> Note | None:
    """The 95 % interval over the site's test cases; runs of earlier versions have neither interval nor cases."""
    if ends := results.get("dice_interval", {}).get(site):
        low, high = (f"{end:.2f}".removeprefix("0") for end in ends)
        return Note("{:.3f} to {:.3f}".format(*ends), f"{low}-{high}")
    n_cases = results.get("test_cases", {}).get(site, 0)
    return _no_interval(n_cases) if n_cases and site in results["dice"] else None


def _share_interval(results: Results, site: str) -> Note | None:
    """The 95 % interval over rounds and validation cases; None for a site that took no part in the rounds."""
    found = results.get("intervals")
    if not found or site not in found["low"]:
        return None
    if found["low"][site] is None:
        return _no_interval(results.get("validation_cases", {}).get(site, 0))
    low, high = (f"{100 * found[end][site]:.1f}" for end in ("low", "high"))
    return Note(f"{low} to {high} %", f"{low}-{high}")


def _no_interval(n_cases: int) -> Note:
    """Why there is no interval, in few words; sentences beside the table say more."""
    if 0 < n_cases < MIN_CASES:
        cases = "1 case" if n_cases == 1 else f"{n_cases} cases"
        return Note(f"no interval: {cases}, {MIN_CASES} needed", cases)
    return Note("no interval", "no interval")


@dataclass(frozen=True)
class Cell:
    text: str
    kind: Kind
    note: Note | None
    part: float | None
    """The value of a bar as a part of the column's largest one."""


@dataclass(frozen=True)
class SitesTable:
    """The table as one place shows it, with a row for each site."""

    titles: Sequence[tuple[str, Kind]]
    rows: Sequence[Sequence[Cell]]


def sites_table(results: Results, place: Place, sites: Sequence[str]) -> SitesTable:
    """The columns that this place shows, and these sites' cells."""
    there = [column for column in columns(results) if not column.needs or column.needs in results]
    shown = [column for column in there if place in column.titles]
    cells = [_cells(column, results, place, sites) for column in shown]
    return SitesTable([(column.titles[place], column.kind) for column in shown], list(zip(*cells, strict=True)))


def _cells(column: Column, results: Results, place: Place, sites: Sequence[str]) -> list[Cell]:
    values = [column.value(results, site) for site in sites]
    texts = [column.unknown or DASH[place] if value is None else column.form(value) for value in values]
    notes = [column.note(results, site) for site in sites]
    parts = _parts(values) if column.kind == "bar" else [None] * len(values)
    return [Cell(text, column.kind, note, part) for text, note, part in zip(texts, notes, parts, strict=True)]


def _parts(values: Sequence[float | None]) -> list[float | None]:
    largest = max((value for value in values if value is not None), default=0.0)
    return [None if value is None else value / largest if largest else 0.0 for value in values]
