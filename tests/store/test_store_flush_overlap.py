"""Messages that arrive during a flush: they belong to the next one, whatever this one reports as flushed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from store_support import message, small_settings

from triomq.store.message_store import DefaultMessageStore


class Offload:
    """Runs its function, and `meanwhile` before a sync returns, as if the event loop continued while a thread syncs."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] | None = None
        self.calls = 0

    async def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        result = function(*arguments)
        if self.meanwhile is not None:
            self.meanwhile()
        return result


class Lab:
    def __init__(self, tmp_path: Path) -> None:
        self.offload = Offload()
        self.clock = FakeClock(step_ms=1000)
        self.store = DefaultMessageStore(small_settings(tmp_path), now_ms=self.clock, offload=self.offload)
        self.number = 0

    def put(self) -> None:
        self.number += 1
        assert self.store.append(message(body=b"x" * 100, uniq_key=f"u{self.number}")).is_ok
        self.store.commit()

    def put_meanwhile(self) -> None:
        self.offload.meanwhile = self.put


@pytest.fixture
async def lab(tmp_path: Path) -> Lab:
    made = Lab(tmp_path)
    await made.store.load()
    for _ in range(3):
        made.put()
    return made


async def test_a_flush_of_the_log_covers_what_was_committed_when_it_began(lab: Lab) -> None:
    store = lab.store
    end = store.committed.value
    told: list[Exception | None] = []
    lab.put_meanwhile()
    store.flushed.call_beyond(end, told.append)
    await store.flushing.flush_log()
    assert store.committed.value > end
    assert (store.flushed.value, told) == (end, [])
    lab.offload.meanwhile = None
    await store.flushing.flush_log()
    assert (store.flushed.value, told) == (store.committed.value, [None])
    await store.close()


async def test_a_flush_of_the_queues_covers_the_entries_that_were_written_when_it_began(lab: Lab) -> None:
    queue = lab.store.contents.queues.get("T", 0)
    lab.put_meanwhile()
    await lab.store.flushing.flush_queues(0)
    assert (queue.synced_end, queue.end) == (3, 4)
    assert queue in lab.store.contents.queues.dirty, "the new entry waits for the next flush"
    lab.offload.meanwhile = None
    await lab.store.flushing.flush_queues(0)
    assert (queue.synced_end, queue.end) == (4, 4)
    assert queue not in lab.store.contents.queues.dirty
    await lab.store.close()


async def test_a_checkpoint_notes_nothing_that_came_while_it_was_made(lab: Lab) -> None:
    store = lab.store
    end, newest_ms, ends = (
        store.committed.value,
        store.committing.last_store_timestamp,
        store.reading.max_offset("T", 0),
    )
    lab.put_meanwhile()
    await store.flushing.flush_thoroughly()
    assert store.committed.value > end
    checkpoint = store.contents.checkpoint
    assert (checkpoint.safe_offset, checkpoint.safe_ends, checkpoint.safe_entries) == (end, ends, ends)
    assert checkpoint.safe_index_offset == end
    assert max(checkpoint.log_ms, checkpoint.queues_ms) <= newest_ms
    lab.offload.meanwhile = None
    await store.close()


async def test_a_topic_deleted_while_a_checkpoint_is_made_takes_its_offsets_out_of_it(lab: Lab) -> None:
    """The sum of the queues' ends was taken before: a recovery would find too few entries and read everything."""
    lab.offload.meanwhile = lambda: (lab.store.upkeep.delete_topic("T"), None)[1]
    await lab.store.flushing.flush_thoroughly()
    assert lab.store.contents.checkpoint.safe_offset == 0
    lab.offload.meanwhile = None
    await lab.store.close()


@pytest.mark.parametrize("cut", range(12))
async def test_a_power_cut_after_an_overlapping_flush_loses_nothing_that_it_claimed(tmp_path: Path, cut: int) -> None:
    """Messages are put during every sync. Whatever unsynced writes a power failure takes, every message below the
    watermark survives.
    """
    import random

    from store_faults import RecordingFiles, crash
    from store_support import abandon, open_store

    files = RecordingFiles()
    offload = Offload()
    root = tmp_path / "store"
    store = DefaultMessageStore(small_settings(root), now_ms=FakeClock(step_ms=5), files=files, offload=offload)
    await store.load()
    claimed: list[tuple[int, int]] = []  # journal position, messages on disk
    ends: list[int] = []

    def put() -> None:
        assert store.append(message(body=b"%05d" % len(ends) * 40)).is_ok
        store.commit()
        ends.append(store.committed.value)

    offload.meanwhile = put
    for number in range(40):
        put()
        if number % 7 == 3:
            await store.flushing.flush_thoroughly()
        elif number % 2:
            await store.flushing.flush_log()
        claimed.append((len(files.journal), sum(end <= store.flushed.value for end in ends)))
    abandon(store)
    choose = random.Random(cut)
    at, count = claimed[choose.randrange(5, len(claimed))]
    crash(files.journal, at, str(root), tmp_path / "after", choose, survive=choose.choice([0.0, 0.3, 0.9]))
    store = await open_store(tmp_path / "after")
    assert store.reading.max_offset("T", 0) >= count > 0
    for number in range(count):
        data = store.reading.get_messages("T", 0, number, 1).records[0]
        assert b"%05d" % number in data
    await store.close()
