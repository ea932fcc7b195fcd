"""Others: what the other daemons of a cluster say of themselves, asked over remoting when somebody opens the page.

It holds the answers of the last round, for KEPT_SECONDS: a hundred browsers cost one round. A lock keeps a second round
out meanwhile. NameServers are asked at once, then the brokers that they know, each with a time limit of its own. One
that does not respond is shown with the reason. Topics, which are long, are asked every TOPICS_KEPT_SECONDS, of one
master after another, and only their numbers of queues are kept. Alarms are what `mqadmin doctor` says of the same
answers. Access control may refuse a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Final, Protocol

import trio

from triomq.dashboard.views import Data
from triomq.monitoring.host_names import is_loopback
from triomq.protocol import findings, java_properties
from triomq.protocol.bodies.departed import ContestedBroker, DepartedBroker, QueryDepartedBrokersResponseBody
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.bodies.route import ClusterInfo
from triomq.protocol.bodies.topic_config import TopicConfigSerializeWrapper
from triomq.protocol.clock import NowMs
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import BodyError
from triomq.protocol.findings import Finding
from triomq.protocol.java_properties import PropertiesError
from triomq.protocol.java_remarks import without_java
from triomq.protocol.runtime_findings import findings_of, uptime_seconds
from triomq.protocol.system_topics import DLQ_PREFIX, RETRY_PREFIX
from triomq.remoting.errors import RemotingError, RemotingTimeout

ASK_SECONDS: Final = 2.0
"""The longest wait for one response."""
KEPT_SECONDS: Final = 5.0
TOPICS_KEPT_SECONDS: Final = 60.0
ALARMS_SECONDS: Final = 600.0
"""The age at which alarms are no news any more."""
MOST_NAME_SERVERS: Final = 16
MOST_BROKERS: Final = 64
MOST_ALARMS: Final = 50
MOST_TOPICS: Final = 5
"""Of a broker that is gone."""
MOST_CONTESTANTS: Final = 8
"""Addresses of one name that are shown."""
MOST_TOPICS_BYTES: Final = 4 * 1024 * 1024
"""Of the topics of one master; decoding blocks the event loop."""
MOST_TEXT: Final = 200
"""Characters of a reason, and of a value that another daemon sends."""
MOST_KEYS: Final = 16
MOST_PEERS_TEXT: Final = 2000
"""Characters of a value about a group: one is the list of its members."""
_DLEDGER: Final = "dledger"
_DLEDGER_GROUP: Final = "dledgerGroup"
"""What keys of the runtime table begin with, and one of them (triomq.dledger.status)."""
_HOST_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:")


class Asks(Protocol):
    """What is needed of a RemotingClient."""

    async def invoke(self, address: str, command: RemotingCommand, timeout_seconds: float, /) -> RemotingCommand:
        """Return the response of a daemon. Raises RemotingError."""
        ...


@dataclass(slots=True)
class Peer:
    """One daemon. `why` says why it did not respond, or is empty. Of `dashboard`, an address, and `dashboard_note`, why
    there is none, one is set once it was asked."""

    address: str
    why: str = ""
    dashboard: str = ""
    dashboard_note: str = ""
    is_unreachable: bool = field(default=False, kw_only=True)
    is_hung: bool = field(default=False, kw_only=True)
    """It accepted the connection and did not respond."""
    is_unknown_code: bool = field(default=False, kw_only=True)
    """It does not know the request."""
    build: str = field(default="", kw_only=True)
    """Product and version; empty for RocketMQ's daemons."""


@dataclass(slots=True)
class NameServer(Peer):
    known: ClusterInfo | None = None


@dataclass(slots=True)
class Broker(Peer):
    """Texts are as the broker reports them; None is what it does not."""

    name: str = ""
    cluster: str = ""
    broker_id: int = 0
    role: str = ""
    version: str = ""
    uptime_seconds: int | None = None
    stored_per_second: float | None = None
    read_per_second: float | None = None
    disk_ratio: float | None = None
    log_end: float | None = None
    behind_bytes: int | None = None
    """What a slave lacks of its master's log."""


