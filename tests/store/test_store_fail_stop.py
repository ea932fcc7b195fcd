"""Any exception during a commit or a flush ends the store and loses no acknowledged message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from fake_clock import FakeClock
from file_faults import BROKEN, FaultyFiles
from store_support import inline, message, open_store, small_settings

from triomq.protocol import record
from triomq.protocol.stored_properties import StoredProperties
from triomq.store.disk.files import Files
from triomq.store.errors import StoreFailed
from triomq.store.log.checkpoint import Checkpoint
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import PutResult, PutStatus


class Interrupt(BaseException):
    """Like KeyboardInterrupt: it is not an Exception, so `except Exception` does not catch it."""


class Waits:
    """What the callbacks of waiting puts receive; the first one raises `error` if it is set."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.told: list[Exception | None] = []

    def __call__(self, error: Exception | None) -> None:
        self.told.append(error)
        if self.error is not None and len(self.told) == 1:
            raise self.error


ERRORS = pytest.mark.parametrize("error", [RuntimeError("boom"), MemoryError(), Interrupt("stop")], ids=repr)
KEPT = [b"kept %d" % number for number in range(5)]


def put(store: DefaultMessageStore, body: bytes, topic: str = "T") -> PutResult:
    return store.append(message(topic, body=body, uniq_key=f"u {body!r}"))


async def store_with_kept(tmp_path: Path, files: Files | None = None, **changes: Any) -> DefaultMessageStore:
    """A store whose KEPT messages are acknowledged."""
    store = await open_store(tmp_path, files=files, **changes)
    for body in KEPT:
        waits = Waits()
        result = put(store, body)
        store.committed.call_beyond(result.last_offset, waits)
        store.commit()
        assert waits.told == [None]
    return store


def commit_fails(store: DefaultMessageStore, error: BaseException) -> None:
    """Check that the commit raises with the reason in one line, and so does every later one."""
    expected = StoreFailed if isinstance(error, Exception) else type(error)
    with pytest.raises(expected) as caught:
        store.commit()
    if isinstance(error, Exception):
        assert type(error).__name__ in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(StoreFailed):
        store.commit()


async def check_nothing_is_lost(tmp_path: Path, store: DefaultMessageStore, **changes: Any) -> None:
    """Check that the store accepts nothing more, ends its own tasks, leaves the files of a crash, and recovers
    completely.
    """
    assert store.is_broken
    refused = put(store, b"refused")
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE and "restart to recover" in refused.reason
    for mark in (store.committed, store.accepted, store.flushed):
        told = Waits()
        mark.call_beyond(1 << 40, told)
        assert type(told.told[0]) is StoreFailed
    with trio.fail_after(120), pytest.RaisesGroup(StoreFailed, flatten_subgroups=True, allow_unwrapped=True):
        await store.run()
    await store.close()
    assert (tmp_path / "abort").exists()
    checkpoint = Checkpoint(Files(), store.paths.checkpoint)
    checkpoint.load()
    assert checkpoint.note is None
    again = await open_store(tmp_path, **changes)
    assert again.recovery_report is not None and not again.recovery_report.was_clean
    found = again.reading.get_messages("T", 0, 0, 32)
    bodies = [record.decode_record(data).body for data in found.records]
    assert bodies[: len(KEPT)] == KEPT
    for number, data in enumerate(found.records):
        assert record.decode_record(data).queue_offset == number
    for body in KEPT:
        assert len(again.reading.query_by_key("T", f"u {body!r}", 8, 0, 1 << 60).records) == 1
    await again.close()


@ERRORS
@pytest.mark.parametrize(
    ("call", "where"),
    [
        ("pwrite", "commitlog/"),
        ("half pwrite", "commitlog/"),
        ("pwrite", "consumequeue/T"),
        ("half pwrite", "consumequeue/T"),
        ("make_directories", "consumequeue/U"),
        ("create", "consumequeue/U"),
    ],
)
async def test_a_file_that_raises_in_a_commit(tmp_path: Path, error: BaseException, call: str, where: str) -> None:
    files = FaultyFiles(does_sync=False)
    store = await store_with_kept(tmp_path, files)
    results = [put(store, b"doubtful"), put(store, b"doubtful", topic="U")]
    on_committed, on_flushed = Waits(), Waits()
    store.committed.call_beyond(results[0].last_offset, on_committed)
    store.flushed.call_beyond(results[0].last_offset, on_flushed)
    files.fail(error, call.removeprefix("half "), where=where, part=0.5 if "half" in call else 0)
    commit_fails(store, error)
    files.mend()
    assert [type(told) for told in on_committed.told + on_flushed.told] == [StoreFailed] * 2
    assert [result.status for result in results] == [PutStatus.SERVICE_NOT_AVAILABLE] * 2
    await check_nothing_is_lost(tmp_path, store)


