"""LogServer: the master's side of replication; slaves connect to the HA port and receive the log (RocketMQ: HAService).
A slave serves its own copy in the same way, so chains are possible.

    a slave's first report says where to begin; 0: at the start of the newest log file
    then everything committed follows as fast as the slave takes it, with a heartbeat after every quiet interval
    each further report says how far the slave has the log

`replicated` is a watermark over physical offsets: the highest report of any peer that counts (slave_access.py). Puts of
synchronous masters wait for it. Each peer has a link (slave_link.py); a failure ends only the link that it concerns.
Limits: haMaxConnections links, haMaxConnectionsPerAddress from one address. If there is no room, the oldest link that
has not reported makes room, and for a peer that counts also the oldest one that does not count.

Nothing here writes to the store.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from triomq.broker import optional
from triomq.broker.configuration import Configuration
from triomq.broker.replication.slave_access import AGAIN_SECONDS, Access, OpenAccess
from triomq.protocol.outage import Outage
from triomq.remoting import network
from triomq.remoting.admission import address_group
from triomq.store.config import BrokerRole
from triomq.store.message_store import DefaultMessageStore
from triomq.store.watermark import Watermark

if TYPE_CHECKING:
    from triomq.broker.replication.slave_link import Accept, SlaveLink, Write

log = structlog.get_logger("triomq.broker.replication")

ACCEPT_AGAIN_SECONDS = 1.0
WARN_AGAIN_SECONDS = 60.0
HINT = "a slave registers with the same brokerName from the host it connects from; else set haSlaveAddresses"


class Peer:
    """What is known of the other end of a link. `counts`: its reports are copies."""

    __slots__ = ("counts", "group", "ip", "link", "local_ip")

    link: SlaveLink

    def __init__(self, ip: str, local_ip: str, counts: bool) -> None:
        self.ip = ip
        self.local_ip = local_ip
        self.counts = counts
        self.group = address_group(ip)


class LogServer:
    """All links. `run` accepts until cancelled."""

    def __init__(
        self,
        configuration: Configuration,
        store: DefaultMessageStore,
        access: Access | None = None,
        accept: Accept | None = None,
    ) -> None:
        """`access` decides who may connect and who counts; None: everybody. `accept` adds TLS to their streams."""
        self._accept = accept
        self.replicated = Watermark()
        self._configuration = configuration
        self._store = store
        self._access = access or OpenAccess()
        self._peers: dict[Peer, None] = {}  # oldest first
        self._copies = 0
        self._wanted = trio.Event()
        self._mentioned: dict[str, float] = {}

    @property
    def links(self) -> frozenset[SlaveLink]:
        """Return the connected slaves."""
        return frozenset([peer.link for peer in self._peers])

    @property
    def copies(self) -> int:
        """Return the number of links whose reports count."""
        return self._copies

    @property
    def lag_bytes(self) -> int:
        """Return the number of bytes of the log that the best slave lacks."""
        return self._store.reading.max_physical_offset - self.replicated.value

    def is_near(self, end_offset: int) -> bool:
        """Return whether a connected slave is less than haSlaveFallbehindMax behind this offset
        (HAService.isSlaveOK)."""
        limit = self._configuration.store.ha_slave_fallbehind_max_bytes
        return self._copies > 0 and end_offset - self.replicated.value < limit

    def close_links(self) -> None:
        """Close all links because the log has lost its end: slaves that received it must compare again."""
        for peer in self._peers:
            peer.link.close("the log here has lost its end")

    def log_lag(self) -> None:
        """Log one line about how far behind the best slave is (printMasterAndSlaveDiff); nothing if no slave ever
        connected."""
        if not self._peers and not self.replicated.value:
            return
        log.info("slave fall behind master", bytes=self.lag_bytes, slaves=self.copies)

    async def run(self, listening: network.Listening) -> None:
        """Accept slaves until cancelled, then stop listening."""
        listener = network.listener_of(listening)
        outage = Outage()
        async with listener, trio.open_nursery() as nursery:
            nursery.start_soon(self._recognize)
            while True:
                try:
                    stream = await listener.accept()
                except OSError as error:  # out of file descriptors
                    if outage.failed(trio.current_time()):
                        log.error("slaves not accepted; accepting pauses", exc_info=error)
                    await trio.sleep(ACCEPT_AGAIN_SECONDS)
                    continue
                if outage.worked(trio.current_time()):
                    log.info("slaves accepted again")
                try:
                    remote, local = network.ends(stream)
                except OSError:  # the peer has already gone
                    await trio.aclose_forcefully(stream)
                    continue
                write_now = partial(os.write, stream.socket.fileno()) if isinstance(stream, trio.SocketStream) else None
                nursery.start_soon(self.serve, stream, remote.text, write_now, remote.ip, local.ip)

    async def serve(
        self, stream: trio.abc.Stream, remote: str, write_now: Write | None = None, ip: str = "", local_ip: str = ""
    ) -> None:
        """Serve one slave until its link ends. `ip` is its address, by default the text of `remote`."""
        peer = self._enter(ip or remote, local_ip, remote)
        if peer is None:
            await trio.aclose_forcefully(stream)
            return
        peer.link = link = optional.slave_link.SlaveLink(
            stream, remote, self._configuration, self._store, write_now, partial(self._acknowledged, peer), self._accept
        )
        reason = "the broker stops"
        try:
            if not peer.counts:
                self._wanted.set()
                if not self._access.serves_strangers:
                    await self._learn()
            if peer.counts or self._access.serves_strangers:
                reason = await link.run()
            else:
                reason = f"it is no slave that a NameServer knows; {HINT}"
        except Exception:
            reason = "an internal error"
            log.exception("serving a slave failed", slave=remote)
        finally:
            self._leave(peer)
            await trio.aclose_forcefully(stream)
            if link.is_refused:  # logged where it was found out
                log.debug("slave refused", slave=remote, reason=reason)
            elif link.is_silent:
                self._mention("report of a peer of the HA port not received", remote, reason)
            else:
                log.info("slave gone", slave=remote, reason=reason, reported=link.reported, sent=link.sent)

    async def drain(self, deadline_seconds: float) -> None:
        """Wait for slaves that are up to date to receive the last commits, until the deadline at most."""
        end = self._store.reading.max_physical_offset
        if self.is_near(end) and end > self.replicated.value:
            with trio.move_on_after(deadline_seconds):
                await self.replicated.wait_beyond(end - 1)

    # -- who has a place ---------------------------------------------------------------------------------------------

    def _enter(self, ip: str, local_ip: str, remote: str) -> Peer | None:
        """Return the place of a new peer, or None if it gets none."""
        if not self._access.may_connect(ip):
            self._mention("peer of the HA port rejected", remote, "it is not in haSlaveAddresses")
            return None
        peer = Peer(ip, local_ip, self._access.counts(ip, local_ip))
        if not self._make_room(peer):
            self._wanted.set()  # perhaps it is a slave that registered a moment ago, and connects again
            self._mention("peer of the HA port rejected", remote, "there are too many; see haMaxConnections")
            return None
        self._peers[peer] = None
        self._copies += peer.counts
        return peer

    def _leave(self, peer: Peer) -> None:
        if peer in self._peers:
            del self._peers[peer]
            self._copies -= peer.counts

    def _make_room(self, newcomer: Peer) -> bool:
        """Close a link if there is no room for a new one. Return False if none may be closed for it."""
        settings = self._configuration.store
        rivals = [peer for peer in self._peers if peer.group == newcomer.group]
        if len(rivals) < settings.ha_max_connections_per_address:
            rivals = list(self._peers)
            if len(rivals) < settings.ha_max_connections:
                return True
        leaving = [peer for peer in rivals if peer.link.is_silent and not peer.counts]
        if newcomer.counts:
            leaving += [peer for peer in rivals if not peer.counts]
            leaving += [peer for peer in rivals if peer.link.is_silent]
        if not leaving:
            return False
        self._leave(leaving[0])
        leaving[0].link.close("another peer needs its place")
        return True

    # -- who counts --------------------------------------------------------------------------------------------------

    def _acknowledged(self, peer: Peer, physical_offset: int) -> None:
        """Take a report of a peer (called by its link)."""
        if peer.counts:
            self.replicated.advance(physical_offset)

    async def _recognize(self) -> None:
        """Ask for the registered slaves when a peer arrives that does not count, and again while there is one."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            await self._learn()
            if len(self._peers) > self._copies:
                with trio.move_on_after(AGAIN_SECONDS):
                    await self._wanted.wait()
                self._wanted.set()

    async def _learn(self) -> None:
        await self._access.learn()
        for peer in list(self._peers):
            if peer.counts:
                continue
            if self._access.counts(peer.ip, peer.local_ip):
                peer.counts = True
                self._copies += 1
                self.replicated.advance(peer.link.acknowledged_offset)
            elif not peer.link.is_silent and self._configuration.role.broker_role is BrokerRole.SYNC_MASTER:
                self._mention("peer of the HA port not counted as a copy", peer.link.remote, HINT)

    def _mention(self, event: str, remote: str, reason: str) -> None:
        """Log a warning, each kind at most once a minute."""
        now = trio.current_time()
        if now >= self._mentioned.get(event, 0.0):
            self._mentioned[event] = now + WARN_AGAIN_SECONDS
            log.warning(event, slave=remote, reason=reason)
