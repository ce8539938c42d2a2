"""Converts published data sets into a folder of sites that `fedce run` reads. See docs/public-data.md."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import tomli_w

from fedce.base.errors import DataError, ManyProblems, Problems, RunError
from fedce.base.files import read_sealed, write_bytes, write_sealed
from fedce.data.prepare import fundus, prostate
from fedce.data.prepare.sources import Case, Found, Source, place

__all__ = ["SiteSummary", "Source", "Summary", "Task", "guide", "prepare", "sources_of"]

Task = Literal["prostate", "fundus"]
Notify = Callable[[str], None]
SOURCES: Mapping[Task, tuple[Source, ...]] = {"prostate": prostate.SOURCES, "fundus": fundus.SOURCES}
SIZE = 256
"""Side of the images in the experiment file that is written; published images have many sizes."""
SAVE_SECONDS = 5.0
"""The ledger is saved this often; after a kill, only later cases are converted again, to the same bytes."""


@dataclass(frozen=True)
class SiteSummary:
    """How one source was converted."""

    source: Source
    n_found: int
    """Cases with image and masks; known defects are left out."""
    n_published: int
    left_out: tuple[str, ...]
    unmatched: tuple[str, ...]
    n_images: int
    """Images written; with `split_views`, a stereo photograph gives two."""

    @property
    def missing(self) -> bool:
        return self.n_found == 0


@dataclass(frozen=True)
class Summary:
    """What was found and what was converted."""

    out: Path
    sites: tuple[SiteSummary, ...]


@dataclass
class _Ledger:
    """OUT/prepared.json: the source files of each output, so that no output is made twice."""

    path: Path
    sites: dict[str, dict[str, Any]] = field(default_factory=dict)
    saved: float = field(default_factory=monotonic)

    def is_made(self, site: str, case: Case, stamp: str) -> bool:
        entry = self.sites[site]["cases"].get(case.name)
        if entry is None or entry["stamp"] != stamp:
            return False
        return all((self.path.parent / site / name).is_file() for name in entry["outputs"])

    def enter(self, site: str, case: Case, entry: dict[str, Any]) -> None:
        self.forget(site, case, entry["outputs"])
        self.sites[site]["cases"][case.name] = entry
        if monotonic() - self.saved > SAVE_SECONDS:
            self.save()

    def forget(self, site: str, case: Case, keep: Collection[str] = ()) -> None:
        """Remove outputs that were made from an earlier state of a case's files."""
        earlier = self.sites[site]["cases"].pop(case.name, {"outputs": {}})
        for name in earlier["outputs"].keys() - set(keep):
            (self.path.parent / site / name).unlink(missing_ok=True)

    def save(self) -> None:
        sites = {site: about | {"cases": dict(sorted(about["cases"].items()))} for site, about in self.sites.items()}
        write_sealed(self.path, {"sites": dict(sorted(sites.items()))})
        self.saved = monotonic()


def sources_of(task: Task, split_views: bool = False) -> tuple[Source, ...]:
    return fundus.SOURCES_BY_VIEW if task == "fundus" and split_views else SOURCES[task]


def prepare(task: Task, source: Path, out: Path, notify: Notify, split_views: bool = False) -> Summary:
    """Find, pair and convert the sources below a folder; outputs already made from the same files are kept.

    All files are paired before any is converted. A case that can't be converted does not stop the others; one error at
    the end names all such cases. `split_views` makes an image of each view of a stereo photograph (D18).
    """
    items = sources_of(task, split_views)
    found = _find(task, source)
    ledger = _open_ledger(out)
    problems = Problems()
    sites = tuple(_make_site(item, found[item.site], source, ledger, notify, problems) for item in items)
    write_bytes(out / "experiment.toml", tomli_w.dumps(_experiment(task, out, split_views)).encode())
    if len(problems):
        notify(f"{len(problems)} cases could not be used; all others are in {out}")
    problems.raise_any(str(source))
    return Summary(out, sites)


def _find(task: Task, source: Path) -> dict[str, Found]:
    """The files below the user's folder, by site; one error names all cases with ambiguous file names."""
    if not source.is_dir():
        raise DataError(f"no such folder: {source}; give the folder that holds the downloaded data sets")
    found: dict[str, Found] = {}
    problems = Problems()
    for item in SOURCES[task]:
        root = source / item.folder
        with problems.collected():
            found[item.site] = item.find(root) if root.is_dir() else Found(())
            for problem in found[item.site].problems:
                problems.add(f"{item.site}: {problem}")
    problems.raise_any(str(source))
    if not any(this.cases for this in found.values()):
        layouts = [f"{item.site}: {line}" for item in SOURCES[task] for line in item.layout.splitlines()]
        hint = f"'fedce data prepare {task}' without --source says where to get them"
        first = f"none of the six {task} data sets is in {source}; {hint}; expected at least one of"
        raise ManyProblems(first, layouts)
    return found


