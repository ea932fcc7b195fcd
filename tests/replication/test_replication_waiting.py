"""Puts that wait for slaves: the status that they end with, and when (RocketMQ: CommitLog.submitReplicaRequest)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from replication_fakes import Pair, configuration, open_pair
from store_support import message, open_store
from trio.testing import MockClock

from triomq.broker.message_writer import AwaitedPut, MessageWriter
from triomq.broker.replication.log_server import LogServer
from triomq.store.config import BrokerRole, FlushDiskType
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import PutStatus
from triomq.store.watermark import Watermark


class FakeReplicas:
    """Slaves that are as far behind as the test says."""

    def __init__(self, near: bool = True) -> None:
        self.replicated = Watermark()
        self.near = near

    def is_near(self, end_offset: int) -> bool:
        return self.near


class Bench:
    """A writer on a store whose commits and flushes the test performs."""

    def __init__(self, store: DefaultMessageStore, replicas: FakeReplicas | LogServer, nursery: trio.Nursery) -> None:
        self.store = store
        self.replicas = replicas
        self.writer = MessageWriter(configuration(store), store, lambda: None, replicas)
        nursery.start_soon(self.writer.run)

    def put(self, *, wait: bool = True) -> AwaitedPut:
        pending = AwaitedPut()
        self.writer.put(message(), wait, pending)
        self.store.commit()
        return pending


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Any]:
    async def open_one(**changes: Any) -> DefaultMessageStore:
        changes.setdefault("broker_role", BrokerRole.SYNC_MASTER)
        changes.setdefault("flush_disk_type", FlushDiskType.ASYNC_FLUSH)
        return await open_store(tmp_path / str(next(numbers)), **changes)

    numbers = count()
    yield open_one


async def status_after(put: AwaitedPut, seconds: float) -> tuple[PutStatus, float]:
    """Return the status and how long it took."""
    begun = trio.current_time()
    with trio.fail_after(seconds):
        result = await put.wait()
    return result.status, trio.current_time() - begun


async def test_a_put_waits_until_a_slave_has_all_of_it(
    autojump_clock: MockClock, nursery: trio.Nursery, opened: Any
) -> None:
    replicas = FakeReplicas()
    bench = Bench(await opened(), replicas, nursery)
    put = bench.put()
    replicas.replicated.advance(put.result.end_offset - 1)
    assert not put.is_finished
    replicas.replicated.advance(put.result.end_offset)
    assert put.is_finished
    assert put.result.status is PutStatus.PUT_OK


async def test_a_slave_that_is_too_slow_ends_the_wait(
    autojump_clock: MockClock, nursery: trio.Nursery, opened: Any
) -> None:
    bench = Bench(await opened(), FakeReplicas(), nursery)
    first, second = bench.put(), bench.put()
    assert await status_after(first, 10) == (PutStatus.FLUSH_SLAVE_TIMEOUT, pytest.approx(3.0))
    await second.wait()
    assert bench.replicas.replicated.waiter_count == 0
    assert bench.store.reading.max_offset("T", 0) == 2  # stored all the same


async def test_without_a_slave_nobody_waits(autojump_clock: MockClock, nursery: trio.Nursery, opened: Any) -> None:
    bench = Bench(await opened(), FakeReplicas(near=False), nursery)
    put = bench.put()
    assert put.is_finished
    assert put.result.status is PutStatus.SLAVE_NOT_AVAILABLE
    assert bench.store.reading.max_offset("T", 0) == 1


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER])
async def test_who_does_not_wait_is_not_told_of_slaves(
    autojump_clock: MockClock, nursery: trio.Nursery, opened: Any, role: BrokerRole
) -> None:
    bench = Bench(await opened(broker_role=role), FakeReplicas(near=False), nursery)
    put = bench.put(wait=role is BrokerRole.ASYNC_MASTER)
    assert put.result.status is PutStatus.PUT_OK
    assert put.is_finished


async def test_both_the_disk_and_a_slave_are_waited_for(
    autojump_clock: MockClock, nursery: trio.Nursery, opened: Any
) -> None:
    replicas = FakeReplicas()
    bench = Bench(await opened(flush_disk_type=FlushDiskType.SYNC_FLUSH), replicas, nursery)
    one, other = bench.put(), bench.put()
    replicas.replicated.advance(other.result.end_offset)
    assert not one.is_finished
    bench.store.flushed.advance(one.result.end_offset)
    assert one.is_finished
    assert not other.is_finished
    bench.store.flushed.advance(other.result.end_offset)
    assert (one.result.status, other.result.status) == (PutStatus.PUT_OK, PutStatus.PUT_OK)


async def test_what_is_said_of_the_slave_goes_first(
    autojump_clock: MockClock, nursery: trio.Nursery, opened: Any
) -> None:
    bench = Bench(await opened(flush_disk_type=FlushDiskType.SYNC_FLUSH), FakeReplicas(), nursery)
    assert await status_after(bench.put(), 10) == (PutStatus.FLUSH_SLAVE_TIMEOUT, pytest.approx(5.0))
    bench = Bench(await opened(flush_disk_type=FlushDiskType.SYNC_FLUSH), FakeReplicas(near=False), nursery)
    assert await status_after(bench.put(), 10) == (PutStatus.SLAVE_NOT_AVAILABLE, pytest.approx(5.0))


async def test_a_slow_disk_is_told_when_the_slave_is_well(
    autojump_clock: MockClock, nursery: trio.Nursery, opened: Any
) -> None:
    replicas = FakeReplicas()
    bench = Bench(await opened(flush_disk_type=FlushDiskType.SYNC_FLUSH), replicas, nursery)
    put = bench.put()
    replicas.replicated.advance(1 << 40)
    assert await status_after(put, 10) == (PutStatus.FLUSH_DISK_TIMEOUT, pytest.approx(5.0))


# -- with a real slave ------------------------------------------------------------------------------------------------


async def test_puts_are_acknowledged_by_the_slave(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await open_pair(nursery, tmp_path, flush_disk_type=FlushDiskType.ASYNC_FLUSH)
    bench = Bench(pair.master, pair.server, nursery)
    assert (await status_after(bench.put(), 10))[0] is PutStatus.SLAVE_NOT_AVAILABLE
    pair.start()
    await pair.wait_equal()
    await trio.sleep(1)
    for _ in range(40):
        assert (await status_after(bench.put(), 10))[0] is PutStatus.PUT_OK
    pair.lines[-1].blackhole = True
    assert (await status_after(bench.put(), 10))[0] is PutStatus.FLUSH_SLAVE_TIMEOUT
    pair.is_reachable = False
    await trio.sleep(10)
    assert (await status_after(bench.put(), 10))[0] is PutStatus.SLAVE_NOT_AVAILABLE


async def test_a_slave_far_behind_does_not_count(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await open_pair(nursery, tmp_path, ha_slave_fallbehind_max_bytes=1000)
    pair.start()
    await trio.sleep(1)
    assert len(pair.server.links) == 1
    assert pair.server.is_near(999)
    assert not pair.server.is_near(1000)


async def test_what_a_slave_claims_beyond_the_log_is_no_acknowledgement(
    autojump_clock: MockClock, nursery: trio.Nursery, opened: Any
) -> None:
    store = await opened()
    server = LogServer(configuration(store), store)
    bench = Bench(store, server, nursery)
    liar, end = trio.testing.memory_stream_pair()
    nursery.start_soon(server.serve, end, "liar")
    await liar.send_all((1 << 50).to_bytes(8, "big"))
    await trio.sleep(0.1)
    assert server.replicated.value == 0
    assert (await status_after(bench.put(), 10))[0] is PutStatus.FLUSH_SLAVE_TIMEOUT
    await liar.send_all((1 << 50).to_bytes(8, "big"))
    await trio.sleep(0.1)
    assert not server.links


async def test_more_slaves_than_allowed_are_sent_away(
    autojump_clock: MockClock, nursery: trio.Nursery, opened: Any
) -> None:
    store = await opened()
    server = LogServer(configuration(store), store)
    streams = []
    for number in range(64 + 3):
        slave, end = trio.testing.memory_stream_pair()
        nursery.start_soon(server.serve, end, f"slave-{number}")
        streams.append(slave)
    await trio.sleep(0.1)
    assert len(server.links) == 64
    sent_away = 0
    for slave in streams:
        try:
            await slave.send_all(bytes(8))
        except trio.BrokenResourceError:
            sent_away += 1
    assert sent_away == 3
    await trio.sleep(100)  # silent ones are given up
    assert not server.links


@pytest.mark.parametrize("garbage", [b"\xff" * 8, b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00"])
async def test_who_is_no_slave_ends_only_his_own_link(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path, garbage: bytes
) -> None:
    pair = await open_pair(nursery, tmp_path)
    bench = Bench(pair.master, pair.server, nursery)
    pair.start()
    stranger, end = trio.testing.memory_stream_pair()
    nursery.start_soon(pair.server.serve, end, "stranger")
    await stranger.send_all(garbage)
    await trio.sleep(1)
    await bench.put().wait()
    await pair.wait_equal()
    await trio.sleep(30)
    assert {link.remote for link in pair.server.links} == {"10.0.0.1:10912"}


async def test_the_last_bytes_reach_the_slave_before_the_master_stops(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair: Pair = await open_pair(nursery, tmp_path)
    bench = Bench(pair.master, pair.server, nursery)
    pair.start()
    await bench.put().wait()
    await pair.wait_equal()
    bench.put(wait=False)
    await pair.server.drain(2)
    assert pair.slave.reading.max_physical_offset == pair.master.reading.max_physical_offset