@dataclass(slots=True)
class Seen:
    """One round. `brokers_left_out` counts those that were not asked."""

    name_servers: list[NameServer] = field(default_factory=list)
    brokers: list[Broker] = field(default_factory=list)
    brokers_left_out: int = 0
    alarms: list[Finding] = field(default_factory=list)
    alarms_left_out: int = 0
    dledger_groups: dict[str, str] = field(default_factory=dict)
    """By broker name; only brokers of TrioMQ say it."""
    dledger: dict[str, dict[str, str]] = field(default_factory=dict)
    """Address of a broker -> what its runtime information says of the group that it is a member of."""
    departed: dict[str, DepartedBroker] = field(default_factory=dict)
    """By address: brokers that a NameServer has known within a day."""
    contested: dict[tuple[str, int], ContestedBroker] = field(default_factory=dict)
    """By name and id: brokers that displace each other at a NameServer."""


Queues = dict[str, tuple[int, int]]
"""Queues to read and to write by topic."""


class Others:
    """See the module's docstring. `name_servers` are asked; a NameServer passes what it knows as `own`. `here` is
    the address of this machine under which others know it, if browsers of this machine alone see the page. Clocks are
    compared with `now_ms`."""

    def __init__(
        self,
        open_client: Callable[[], AbstractAsyncContextManager[Asks]],
        name_servers: Callable[[], list[str]],
        own: Callable[[], tuple[ClusterInfo, QueryDepartedBrokersResponseBody]] | None,
        here: str | None,
        now_ms: NowMs,
    ) -> None:
        self._open_client = open_client
        self._name_servers = name_servers
        self._own = own
        self._here = here
        self._now_ms = now_ms
        self._lock = trio.Lock()
        self._looked_at = -inf
        self._topics: dict[str, Queues] = {}  # by address of a master
        self._topics_at = -inf
        self.seen = Seen()

    def data(self) -> Data:
        """Return the last round as the page and JSON show it, without the NameServers."""
        seen = self.seen
        return {
            "brokers": seen.brokers,
            "brokers_left_out": seen.brokers_left_out,
            "alarms": [finding.item() for finding in seen.alarms],
            "alarms_left_out": seen.alarms_left_out,
            "name_servers": [],
            "dledger": [],
            "dledger_left_out": 0,
        }

    def renew(self) -> None:
        """Ask again at the next look: something has changed."""
        self._looked_at = min(self._looked_at, trio.current_time() - KEPT_SECONDS)

    def last_alarms(self) -> Data | None:
        """Return the alarms of the last round and its age; None without a round in the last ALARMS_SECONDS."""
        age = trio.current_time() - self._looked_at
        if age > ALARMS_SECONDS:
            return None
        alarms = [finding.item() for finding in self.seen.alarms]
        return {"alarms": alarms, "alarms_left_out": self.seen.alarms_left_out, "age_seconds": round(age)}

    async def look(self) -> None:
        """Ask, unless the last round is recent enough."""
        async with self._lock:
            if trio.current_time() - self._looked_at >= KEPT_SECONDS:
                self.seen = await self._round()
                self._looked_at = trio.current_time()

    async def _round(self) -> Seen:
        seen = Seen([NameServer(address) for address in self._name_servers()[:MOST_NAME_SERVERS]])
        async with self._open_client() as client:
            async with trio.open_nursery() as nursery:
                for name_server in seen.name_servers:
                    nursery.start_soon(self._ask_name_server, client, name_server, seen)
            infos = [one.known for one in seen.name_servers if one.known is not None]
            if self._own is not None:
                own, departed = self._own()
                infos = [own]
                _note_departed(seen, departed)
            found = brokers_of(infos)
            seen.brokers, seen.brokers_left_out = found[:MOST_BROKERS], max(0, len(found) - MOST_BROKERS)
            async with trio.open_nursery() as nursery:
                for broker in seen.brokers:
                    nursery.start_soon(self._ask_broker, client, broker, seen)
            await self._ask_topics(client, seen.brokers)
        ends = {one.name: one.log_end for one in seen.brokers if one.broker_id == 0}
        for broker in seen.brokers:
            end = ends.get(broker.name)
            if broker.broker_id and end is not None and broker.log_end is not None:
                broker.behind_bytes = max(0, int(end - broker.log_end))
        alarms = sorted([*seen.alarms, *_alarms(seen, self._topics)], key=_urgency)
        seen.alarms, seen.alarms_left_out = alarms[:MOST_ALARMS], max(0, len(alarms) - MOST_ALARMS)
        return seen

    async def _ask_name_server(self, client: Asks, peer: NameServer, seen: Seen) -> None:
        if await ask_cluster(client, peer):
            await self._ask_departed(client, peer, seen)
            await self._ask_configuration(client, peer, RequestCode.GET_NAMESRV_CONFIG)

    async def _ask_departed(self, client: Asks, peer: NameServer, seen: Seen) -> None:
        """Ask who was here. Only TrioMQ's NameServers know."""
        response = await asked(client, Peer(peer.address), RequestCode.QUERY_DEPARTED_BROKERS)
        if response is not None:
            with suppress(BodyError):
                _note_departed(seen, QueryDepartedBrokersResponseBody.decode(response.body))

    async def _ask_broker(self, client: Asks, peer: Broker, seen: Seen) -> None:
        response = await asked(client, peer, RequestCode.GET_BROKER_RUNTIME_INFO)
        if response is not None:
            try:
                table = KVTable.decode(response.body).table
                _fill(peer, table)
                if table.get(_DLEDGER_GROUP):
                    seen.dledger_groups[peer.name] = cut(table[_DLEDGER_GROUP])
                    values = [(key, value) for key, value in table.items() if key.startswith(_DLEDGER)]
                    seen.dledger[peer.address] = {key: value[:MOST_PEERS_TEXT] for key, value in values[:MOST_KEYS]}
                seen.alarms += findings_of(peer.name, peer.address, table, self._now_ms())
            except BodyError as error:
                peer.why = cut(str(error))
            peer.role = cut(
                (await self._ask_configuration(client, peer, RequestCode.GET_BROKER_CONFIG)).get("brokerRole", "")
            )

    async def _ask_topics(self, client: Asks, brokers: list[Broker]) -> None:
        """Ask the masters for their topics, unless that was done recently. Without another nothing can differ."""
        masters = [one.address for one in brokers if not one.broker_id and not one.why]
        now = trio.current_time()
        if len(masters) < 2 or (now - self._topics_at < TOPICS_KEPT_SECONDS and self._topics.keys() >= set(masters)):
            return
        topics: dict[str, Queues] = {}
        for address in masters:
            response = await asked(client, Peer(address), RequestCode.GET_ALL_TOPIC_CONFIG)
            topics[address] = _queues_of(response.body) if response is not None else {}
        self._topics, self._topics_at = topics, now

    async def _ask_configuration(self, client: Asks, peer: Peer, code: int) -> dict[str, str]:
        """Ask for the configuration, and note the address of the dashboard."""
        apart = Peer(peer.address)
        response = await asked(client, apart, code)
        values: dict[str, str] = {}
        if response is not None:
            peer.build = peer.build or cut(findings.build_of(response.ext_fields or {}))
            try:
                values = java_properties.parse(response.body.decode("utf-8", "replace"))
            except PropertiesError as error:
                apart.why = cut(str(error))
        if apart.why:
            peer.dashboard_note = apart.why
        else:
            peer.dashboard, peer.dashboard_note = dashboard_of(values, peer.address, self._here)
        return values