def _open_ledger(out: Path) -> _Ledger:
    path = out / "prepared.json"
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file; give a folder for the prepared data")
    if not path.exists():
        if out.is_dir() and any(out.iterdir()):
            raise DataError(f"{out} is not empty and holds no prepared data; give another folder")
        return _Ledger(path)
    try:
        return _Ledger(path, read_sealed(path)["sites"])
    except (RunError, KeyError, TypeError):
        raise DataError(
            f"{path} is not what 'fedce data prepare' writes; remove it to prepare everything again"
        ) from None


def _make_site(
    item: Source, found: Found, source: Path, ledger: _Ledger, notify: Notify, problems: Problems
) -> SiteSummary:
    """Convert a source's cases."""
    left_out = tuple(f"{case.name}: {item.defects[case.name]}" for case in found.cases if case.name in item.defects)
    cases = [case for case in found.cases if case.name not in item.defects]
    n_published = item.published if found.published is None else found.published
    if cases:
        ledger.sites[item.site] = {
            "source": item.title,
            "url": item.url,
            "licence": item.licence,
            "masks": item.masks,
            "found": len(found.cases),
            "published": n_published,
            "left_out": left_out,
            "unmatched": found.unmatched,
            "cases": ledger.sites.get(item.site, {"cases": {}})["cases"],
        }
        ledger.save()  # From the start, the ledger marks the folder as one that fedce fills.
        try:
            _convert(item, cases, source, ledger, notify, problems)
        finally:
            ledger.save()
    n_images = _count_images(ledger.path.parent / item.site) if cases else 0
    return SiteSummary(item, len(found.cases), n_published, left_out, found.unmatched, n_images)


def _convert(
    item: Source, cases: Sequence[Case], source: Path, ledger: _Ledger, notify: Notify, problems: Problems
) -> None:
    """Convert the cases that are not converted yet."""
    stamps = {case.name: _stamp(item, case, source) for case in cases}
    todo = [case for case in cases if not ledger.is_made(item.site, case, stamps[case.name])]
    if gone := sorted(ledger.sites[item.site]["cases"].keys() - stamps.keys()):
        notify(f"{item.site}: {len(gone)} cases prepared earlier are no longer in {source} ({gone[0]}, ...); kept")
    notify(f"{item.site}: {len(todo)} of {len(cases)} cases to convert")
    said = monotonic()
    cases_by_note: dict[str, list[str]] = {}
    for i, case in enumerate(todo):
        if monotonic() - said > SAVE_SECONDS:
            notify(f"{item.site}: {i} of {len(todo)} converted")
            said = monotonic()
        try:
            notes: list[str] = []
            outputs = item.convert(case, notes.append)
        except DataError as error:
            problems.add(f"{item.site}, case {case.name!r}: {error}")
            ledger.forget(item.site, case)
            continue
        for name, content in outputs.items():
            write_bytes(ledger.path.parent / item.site / name, content)
        ledger.enter(
            item.site,
            case,
            {
                "made_from": {role: place(files, source) for role, files in case.files.items()},
                "stamp": stamps[case.name],
                "outputs": {name: sha256(content).hexdigest() for name, content in outputs.items()},
                "notes": notes,
            },
        )
        for note in notes:
            cases_by_note.setdefault(note, []).append(case.name)
    for note, names in cases_by_note.items():
        notify(f"{item.site}, {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {note}")


def _stamp(item: Source, case: Case, source: Path) -> str:
    """Digest that changes with a case's source files and with the code that converts them."""
    status = {str(path.relative_to(source)): path.stat() for path in case.all_files}
    files = {name: (this.st_size, this.st_mtime_ns) for name, this in status.items()}
    return sha256(repr((files, item.convert.__name__, _version())).encode()).hexdigest()


@cache
def _version() -> str:
    modules = sorted(path for path in Path(__file__).parent.glob("*.py"))
    return sha256(b"".join(path.read_bytes() for path in modules)).hexdigest()[:12]


def _count_images(site: Path) -> int:
    return sum(1 for path in (site / "images").glob("*") if not path.name.startswith("."))


def _experiment(task: Task, out: Path, split_views: bool) -> dict[str, Any]:
    classes = fundus.CLASSES if task == "fundus" else prostate.CLASSES
    data: dict[str, Any] = {"source": str(out.resolve()), "size": SIZE, "classes": classes}
    return {"data": data | ({"case_pattern": fundus.CASE_PATTERN_OF_VIEWS} if split_views else {})}


def guide(task: Task) -> str:
    """What to download from where, under which licence, and where to put it."""
    parts = [f"Put what you have below one folder DIR, then: fedce data prepare {task} --source DIR\n"]
    for item in SOURCES[task]:
        rows = {
            "from": item.url,
            "licence": item.licence,
            "download": item.download,
            "cases": f"{item.published} published",
            "masks": item.masks,
            "layout": item.layout.replace("\n", "\n" + " " * 14),
        }
        lines = [f"{item.site}: {item.title}", *(f"    {name:<9} {text}" for name, text in rows.items())]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)
