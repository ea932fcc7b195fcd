"""Full and broken disks: every acknowledged message is there, and no refused message appears later."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from file_faults import BROKEN, FULL, WRITES, FaultyFiles
from store_support import abandon, message, open_store

from triomq.protocol import record
from triomq.store.disk.files import Files
from triomq.store.errors import StoreBroken, StoreFull
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import PutStatus
from triomq.store.watermark import Watermark


class Answers:
    """What the waiters of a watermark receive."""

    def __init__(self) -> None:
        self.errors: list[Exception | None] = []

    def __call__(self, error: Exception | None) -> None:
        self.errors.append(error)


def bodies(store: DefaultMessageStore, queue_id: int = 0) -> list[bytes]:
    found = store.reading.get_messages("T", queue_id, store.reading.min_offset("T", queue_id), 32)
    return [record.decode_record(data).body for data in found.records]


@pytest.mark.parametrize("partial", [False, True])
async def test_a_full_disk_refuses_and_recovers(tmp_path: Path, partial: bool) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    store.append(message(body=b"before"))
    store.commit()
    files.fail(FULL, *WRITES, where="commitlog", part=2 / 3 if partial else 0)
    on_committed, on_flushed, earlier = Answers(), Answers(), Answers()
    store.flushed.call_beyond(store.committed.value - 1, earlier)
    results = [store.append(message(body=b"refused %d" % number)) for number in range(5)]
    for result in results:
        assert result.is_ok
        store.committed.call_beyond(result.last_offset, on_committed)
        store.flushed.call_beyond(result.last_offset, on_flushed)
    store.commit()
    assert [result.status for result in results] == [PutStatus.SERVICE_NOT_AVAILABLE] * 5
    assert "no space" in results[0].reason
    assert [type(error) for error in on_committed.errors + on_flushed.errors] == [StoreFull] * 10
    assert earlier.errors == []
    assert bodies(store) == [b"before"]
    assert store.refusal is None
    files.mend()
    # shorter than the refused message, whose remains would follow it
    retried = store.append(message(body=b"after"))
    store.commit()
    assert (retried.queue_offset, retried.physical_offset) == (1, results[0].physical_offset)
    assert bodies(store) == [b"before", b"after"]
    end = store.reading.max_physical_offset
    abandon(store)
    store = await open_store(tmp_path)
    assert (bodies(store), store.reading.max_physical_offset) == ([b"before", b"after"], end)
    await store.close()


@pytest.mark.parametrize("has_ext", [False, True])
async def test_a_full_disk_refuses_all_messages_of_a_batch(tmp_path: Path, has_ext: bool) -> None:
    """One entry stands for them, or with ext units one for each."""
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files, enable_consume_queue_ext=has_ext)
    units = [record.BatchUnit(0, b"batch %d" % number, b"") for number in range(3)]
    assert store.append_batch(message(), units).queue_offset == 0
    store.commit()
    files.fail(FULL, *WRITES, where="commitlog")
    first, second = store.append_batch(message(), units), store.append(message(body=b"refused"))
    assert (first.queue_offset, second.queue_offset) == (3, 6)
    store.commit()
    assert first.status is second.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert first.reason == second.reason
    assert "no space for 4 messages" in first.reason
    files.mend()
    retried = store.append_batch(message(), units)
    store.commit()
    assert (retried.queue_offset, retried.physical_offset) == (3, first.physical_offset)
    assert bodies(store) == [b"batch 0", b"batch 1", b"batch 2"] * 2
    await store.close()


async def test_no_room_for_the_next_file(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    store.append(message(body=bytes(2900)))
    store.commit()
    files.fail(FULL, *WRITES, where="commitlog")
    refused = store.append(message(body=bytes(2900)))
    store.commit()
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    files.mend()
    put = store.append(message(body=bytes(2900)))
    store.commit()
    assert put.is_ok and put.physical_offset == 4096
    await store.close()


async def test_a_failing_write_breaks_the_store(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    store.append(message(body=b"good"))
    store.commit()
    files.fail(BROKEN, *WRITES, where="commitlog")
    on_committed = Answers()
    result = store.append(message())
    store.committed.call_beyond(result.last_offset, on_committed)
    store.commit()
    assert type(on_committed.errors[0]) is StoreBroken
    assert store.is_broken and "restart" in (store.refusal or "")
    assert store.append(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert bodies(store) == [b"good"]
    await store.close()
    assert (tmp_path / "abort").exists()


async def test_a_failing_sync_is_final(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    result = store.append(message())
    store.commit()
    answers = Answers()
    store.flushed.call_beyond(result.last_offset, answers)
    files.fail(BROKEN, "datasync", where="commitlog")
    await store.flushing.flush_log()
    assert type(answers.errors[0]) is StoreBroken
    files.mend()
    await store.flushing.flush_log()
    assert store.flushed.value == 0
    with pytest.raises(StoreBroken):
        await store.flushed.wait_beyond(result.last_offset)
    assert store.append(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    await store.close()
    assert (tmp_path / "abort").exists()


async def test_a_full_disk_at_the_queues(tmp_path: Path) -> None:
    """The log has the messages already: they count as stored and enter their queue later."""
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    files.fail(FULL, *WRITES, where="consumequeue/")
    result = store.append(message(body=b"one"))
    store.commit()
    assert result.is_ok and store.committed.value == result.end_offset
    assert bodies(store) == [] and "consume queue" in (store.refusal or "")
    assert store.append(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.commit()
    assert bodies(store) == []
    files.mend()
    store.commit()
    assert bodies(store) == [b"one"] and store.refusal is None
    assert store.append(message(body=b"two")).queue_offset == 1
    store.commit()
    assert bodies(store) == [b"one", b"two"]
    await store.close()
    assert not (tmp_path / "abort").exists(), "nothing waits any more"


async def test_a_full_disk_at_the_index(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    files.fail(FULL, *WRITES, where="index/")
    for number in range(200):
        assert store.append(message(uniq_key=f"u{number}", keys=f"a{number} b{number}")).is_ok
        store.commit()
    assert store.contents.index.stalled_at >= 0
    files.mend()
    await store.backlog.catch_up_index()
    store.append(message(uniq_key="u200"))
    store.commit()
    for number in range(201):
        assert len(store.reading.query_by_key("T", f"u{number}", 64, 0, 1 << 60).records) == 1, number
    for number in range(200):
        assert len(store.reading.query_by_key("T", f"b{number}", 64, 0, 1 << 60).records) == 1, number
    await store.close()


async def test_a_wait_ends_when_the_mark_passes_it_is_rejected_or_it_is_taken_back() -> None:
    mark = Watermark(5)
    told: list[tuple[int, Exception | None]] = []

    def wait(target: int) -> object:
        return mark.call_beyond(target, lambda error: told.append((target, error)))

    assert wait(4) is None and told == [(4, None)]
    told.clear()
    waiters = [wait(target) for target in (5, 9, 7, 30, 6, 9)]
    mark.advance(8)
    assert sorted(told) == [(5, None), (6, None), (7, None)]
    waiters[1].cancel()  # type: ignore[attr-defined]
    waiters[1].cancel()  # type: ignore[attr-defined]
    assert mark.waiter_count == 2
    full = StoreFull("x")
    mark.reject(full, at_least=20)
    assert told[3:] == [(30, full)]
    mark.advance(100)
    assert told[4:] == [(9, None)]
    mark.advance(50)
    assert mark.value == 100
    mark.fail(full)
    wait(100)
    assert told[5:] == [(100, full)]
    assert wait(99) is None and told[6:] == [(99, None)]


async def test_cancelled_waits_are_forgotten(autojump_clock: object) -> None:
    import trio

    mark = Watermark()
    for _ in range(100):
        with trio.move_on_after(1):
            await mark.wait_beyond(0)
    assert mark.waiter_count == 0 and mark._queue is None
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(mark.wait_beyond, 3)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(100):
            with trio.move_on_after(1):
                await mark.wait_beyond(0)
        assert mark._queue is not None and len(mark._queue) < 120
        mark.advance(4)


async def test_a_wait_that_begins_while_a_refused_commit_ends_the_others_goes_on(tmp_path: Path) -> None:
    """The producer of a refused message may send it again at once."""
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    told: list[Exception | None] = []

    def try_again(error: Exception | None) -> None:
        told.append(error)
        if error is not None:
            store.committed.call_beyond(result.last_offset, told.append)

    files.fail(FULL, *WRITES, where="commitlog")
    result = store.append(message())
    store.committed.call_beyond(result.last_offset, try_again)
    store.commit()
    assert [type(error) for error in told] == [StoreFull]
    files.mend()
    assert store.append(message()).last_offset == result.last_offset
    store.commit()
    assert told[1:] == [None]
    await store.close()


async def test_behind_a_write_buffer_a_failing_write_ends_the_waits_for_the_log(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files, transient_store_pool_enable=True)
    result = store.append(message())
    store.commit()
    on_committed, on_flushed = Answers(), Answers()
    store.committed.call_beyond(result.last_offset, on_committed)
    store.flushed.call_beyond(result.last_offset, on_flushed)
    files.fail(BROKEN, *WRITES, where="commitlog")
    store.committing.commit()
    assert [type(error) for error in on_committed.errors + on_flushed.errors] == [StoreBroken] * 2
    assert store.is_broken
    await store.close()


def test_a_sync_asks_the_system() -> None:
    """Only what cannot be synced shows that it was asked."""
    reading, writing = os.pipe()
    with pytest.raises(OSError, match="Invalid argument"):
        Files().datasync(writing)
    os.close(reading)
    os.close(writing)