async def ask_cluster(client: Asks, peer: NameServer) -> bool:
    """Ask a NameServer for the brokers that it knows. Return whether it answered."""
    response = await asked(client, peer, RequestCode.GET_BROKER_CLUSTER_INFO)
    if response is None:
        return False
    try:
        peer.known = ClusterInfo.decode(response.body)
    except BodyError as error:
        peer.why = cut(str(error))
    return True


async def asked(client: Asks, peer: Peer, code: int) -> RemotingCommand | None:
    """Return the response of a daemon; None if it refuses or does not respond, with the reason in `peer.why`."""
    try:
        response = await client.invoke(peer.address, new_request(code), ASK_SECONDS)
    except RemotingError as error:
        peer.is_hung = isinstance(error, RemotingTimeout)
        peer.why, peer.is_unreachable = cut(str(error)), not peer.is_hung
        return None
    if response.code != ResponseCode.SUCCESS:
        peer.is_unknown_code = response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        peer.why = cut(f"refused: {without_java(response.remark or '') or response.code}")
        return None
    return response


def dashboard_of(values: Mapping[str, str], address: str, here: str | None) -> tuple[str, str]:
    """Return the address of a daemon's dashboard, or "" and why there is no link, from its configuration."""
    port = values.get("dashboardPort", "")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        return "", "no dashboard"
    machine = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    host = values.get("dashboardAddress", "")
    host = machine if host in ("", "0.0.0.0", "::") else host
    if is_loopback(host) and not (here is not None and (is_loopback(machine) or machine == here)):
        return "", "its dashboard is for its own machine"
    if not host or not _HOST_CHARACTERS.issuperset(host):
        return "", "its dashboardAddress is not an address"
    scheme = "https" if values.get("dashboardTls", "").lower() == "true" else "http"
    return f"{scheme}://[{host}]:{port}/" if ":" in host else f"{scheme}://{host}:{port}/", ""


