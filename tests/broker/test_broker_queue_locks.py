"""Queue locks outlive their broker: no queue is given to a second client while the first may still consume it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from broker_fakes import FakeConnection, MemoryFile, request
from broker_whole import WholeBroker, whole_broker
from fake_clock import FakeClock

from triomq.broker.errors import TableFull
from triomq.broker.processors.queue_locks import QUEUES_IN_A_STEP, QueueLockProcessor
from triomq.broker.tables.queue_locks import LOCK_EXPIRY_MS, QueueLockTable
from triomq.protocol.command import RemotingCommand
from triomq.protocol.message_queue import MessageQueue

LOCK, UNLOCK = 41, 42


def queue(number: int) -> MessageQueue:
    return MessageQueue("T", "b-a", number)


def body_of(client: str, *numbers: int, group: str = "G") -> bytes:
    queues = [{"brokerName": "b-a", "queueId": number, "topic": "T"} for number in numbers]
    return json.dumps({"clientId": client, "consumerGroup": group, "mqSet": queues}).encode()


def held_in(response: RemotingCommand) -> list[int]:
    return sorted(entry["queueId"] for entry in json.loads(response.body)["lockOKMQSet"])


async def instant(function: Any, *arguments: Any) -> Any:
    """An offload without threads."""
    return function(*arguments)


async def test_a_new_holder_is_in_the_file_before_it_is_told(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    file, clock = MemoryFile(), FakeClock()
    table = QueueLockTable(clock, file=file)
    nursery.start_soon(table.run, instant)
    await trio.testing.wait_all_tasks_blocked()
    processor = QueueLockProcessor(table)
    connection = cast(Any, FakeConnection())
    assert held_in(await processor.lock(connection, request(LOCK, body=body_of("c1", 0, 1)))) == [0, 1]
    after_crash = QueueLockTable(clock, file=MemoryFile(file.text))
    after_crash.load()
    assert after_crash.lock("G", [queue(0), queue(2)], "c2") == [queue(2)]
    assert after_crash.lock("G", [queue(0), queue(1)], "c1") == [queue(0), queue(1)]
    assert after_crash.lock("H", [queue(0)], "c2") == [queue(0)], "another group"
    written = len(file.texts)
    await processor.lock(connection, request(LOCK, body=body_of("c1", 0, 1)))
    await trio.sleep(5)
    assert len(file.texts) == written, "a renewal writes nothing"
    processor.unlock(connection, request(UNLOCK, body=body_of("c1", 0)))
    await trio.sleep(5)
    after_crash = QueueLockTable(clock, file=MemoryFile(file.text))
    after_crash.load()
    assert after_crash.lock("G", [queue(0), queue(1)], "c2") == [queue(0)]


@pytest.mark.parametrize(("down_ms", "is_free"), [(0, False), (LOCK_EXPIRY_MS, False), (LOCK_EXPIRY_MS + 1, True)])
def test_locks_expire_while_the_broker_is_down(down_ms: int, is_free: bool) -> None:
    file, clock = MemoryFile(), FakeClock()
    table = QueueLockTable(clock, file=file)
    table.lock("G", [queue(0)], "c1")
    clock.advance(1_000_000)
    table.lock("G", [queue(0)], "c1")
    table.still_alive()
    table._writer.save()
    clock.advance(down_ms)
    table = QueueLockTable(clock, file=file)
    table.load()
    assert table.lock("G", [queue(0)], "c2") == ([queue(0)] if is_free else [])


def test_a_clock_that_was_set_back_does_not_prolong_locks() -> None:
    file, clock = MemoryFile(), FakeClock()
    table = QueueLockTable(clock, file=file)
    table.lock("G", [queue(0)], "c1")
    table._writer.save()
    clock.advance(-10_000_000)
    table = QueueLockTable(clock, file=file)
    table.load()
    assert table.holder("G", queue(0)) == "c1"
    clock.advance(LOCK_EXPIRY_MS + 1)
    assert table.holder("G", queue(0)) is None


def test_a_loaded_lock_can_be_released_and_counts() -> None:
    file, clock = MemoryFile(), FakeClock()
    table = QueueLockTable(clock, file=file)
    table.lock("G", [queue(0), queue(1)], "c1")
    table._writer.save()
    table = QueueLockTable(clock, file=file, max_locks=1)
    table.load()
    assert [table.holder("G", queue(number)) for number in (0, 1)] == ["c1", None], "no more than the limit"
    table.unlock("G", [queue(0)], "c1")
    table._writer.save()
    table = QueueLockTable(clock, file=file)
    table.load()
    assert table.lock("G", [queue(0), queue(1)], "c2") == [queue(0), queue(1)]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"locks":{}}', '{"aliveAt":1,"locks":{"G":[["c","T"]]}}', "[" * 9999]
)
def test_a_file_that_is_none_is_left_alone(text: str) -> None:
    table = QueueLockTable(FakeClock(), file=MemoryFile(text))
    table.load()
    assert table.lock("G", [queue(0)], "c1") == [queue(0)]


class SlowFile(MemoryFile):
    fails = False

    def save(self, text: str) -> None:
        if self.fails:
            raise OSError("No space left on device")
        super().save(text)


@pytest.mark.parametrize("fails", [True, False])
async def test_a_disk_that_does_not_take_the_file_keeps_no_consumer_waiting(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery, fails: bool
) -> None:
    file = SlowFile()
    file.fails = fails
    table = QueueLockTable(FakeClock(), file=file)

    async def slow(function: Any, *arguments: Any) -> Any:
        if not fails:
            await trio.sleep(30)
        return function(*arguments)

    nursery.start_soon(table.run, slow)
    await trio.testing.wait_all_tasks_blocked()
    began = trio.current_time()
    answer = await QueueLockProcessor(table).lock(cast(Any, FakeConnection()), request(LOCK, body=body_of("c1", 0)))
    assert held_in(answer) == [0]
    assert trio.current_time() - began < 0.9, "a Java client waits one second"


async def test_what_is_released_while_a_lock_is_written_is_not_told_as_held(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    """And of two clients that ask at once one gets the queue."""
    table = QueueLockTable(FakeClock(), file=MemoryFile())

    async def slow(function: Any, *arguments: Any) -> Any:
        await trio.sleep(0.3)
        return function(*arguments)

    nursery.start_soon(table.run, slow)
    await trio.testing.wait_all_tasks_blocked()
    processor = QueueLockProcessor(table)
    connection = cast(Any, FakeConnection())
    held: dict[str, list[int]] = {}

    async def lock(client: str) -> None:
        held[client] = held_in(await processor.lock(connection, request(LOCK, body=body_of(client, 0, 1))))

    async with trio.open_nursery() as both:
        both.start_soon(lock, "c1")
        both.start_soon(lock, "c2")
        await trio.sleep(0.1)
        first = table.holder("G", queue(0))
        assert first is not None
        processor.unlock(connection, request(UNLOCK, body=body_of(first, 1)))
    other = "c2" if first == "c1" else "c1"
    assert held == {first: [0], other: []}


async def test_a_request_for_thousands_of_queues_has_steps_and_tells_what_is_held_at_its_end(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = QueueLockTable(FakeClock())
    processor = QueueLockProcessor(table)
    connection = cast(Any, FakeConnection())
    most = 0
    lock = table.lock

    def counted(group: str, queues: list[MessageQueue], client: str) -> list[MessageQueue]:
        nonlocal most
        most = max(most, len(queues))
        return lock(group, queues, client)

    monkeypatch.setattr(table, "lock", counted)
    held: list[int] = []

    async def ask() -> None:
        held.extend(held_in(await processor.lock(connection, request(LOCK, body=body_of("c1", *range(2000))))))

    async with trio.open_nursery() as asking:
        asking.start_soon(ask)
        passes = 0
        while not held:
            passes += 1
            await trio.lowlevel.checkpoint()
            if passes == 12:  # the response is being made
                assert table.holder("G", queue(1999)) == "c1"
                processor.unlock(connection, request(UNLOCK, body=body_of("c1", 5, 6)))
                assert lock("G", [queue(5)], "c2") == [queue(5)]
    assert most == QUEUES_IN_A_STEP
    assert passes >= 2 * (2000 // QUEUES_IN_A_STEP)
    assert held == [number for number in range(2000) if number not in (5, 6)]


async def test_locks_that_arrive_together_wait_for_one_write(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    file = MemoryFile()
    table = QueueLockTable(FakeClock(), file=file)
    nursery.start_soon(table.run, instant)
    await trio.testing.wait_all_tasks_blocked()
    processor = QueueLockProcessor(table)
    connection = cast(Any, FakeConnection())
    work = [processor.lock(connection, request(LOCK, body=body_of("c1", number))) for number in range(64)]
    for number in range(64):
        assert held_in(await work[number]) == [number]
    assert len(file.texts) == 1


async def test_what_is_released_before_its_step_is_not_locked(nursery: trio.Nursery) -> None:
    table = QueueLockTable(FakeClock())
    processor = QueueLockProcessor(table)
    connection = cast(Any, FakeConnection())
    everything = body_of("c1", *range(600))
    first = processor.lock(connection, request(LOCK, body=everything))
    processor.unlock(connection, request(UNLOCK, body=everything))
    second = processor.lock(connection, request(LOCK, body=body_of("c1", 599)))
    await first
    assert held_in(await second) == [599]
    assert [number for number in range(600) if table.holder("G", queue(number))] == [599]
    assert processor._unlocked == {}


def test_a_full_table_makes_room_with_those_that_expired_first_and_looks_at_few() -> None:
    clock = FakeClock()
    table = QueueLockTable(clock, max_locks=200)
    for number in range(200):
        table.lock(f"G{number // 10}", [queue(number)], "c1")
        clock.advance(1)
    table.lock("G0", [queue(0)], "c1")
    with pytest.raises(TableFull):
        table.lock("new", [queue(0)], "c2")
    clock.advance(LOCK_EXPIRY_MS - 150)
    assert table.lock("new", [queue(0)], "c2") == [queue(0)]
    assert table._lock_count == len(table._by_age) == 200 - 49 + 1, "1 to 49 have expired; 0 was renewed"
    assert table.holder("G0", queue(0)) == "c1"
    assert "G1" not in table._locks, "a group without locks takes no memory"
    clock.advance(LOCK_EXPIRY_MS)
    for number in range(100):
        table.lock("new", [queue(number)], "c2")
    assert table._lock_count <= 200
    clock.advance(2 * LOCK_EXPIRY_MS)
    table.lock("other", [queue(number) for number in range(200)], "c3")
    assert list(table._locks) == ["other"]


async def locked(broker: WholeBroker, client: str) -> list[int]:
    return held_in(await broker.ask(LOCK, None, body_of(client, 0, 1)))


def test_a_time_that_no_clock_shows_makes_a_damaged_table() -> None:
    table = QueueLockTable(FakeClock(), file=MemoryFile('{"aliveAt":1e999,"locks":{}}'))
    table.load()
    assert table.lock("G", [queue(0)], "c1") == [queue(0)]


async def test_a_broker_that_comes_back_knows_its_locks(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        assert await locked(broker, "c1") == [0, 1]
        kept = json.loads((tmp_path / "store" / "config" / "queueLocks.json").read_text())
        assert sorted(kept["holders"]) == [["G", "c1", "T", "b-a", 0], ["G", "c1", "T", "b-a", 1]]
        assert "keep queueLocks.json" in broker.controller.serving.schedule.names  # type: ignore[union-attr]
    async with whole_broker(tmp_path) as broker:
        assert await locked(broker, "c2") == []
        assert await locked(broker, "c1") == [0, 1]