@ERRORS
async def test_a_plug_in_that_raises_in_the_dispatch(tmp_path: Path, error: BaseException) -> None:
    def bit_map_of(topic: str, properties: StoredProperties) -> bytes | None:
        if b"doubtful" in properties.text:
            raise error
        return None

    store = DefaultMessageStore(
        small_settings(tmp_path, enable_consume_queue_ext=True), now_ms=FakeClock(step_ms=1), offload=inline
    )
    store.compute_bit_maps(bit_map_of)
    await store.load()
    for body in KEPT:
        put(store, body)
    store.commit()
    results = [put(store, b"fine"), put(store, b"doubtful"), put(store, b"behind")]
    waits = Waits()
    store.committed.call_beyond(results[0].last_offset, waits)
    commit_fails(store, error)
    assert [type(told) for told in waits.told] == [StoreFailed]
    assert [result.status for result in results] == [PutStatus.SERVICE_NOT_AVAILABLE] * 3
    await check_nothing_is_lost(tmp_path, store, enable_consume_queue_ext=True)


def of_committed(store: DefaultMessageStore, result: PutResult, waits: Waits) -> None:
    store.committed.call_beyond(result.last_offset, waits)


def of_queue(store: DefaultMessageStore, result: PutResult, waits: Waits) -> None:
    store.reading.queue_end("T", 0).call_beyond(result.queue_offset, waits)


@ERRORS
@pytest.mark.parametrize("wait", [of_committed, of_queue])
async def test_a_callback_that_raises_in_a_commit(
    tmp_path: Path, error: BaseException, wait: Callable[[DefaultMessageStore, PutResult, Waits], None]
) -> None:
    store = await store_with_kept(tmp_path)
    results = [put(store, b"doubtful %d" % number) for number in range(3)]
    wait(store, results[0], Waits(error))
    behind = Waits()
    store.committed.call_beyond(results[2].last_offset, behind)
    on_flushed = Waits()
    store.flushed.call_beyond(results[0].last_offset, on_flushed)
    commit_fails(store, error)
    assert [type(told) for told in behind.told + on_flushed.told] == [StoreFailed] * 2
    await check_nothing_is_lost(tmp_path, store)


async def test_a_callback_that_raises_when_it_hears_of_the_failure_keeps_nobody_waiting(tmp_path: Path) -> None:
    store = await store_with_kept(tmp_path)
    result = put(store, b"doubtful")
    waits = [Waits(RuntimeError("first")), Waits(RuntimeError("second")), Waits()]
    for each in waits:
        store.committed.call_beyond(result.last_offset, each)
    on_flushed = Waits()
    store.flushed.call_beyond(result.last_offset, on_flushed)
    commit_fails(store, RuntimeError("first"))
    assert [type(each.told[0]) for each in waits] == [type(None), StoreFailed, StoreFailed]
    assert [type(told) for told in on_flushed.told] == [StoreFailed]
    await check_nothing_is_lost(tmp_path, store)


@ERRORS
async def test_a_callback_that_raises_in_a_commit_to_memory(tmp_path: Path, error: BaseException) -> None:
    """transientStorePoolEnable: a commit only accepts messages, which are written later."""
    settings = {"transient_store_pool_enable": True, "commit_commit_log_least_pages": 4}
    store = await open_store(tmp_path, **settings)
    for body in KEPT:
        put(store, body)
    store.committing.commit()
    result = put(store, b"doubtful")
    store.accepted.call_beyond(result.last_offset, Waits(error))
    commit_fails(store, error)
    await check_nothing_is_lost(tmp_path, store, **settings)


@ERRORS
@pytest.mark.parametrize("is_batch", [False, True])
async def test_an_append_that_raises(tmp_path: Path, error: BaseException, is_batch: bool) -> None:
    """The bytes that wait for the commit may end in half a record: they must never be written."""

    class Clock(FakeClock):
        error: BaseException | None = None

        def __call__(self) -> int:
            if self.error is not None:
                raise self.error
            return super().__call__()

    clock = Clock(step_ms=1)
    store = await open_store(tmp_path, clock=clock)
    for body in KEPT:
        put(store, body)
    store.commit()
    before = put(store, b"before")
    waits = Waits()
    store.committed.call_beyond(before.last_offset, waits)
    clock.error = error
    with pytest.raises(StoreFailed if isinstance(error, Exception) else type(error)):
        if is_batch:
            store.append_batch(message(body=b"x" * 10), [record.BatchUnit(0, b"x" * 10, b"")])
        else:
            put(store, b"doubtful")
    clock.error = None
    with pytest.raises(StoreFailed):
        store.commit()
    assert [type(told) for told in waits.told] == [StoreFailed]
    await check_nothing_is_lost(tmp_path, store)


