"""Which sites of a federation are connected now, and whose answer is awaited: connections.json of a run folder.

It is for people who look at a run that is going on. Results do not follow from it, and the ledger does not cover it.
"""

from collections.abc import Sequence

from fedce.record.forms import Count, Form, Time

FRESH_SECONDS = 180.0
"""The coordinator writes the file at least once a minute while it waits; an older file says what was, not what is."""
SHOWN_NAMES = 12


class Connections(Form):
    """What the coordinator of sites on other machines knew of them at a moment.

    >>> waiting = Connections(time=70.0, since=10.0, round_no=2, here=["north", "west"], waiting_for=["south", "west"])
    >>> waiting.sentence
    'Round 3: waiting for south (not connected), west; connected: 2.'
    """

    time: Time
    since: Time
    """When the awaited sites were asked or, before the first round, when the coordinator began to wait."""
    round_no: Count | None
    """None before the first round."""
    here: list[str]
    waiting_for: list[str]
    unnamed: Count = 0
    """Connected machines that are no site yet: their site's process is starting, or was refused."""

    def is_fresh(self, now: float) -> bool:
        return now - self.time < FRESH_SECONDS

    @property
    def absent(self) -> list[str]:
        """Awaited sites that are not connected."""
        return [site for site in self.waiting_for if site not in self.here]

    @property
    def sentence(self) -> str:
        where = "Before round 1" if self.round_no is None else f"Round {self.round_no + 1}"
        if not self.waiting_for:
            what = "waiting for more sites" if self.round_no is None else "every answer has come"
            return f"{where}: {what}; {self._connected}."
        absent = set(self.absent)
        names = [f"{site} (not connected)" if site in absent else site for site in self.waiting_for]
        return f"{where}: waiting for {listed(names)}; {self._connected}."

    @property
    def _connected(self) -> str:
        more = f", and {self.unnamed} more, starting or refused" if self.unnamed else ""
        return f"connected: {len(self.here)}{more}"


def listed(names: Sequence[str]) -> str:
    """Names in one line, cut short where there are many."""
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
