"""What the port of a member is opened with: where it listens, and whom it serves."""

from __future__ import annotations

from dataclasses import dataclass, field

from triomq.dledger.member.hosts import PeerAddresses
from triomq.remoting.link_tls import LinkTls


@dataclass(frozen=True)
class MemberPort:
    """`number` 0 takes any free port; without `bind_address` it listens on all addresses. `addresses` may connect
    besides the members' hosts. `tls` None: the port is plain. The member's client has the context to dial with."""

    number: int
    bind_address: str = ""
    addresses: PeerAddresses = field(default_factory=PeerAddresses)
    tls: LinkTls | None = None
