"""One consume queue by itself: fillers, the search by log offset, the minimum."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.store.disk.files import Files
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue

PER_FILE = 10
SIZE_BYTES = 100


def queue_at(directory: Path | str) -> ConsumeQueue:
    return ConsumeQueue(OpenFiles(Files(), 10), str(directory), PER_FILE * ENTRY_BYTES, "T", 0)


def written(queue: ConsumeQueue) -> ConsumeQueue:
    queue.write(set())
    return queue


def with_messages(directory: Path, *physical_offsets: int, fillers: int = 0) -> ConsumeQueue:
    queue = queue_at(directory)
    queue.fill(fillers)
    for physical_offset in physical_offsets:
        queue.add(physical_offset, SIZE_BYTES, 0)
    return written(queue)


def test_the_minimum_of_a_queue_that_begins_with_fillers_is_its_first_message(tmp_path: Path) -> None:
    queue = with_messages(tmp_path, 0, 100, 200, fillers=4)
    queue.correct_min_offset(0)
    assert queue.min_offset == 4


@pytest.mark.parametrize(
    ("log_min_offset", "min_offset"), [(0, 0), (1000, 0), (1001, 1), (1100, 1), (1101, 2), (1200, 2), (1201, 3)]
)
def test_the_minimum_is_the_first_message_that_the_log_still_has(
    tmp_path: Path, log_min_offset: int, min_offset: int
) -> None:
    queue = with_messages(tmp_path, 1000, 1100, 1200)
    queue.correct_min_offset(log_min_offset)
    assert queue.min_offset == min_offset


def test_the_minimum_never_goes_back(tmp_path: Path) -> None:
    queue = with_messages(tmp_path, 1000, 1100, 1200)
    queue.correct_min_offset(1200)
    queue.correct_min_offset(0)
    assert queue.min_offset == 2


def test_an_entry_that_ends_exactly_at_the_cut_stays(tmp_path: Path) -> None:
    queue = with_messages(tmp_path, 1000, 1100, 1200)
    assert queue.truncate_beyond(1200) == 1
    assert (queue.end, queue.next_offset, queue.max_physical_end) == (2, 2, 1200)
    assert queue.truncate_beyond(1199) == 1
    assert (queue.end, queue.max_physical_end) == (1, 1100)


def test_a_cut_lowers_what_counts_as_synced_and_never_raises_it(tmp_path: Path) -> None:
    queue = with_messages(tmp_path, 1000, 1100, 1200)
    queue.synced_end = 1
    queue.cut(2)
    assert queue.synced_end == 1
    queue.cut(0)
    assert queue.synced_end == 0


@given(
    st.lists(st.one_of(st.none(), st.integers(1, 50)), max_size=45).filter(lambda steps: any(steps)),
    st.integers(0, 3000),
)
def test_the_search_finds_what_a_walk_finds_whatever_fillers_are_between(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int | None], physical_offset: int
) -> None:
    """A step is the distance to the message before, None a filler."""
    queue = queue_at(tmp_path_factory.mktemp("queue"))
    offsets: dict[int, int] = {}
    end = 0
    for queue_offset, step in enumerate(steps):
        if step is None:
            queue.fill(queue_offset + 1)
        else:
            offsets[queue_offset] = end + step
            queue.add(end + step, SIZE_BYTES, 0)
            end += step + SIZE_BYTES
        if queue_offset % 7 == 0:
            written(queue)
    written(queue)
    wanted = next((at for at, offset in offsets.items() if offset >= physical_offset), len(steps))
    assert queue.first_at_or_beyond(physical_offset) == wanted