def brokers_of(infos: list[ClusterInfo]) -> list[Broker]:
    """Return the brokers that NameServers know, by name and id."""
    found: dict[tuple[str, int, str], Broker] = {}
    for info in infos:
        for name, data in info.broker_addr_table.items():
            for broker_id, address in data.broker_addrs.items():
                broker = Broker(address, name=name, cluster=data.cluster or "", broker_id=broker_id)
                found.setdefault((name, broker_id, address), broker)
    return [found[key] for key in sorted(found)]


def _note_departed(seen: Seen, body: QueryDepartedBrokersResponseBody) -> None:
    for left in body.brokers[-MOST_BROKERS:]:
        seen.departed[left.broker_addr] = left
    for one in body.contested[:MOST_BROKERS]:
        seen.contested[one.broker_name, one.broker_id] = one


def _fill(broker: Broker, table: Mapping[str, str]) -> None:
    """Take what the runtime table of a broker says."""
    broker.version = cut(table.get("brokerVersionDesc", ""))
    broker.build = cut(findings.build_of(table))
    broker.uptime_seconds = uptime_seconds(table)
    broker.stored_per_second = _number(table, "putTps")
    broker.read_per_second = _number(table, "getTransferedTps")
    broker.disk_ratio = _number(table, "commitLogDiskRatio")
    broker.log_end = _number(table, "commitLogMaxOffset")


def _number(table: Mapping[str, str], key: str) -> float | None:
    """Return a number, the first of several: those of the last seconds."""
    try:
        value = float(table.get(key, "").split()[0])
    except (ValueError, IndexError):
        return None
    return round(value, 4) if isfinite(value) else None


def _queues_of(body: bytes) -> Queues:
    """Return the queues of a broker's topics, without those of groups; nothing of a body that cannot be read."""
    if len(body) > MOST_TOPICS_BYTES:
        return {}
    try:
        table = TopicConfigSerializeWrapper.decode(body).topic_config_table
    except BodyError:
        return {}
    return {
        name: (one.read_queue_nums, one.write_queue_nums)
        for name, one in table.items()
        if not name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    }


