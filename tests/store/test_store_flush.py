"""Appends during a flush: the flush acknowledges only what was there when it began."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from fake_clock import FakeClock
from store_support import message, small_settings
from trio.testing import MockClock

from triomq.store.config import FlushDiskType
from triomq.store.disk.files import Files
from triomq.store.log.checkpoint import Checkpoint
from triomq.store.message_store import DefaultMessageStore

LONG_MS = 3_600_000


class Threads:
    """An `offload` without threads that calls `meanwhile` once during a sync."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] | None = None

    async def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        await trio.lowlevel.checkpoint()
        return function(*arguments)


async def opened(root: Path, threads: Threads, **changes: Any) -> DefaultMessageStore:
    store = DefaultMessageStore(small_settings(root, **changes), now_ms=FakeClock(step_ms=1), offload=threads)
    await store.load()
    return store


def append(store: DefaultMessageStore, body: bytes = b"hello") -> int:
    """Append and commit a message. Return the log offset after it."""
    store.append(message(body=body))
    store.commit()
    return store.reading.max_physical_offset


async def test_a_flush_answers_only_for_what_was_committed_when_it_began(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    threads = Threads()
    store = await opened(tmp_path, threads, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    seen: list[int] = []
    first_end = append(store)
    threads.meanwhile = lambda: seen.append(append(store, b"meanwhile"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        await store.flushed.wait_beyond(first_end - 1)
        assert seen, "no sync was under way"
        assert store.flushed.value == first_end < seen[0]
        await store.flushed.wait_beyond(seen[0] - 1)
        nursery.cancel_scope.cancel()
    await store.close()


async def test_a_checkpoint_notes_nothing_that_came_while_it_was_made(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Otherwise recovery would begin after records whose queue entries are not on disk yet."""
    threads = Threads()
    store = await opened(
        tmp_path,
        threads,
        flush_interval_commit_log_ms=LONG_MS,
        flush_interval_consume_queue_ms=1000,
        flush_consume_queue_thorough_interval_ms=500,
    )
    seen: list[int] = []
    first_end = append(store)
    threads.meanwhile = lambda: seen.append(append(store, b"meanwhile"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        await trio.sleep(1.5)
        nursery.cancel_scope.cancel()
    assert seen, "no sync was under way"
    checkpoint = Checkpoint(Files(), store.paths.checkpoint)
    checkpoint.load()
    assert (checkpoint.safe_offset, checkpoint.safe_ends, checkpoint.safe_entries) == (first_end, 1, 1)
    await store.close()
