"""What carries parcels between the server and the nodes of a network: the part of an engine that Flower or NVFlare is.

The rest of an engine for sites on other machines is in `remote`, and does not depend on what carries the parcels.
"""

from collections.abc import Iterable
from typing import Protocol

from fedce.site.wire import Parcel


class Courier(Protocol):
    """Carries parcels to nodes and back.

    >>> class Mirror:
    ...     answers = []
    ...     def nodes(self):
    ...         return ["node 1"]
    ...     def send(self, node, parcel, round_no):
    ...         self.answers.append(("ticket 1", parcel))
    ...         return "ticket 1"
    ...     def collect(self):
    ...         return self.answers
    >>> courier: Courier = Mirror()
    >>> courier.send("node 1", Parcel("hello", {}), round_no=0)
    'ticket 1'
    >>> [(ticket, answer.about) for ticket, answer in courier.collect()]
    [('ticket 1', 'hello')]
    """

    def nodes(self) -> Iterable[str]:
        """The nodes that can be reached now."""

    def send(self, node: str, parcel: Parcel, round_no: int) -> str:
        """Send a parcel; returns a ticket that its answer will carry, or "" if the node can't be reached."""

    def collect(self) -> Iterable[tuple[str, Parcel | str]]:
        """Answers since the last call, with their tickets; a text says why there will be no answer."""
