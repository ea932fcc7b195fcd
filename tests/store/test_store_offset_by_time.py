"""The offset of a time is that of the first message stored at it or later, as in RocketMQ 5."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_clock import FakeClock
from store_support import message, open_store

from triomq.store.message_store import DefaultMessageStore

TIMES = [0, 10, 10, 10, 50, 90, *[100] * 45, 200, 200]  # 53 messages in six queue files of ten


async def filled(root: Path, times: Sequence[int], begin: int) -> DefaultMessageStore:
    clock = FakeClock(begin)
    store = await open_store(root, clock=clock)
    for at in times:
        clock.now_ms = begin + at
        store.append(message())
    store.commit()
    return store


def by_time(store: DefaultMessageStore, timestamp_ms: int, queue_id: int = 0) -> int:
    return store.reading.queue_offset_by_time("T", queue_id, timestamp_ms)


@pytest.mark.parametrize("times", [TIMES, [7], [7] * 10, list(range(25))])
async def test_the_offset_of_a_time_is_that_of_the_first_message_stored_then_or_later(
    tmp_path: Path, times: list[int]
) -> None:
    begin = FakeClock().now_ms
    store = await filled(tmp_path, times, begin)
    for at in range(-2, max(times) + 3):
        first = next((offset for offset, time in enumerate(times) if time >= at), len(times))
        assert by_time(store, begin + at) == first, at
    await store.close()


async def test_a_time_behind_the_last_message_gives_the_end_so_that_a_reset_to_now_skips_everything(
    tmp_path: Path,
) -> None:
    store = await filled(tmp_path, [1, 2], 1000)
    assert [by_time(store, 1002), by_time(store, 1003), by_time(store, 1 << 60)] == [1, 2, 2]
    await store.close()


async def test_an_unknown_queue_has_the_offset_0_at_any_time(tmp_path: Path) -> None:
    store = await filled(tmp_path, [1], 1000)
    assert [by_time(store, 1, queue_id=1), by_time(store, 1 << 60, queue_id=1)] == [0, 0]
    await store.close()


async def test_a_time_before_the_first_message_gives_the_min_offset(tmp_path: Path) -> None:
    store = await filled(tmp_path, TIMES, 1000)
    queue = store.contents.queues.get("T", 0)
    queue.min_offset = 12
    assert [by_time(store, -5), by_time(store, 0), by_time(store, 1010), by_time(store, 1101)] == [12, 12, 12, 51]
    await store.close()


async def test_when_the_files_were_written_does_not_matter(tmp_path: Path) -> None:
    """A restored copy has files of one modification time, by which RocketMQ 4.9 chooses the file."""
    store = await filled(tmp_path, list(range(35)), 1000)
    for file in (tmp_path / "consumequeue" / "T" / "0").iterdir():
        os.utime(file, (0, 0))
    assert [by_time(store, 1000 + at) for at in (0, 9, 10, 34, 35)] == [0, 9, 10, 34, 35]
    await store.close()


async def test_places_without_a_message_are_passed_over(tmp_path: Path) -> None:
    store = await filled(tmp_path, [0, 10, 20], 1000)
    queue = store.contents.queues.get("T", 0)
    queue.fill(25)
    queue.write(set())
    assert [by_time(store, 1000 + at) for at in (0, 11, 20, 21)] == [0, 2, 2, 25]
    await store.close()
