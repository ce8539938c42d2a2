"""Between two rounds: signed notices that have come are entered in the ledger, and hold from the next round on."""

from collections.abc import Callable

from fedce.record.folder import RunFolder
from fedce.record.notices import take_waiting
from fedce.record.standing import Standing, Standings, changes_of, gone_in


class Boundary:
    """Says which sites may not take part in a round, after entering what has come since the round before."""

    def __init__(
        self,
        run_folder: RunFolder,
        notice: Callable[[str], None] = lambda message: None,
        changed: Callable[[str, Standing], None] = lambda site, standing: None,
    ) -> None:
        self.run_folder, self.notice, self.changed = run_folder, notice, changed
        self._changes = changes_of(run_folder.ledger())

    def gone(self, round_no: int) -> dict[str, str]:
        """The sites that may not take part in a round, with the reason."""
        if entered := take_waiting(self.run_folder, self.notice):
            ledger = self.run_folder.ledger()
            self._changes, now = changes_of(ledger), Standings.of(ledger).by_site
            for line in entered:
                self.notice(line.summary)
                self.changed(line.site, now[line.site])
        # A round that is run again after a resume is run with the sites that it had.
        return gone_in(self._changes, round_no)
