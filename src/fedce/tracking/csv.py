"""A table of all rounds beside the ledger: one line for each round and site, for a spreadsheet or pandas."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from fedce.record.folder import RunFolder
from fedce.tracking.tracker import RoundValues, TrackedRun, Tracker, absolute_path

NUMBERS = ("dice", "share", "worth", "loss", "seconds")


class CsvLog:
    """Written anew when it is opened, because a kill may have cut off its last line."""

    n_rounds = 0

    def __init__(self, run: TrackedRun, target: str) -> None:
        path = Path(target) if target else RunFolder(run.folder).rounds_file
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = path.open("w", encoding="utf-8", newline="")
        self._rows = csv.writer(self._file, lineterminator="\n")
        self._rows.writerow(["round", "site", *NUMBERS, "flags"])

    def round(self, values: RoundValues) -> None:
        sites = sorted({site for found in (*values.by_site.values(), values.flags) for site in found})
        for site in sites:
            numbers = [values.by_site[name].get(site, "") for name in NUMBERS]
            self._rows.writerow([values.number, site, *numbers, "; ".join(values.flags.get(site, ()))])
        self._file.flush()

    def finish(self, results: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        """Report and models lie in the run folder already."""

    def close(self, *, stopped: bool) -> None:
        self._file.close()


CSV = Tracker(CsvLog, absolute=absolute_path)
