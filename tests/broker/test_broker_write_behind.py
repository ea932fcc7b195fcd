"""A change that somebody awaits is written at once; the others wait for the rest between two writes."""

from __future__ import annotations

import json
from typing import Any, cast

import trio
import trio.testing
from broker_fakes import FakeClock, FakeConnection, MemoryFile, request

from triomq.broker.processors.queue_locks import QueueLockProcessor
from triomq.broker.tables.queue_locks import QueueLockTable
from triomq.broker.tables.write_behind import LONGEST_REST_SECONDS, REST_SECONDS, WriteBehind

WRITE_SECONDS = 0.002


async def disk(function: Any, *arguments: Any) -> Any:
    await trio.sleep(WRITE_SECONDS)
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
