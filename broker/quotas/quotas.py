"""Quotas: how much accounts, client addresses and groups may send, receive and create (Kafka: client quotas).

    accounts     those that access control has checked; all clients without one share the unnamed account
    addresses    hosts; the hosts of one IPv6 /64 network count as one
    groups       producer groups of sends, consumer groups of pulls

Each has an allowance (allowance.py): the default of its kind (quotaPerAccount, quotaPerAddress, quotaPerGroup), and in
its place what an override gives by name (overrides.py). A request passes if all that it counts for have tokens left,
and then takes them from all (bucket.py). A send that does not pass is refused before anything is stored. A pull that
does not pass waits like a long poll (processors/pull.py). It takes its tokens afterwards, when its size is known.

Only requests of clients count: not what slaves copy, nor what the broker stores by itself (delays, retries, halves).
Without any quota none of this runs: `check` is no hook of the ports, and the pull processor has no quotas.

Only the event loop touches it. Limit: `MAX_PEERS` of each kind; above it the one that was idle for longest is
forgotten, and begins with full buckets when it comes back.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Final

from triomq.broker.configuration import Configuration
from triomq.broker.errors import QuotaExceeded
from triomq.broker.metrics.quota_refusals import QuotaRefusals
from triomq.broker.quotas.bucket import Bucket
from triomq.broker.quotas.connections import CountedConnections
from triomq.broker.quotas.overrides import MAX_NAME, UNNAMED, Overrides
from triomq.broker.settings.allowance import (
    ACCOUNT,
    ADDRESS,
    BYTES_IN,
    BYTES_OUT,
    CONNECTIONS,
    GROUP,
    GROUPS,
    MAKES,
    MESSAGES_IN,
    MESSAGES_OUT,
    RATES,
    TOPICS,
    Allowance,
)
from triomq.broker.settings.quotas import default_allowances
from triomq.protocol.address import HostPort
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.errors import RecordError
from triomq.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from triomq.protocol.record import end_of_units, split_batch
from triomq.protocol.system_topics import DLQ_PREFIX, RETRY_PREFIX
from triomq.remoting.connection import Connection

MAX_PEERS: Final = 10_000
HOUR_SECONDS: Final = 3600
_NETWORK_BYTES: Final = 8

_V1: Final = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})
_V2: Final = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2})
_SENDS: Final = _V1 | _V2
_CONNECTING: Final = _SENDS | {RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT}
"""Requests that make a connection count. Administration is not among them, so it can always raise a quota."""

_UNITS: Final = {
    BYTES_IN: "bytes a second in",
    MESSAGES_IN: "messages a second in",
    BYTES_OUT: "bytes a second out",
    MESSAGES_OUT: "messages a second out",
    CONNECTIONS: "connections at once",
    TOPICS: "new topics an hour",
    GROUPS: "new groups an hour",
}

AccountOf = Callable[[Connection, RemotingCommand], str]
"""Returns the account of a request that access control admitted; "" for none."""


class Peer:
    """An account, an address or a group, with its allowance and the buckets of it."""

    __slots__ = ("allowance", "buckets", "kind", "name")

    def __init__(self, kind: str, name: str, allowance: Allowance, burst_seconds: float, now: float) -> None:
        self.kind = kind
        self.name = name
        self.allowance = allowance
        self.buckets: dict[str, Bucket] = {}
        for quota, limit in allowance.items():
            if quota in RATES:
                self.buckets[quota] = Bucket(limit, limit * burst_seconds, now)
            elif quota in MAKES:
                self.buckets[quota] = Bucket(limit / HOUR_SECONDS, limit, now)

    @property
    def text(self) -> str:
        return f"{self.kind} {self.name}" if self.name != UNNAMED else "clients without an account"


class Excess:
    """A quota that a request exceeds, and how long for. `wait_seconds` is 0 where waiting does not help."""

    __slots__ = ("peer", "quota", "wait_seconds")

    def __init__(self, peer: Peer, quota: str, wait_seconds: float) -> None:
        self.peer = peer
        self.quota = quota
        self.wait_seconds = wait_seconds

    @property
    def remark(self) -> str:
        limit = f"{self.quota}: {self.peer.text} may have {self.peer.allowance[self.quota]} {_UNITS[self.quota]}"
        if self.quota == CONNECTIONS:
            return f"[QUOTA] {limit}; close one and try again"
        return f"[QUOTA] {limit}; try again in {math.ceil(self.wait_seconds * 1000)} ms"


_creator: ContextVar[Sequence[Peer]] = ContextVar("_creator", default=())
"""Whom topics and groups count for that come into being while a request is handled. A task that handles the rest of a
request inherits it."""


_MOST_COUNTED: Final = 4096
"""Messages of a batch that are counted one by one."""


class Quotas:
    """See the module's docstring. `account_of` is None without access control; `knows_group` returns whether a
    subscription group exists; `clock` returns seconds."""

    def __init__(
        self,
        configuration: Configuration,
        overrides: Overrides,
        *,
        account_of: AccountOf | None = None,
        knows_group: Callable[[str], bool],
        clock: Callable[[], float],
        max_peers: int = MAX_PEERS,
    ) -> None:
        self._configuration = configuration
        self.overrides = overrides
        self._account_of = account_of
        self._knows_group = knows_group
        self._clock = clock
        self._max_peers = max_peers
        self._connections = CountedConnections()
        self.refusals = QuotaRefusals()
        self._listeners: list[Callable[[], None]] = []
        self._defaults: dict[str, Allowance] = {}
        self._kinds: frozenset[str] = frozenset()
        self._peers: dict[str, OrderedDict[str, Peer]] = {}
        self.settings_changed()

    @property
    def is_on(self) -> bool:
        """Return whether there is any quota."""
        return bool(self._kinds)

    def settings_changed(self) -> None:
        """Read the defaults and the overrides again; all buckets are full then."""
        self._defaults = default_allowances(self._configuration.broker)
        limited = {kind for kind, default in self._defaults.items() if any(default.values())}
        self._kinds = frozenset(limited | self.overrides.kinds())
        self._peers = {kind: OrderedDict() for kind in self._defaults}
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` now, and after each change of the quotas."""
        self._listeners.append(listener)
        listener()

    def names(self) -> list[tuple[str, str]]:
        """Return kind and name of those that have an override, or have been here and have a limit."""
        known = [(kind, name) for kind, peers in self._peers.items() for name, peer in peers.items() if peer.allowance]
        return sorted({*known, *self.overrides.names()})

    def usage(self, kind: str, name: str) -> dict[str, tuple[int, float]]:
        """Return quota -> its limit, and the part of it that is in use: of rates, the part of the burst."""
        peer = self._peers[kind].get(name)
        if peer is None:
            override = self.overrides.find(kind, name)
            return {quota: (limit, 0.0) for quota, limit in self._allowance(kind, override).items()}
        now = self._clock()
        return {
            quota: (
                limit,
                peer.buckets[quota].used(now)
                if quota in peer.buckets
                else self._connections.count((kind, name)) / limit,
            )
            for quota, limit in peer.allowance.items()
        }

    # -- requests ----------------------------------------------------------------------------------------------------

    def check(self, connection: Connection, request: RemotingCommand) -> None:
        """Check a request before its processor runs, after access control. Raises QuotaExceeded."""
        peers = self._clients(connection, request)
        code = request.code
        if code in _CONNECTING:
            self._take_place(connection, peers)
        _creator.set(peers)
        if code in _SENDS:
            self._take_send(connection, request, peers)

    def excess_of_pull(self, connection: Connection, request: RemotingCommand, group: str) -> Excess | None:
        """Return what keeps a pull of a consumer group from getting messages now."""
        return self._excess(self._all(connection, request, group), (BYTES_OUT, MESSAGES_OUT))

    def pulled(
        self, connection: Connection, request: RemotingCommand, group: str, message_count: int, size_bytes: int
    ) -> None:
        """Count the messages that a pull gets."""
        self._take(self._all(connection, request, group), {BYTES_OUT: size_bytes, MESSAGES_OUT: message_count})

    def refusal(self, excess: Excess, remote: HostPort) -> QuotaExceeded:
        """Return the error that refuses a request, and count it."""
        remark = excess.remark
        self.refusals.refused(excess.peer.kind, excess.quota, remark, remote.text)
        return QuotaExceeded(remark)

    def delayed(self, excess: Excess) -> None:
        """Count a pull that waits."""
        self.refusals.delayed(excess.peer.kind, excess.quota)

    def connection_closed(self, connection: Connection) -> None:
        """Free the place of a connection."""
        self._connections.closed(connection)

    # -- topics and groups -------------------------------------------------------------------------------------------

    def topic_made(self, topic: str) -> None:
        """Count a topic that is about to be created, unless it is one of a known group. Raises QuotaExceeded."""
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            if topic.startswith(prefix) and self._knows_group(topic[len(prefix) :]):
                return
        self._made(TOPICS)

    def group_made(self, group: str) -> None:
        """Count a subscription group that is about to be created. Raises QuotaExceeded."""
        self._made(GROUPS)

    def _made(self, quota: str) -> None:
        peers = _creator.get() if self.is_on else ()
        excess = self._excess(peers, (quota,))
        if excess is not None:
            self.refusals.refused(excess.peer.kind, quota, excess.remark, excess.peer.text)
            raise QuotaExceeded(excess.remark)
        self._take(peers, {quota: 1})

    # -- inside ------------------------------------------------------------------------------------------------------

    def _take_send(self, connection: Connection, request: RemotingCommand, clients: list[Peer]) -> None:
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2
        if request.code in _V1:
            header = request.header(SendMessageRequestHeader)
        else:
            header = request.header(SendMessageRequestHeaderV2)
        peers = clients + self._group(header.producer_group)
        excess = self._excess(peers, (BYTES_IN, MESSAGES_IN))
        if excess is not None:
            raise self.refusal(excess, connection.remote)
        count = self._batch_count(request.body) if header.batch else 1
        self._take(peers, {BYTES_IN: len(request.body), MESSAGES_IN: count})

    def _batch_count(self, body: bytes) -> int:
        counted = end_of_units(body, 0, _MOST_COUNTED)
        if counted < len(body):  # a long one, by the length of its first messages
            return _MOST_COUNTED * len(body) // counted
        try:
            return len(split_batch(body))
        except RecordError:
            return 1  # the processor refuses it

    def _take_place(self, connection: Connection, clients: list[Peer]) -> None:
        counted = [peer for peer in clients if CONNECTIONS in peer.allowance]
        for peer in counted:
            if not self._connections.has_room(connection, (peer.kind, peer.name), peer.allowance[CONNECTIONS]):
                raise self.refusal(Excess(peer, CONNECTIONS, 0.0), connection.remote)
        if connection.is_open:
            for peer in counted:
                self._connections.enter(connection, (peer.kind, peer.name))

    def _excess(self, peers: Iterable[Peer], quotas: tuple[str, ...]) -> Excess | None:
        """Return the quota that is exceeded for longest."""
        now = self._clock()
        worst: Excess | None = None
        for peer in peers:
            for quota in quotas:
                bucket = peer.buckets.get(quota)
                wait = bucket.wait_seconds(now) if bucket is not None else 0.0
                if wait and (worst is None or wait > worst.wait_seconds):
                    worst = Excess(peer, quota, wait)
        return worst

    def _take(self, peers: Iterable[Peer], amounts: dict[str, int]) -> None:
        now = self._clock()
        for peer in peers:
            for quota, amount in amounts.items():
                bucket = peer.buckets.get(quota)
                if bucket is not None:
                    bucket.take(amount, now)

    def _all(self, connection: Connection, request: RemotingCommand, group: str) -> list[Peer]:
        return self._clients(connection, request) + self._group(group)

    def _clients(self, connection: Connection, request: RemotingCommand) -> list[Peer]:
        """Return the account and the address of a request, as far as they have quotas."""
        found: list[Peer] = []
        if ACCOUNT in self._kinds:
            account = self._account_of(connection, request) if self._account_of is not None else ""
            found += self._named(ACCOUNT, account or UNNAMED)
        if ADDRESS in self._kinds:
            found += self._address(connection.remote)
        return found

    def _group(self, group: str) -> list[Peer]:
        return self._named(GROUP, group[:MAX_NAME]) if GROUP in self._kinds else []

    def _named(self, kind: str, name: str) -> list[Peer]:
        known = self._known(kind, name)
        if known is not None:
            return [known]
        allowance = self._allowance(kind, self.overrides.find(kind, name))
        return [self._remember(kind, name, allowance)] if allowance else []

    def _address(self, remote: HostPort) -> list[Peer]:
        name = remote.ip
        if remote.is_ipv6:
            name = remote.packed[:_NETWORK_BYTES].hex(":", 2) + "::/64"
        known = self._known(ADDRESS, name)
        if known is None:
            override = self.overrides.of_address(remote)
            allowance = self._allowance(ADDRESS, override[1] if override is not None else None)
            known = self._remember(ADDRESS, name, allowance)  # even an empty one: finding it again is expensive
        return [known]

    def _known(self, kind: str, name: str) -> Peer | None:
        peer = self._peers[kind].get(name)
        if peer is not None:
            self._peers[kind].move_to_end(name)
        return peer

    def _remember(self, kind: str, name: str, allowance: Allowance) -> Peer:
        peers = self._peers[kind]
        if len(peers) >= self._max_peers:
            peers.popitem(last=False)
        peer = peers[name] = Peer(
            kind, name, allowance, self._configuration.broker.quota_burst_ms / 1000, self._clock()
        )
        return peer

    def _allowance(self, kind: str, override: Allowance | None) -> Allowance:
        """Return what limits one of a kind."""
        limits = {**self._defaults[kind], **(override or {})}
        return {quota: limit for quota, limit in limits.items() if limit}