@ERRORS
@pytest.mark.parametrize(
    ("call", "where"),
    [
        ("datasync", "commitlog/"),
        ("duplicate", "commitlog/"),
        ("sync_directory", "commitlog"),
        ("datasync", "consumequeue/"),
        ("sync_directory", "consumequeue"),
        ("datasync", "index/"),
        ("pwrite", "index/"),
        ("datasync", "checkpoint"),
        ("pwrite", "checkpoint"),
    ],
)
async def test_a_file_that_raises_in_a_flush(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, error: BaseException, call: str, where: str
) -> None:
    files = FaultyFiles(does_sync=False)
    store = await store_with_kept(tmp_path, files)
    files.fail(error, call.removeprefix("half "), where=where, part=0.5 if "half" in call else 0)
    await run_until_it_fails(store, error)
    files.mend()
    await check_nothing_is_lost(tmp_path, store)


@ERRORS
async def test_a_callback_that_raises_in_a_flush(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, error: BaseException
) -> None:
    store = await store_with_kept(tmp_path)
    result = put(store, b"doubtful")
    store.flushed.call_beyond(result.last_offset, Waits(error))
    behind = Waits()
    store.flushed.call_beyond(result.last_offset, behind)
    store.commit()
    await run_until_it_fails(store, error)
    assert len(behind.told) == 1
    await check_nothing_is_lost(tmp_path, store)


async def run_until_it_fails(store: DefaultMessageStore, error: BaseException) -> None:
    """Run the store until `run` raises the failure, whichever of its tasks caused it."""
    with pytest.raises(BaseExceptionGroup) as caught:
        with trio.fail_after(1000):
            await store.run()
    expected = StoreFailed if isinstance(error, Exception) else type(error)
    assert caught.value.subgroup(expected) is not None


@ERRORS
@pytest.mark.parametrize(("call", "where"), [("pwrite", "commitlog/"), ("datasync", "consumequeue/")])
async def test_a_close_that_raises(tmp_path: Path, error: BaseException, call: str, where: str) -> None:
    files = FaultyFiles(does_sync=False)
    store = await store_with_kept(tmp_path, files)
    put(store, b"doubtful")
    files.fail(error, call.removeprefix("half "), where=where, part=0.5 if "half" in call else 0)
    with pytest.raises(StoreFailed if isinstance(error, Exception) else type(error)):
        await store.close()
    files.mend()
    assert (tmp_path / "abort").exists()
    again = await open_store(tmp_path)  # the lock is free
    assert len(again.reading.get_messages("T", 0, 0, 32).records) >= len(KEPT)
    await again.close()


@ERRORS
async def test_a_slave_that_raises_while_it_dispatches(tmp_path: Path, error: BaseException) -> None:
    master = await store_with_kept(tmp_path / "master")
    files = FaultyFiles(does_sync=False)
    from triomq.store.config import BrokerRole

    slave = await open_store(tmp_path / "slave", files=files, broker_role=BrokerRole.SLAVE)
    data = master.reading.read_log(0, 1 << 20)
    waits = Waits()
    slave.committed.call_beyond(len(data) - 1, waits)
    assert slave.replica.append(0, data)
    files.fail(error, "pwrite", where="consumequeue/")
    with pytest.raises(StoreFailed if isinstance(error, Exception) else type(error)):
        slave.replica.dispatch()
    files.mend()
    assert [type(told) for told in waits.told] == [StoreFailed]
    with pytest.raises(StoreFailed):
        slave.replica.dispatch()
    assert not slave.replica.append(len(data), b"x")
    await slave.close()
    assert (tmp_path / "slave" / "abort").exists()
    again = await open_store(tmp_path / "slave", broker_role=BrokerRole.SLAVE)
    assert len(again.reading.get_messages("T", 0, 0, 32).records) == len(KEPT)
    await again.close()
    await master.close()


async def test_a_failure_reported_from_outside_counts_like_one_of_a_commit(tmp_path: Path) -> None:
    store = await store_with_kept(tmp_path)
    waits = Waits()
    store.flushed.call_beyond(store.reading.max_physical_offset - 1, waits)
    store.fail("the end of a turn", RuntimeError("boom"))
    assert [type(told) for told in waits.told] == [StoreFailed]
    commit_fails(store, RuntimeError("boom"))
    await check_nothing_is_lost(tmp_path, store)


async def test_the_lock_is_released_even_if_the_clean_end_cannot_be_noted(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.fail(BROKEN, "unlink", where="/abort")
    store = await open_store(tmp_path, files=files)
    assert store.append(message("T")).is_ok
    with pytest.raises(OSError, match="Input/output error"):
        await store.close()
    again = await open_store(tmp_path)  # raises StoreLocked if the lock is held
    assert again.reading.max_offset("T", 0) == 1
    await again.close()
