"""PortGuard: who is let in at the port of dLegerPeers, and who stays when many want to.

The port has few places. A connection that has spoken as a member (VOTE, HEART_BEAT, PUSH with the id of one) keeps its
place; everybody else's makes room for a new one, the oldest first. So a flood of connections keeps no member out: a
member speaks with its first frame, and the first few connections of each id are those that stay.

Only the event loop touches it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from triomq.dledger.member.hosts import MemberHosts, PeerAddresses
from triomq.protocol.address import HostPort
from triomq.remoting.admission import Holder
from triomq.remoting.connection import Connection
from triomq.remoting.link_tls import LinkTls

FIRST_FRAME_SECONDS: Final = 10.0
SILENT_SECONDS: Final = 5
PLAIN_REFUSED: Final = (
    "it does not use TLS, and tls.dleger.mode is enforcing here: set tls.dleger.enable=true at that member, or "
    "tls.dleger.mode=permissive here"
)
LEAST_PLACES: Final = 256
PLACES_OF_MEMBER: Final = 8
"""Connections that one id keeps. A member has one to each other; more of them are left over from a broken network."""


class PortGuard:
    """See the module's docstring. `members` maps ids to addresses."""

    first_frame_seconds = FIRST_FRAME_SECONDS
    plain_refused = PLAIN_REFUSED

    def __init__(self, members: dict[str, str], others: PeerAddresses, tls: LinkTls | None = None) -> None:
        self._tls = tls
        self.hosts = MemberHosts(members.values(), others)
        self._members: Collection[str] = members.keys()
        self._keeping: dict[Holder, str] = {}
        self._kept = Counter[str]()

    @property
    def places(self) -> int:
        """Return how many connections there may be."""
        return max(LEAST_PLACES, 4 * PLACES_OF_MEMBER * len(self._members))

    # What the server asks (remoting.admission.Guard).

    def may_connect(self, remote: HostPort, local: HostPort) -> bool:
        return self.hosts.may_connect(remote, local)

    def names_fault(self, names: frozenset[str]) -> str | None:
        return self._tls.names_fault(names) if self._tls is not None else None

    def keeps_place(self, holder: Holder) -> bool:
        return holder in self._keeping

    # What the member tells.

    def spoke_as(self, connection: Connection, member: str | None) -> None:
        """Note that a request came from this member."""
        if member is None or member not in self._members or connection in self._keeping or not connection.is_open:
            return
        if self._kept[member] < PLACES_OF_MEMBER:
            self._kept[member] += 1
            self._keeping[connection] = member

    def closed(self, connection: Connection) -> None:
        member = self._keeping.pop(connection, None)
        if member is not None:
            self._kept[member] -= 1
