"""Settings that the files of a federation call for but the experiment leaves out, as options ready to paste."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedce.base.tables import BUILT_IN
from fedce.data.pixels import FOREGROUND
from fedce.data.site import Sites

MOST_NUMBERS = 4
"""A case's number is looked for among this many numbers at the start of a file's name."""
FEWEST_CASES = 3
"""A site needs at least one case for each split."""
CASE_WORD = re.compile(r"(?:^|.*[^a-z])(?:p|pt|pat|patient|case|sub|subj|subject)[ _-]?[0-9]+", re.IGNORECASE)
MOST_CLASSES = 16
"""Masks with more values than this are blurred or drawn in shades, not labelled."""


@dataclass(frozen=True)
class Advice:
    """A recommended setting, and what was found in the files that calls for it."""

    found: str
    option: str
    """The setting as an option of the command line."""


def advice_for(sites: Sites) -> list[Advice]:
    config = sites.config
    if config.source in BUILT_IN:
        return []
    said = []
    if config.case_pattern is None and config.case_column is None:
        names = {site.name: list(dict.fromkeys(map(site.file_of, range(len(site.files))))) for site in sites}
        if (pattern := case_pattern(names)) is not None:
            said.append(_cases(names, pattern))
    values = sorted({value for site in sites for origin in site.origins for value in origin.values})
    if sites.classes is FOREGROUND and 1 < len(values) <= MOST_CLASSES:
        classes = ", ".join(f"value_{value} = [{value}]" for value in values)
        found = f"masks hold the values {', '.join(map(str, values))}; all of them count as one class, foreground"
        said.append(Advice(found, f"--set data.classes='{{{classes}}}'"))
    return said


def _cases(names: Mapping[str, Sequence[str]], pattern: str) -> Advice:
    every = [name for found in names.values() for name in found]
    cases = Counter(_case(pattern, name) for name in every)
    case = cases.most_common(1)[0][0]
    examples = [name for name in every if _case(pattern, name) == case][:2]
    found = f"names such as {' and '.join(examples)} look like images of one case, {case}, but may be in two splits"
    return Advice(found, f"--set data.case_pattern='{pattern}'")


def _case(pattern: str, name: str) -> str:
    match = re.fullmatch(pattern, name)
    assert match is not None
    return match[1]


def case_pattern(names_by_site: Mapping[str, Sequence[str]]) -> str | None:
    """A pattern for data.case_pattern, if the file names of every site look like several images of each patient.

    A case is the beginning of a file name, up to and including its first, second, third or fourth number, which a
    separator follows.
    """
    for n in range(1, MOST_NUMBERS + 1):
        pattern = "(" + "[^0-9]*[0-9]+" * n + ")[ _.-].*"
        if _fits(pattern, names_by_site):
            return pattern
    return None


def _fits(pattern: str, names_by_site: Mapping[str, Sequence[str]]) -> bool:
    """Whether every name has a case, every site has several, and some cases have several images.

    Also, either the rest of the name occurs with other cases too (img0, left), or the case is named as one (P07,
    patient7). Otherwise the number could be anything: a year, a camera, a running number.
    """
    n_files = n_cases = n_shared = 0
    cases: set[str] = set()
    for names in names_by_site.values():
        matches = [re.fullmatch(pattern, name) for name in names]
        found = [(match[1], match[0][match.end(1) :]) for match in matches if match]
        of_site = {case for case, _ in found}
        if len(found) < len(names) or len(of_site) < FEWEST_CASES:
            return False
        times = Counter(rest for _, rest in set(found))
        n_files, n_cases = n_files + len(names), n_cases + len(of_site)
        n_shared += sum(times[rest] > 1 for _, rest in found)
        cases |= of_site
    return n_cases < n_files and (2 * n_shared > n_files or all(CASE_WORD.fullmatch(case) for case in cases))
