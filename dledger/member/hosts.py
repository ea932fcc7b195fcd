"""MemberHosts: whose connections the port of dLegerPeers serves.

DLedger's protocol has no accounts: a peer that is served may vote and push. A peer is served if it is

    on a host of dLegerPeers                    names are resolved again while the member runs
    on this machine                             which is a host of dLegerPeers
    listed in dLegerPeerAddresses               "*": everybody, as in RocketMQ

Addresses come from the system's resolver, in a thread. What a name meant stays true until it means something else: a
resolver that is silent for a while costs nobody anything. A peer that is refused makes `run` look again at once, since
the member at a name may have got another address; its next attempt then succeeds.

Only the event loop touches it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import structlog
import trio

from triomq.protocol.address import HostPort
from triomq.protocol.networks import Network, is_listed, is_loopback, parse_networks, plain_ip
from triomq.remoting.line_limit import LineLimit

log = structlog.get_logger("triomq.dledger.member")

EVERYBODY: Final = "*"
RESOLVE_SECONDS: Final = 3.0
"""How long one name may take."""
PAUSE_SECONDS: Final = 1.0
"""The shortest time between two looks at all names."""
AGAIN_SECONDS: Final = 30.0
MAX_ADDRESSES: Final = 64
"""Most addresses of one name."""
LINES_PER_SECOND: Final = 1
HINT: Final = (
    "it is on no host of dLegerPeers: run members' commands on a member's host; if it is a member that connects from "
    "another address than dLegerPeers names, list that in dLegerPeerAddresses"
)


class PeerAddresses:
    """What dLegerPeerAddresses allows besides the members' hosts."""

    def __init__(self, text: str = "") -> None:
        """Raises ValueError, which says what to do."""
        parts = [part.strip() for part in text.split(",")]
        self.is_everybody = EVERYBODY in parts
        self._networks: tuple[Network, ...] = parse_networks(",".join(part for part in parts if part != EVERYBODY))

    def has(self, ip: str) -> bool:
        return self.is_everybody or is_listed(ip, self._networks)


class MemberHosts:
    """See the module's docstring. `members` maps ids to addresses ("host:port")."""

    def __init__(self, members: Iterable[str], others: PeerAddresses) -> None:
        """`members` are the addresses of dLegerPeers ("host:port")."""
        self._others = others
        self._literal: set[str] = set()
        self._named: dict[str, frozenset[str]] = {}
        for address in members:
            host = address.rpartition(":")[0]
            try:
                self._literal.add(plain_ip(host))
            except ValueError:
                self._named[host] = frozenset()
        self._wanted = trio.Event()
        self._lines: LineLimit | None = None

    def may_connect(self, remote: HostPort, local: HostPort) -> bool:
        """Return whether a connection is served; a refusal is logged here."""
        ip = _plain(remote.ip)
        if self._others.has(ip) or ip in self._literal or any(ip in found for found in self._named.values()):
            return True
        if is_loopback(ip) or ip == _plain(local.ip):  # the system lets nobody else use its own addresses
            return True
        self._wanted.set()
        self._mention(remote)
        return False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Resolve the names until cancelled. Started after the first look, whose time is bounded."""
        await self.resolve()
        task_status.started()
        while self._named:
            await trio.sleep(PAUSE_SECONDS)
            with trio.move_on_after(AGAIN_SECONDS - PAUSE_SECONDS):
                await self._wanted.wait()
            self._wanted = trio.Event()
            await self.resolve()

    async def resolve(self) -> None:
        """Look at all names once, at the same time."""
        async with trio.open_nursery() as nursery:
            for name in self._named:
                nursery.start_soon(self._resolve, name)

    async def _resolve(self, name: str) -> None:
        try:
            with trio.fail_after(RESOLVE_SECONDS):
                found = await trio.socket.getaddrinfo(name, None)
        except (OSError, UnicodeError, trio.TooSlowError) as error:
            log.debug("host of a member not resolved", host=name, error=str(error))
            return
        addresses = frozenset([_plain(str(info[4][0])) for info in found[:MAX_ADDRESSES]])
        if addresses != self._named[name]:
            log.info("host of a member resolved", host=name, addresses=sorted(addresses))
            self._named[name] = addresses

    def _mention(self, remote: HostPort) -> None:
        if self._lines is None:
            self._lines = LineLimit(LINES_PER_SECOND, trio.current_time)
        left_out = self._lines.take()
        if left_out is not None:
            more = {"not_logged": left_out} if left_out else {}
            log.warning("connection to the port of dLegerPeers refused", remote=remote.text, reason=HINT, **more)


def _plain(ip: str) -> str:
    try:
        return plain_ip(ip)
    except ValueError:
        return ip
