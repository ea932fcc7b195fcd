"""A process without descriptors, and a kernel without room: messages may be refused or late, but nothing breaks."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from descriptors import descriptors_left
from fake_clock import FakeClock
from file_faults import BROKEN, FULL, WRITES, FaultyFiles
from store_support import abandon, message, open_store, small_settings

from triomq.daemon.open_files import raise_open_files_limit
from triomq.protocol import record
from triomq.store.config import FlushDiskType
from triomq.store.contents import FEWEST_OPEN_FILES, Contents
from triomq.store.disk.kernel_sync import KernelSync
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.errors import StoreBroken, StoreFull, SyncNotBegun
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import PutStatus

HANG_SECONDS = 120
"""A busy disk takes a minute for a sync at times."""


def put(store: DefaultMessageStore, body: bytes = b"hello", topic: str = "T") -> Any:
    result = store.append(message(topic, body=body))
    store.commit()
    return result


def bodies(store: DefaultMessageStore, topic: str = "T") -> list[bytes]:
    found = store.reading.get_messages(topic, 0, 0, 32)
    return [record.decode_record(data).body for data in found.records]


async def reopened(store: DefaultMessageStore, root: Path) -> DefaultMessageStore:
    """The store after a crash."""
    abandon(store)
    return await open_store(root)


@pytest.mark.parametrize("left", [0, 1])
async def test_a_sync_of_the_log_that_finds_no_descriptor_is_repeated(tmp_path: Path, left: int) -> None:
    """One descriptor is for the log file, another for the directory that has its new name."""
    store = await open_store(tmp_path)
    result = put(store)
    assert result.is_ok
    store.contents.log.sequence.files[0].is_pinned = True
    for queue in store.contents.queues:
        queue.sequence.files[0].is_pinned = True
    with descriptors_left(left):
        assert not await store.flushing.flush_log()
        assert (store.flushed.value, store.is_broken) == (0, False)
        assert store.append(message(body=b"more")).is_ok
    assert await store.flushing.flush_log()
    assert store.flushed.value >= result.end_offset
    assert not store.contents.log.unsynced_directories
    store = await reopened(store, tmp_path)
    assert bodies(store)[0] == b"hello"
    await store.close()


async def test_sync_flush_goes_on_when_there_are_descriptors_again(tmp_path: Path) -> None:
    """With the kernel's sync, as a broker runs."""
    settings = small_settings(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    store = DefaultMessageStore(settings, now_ms=FakeClock(step_ms=1))
    await store.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        with trio.fail_after(HANG_SECONDS):
            await store.flushed.wait_beyond(put(store).last_offset)
        for open_file in (store.contents.log.sequence.files[0], next(iter(store.contents.queues)).sequence.files[0]):
            open_file.is_pinned = True
        with descriptors_left(0):
            late = put(store, b"late")
            with trio.move_on_after(0.5) as waited:
                await store.flushed.wait_beyond(late.last_offset)
            assert waited.cancelled_caught
            assert late.is_ok and not store.is_broken
        with trio.fail_after(HANG_SECONDS):
            await store.flushed.wait_beyond(late.last_offset)
        nursery.cancel_scope.cancel()
    await store.close()
    assert not (tmp_path / "abort").exists()


async def test_queues_that_cannot_be_synced_yet_hold_the_checkpoint_back(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    put(store)
    assert await store.flushing.flush_log()
    store.contents.log.sequence.files[0].is_pinned = True
    next(iter(store.contents.queues)).sequence.files[0].is_pinned = True
    with descriptors_left(0):
        assert not await store.flushing.flush_thoroughly()
    assert (store.is_broken, store.contents.checkpoint.safe_offset) == (False, 0)
    assert store.contents.queues.dirty
    assert await store.flushing.flush_thoroughly()
    assert store.contents.checkpoint.safe_offset == store.reading.max_physical_offset
    assert not store.contents.queues.unsynced_directories
    await store.close()


async def test_a_store_that_could_not_be_flushed_is_not_closed_as_clean(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    put(store)
    store.contents.log.sequence.files[0].is_pinned = True
    with descriptors_left(0):
        store.contents.open_files.close_all()
        # The lock's descriptor is free when the abort file would be removed.
        await store.close()
    assert (tmp_path / "abort").exists()
    store = await open_store(tmp_path)
    assert bodies(store) == [b"hello"]
    await store.close()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
async def test_no_descriptor_for_the_next_log_file_refuses_and_recovers(tmp_path: Path, code: int) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    put(store, bytes(2900))
    files.fail(code, *WRITES, where="commitlog")
    result = store.append(message(body=bytes(2900)))
    told: list[Exception | None] = []
    store.committed.call_beyond(result.last_offset, told.append)
    store.commit()
    assert result.status is PutStatus.SERVICE_NOT_AVAILABLE and "no descriptor" in result.reason
    assert [type(error) for error in told] == [StoreFull]
    assert (store.is_broken, store.refusal) == (False, None)
    files.mend()
    assert put(store, bytes(2900)).physical_offset == 4096
    await store.close()


async def test_no_descriptor_for_a_queue_file_delays_its_entries(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    files.fail(errno.EMFILE, *WRITES, where="consumequeue/")
    result = put(store)
    assert result.is_ok and not store.is_broken and "consume queue" in (store.refusal or "")
    files.mend()
    store.committing.write_backlog()
    assert (store.refusal, bodies(store)) == (None, [b"hello"])
    await store.close()


async def test_files_that_were_read_are_closed_for_one_that_is_needed(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    for _ in range(5):
        put(store, bytes(2900))
    assert await store.flushing.flush_log()
    reads = [store.reading.read_log(4096 * number, 100) for number in range(5)]
    held = store.contents.open_files.count
    assert all(len(data) == 100 for data in reads) and held >= 5
    with descriptors_left(0):
        assert put(store, bytes(2900)).is_ok, "a new log file needs a descriptor"
        assert len(store.reading.read_log(0, 100)) == 100
        assert store.contents.log.unsynced_directories, "the sync needs a descriptor for the directory, too"
        tries = [await store.flushing.flush_log() for _ in range(5)]
        assert tries[-1] and store.flushed.value == store.reading.max_physical_offset
    assert not store.is_broken
    await store.close()


def test_no_more_files_stay_open_than_the_process_can_hold(tmp_path: Path) -> None:
    files = FaultyFiles(descriptors=400)
    assert Contents.of(small_settings(tmp_path, max_open_files=2000), files).open_files._limit == 100
    assert Contents.of(small_settings(tmp_path, max_open_files=50), files).open_files._limit == 50
    files.descriptors = 10
    assert Contents.of(small_settings(tmp_path), files).open_files._limit == FEWEST_OPEN_FILES
    assert isinstance(Contents.of(small_settings(tmp_path), files).open_files, OpenFiles)


def fail_at_the_end(files: FaultyFiles, truncate_error: int) -> None:
    """Let the log's writes end in the middle on a full disk, and let nobody cut what they leave."""
    files.fail(FULL, *WRITES, where="commitlog", part=2 / 3)
    files.fail(truncate_error, "truncate", where="commitlog")


async def test_an_end_that_cannot_be_cleared_yet_is_cleared_later(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    put(store, b"before")
    fail_at_the_end(files, FULL)
    refused = put(store, b"refused")
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert not store.is_broken and "cannot be cleared" in (store.refusal or "")
    assert put(store, b"refused, too").status is PutStatus.SERVICE_NOT_AVAILABLE
    store.committing.write_backlog()
    assert store.refusal is not None
    files.mend()
    store.committing.write_backlog()
    assert store.refusal is None
    assert put(store, b"after").physical_offset == refused.physical_offset
    assert bodies(store) == [b"before", b"after"]
    store = await reopened(store, tmp_path)
    assert bodies(store) == [b"before", b"after"]
    await store.close()


async def test_an_end_that_a_broken_disk_cannot_clear_breaks_the_store(tmp_path: Path) -> None:
    """Space may come back. What the disk has under the end of the log is not known after another error."""
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    put(store, b"before")
    fail_at_the_end(files, errno.EIO)
    put(store, b"refused")
    assert store.is_broken
    abandon(store)


async def test_a_store_whose_end_is_unclear_is_not_closed_as_clean(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    put(store, b"before")
    fail_at_the_end(files, FULL)
    put(store, b"refused")
    await store.close()
    assert (tmp_path / "abort").exists()
    store = await open_store(tmp_path)
    assert bodies(store) == [b"before"]
    await store.close()


async def test_an_end_that_the_disk_refuses_to_clear_breaks_the_store(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    put(store, b"before")
    fail_at_the_end(files, FULL)
    put(store, b"refused")
    files.mend()
    fail_at_the_end(files, BROKEN)
    store.committing.write_backlog()
    assert store.is_broken
    await store.close()


async def test_a_log_file_that_somebody_deletes_ends_the_acknowledgements(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    put(store, b"kept")
    assert await store.flushing.flush_log()
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    lost = put(store, b"lost at the next restart")
    told: list[Exception | None] = []
    store.flushed.call_beyond(lost.last_offset, told.append)
    await store.flushing.flush_log()
    assert [type(error) for error in told] == [StoreBroken]
    assert "deleted" in (store.refusal or "") and "commitlog" in (store.refusal or "")
    assert put(store).status is PutStatus.SERVICE_NOT_AVAILABLE
    await store.close()


# The kernel's sync.


@pytest.fixture
def kernel_sync() -> Iterator[KernelSync]:
    made = KernelSync.open()
    if made is None:
        pytest.skip("this kernel has no asynchronous fdatasync, or forbids it")
    yield made
    made.close()


class Scripted:
    """Answers calls with this number as the script says, then passes them on."""

    def __init__(self, real: Any, number: int, *answers: int) -> None:
        self.real = real
        self.number = number
        self.answers = list(answers)

    def __call__(self, number: ctypes.c_long, *arguments: Any) -> int:
        if number.value == self.number and self.answers:
            answer = self.answers.pop(0)
            if answer < 0:
                ctypes.set_errno(-answer)
            return min(answer, -1) if answer < 0 else answer
        result: int = self.real(number, *arguments)
        return result


@pytest.mark.parametrize("answer", [-errno.EAGAIN, -errno.EINTR, 0])
async def test_a_kernel_without_room_has_begun_nothing(kernel_sync: KernelSync, tmp_path: Path, answer: int) -> None:
    kernel_sync._call = Scripted(kernel_sync._call, kernel_sync._submit_number, answer)
    with (tmp_path / "file").open("wb", buffering=0) as file:
        file.write(b"x")
        with pytest.raises(SyncNotBegun):
            await kernel_sync(file.fileno())
        with trio.fail_after(HANG_SECONDS):
            await kernel_sync(file.fileno())


@pytest.mark.parametrize("answer", [-errno.EINTR, 0])
async def test_a_sync_without_a_result_is_not_done(kernel_sync: KernelSync, tmp_path: Path, answer: int) -> None:
    """The kernel says that something happened, and then has no result yet."""
    accepted = 1  # by the script alone: no sync begins, so none can end before the test has looked
    kernel_sync._call = Scripted(kernel_sync._call, kernel_sync._submit_number, accepted)
    scripted = Scripted(kernel_sync._call, kernel_sync._result_number, answer)
    kernel_sync._call = scripted
    with (tmp_path / "file").open("wb", buffering=0) as file:
        file.write(b"x")
        os.eventfd_write(kernel_sync._done, 1)
        done = trio.Event()

        async def sync() -> None:
            await kernel_sync(file.fileno())
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sync)
            with trio.fail_after(HANG_SECONDS):
                while scripted.answers:
                    await trio.lowlevel.checkpoint()
            assert not done.is_set()
            kernel_sync._submit(file.fileno())


async def test_without_room_in_the_kernel_a_thread_syncs(
    kernel_sync: KernelSync, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = small_settings(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    store = DefaultMessageStore(settings, now_ms=FakeClock(step_ms=1))
    await store.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        with trio.fail_after(HANG_SECONDS):
            await store.flushed.wait_beyond(put(store).last_offset)
        busy = store.flushing._syncs.kernel_sync
        assert busy is not None
        scripted = Scripted(busy._call, busy._submit_number, *[-errno.EAGAIN] * 3)
        busy._call = scripted
        for _ in range(4):
            with trio.fail_after(HANG_SECONDS):
                await store.flushed.wait_beyond(put(store).last_offset)
        assert scripted.answers == [] and not store.is_broken
        nursery.cancel_scope.cancel()
    await store.close()


async def test_messages_for_thousands_of_queues_open_no_file_again(tmp_path: Path) -> None:
    """To close one queue's file and open another's costs more than the message itself."""
    raise_open_files_limit()
    queues = 2200
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2 * queues:
        pytest.skip("this process may not have that many descriptors")
    files = FaultyFiles(descriptors=20_000)
    store = await open_store(tmp_path, files=files, mapped_file_size_commit_log_bytes=1 << 20)
    for _ in range(2):
        for queue_id in range(queues):
            assert store.append(message("T", queue_id)).is_ok
        store.commit()
        assert files.noted("open") == []
    await store.close()