def _alarms(seen: Seen, topics: Mapping[str, Queues]) -> Iterator[Finding]:
    """Yield what mqadmin doctor says of these answers."""
    for name_server in seen.name_servers:
        address = name_server.address
        if name_server.is_unreachable:
            yield findings.name_server_down(address)
        elif name_server.is_hung:
            yield findings.hung("NameServer", address, address)
        elif name_server.known is not None:
            table = name_server.known.broker_addr_table
            known = {(name, address) for name, data in table.items() for address in data.broker_addrs.values()}
            for one in seen.brokers:
                if (one.name, one.address) not in known:
                    yield findings.not_registered(one.name, one.address, address)
    here = {one.address for one in seen.brokers}
    for address, left in seen.departed.items():
        if address not in here:
            yield findings.broker_gone(
                cut(left.broker_name),
                left.broker_id,
                cut(address),
                left.seen_ms_ago,
                [cut(topic) for topic in left.topics[:MOST_TOPICS]],
                is_orderly=left.orderly,
            )
    for contest in seen.contested.values():
        addresses = [cut(address) for address in contest.broker_addrs[:MOST_CONTESTANTS]]
        yield findings.contested(cut(contest.broker_name), contest.broker_id, addresses)
    masters = {one.name: one.address for one in seen.brokers if one.broker_id == 0}
    versions: dict[str, list[str]] = {}
    builds: dict[str, list[str]] = {}
    for one in seen.brokers:
        if one.is_unreachable:
            yield findings.broker_unreachable(one.name, one.address)
        elif one.is_hung:
            yield findings.hung(f"broker {one.name}", one.name, one.address)
        versions.setdefault(one.version, []).append(one.address)
        builds.setdefault(one.build, []).append(one.address)
        if one.behind_bytes is not None and one.behind_bytes > findings.BEHIND_BYTES:
            yield findings.slave_behind(one.name, one.broker_id, one.behind_bytes, one.address, masters[one.name])
    yield from findings.versions_differ(versions)
    yield from findings.builds_differ(builds)
    yield from _alarms_of_names(seen)
    yield from _alarms_of_topics(seen, topics)


def _alarms_of_names(seen: Seen) -> Iterator[Finding]:
    """Yield what is wrong with the brokers of one name together."""
    by_name: dict[str, dict[int, Broker]] = {}
    for one in seen.brokers:
        by_name.setdefault(one.name, {})[one.broker_id] = one
    for name, brokers in by_name.items():
        group = seen.dledger_groups.get(name, "")
        if 0 not in brokers:
            yield findings.no_master(name, group)
        elif len(brokers) == 1 and not group and brokers[0].role == "SYNC_MASTER":
            yield findings.no_slave(name, brokers[0].address)


def _alarms_of_topics(seen: Seen, topics: Mapping[str, Queues]) -> Iterator[Finding]:
    masters = {one.name: one for one in seen.brokers if one.address in topics}
    clusters = {one.cluster for one in seen.brokers}
    counts: dict[str, dict[str, tuple[int, int]]] = {}
    for name, one in masters.items():
        for topic, queues in topics[one.address].items():
            counts.setdefault(topic, {})[name] = queues
    for topic, found in sorted(counts.items()):
        yield from findings.queue_counts(topic, found, masters[next(iter(found))].cluster, clusters)
        for name, (read, write) in found.items():
            yield from findings.unread_queues(topic, name, read, write, masters[name].cluster)


def _urgency(finding: Finding) -> tuple[bool, str, str]:
    return finding.severity != findings.CRITICAL, finding.subject, finding.what


def cut(text: str) -> str:
    """Return a text of another daemon, no longer than a page shows."""
    return text[:MOST_TEXT]
