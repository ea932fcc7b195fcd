"""A change that somebody awaits is written at once; the others wait for the rest between two writes."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from broker_fakes import FakeConnection, MemoryFile, request
from fake_clock import FakeClock

from triomq.broker.assembly.tables import save_tables
from triomq.broker.processors.queue_locks import QueueLockProcessor
from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.queue_locks import QueueLockTable
from triomq.broker.tables.write_behind import LONGEST_REST_SECONDS, REST_SECONDS, WriteBehind

WRITE_SECONDS = 0.002


async def disk(function: Any, *arguments: Any) -> Any:
    await trio.sleep(WRITE_SECONDS)
    return function(*arguments)


async def instant(function: Any, *arguments: Any) -> Any:
    return function(*arguments)


class Written:
    """A table of one number, and its file."""

    def __init__(self) -> None:
        self.file = MemoryFile()
        self.number = 0
        self.writer = WriteBehind(self.file, lambda: [b"%d" % self.number])

    async def change(self) -> None:
        self.number += 1
        self.writer.changed()
        mine = self.number
        await self.writer.wait_saved()
        assert int(self.file.text) >= mine


async def running(nursery: trio.Nursery) -> Written:
    table = Written()
    nursery.start_soon(table.writer.run, disk)
    await trio.testing.wait_all_tasks_blocked()
    return table


async def test_changes_that_are_awaited_one_after_another_wait_for_no_rest(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    written = await running(nursery)
    began = trio.current_time()
    for _ in range(256):
        await written.change()
    assert trio.current_time() - began < 256 * WRITE_SECONDS + REST_SECONDS


async def test_all_that_wait_share_a_write(autojump_clock: trio.testing.MockClock, nursery: trio.Nursery) -> None:
    written = await running(nursery)
    async with trio.open_nursery() as clients:
        for _ in range(100):
            clients.start_soon(written.change)
    assert len(written.file.texts) == 1
    async with trio.open_nursery() as clients:
        clients.start_soon(written.change)
        await trio.sleep(WRITE_SECONDS / 2)  # the first is being written
        for _ in range(100):
            clients.start_soon(written.change)
    assert len(written.file.texts) == 3


async def test_changes_that_nobody_awaits_are_written_with_a_rest(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    written = await running(nursery)
    for _ in range(1000):
        written.number += 1
        written.writer.changed()
        await trio.sleep(0.001)
    assert len(written.file.texts) <= 1 / REST_SECONDS + 1
    await trio.sleep(LONGEST_REST_SECONDS + WRITE_SECONDS)
    assert written.file.text == "1000"


async def test_a_consumer_that_locks_256_queues_one_by_one_has_them_soon(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    table = QueueLockTable(FakeClock(), file=MemoryFile())
    nursery.start_soon(table.run, disk)
    await trio.testing.wait_all_tasks_blocked()
    processor, connection = QueueLockProcessor(table), cast(Any, FakeConnection())
    began = trio.current_time()
    for number in range(256):
        queues = [{"brokerName": "b-a", "queueId": number, "topic": "T"}]
        body = json.dumps({"clientId": "c1", "consumerGroup": "G", "mqSet": queues}).encode()
        assert (await processor.lock(connection, request(41, body=body))).code == 0
    assert trio.current_time() - began < 1


async def test_all_changes_are_saved_or_it_is_an_error(nursery: trio.Nursery) -> None:
    """Two writes at once: the second caller's change is not in the text of the first."""
    file, table, is_covered = MemoryFile(), ["a"], [True, True]
    first_writes, go_on = trio.Event(), trio.Event()

    async def covered() -> bool:
        return is_covered.pop(0)

    async def slow(function: Any, *args: Any) -> None:
        first_writes.set()
        await go_on.wait()
        function(*args)

    writer = WriteBehind(file, lambda: ["".join(table).encode()], covered=covered)
    writer.mark()
    await writer.save_all(instant)
    assert file.text == "a"
    table.append("b")
    writer.mark()
    nursery.start_soon(writer.save_offloaded, slow)
    await first_writes.wait()
    table.append("c")
    writer.mark()
    is_covered.append(True)
    async with trio.open_nursery() as waiting:
        waiting.start_soon(writer.save_all, instant)
        await trio.testing.wait_all_tasks_blocked()
        go_on.set()
    assert file.text == "abc"
    writer.mark()
    is_covered.append(False)
    with pytest.raises(OSError, match="the log that the table speaks of is not on the disk"):
        await writer.save_all(instant)


async def test_the_tables_of_a_group_are_saved_or_it_is_an_error() -> None:
    """The log is on the disk, but not what came meanwhile: its leader is deposed."""
    is_covered = [True, False]

    async def covered() -> bool:
        return is_covered.pop(0)

    offsets = OffsetTable(MemoryFile(), covered=covered)
    offsets.commit("G", "T", 0, 24)
    written = SimpleNamespace(wait_written=trio.lowlevel.checkpoint)
    tables = SimpleNamespace(
        metadata=SimpleNamespace(topics=written, groups=written, offsets=offsets),
        quota_overrides=written,
        queue_locks=written,
        request_modes=written,
        store=SimpleNamespace(cover=covered),
        delay_offsets=DelayOffsets(),
    )
    with pytest.raises(OSError, match="not on the disk"):
        await save_tables(cast(Any, tables))
