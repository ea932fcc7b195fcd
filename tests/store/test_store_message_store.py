"""The store from outside: put, get, reopen, roll over, search."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from fake_clock import FakeClock
from store_support import abandon, message, open_store, small_settings

from triomq.protocol import record
from triomq.protocol.record import BatchUnit
from triomq.store.errors import StoreLocked
from triomq.store.log.log_scan import LogScan
from triomq.store.message_store import DefaultMessageStore
from triomq.store.queues.dispatch import DispatchEntry, SharedEntry
from triomq.store.results import GetStatus, PutStatus


async def test_put_commit_get(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    first = store.append(message(body=b"one", keys="k1", tags="A"))
    second = store.append(message(body=b"two"))
    assert (first.status, first.queue_offset, first.physical_offset, first.message_count) == (PutStatus.PUT_OK, 0, 0, 1)
    assert (second.queue_offset, second.physical_offset) == (1, first.end_offset)
    assert store.reading.max_offset("T", 0) == 0
    assert store.reading.get_messages("T", 0, 0, 32).status is GetStatus.NO_MESSAGE_IN_QUEUE
    store.commit()
    found = store.reading.get_messages("T", 0, 0, 32)
    assert (found.status, found.next_begin_offset, found.min_offset, found.max_offset) == (GetStatus.FOUND, 2, 0, 2)
    messages = [record.decode_record(data) for data in found.records]
    assert [(m.body, m.queue_offset, m.physical_offset) for m in messages] == [
        (b"one", 0, 0),
        (b"two", 1, second.physical_offset),
    ]
    assert messages[0].keys == "k1"
    assert store.reading.queue_entries("T", 0, 0, 9)[0] == (0, first.size_bytes, ord("A"))
    assert store.committed.value == second.end_offset
    await store.close()


async def test_reopen_after_close_and_after_a_kill(tmp_path: Path) -> None:
    bodies: list[bytes] = []
    for round_number in range(6):
        store = await open_store(tmp_path)
        assert [record.decode_record(data).body for data in read_all(store)] == bodies
        for number in range(40):
            body = b"%d-%d" % (round_number, number) * 5
            result = store.append(message(body=body, keys=f"k{round_number}-{number}", uniq_key=f"u{len(bodies)}"))
            assert result.queue_offset == len(bodies)
            bodies.append(body)
        store.commit()
        if round_number % 2:
            await store.close()
            assert not (tmp_path / "abort").exists()
        else:
            abandon(store)
            assert (tmp_path / "abort").exists()
    store = await open_store(tmp_path)
    assert [record.decode_record(data).body for data in read_all(store)] == bodies
    for number in range(len(bodies)):
        assert len(store.reading.query_by_key("T", f"u{number}", 64, 0, 1 << 60).records) == 1
    assert len(list((tmp_path / "commitlog").iterdir())) > 5
    assert len(list((tmp_path / "index").iterdir())) > 5
    await store.close()


def read_all(store: DefaultMessageStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    records: list[bytes] = []
    offset = store.reading.min_offset(topic, queue_id)
    while True:
        found = store.reading.get_messages(topic, queue_id, offset, 7)
        records += found.records
        if found.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE):
            return records
        assert found.next_begin_offset > offset
        offset = found.next_begin_offset


async def test_a_record_never_crosses_a_file_end(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    results = []
    for size in (1500, 1500, 1500, 2900, 900, 4096 - 91 - 1 - 8, 10):
        results.append(store.append(message(body=bytes(size), properties=b"")))
        if len(results) == 4:
            store.commit()
    assert results.pop(5).status is PutStatus.MESSAGE_ILLEGAL  # larger than maxMessageSize
    store.commit()
    for result in results:
        assert result.physical_offset // 4096 == result.last_offset // 4096
        assert result.end_offset % 4096 == 0 or 4096 - result.end_offset % 4096 >= 8
        data = store.reading.record_at(result.physical_offset)
        assert data is not None and len(data) == result.size_bytes
    first_file = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    blank_at = results[1].end_offset
    assert first_file[blank_at : blank_at + 8] == record.encode_blank(4096 - blank_at)
    await store.close()


async def test_a_batch_is_appended_as_a_row_of_messages_of_one_queue(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    units = [BatchUnit(0, b"body%d" % n, b"KEYS\x01key%d\x02TAGS\x01A" % n) for n in range(5)]
    store.append(message())
    result = store.append_batch(message(properties=b"CLUSTER\x01C"), units)
    assert (result.status, result.queue_offset, result.message_count) == (PutStatus.PUT_OK, 1, 5)
    assert result.physical_offsets is not None and len(result.physical_offsets) == 5
    store.commit()
    found = [record.decode_record(data) for data in read_all(store)][1:]
    assert [m.physical_offset for m in found] == result.physical_offsets
    assert [m.queue_offset for m in found] == [1, 2, 3, 4, 5]
    assert found[2].properties == {"KEYS": "key2", "TAGS": "A", "CLUSTER": "C"}
    assert store.reading.queue_entries("T", 0, 1, 1)[0][2] == ord("A")
    assert store.reading.query_by_key("T", "key3", 64, 0, 1 << 60).physical_offsets == [result.physical_offsets[3]]
    await store.close()


@pytest.mark.parametrize("has_ext", [False, True])
async def test_a_message_and_its_record_are_dispatched_alike(tmp_path: Path, has_ext: bool) -> None:
    """What queues and index take from a put is what recovery and slaves take from its bytes; batches included."""
    store = await open_store(tmp_path, enable_consume_queue_ext=has_ext)
    store.append(message(body=b"before", queue_id=3))
    store.append(message(body=b"one", queue_id=3, sys_flag=8, tags="A", keys="k1 k2", uniq_key="u1"))
    units = [BatchUnit(n, b"body" * n, b"KEYS\x01key%d\x02UNIQ_KEY\x01u%d\x02TAGS\x01B%d" % (n, n, n)) for n in (1, 2)]
    units.append(BatchUnit(3, b"", "KEYS\x01ключ\x02DELAY\x013\x02TAGS\x01C".encode()))
    store.append_batch(message(queue_id=3, properties=b"CLUSTER\x01C"), units)
    appended = list(store.committing.pending)
    store.commit()
    scan = LogScan(store.contents.log, 0, check_crc=True)
    scanned = [store._dispatch.entry_of(fields) for fields in scan.records()]
    if has_ext:  # which needs all of each message
        assert [values_of(entry) for entry in appended] == [values_of(entry) for entry in scanned]
    rows = [row for entry in appended for row in rows_of(entry)]
    assert rows == [row for entry in scanned for row in rows_of(entry)]
    assert [row[-1] for row in rows] == [None, "k1 k2", "key1", "key2", "ключ"]
    assert [row[2] for row in rows] == [0, 1, 2, 3, 4]
    await store.close()


def rows_of(entry: DispatchEntry) -> list[tuple[object, ...]]:
    """What queues and index take from the records of an entry."""
    if isinstance(entry, SharedEntry):
        return [(entry.place.store_timestamp, *each) for each in entry.records]
    place = entry.place
    numbers = place.queue_offset, place.physical_offset, place.size_bytes, entry.tags_code
    return [(place.store_timestamp, entry.queue, *numbers, entry.properties.uniq_key, entry.properties.keys)]


def values_of(entry: DispatchEntry) -> list[object]:
    """Everything that an entry says of its record."""
    place = entry.place
    return [
        *(place.physical_offset, place.queue_offset, place.size_bytes, place.store_timestamp),
        *(entry.queue, entry.topic, entry.sys_flag, entry.tags_code, entry.properties.text),
    ]


async def test_transactions_enter_no_queue(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    prepared = store.append(message(sys_flag=4, keys="p"))
    rolled_back = store.append(message(sys_flag=12, keys="r"))
    committed = store.append(message(sys_flag=8, keys="c"))
    store.commit()
    assert [r.queue_offset for r in (prepared, rolled_back, committed)] == [0, 0, 0]
    assert store.reading.max_offset("T", 0) == 1
    assert store.reading.query_by_key("T", "p", 64, 0, 1 << 60).physical_offsets == [prepared.physical_offset]
    assert store.reading.query_by_key("T", "r", 64, 0, 1 << 60).records == []
    abandon(store)
    store = await open_store(tmp_path)
    assert store.reading.max_offset("T", 0) == 1
    await store.close()


async def test_what_is_refused(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    for wrong, status in (
        (message(topic="x" * 128), PutStatus.MESSAGE_ILLEGAL),
        (message(topic="../../x"), PutStatus.MESSAGE_ILLEGAL),
        (message(topic=""), PutStatus.MESSAGE_ILLEGAL),
        (message(queue_id=-1), PutStatus.MESSAGE_ILLEGAL),
        (message(queue_id=2**31), PutStatus.MESSAGE_ILLEGAL),
        (message(body=bytes(3001)), PutStatus.MESSAGE_ILLEGAL),
        (message(properties=b"a" * 32768), PutStatus.MESSAGE_ILLEGAL),
        (message(properties="ä".encode() * 20000), PutStatus.PROPERTIES_SIZE_EXCEEDED),
    ):
        result = store.append(wrong)
        assert result.status is status, wrong.topic
        assert result.reason
    store.commit()
    assert store.append(message()).physical_offset == 0
    await store.close()
    assert store.append(message()).status is PutStatus.SERVICE_NOT_AVAILABLE


async def test_a_second_store_is_refused(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    with pytest.raises(StoreLocked, match="storePathRootDir"):
        await open_store(tmp_path)
    await store.close()
    await (await open_store(tmp_path)).close()


async def test_waiting_for_a_queue(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    store = await open_store(tmp_path)
    end = store.reading.queue_end("T", 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end.wait_beyond, 0)
        await trio.testing.wait_all_tasks_blocked()
        store.append(message(queue_id=2))
        store.commit()
        assert end.waiter_count == 1
        store.append(message(queue_id=3))
        assert end.value == 0
        store.commit()
        assert (end.value, end.waiter_count) == (1, 0)
    await store.close()


async def test_flushing_in_the_background(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    for kind in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        from triomq.store.config import FlushDiskType

        store = await open_store(tmp_path, flush_disk_type=FlushDiskType[kind])
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            result = store.append(message())
            store.commit()
            assert store.flushed.value <= result.physical_offset
            await store.flushed.wait_beyond(result.last_offset)
            assert store.flushed.value == result.end_offset
            nursery.cancel_scope.cancel()
        await store.close()


async def test_store_times_of_a_queue(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await open_store(tmp_path, clock=clock)
    begin = clock.now_ms
    for at in (0, 50):
        clock.now_ms = begin + at
        store.append(message())
    store.commit()
    assert [store.reading.store_time_at("T", 0, offset) for offset in (0, 1, 2)] == [begin, begin + 50, -1]
    assert store.reading.earliest_store_time("T", 0) == begin
    await store.close()


@pytest.mark.parametrize("is_in_memory", [True, False])
async def test_log_is_read_in_a_thread_when_it_is_not_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_in_memory: bool
) -> None:
    store = DefaultMessageStore(small_settings(tmp_path), now_ms=FakeClock(step_ms=1))
    await store.load()
    while store.reading.max_physical_offset < 9000:
        store.append(message(body=b"%d" % store.reading.max_physical_offset))
        store.commit()
    threads: list[threading.Thread] = []
    read = os.preadv

    def preadv(fd: int, places: Sequence[memoryview], at: int, flags: int = 0) -> int:
        if flags and not is_in_memory:
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        threads.append(threading.current_thread())
        return read(fd, places, at)

    monkeypatch.setattr(os, "preadv", preadv)
    room = memoryview(bytearray(6000))
    places = [room[:1000], room[1000:1500], room[1500:]]
    for begin, size in ((0, 4096), (4095, 1), (5000, 8192 - 5000), (8192, store.reading.max_physical_offset - 8192)):
        assert await store.reading.read_log_into(begin, places) == size
        assert room[:size] == store.reading.read_log(begin, 6000)
    assert await store.reading.read_log_into(0, places[:2]) == 1500
    count = len(threads)
    for begin in (-1, store.reading.max_physical_offset, store.reading.max_physical_offset + 5000):
        assert await store.reading.read_log_into(begin, places) == 0
    assert len(threads) == count == 5
    assert {thread is threading.main_thread() for thread in threads} == {is_in_memory}
    await store.close()


def test_settings_are_those_of_rocketmq(tmp_path: Path) -> None:
    from triomq.protocol.settings import bind

    settings, used = bind(type(small_settings(tmp_path)), {"mappedFileSizeCommitLog": "2048"}, source="x")
    assert settings.mapped_file_size_commit_log_bytes == 2048
    assert used == {"mappedFileSizeCommitLog"}


async def test_deleting_a_topic_between_two_flushes_is_no_fault_of_the_disk(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    for topic in ("Gone", "Stays"):
        store.append(message(topic=topic, body=b"x"))
    store.commit()
    store.upkeep.delete_topic("Gone")
    await store.flushing.flush_queues(0)
    assert (store.is_broken, store.refusal) == (False, None)
    assert store.reading.max_offset("Stays", 0) == 1
    await store.close()


async def test_a_message_that_cannot_be_encoded_leaves_at_most_a_blank_record(tmp_path: Path) -> None:
    """It needed the next file, so the present one was ended before its fault showed."""
    store = await open_store(tmp_path)
    assert store.append(message(body=bytes(2900))).is_ok
    store.commit()
    assert not store.committing.has_pending
    refused = store.append(message(body=bytes(2000), flag=1 << 40))
    assert (refused.status, "does not fit" in refused.reason) == (PutStatus.MESSAGE_ILLEGAL, True)
    assert store.committing.has_pending, "a slave must not write behind it"
    store.commit()
    assert not store.committing.has_pending
    put = store.append(message(body=b"next"))
    store.commit()
    assert (put.physical_offset, put.queue_offset) == (4096, 1)
    abandon(store)
    store = await open_store(tmp_path)
    assert store.recovery_report is not None and store.recovery_report.damages == []
    assert [record.decode_record(data).body for data in read_all(store)] == [bytes(2900), b"next"]
    await store.close()


async def test_a_store_that_is_closed_again_leaves_alone_who_has_its_directory_now(tmp_path: Path) -> None:
    first = await open_store(tmp_path)
    await first.close()
    second = await open_store(tmp_path)
    await first.close()
    assert (tmp_path / "abort").exists(), "it is the mark of the second"
    await second.close()
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("changes", [{"topic": "../../x"}, {"topic": ""}, {"queue_id": -1}, {"topic": "x" * 128}])
async def test_a_batch_for_what_cannot_be_a_queue_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    store = await open_store(tmp_path)
    refused = store.append_batch(message(**changes), [BatchUnit(0, b"body", b"")])
    assert refused.status is PutStatus.MESSAGE_ILLEGAL and refused.reason
    assert store.append(message()).physical_offset == 0
    await store.close()
