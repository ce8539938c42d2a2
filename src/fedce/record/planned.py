"""Whether an experiment that was planned from the sites' fingerprints follows from them."""

from collections.abc import Mapping
from typing import Any

from fedce.base.config import load_recorded, with_planned
from fedce.base.errors import ReplyError
from fedce.base.files import digest_of, read_sealed
from fedce.base.identity import is_signed
from fedce.record.checks import Part
from fedce.record.entries import Continued, Join
from fedce.record.folder import RunFolder
from fedce.record.ledger import Ledger
from fedce.site.wire import FingerprintForm


class PlannedAgain(Part):
    """Every fingerprint is signed by its site, and config.toml holds the values that the ledger began with."""

    def __init__(self, run: RunFolder, ledger: Ledger) -> None:
        super().__init__()
        began = ledger.begun
        if not began.planned:
            return
        # A run that went on has more rounds now.
        longer = ledger.of(Continued)
        config = load_recorded(run.config_until(longer[0].round_no)) if longer else run.config
        if with_planned(config.model_copy(update={"unplanned": tuple(began.planned)}), began.planned) != config:
            self.problems.append("config.toml does not hold the values that were planned from the sites' fingerprints")
        if not run.fingerprints_file.exists():
            self.unchecked.append(f"the fingerprints that the plan was made from: {run.fingerprints_file.name} is gone")
        elif digest_of(run.fingerprints_file) != began.fingerprints:
            self.problems.append(f"{run.fingerprints_file.name} is not the file that the run began with")
        else:
            self._signed(read_sealed(run.fingerprints_file)["sites"], {line.site: line.key for line in ledger.of(Join)})

    def _signed(self, sites: Mapping[str, Any], keys: Mapping[str, str]) -> None:
        n_refused = 0
        for site, sent in sites.items():
            where = f"the fingerprint of {site}"
            try:
                form = FingerprintForm.read(sent["content"])
            except ReplyError as error:
                self.problems.append(f"{where}: {error}")
                continue
            n_refused += not form.fingerprint
            key = keys.get(site, sent["key"])
            if form.name != site or not is_signed(sent["content"], sent["signature"], key):
                self.problems.append(f"{where} is not signed by the key that the site joined with")
        told = f"; {n_refused} refused to send one" if n_refused else ""
        self.facts.append(f"planned from {len(sites) - n_refused} fingerprints, each signed by its site{told}")
