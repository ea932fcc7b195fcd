"""What is not in the page cache is read by a thread before the event loop needs it, and some of what lies behind."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from store_support import message, open_store

from triomq.store.disk.files import Files
from triomq.store.disk.mapped_file import MappedFile
from triomq.store.message_store import DefaultMessageStore
from triomq.store.queues.consume_queue import ENTRY
from triomq.store.reading import cold_reads
from triomq.store.reading.cold_reads import AHEAD_BLOCKS, BLOCK_BYTES, TRUSTED_SECONDS, ColdReads
from triomq.store.results import GetStatus, Missing

QUEUE_FILE_BYTES = 20 * 20_000
PER_FILE = 64
"""Blocks of a log file."""


class ColdFiles(Files):
    """A disk of which nothing is in memory that was not read into it. `reads` are the blocks of each read."""

    def __init__(self) -> None:
        self.in_memory: set[tuple[str, int]] = set()
        self.reads: list[list[int]] = []
        self.looks = 0
        self.is_queue_cold = False
        self.error: OSError | None = None

    def is_in_memory(self, fd: int, at: int) -> bool:
        self.looks += 1
        if not self.is_queue_cold and os.fstat(fd).st_size == QUEUE_FILE_BYTES:
            return True
        return (_inode(fd), at // BLOCK_BYTES) in self.in_memory

    def read_into_memory(self, runs: Sequence[tuple[int, int, int]]) -> None:
        if self.error is not None:
            raise self.error
        super().read_into_memory(runs)
        self.reads.append([])
        for fd, at, size_bytes in runs:
            assert at % BLOCK_BYTES == size_bytes % BLOCK_BYTES == 0
            for block in range(at // BLOCK_BYTES, (at + size_bytes) // BLOCK_BYTES):
                self.reads[-1].append(block)
                self.in_memory.add((_inode(fd), block))


def _inode(fd: int) -> str:
    return str(os.fstat(fd).st_ino)


SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log_bytes": PER_FILE * BLOCK_BYTES,
    "mapped_file_size_consume_queue_bytes": QUEUE_FILE_BYTES,
    "max_message_size_bytes": 4 * BLOCK_BYTES,
}
BODY = bytes(BLOCK_BYTES // 2 - 200)
"""Two records of it, and not three, begin in a block."""


@asynccontextmanager
async def reopened(root: Path, files: ColdFiles, count: int, *, queues: int = 1) -> AsyncIterator[DefaultMessageStore]:
    """A store whose `count` messages were written by an earlier process, running."""
    store = await open_store(root, **SIZES)
    for number in range(count):
        store.append(message(queue_id=number % queues, body=BODY))
    store.commit()
    await store.close()
    store = await open_store(root, files=files, **SIZES)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await trio.testing.wait_all_tasks_blocked()
        files.reads.clear()
        files.in_memory.clear()
        yield store
        nursery.cancel_scope.cancel()
    await store.close()


async def fetched(store: DefaultMessageStore, missing: Missing | None) -> OSError | None:
    assert missing is not None
    results: list[OSError | None] = []
    store.reading.cold.fetch(missing, results.append)
    await trio.testing.wait_all_tasks_blocked()
    (error,) = results
    return error


def missing_at(store: DefaultMessageStore, queue_offset: int, count: int = 1, queue_id: int = 0) -> Missing | None:
    return store.reading.get_messages("T", queue_id, queue_offset, count, may_wait=True).missing


async def test_messages_on_the_disk_are_returned_once_they_were_read_from_it(tmp_path: Path) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 8) as store:
        result = store.reading.get_messages("T", 0, 0, 2, may_wait=True)
        assert (result.status, result.message_count) == (GetStatus.NO_MATCHED_MESSAGE, 0)
        assert result.next_begin_offset == 0
        assert await fetched(store, result.missing) is None
        assert files.reads[0] == [0, 1]
        again = store.reading.get_messages("T", 0, 0, 2, may_wait=True)
        assert (again.status, again.message_count, again.missing) == (GetStatus.FOUND, 2, None)
        assert [record.count(BODY) for record in again.records] == [1, 1]


async def test_who_may_not_wait_gets_messages_from_the_disk(tmp_path: Path) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 4) as store:
        result = store.reading.get_messages("T", 0, 0, 4)
        assert (result.message_count, result.missing, files.looks) == (4, None, 0)


async def test_what_this_process_wrote_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 1) as store:
        for _ in range(8):
            store.append(message(body=BODY))
        store.commit()
        assert missing_at(store, 1, 8) is None
        files.looks = 0
        assert missing_at(store, 1, 8) is None
        assert not files.looks
        assert missing_at(store, 0, 8) is not None, "the first is of the process before"


async def test_what_lies_far_behind_the_end_may_have_left_the_memory(tmp_path: Path) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 1) as store:
        blocks = cold_reads.NEAR_END_BYTES // BLOCK_BYTES
        for number in range(2 * blocks + 8):
            store.append(message(body=BODY))
            if number % 100 == 0:
                store.commit()
        store.commit()
        assert missing_at(store, 2) is not None
        assert missing_at(store, 12) is None


async def test_blocks_are_looked_for_once_in_a_while(tmp_path: Path) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 8) as store:
        now = 1000.0
        cold = ColdReads(store.contents, trio.to_thread.run_sync, lambda: now)
        cold._is_running = True
        cold.written_from = store.contents.log.committed_offset
        entries = store.reading.packed_entries("T", 0, 0, 1)
        file = store.contents.log.sequence.files[0]
        files.in_memory.add((_inode(file.fd()), 0))
        for _ in range(5):
            assert cold.missing(entries) is None
        assert files.looks == 2, "at its beginning and its end"
        files.in_memory.clear()
        now += TRUSTED_SECONDS - 1
        assert cold.missing(entries) is None
        now += 2
        assert cold.missing(store.reading.packed_entries("T", 0, 6, 1)) is not None
        missing = cold.missing(entries)
        assert missing is not None and missing.blocks == [(file, 0)]


async def test_the_thread_reads_ahead_of_one_who_reads_on(tmp_path: Path) -> None:
    files = ColdFiles()
    count = 2 * (AHEAD_BLOCKS + 20)
    async with reopened(tmp_path, files, count) as store:
        waits: list[int] = []
        for queue_offset in range(count):
            missing = missing_at(store, queue_offset)
            if missing is not None:
                waits.append(queue_offset)
                await fetched(store, missing)
            else:
                await trio.testing.wait_all_tasks_blocked()
            assert missing_at(store, queue_offset) is None
        assert waits[0] == 0
        assert len(waits) <= 2, "only until it was known that it reads on"
        read = [block for blocks in files.reads for block in blocks]
        assert sorted(read) == list(range(len(set(read)))), "each block once"


async def test_one_who_jumps_about_gets_its_blocks_alone(tmp_path: Path) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 80) as store:
        for queue_offset in (70, 10, 40):
            await fetched(store, missing_at(store, queue_offset))
        assert max(map(len, files.reads)) <= 2 and len(files.reads) == 3


async def test_records_that_lie_far_apart_are_fetched_without_what_is_between_them(tmp_path: Path) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 160, queues=80) as store:
        missing = missing_at(store, 0, 2, queue_id=7)
        assert missing is not None
        blocks = [block for _, block in missing.blocks]
        assert blocks[0] == 3 and blocks[-1] in (43, 44)
        assert len(blocks) <= 4
        assert not missing.reads_on
        await fetched(store, missing)
        assert sorted(files.reads[0]) == sorted(blocks)


async def test_reading_ahead_goes_on_in_the_next_file(tmp_path: Path) -> None:
    files = ColdFiles()
    count = 2 * PER_FILE + 20
    async with reopened(tmp_path, files, count) as store:
        first, second = store.contents.log.sequence.files[:2]
        waits = 0
        for queue_offset in range(2 * (PER_FILE - 4), count):
            missing = missing_at(store, queue_offset)
            if missing is not None:
                waits += 1
                await fetched(store, missing)
            else:
                await trio.testing.wait_all_tasks_blocked()
        assert (_inode(second.fd()), 1) in files.in_memory
        assert (_inode(first.fd()), 0) not in files.in_memory
        assert waits <= 3


async def test_many_that_want_the_same_cost_one_read(tmp_path: Path) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 8) as store:
        results: list[OSError | None] = []
        for _ in range(100):
            missing = missing_at(store, 4)
            assert missing is not None
            store.reading.cold.fetch(missing, results.append)
        await trio.testing.wait_all_tasks_blocked()
        assert results == [None] * 100
        assert len(files.reads) == 1


async def test_a_read_that_fails_says_why_and_is_tried_again(tmp_path: Path) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 8) as store:
        files.error = OSError(errno.EIO, "Input/output error")
        assert await fetched(store, missing_at(store, 0)) is files.error
        files.error = None
        assert await fetched(store, missing_at(store, 0)) is None
        assert missing_at(store, 0) is None


async def test_without_the_task_that_reads_nothing_is_missing(tmp_path: Path) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 8):
        pass
    store = await open_store(tmp_path, files=files, **SIZES)
    assert missing_at(store, 0) is None
    await store.close()


def test_a_page_that_the_kernel_has_is_found_and_a_dropped_one_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(20 * BLOCK_BYTES + 5))
    files = Files()
    fd = files.open(str(path))
    try:
        files.datasync(fd)
        assert files.is_in_memory(fd, 0)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        files.read_into_memory([(fd, 0, BLOCK_BYTES), (fd, 10 * BLOCK_BYTES, 11 * BLOCK_BYTES)])
        assert files.is_in_memory(fd, 0)
        assert files.is_in_memory(fd, 20 * BLOCK_BYTES + 4)
    finally:
        files.close(fd)


async def test_a_file_that_was_deleted_meanwhile_is_not_read(tmp_path: Path) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 2 * PER_FILE + 4) as store:
        missing = missing_at(store, 0)
        sequence = store.contents.log.sequence
        first = sequence.files[0]
        sequence.files.remove(first)
        first.close()
        files.unlink(first.path)
        assert await fetched(store, missing) is None
        assert not files.reads
        result = store.reading.get_messages("T", 0, 0, 1, may_wait=True)
        assert (result.status, result.missing) == (GetStatus.FOUND, None), "what lies behind it"


async def test_the_entries_of_a_queue_may_be_on_the_disk_as_well(tmp_path: Path) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 8) as store:
        files.is_queue_cold = True
        missing = missing_at(store, 2)
        assert missing is not None
        ((file, block),) = missing.blocks
        assert (file.size_bytes, block, missing.reads_on) == (QUEUE_FILE_BYTES, 0, False)
        await fetched(store, missing)
        missing = missing_at(store, 2)
        assert missing is not None
        assert missing.blocks[0][0].size_bytes == PER_FILE * BLOCK_BYTES
        await fetched(store, missing)
        assert missing_at(store, 2) is None
        assert files.reads[0] == [0]


async def test_entries_that_are_held_are_not_looked_for(tmp_path: Path) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 8) as store:
        store.reading.get_messages("T", 0, 0, 1)
        files.is_queue_cold = True
        missing = missing_at(store, 1)
        assert missing is not None
        assert missing.blocks[0][0].size_bytes == PER_FILE * BLOCK_BYTES
        assert missing_at(store, 8) is None, "nothing is there"


async def test_what_is_known_of_many_files_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 8) as store:
        cold = store.reading.cold
        for number in range(cold_reads.MOST_FILES + 1):
            cold._known[MappedFile(store.contents.open_files, "/nowhere", number, 1)] = bytearray(1)
        assert missing_at(store, 0) is not None
        assert len(cold._known) <= 2


async def test_a_disk_that_does_not_respond_costs_no_memory_without_bound(tmp_path: Path) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 8) as store:
        results: list[OSError | None] = []
        missing = missing_at(store, 0)
        assert missing is not None
        for _ in range(cold_reads.MOST_REQUESTS + 100):
            store.reading.cold.fetch(missing, results.append)
        assert len(store.reading.cold._requests) == cold_reads.MOST_REQUESTS
        await store.reading.cold.have_read(store.reading.packed_entries("T", 0, 0, 1))
        assert results == [None] * cold_reads.MOST_REQUESTS


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 1, 1 << 30, 0x7FFFFFFE])
@pytest.mark.parametrize("offset", [-(1 << 63), -1, 0, 5 * BLOCK_BYTES, 1 << 40, (1 << 63) - 1])
async def test_a_damaged_entry_has_no_more_read_than_the_longest_record(tmp_path: Path, offset: int, size: int) -> None:
    files = ColdFiles()
    async with reopened(tmp_path, files, 200) as store:
        entry = ENTRY.pack(offset, size, 0)
        for entries in (entry, entry + ENTRY.pack(0, 100, 0), ENTRY.pack(0, 100, 0) + entry):
            missing = store.reading.cold.missing(entries)
            if missing is not None:
                assert len(missing.blocks) <= cold_reads.MOST_RECORD_BYTES // BLOCK_BYTES + 2
                assert await fetched(store, missing) is None
