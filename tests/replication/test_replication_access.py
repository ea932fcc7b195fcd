"""Strangers on the HA port: what they may read, hold and claim, and that they keep no slave out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from msgspec.structs import replace
from replication_fakes import configuration, fill
from store_support import open_store
from trio.testing import MockClock

from triomq.broker.configuration import Configuration
from triomq.broker.replication.log_server import LogServer
from triomq.broker.replication.slave_access import PAUSE_SECONDS, SlaveAccess, is_on_host
from triomq.broker.settings.networks import networks_of
from triomq.protocol.bodies.route import BrokerData, ClusterInfo
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.networks import is_listed
from triomq.protocol.settings import SettingError
from triomq.remoting.errors import RemotingTimeout
from triomq.store.config import BrokerRole
from triomq.store.message_store import DefaultMessageStore

MASTER, SLAVE, STRANGER = "10.0.0.1", "10.0.0.2", "10.6.6.6"


class NameServers:
    """What each NameServer says of the brokers called broker-a; None: it does not respond."""

    def __init__(self, **known: dict[int, str] | None) -> None:
        self.known = known
        self.asked: list[str] = []

    async def __call__(self, address: str, request: RemotingCommand, timeout_seconds: float) -> RemotingCommand:
        assert request.code == RequestCode.GET_BROKER_CLUSTER_INFO
        self.asked.append(address)
        await trio.sleep(0.01)
        brokers = self.known[address]
        if brokers is None:
            raise RemotingTimeout(f"{address} did not answer")
        data = BrokerData(cluster="c", broker_name="broker-a", broker_addrs=brokers)
        other = BrokerData(cluster="c", broker_name="broker-b", broker_addrs={0: "10.0.9.1:1", 1: f"{STRANGER}:1"})
        info = ClusterInfo(broker_addr_table={"broker-a": data, "broker-b": other})
        return new_response(request, body=info.encode())


class Bench:
    """A SYNC_MASTER called broker-a with its HA port, on memory streams."""

    def __init__(
        self, nursery: trio.Nursery, store: DefaultMessageStore, nameservers: NameServers, **broker: Any
    ) -> None:
        base = configuration(store)
        values = {"broker_name": "broker-a", "broker_ip1": MASTER, "namesrv_addr": "ns1:9876;ns2:9876", **broker}
        self.configuration: Configuration = dataclasses.replace(base, broker=replace(base.broker, **values))
        self.nursery = nursery
        self.store = store
        self.access = SlaveAccess(self.configuration, nameservers, lambda: list(nameservers.known))
        self.server = LogServer(self.configuration, store, self.access)
        nursery.start_soon(self.server._recognize)

    async def connect(self, ip: str, report: int | None = None) -> trio.StapledStream:
        """A peer, which reports an offset unless it is silent."""
        stream, theirs = trio.testing.memory_stream_pair()
        self.nursery.start_soon(self.server.serve, theirs, f"{ip}:1", None, ip, MASTER)
        if report is not None:
            await self.report(stream, report)
        await trio.sleep(0.001)
        return stream

    async def report(self, stream: trio.StapledStream, offset: int) -> None:
        await stream.send_all(offset.to_bytes(8, "big"))
        await trio.sleep(0.001)

    @property
    def end(self) -> int:
        return self.store.reading.max_physical_offset


async def bench_with(
    nursery: trio.Nursery,
    directory: Path,
    nameservers: NameServers | None = None,
    *,
    broker: Any = None,
    **changes: Any,
) -> Bench:
    store = await open_store(directory, broker_role=BrokerRole.SYNC_MASTER, **changes)
    fill(store, 3)
    return Bench(nursery, store, nameservers or NameServers(ns1={0: f"{MASTER}:10911"}), **(broker or {}))


async def is_closed(stream: trio.StapledStream) -> bool:
    """Whether the master has closed the link, after what it sent before."""
    with trio.move_on_after(0.1):
        try:
            while await stream.receive_some(1 << 20):
                pass
        except trio.BrokenResourceError:
            return True
        return True
    return False


async def test_a_stranger_that_echoes_offsets_is_no_copy(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    bench = await bench_with(nursery, tmp_path)
    with structlog.testing.capture_logs() as logs:
        stranger = await bench.connect(STRANGER, bench.end)
        await trio.sleep(5)
    assert (bench.server.replicated.value, bench.server.copies) == (0, 0)
    assert not bench.server.is_near(bench.end)
    await bench.report(stranger, bench.end)
    assert bench.server.replicated.value == 0
    warnings = [entry for entry in logs if entry["log_level"] == "warning"]
    assert [(entry["slave"], "haSlaveAddresses" in entry["reason"]) for entry in warnings] == [(f"{STRANGER}:1", True)]


async def test_a_slave_that_is_registered_counts(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    known = NameServers(ns1={0: f"{MASTER}:10911", 3: f"{SLAVE}:10911"})
    bench = await bench_with(nursery, tmp_path, known)
    await bench.connect(SLAVE, bench.end)
    await trio.sleep(0.1)
    assert (bench.server.replicated.value, bench.server.copies) == (bench.end, 1)
    assert bench.server.is_near(bench.end)
    asked = len(known.asked)
    await bench.connect(SLAVE, bench.end)
    await trio.sleep(20)
    assert len(known.asked) == asked, "nobody is unknown"


async def test_a_slave_that_registers_later_counts_from_then_on(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    known = NameServers(ns1={0: f"{MASTER}:10911"}, ns2=None)
    bench = await bench_with(nursery, tmp_path, known)
    stream = await bench.connect(SLAVE, bench.end)
    await trio.sleep(1)
    assert bench.server.copies == 0
    known.known["ns2"] = {1: f"{SLAVE}:10911"}
    known.known["ns1"] = None
    await trio.sleep(15)
    assert (bench.server.copies, bench.server.replicated.value) == (1, bench.end)
    known.known["ns2"] = None
    await bench.connect(STRANGER)
    await trio.sleep(2)
    await bench.report(stream, bench.end)
    assert bench.server.copies == 1, "NameServers that do not respond change nothing"
    await stream.aclose()
    await trio.sleep(0.1)
    assert (bench.server.copies, bench.server.is_near(bench.end)) == (0, False)


@pytest.mark.parametrize(
    ("broker", "changes"),
    [({}, {"ha_count_unregistered": True}), ({"namesrv_addr": None}, {}), ({}, {"ha_slave_addresses": "10.6.0.0/16"})],
)
async def test_who_counts_without_being_registered(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path, broker: Any, changes: Any
) -> None:
    bench = await bench_with(nursery, tmp_path, broker=broker, **changes)
    await bench.connect(STRANGER, bench.end)
    assert (bench.server.copies, bench.server.replicated.value) == (1, bench.end)


@pytest.mark.parametrize("listed", ["", f"{STRANGER}/32"])
async def test_with_accounts_and_no_nameserver_only_listed_addresses_are_no_strangers(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path, listed: str
) -> None:
    """Nobody can be asked who is a slave. A stranger gets no byte of the log and counts as no copy."""
    bench = await bench_with(
        nursery, tmp_path, broker={"namesrv_addr": None, "acl_enable": True}, ha_slave_addresses=listed
    )
    await bench.connect(STRANGER, bench.end)
    assert bench.server.copies == (1 if listed else 0)
    assert bench.access.counts(STRANGER, MASTER) == bool(listed)
    assert not bench.access.serves_strangers


async def test_only_listed_addresses_may_connect(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    known = NameServers(ns1={1: f"{STRANGER}:10911"})
    bench = await bench_with(nursery, tmp_path, known, ha_slave_addresses=f"10.1.0.0/24, {SLAVE}")
    stranger = await bench.connect(STRANGER)
    assert await is_closed(stranger)
    slave = await bench.connect(SLAVE, 0)
    assert not await is_closed(slave)
    assert (len(bench.server.links), known.asked) == (1, [])


@pytest.mark.parametrize(
    ("acl_enable", "serves", "is_served"),
    [(False, None, True), (True, None, False), (True, True, True), (False, False, False)],
)
async def test_with_access_control_strangers_get_no_log(
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    tmp_path: Path,
    acl_enable: bool,
    serves: bool | None,
    is_served: bool,
) -> None:
    known = NameServers(ns1={0: f"{MASTER}:10911", 1: f"{SLAVE}:10911"})
    bench = await bench_with(nursery, tmp_path, known, broker={"acl_enable": acl_enable}, ha_serve_unregistered=serves)
    stranger, slave = await bench.connect(STRANGER), await bench.connect(SLAVE)
    for stream in (stranger, slave):
        try:
            await stream.send_all(bytes(8))
        except trio.BrokenResourceError:
            assert not is_served
    assert await is_closed(stranger) == (not is_served)
    assert not await is_closed(slave)
    await bench.connect(SLAVE, bench.end)
    assert bench.server.replicated.value == bench.end


async def test_silent_strangers_do_not_keep_a_slave_out(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    known = NameServers(ns1={1: f"{SLAVE}:10911"})
    bench = await bench_with(nursery, tmp_path, known, ha_max_connections=8)
    await bench.access.learn()
    silent = [await bench.connect(f"10.7.0.{number}") for number in range(20)]
    assert len(bench.server.links) == 8
    slave = await bench.connect(SLAVE, 0)
    assert not await is_closed(slave)
    assert [await is_closed(stream) for stream in silent] == [True] * 13 + [False] * 7


async def test_a_slave_takes_the_place_of_a_stranger_that_reports(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    known = NameServers(ns1={1: f"{SLAVE}:10911"})
    bench = await bench_with(nursery, tmp_path, known, ha_max_connections=8)
    strangers = [await bench.connect(f"10.7.0.{number}", bench.end) for number in range(8)]
    assert await is_closed(await bench.connect("10.7.0.100")), "a stranger sends nobody away who reports"
    assert await is_closed(await bench.connect(SLAVE)) is False, "the NameServers were asked about the strangers"
    assert [await is_closed(stream) for stream in strangers] == [True] + [False] * 7
    assert len(bench.server.links) == 8
    for _ in range(7):
        await bench.connect(SLAVE, bench.end)
    assert bench.server.copies == 8
    assert await is_closed(await bench.connect("10.7.0.101", bench.end)), "slaves are sent away for nobody"
    assert bench.server.copies == 8


async def test_one_address_does_not_take_all_places(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    bench = await bench_with(nursery, tmp_path, ha_max_connections=8, ha_max_connections_per_address=3)
    for _ in range(5):
        await bench.connect(STRANGER, bench.end)
    assert len(bench.server.links) == 3
    await bench.connect("10.6.6.7", bench.end)
    assert len(bench.server.links) == 4


async def test_single_bytes_do_not_keep_a_link_open(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    bench = await bench_with(nursery, tmp_path, ha_housekeeping_interval_ms=4000)
    stranger = await bench.connect(STRANGER)
    for _ in range(7):
        try:
            await stream_byte(stranger)
        except trio.BrokenResourceError:
            break
    assert not bench.server.links
    assert trio.current_time() < 6


async def stream_byte(stream: trio.StapledStream) -> None:
    await stream.send_all(b"\0")
    await trio.sleep(1)


async def test_a_report_of_what_was_never_sent_ends_the_link(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    """A peer that does not read is sent only so much, but may claim to have everything."""
    known = NameServers(ns1={1: f"{SLAVE}:10911"})
    bench = await bench_with(nursery, tmp_path, known)
    await bench.access.learn()
    slave = await bench.connect(SLAVE, 100)
    assert bench.server.replicated.value == 100
    (link,) = bench.server.links
    link.sent = 200  # what it was sent before it stopped reading
    await bench.report(slave, 201)
    assert bench.server.replicated.value == 100
    assert await is_closed(slave)


async def test_questions_about_strangers_are_few(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    known = NameServers(ns1={0: f"{MASTER}:10911"})
    bench = await bench_with(nursery, tmp_path, known)
    began = trio.current_time()
    for number in range(500):
        stream = await bench.connect(f"10.7.{number % 200}.1", bench.end)
        await stream.aclose()
        await trio.sleep(0.02)
    assert len(known.asked) <= (trio.current_time() - began) / PAUSE_SECONDS + 2


async def test_those_who_ask_at_once_share_one_question(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    known = NameServers(ns1={0: f"{MASTER}:10911"})
    bench = await bench_with(nursery, tmp_path, known)
    async with trio.open_nursery() as slaves:
        for number in range(10):
            slaves.start_soon(bench.access.learn)
            if number == 4:  # the others come while the NameServer is asked: what it says may be older than they are
                await trio.sleep(0.005)
    assert known.asked == ["ns1", "ns1"]


def test_a_list_of_addresses_is_parsed_or_refused_with_its_key() -> None:
    networks = networks_of("haSlaveAddresses", " 10.0.0.0/24,192.168.1.7 , 2001:db8::/32,")
    assert [is_listed(ip, networks) for ip in ("10.0.0.9", "10.0.1.9", "192.168.1.7", "2001:db8::1")] == [
        True,
        False,
        True,
        True,
    ]
    assert not is_listed("a name", networks)
    assert networks_of("haSlaveAddresses", "") == ()
    with pytest.raises(SettingError, match="haSlaveAddresses"):
        networks_of("haSlaveAddresses", "10.0.0.0/24, slave-1")


@pytest.mark.parametrize(
    ("ip", "local_ip", "hosts", "is_known"),
    [
        (SLAVE, MASTER, {SLAVE}, True),
        (STRANGER, MASTER, {SLAVE}, False),
        ("127.0.0.1", "127.0.0.1", {MASTER}, True),  # on this machine, registered with its address
        (MASTER, MASTER, {"127.0.0.1"}, True),
        (MASTER, MASTER, {SLAVE}, False),
        ("127.0.0.1", "127.0.0.1", {SLAVE}, False),  # a local process is not the slave elsewhere
        ("10.0.5.1", "10.0.5.1", {MASTER}, True),  # another address of this machine
        (STRANGER, MASTER, {"127.0.0.1"}, False),
    ],
)
def test_the_host_of_a_slave_is_recognized(ip: str, local_ip: str, hosts: set[str], is_known: bool) -> None:
    assert is_on_host(ip, local_ip, frozenset(hosts), MASTER) == is_known


async def test_a_registered_name_is_resolved(autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path) -> None:
    known = NameServers(ns1={1: "localhost:10911", 2: "[::1]:10911", 3: "no such host:1"})
    bench = await bench_with(nursery, tmp_path, known)
    await bench.access.learn()
    assert bench.access.counts("127.0.0.1", "127.0.0.1")
    assert not bench.access.counts(STRANGER, MASTER)
