"""The queue entries that were read last: the same as in the files, with fewer reads of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from file_faults import FaultyFiles
from hypothesis import given
from hypothesis import strategies as st

from triomq.store.disk.files import Files
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.queues.consume_queue import ENTRY_BYTES, FILLER, ConsumeQueue
from triomq.store.queues.entry_blocks import BLOCK_ENTRIES, MOST_QUEUES, EntryBlocks

SIZE_BYTES = 100


def reads_of(files: FaultyFiles) -> int:
    return len(files.noted("pread"))


def queue_of(directory: Path | str, count: int, files: Files | None = None, per_file: int = 1000) -> ConsumeQueue:
    queue = ConsumeQueue(OpenFiles(files or Files(), 1000), str(directory), per_file * ENTRY_BYTES, "T", 0)
    add(queue, count)
    return queue


def add(queue: ConsumeQueue, count: int) -> None:
    for number in range(count):
        queue.add(queue.end * SIZE_BYTES + number, SIZE_BYTES, queue.cuts)
    queue.write(set())


def test_a_file_is_read_once_for_many_pulls_and_for_all_groups(tmp_path: Path) -> None:
    files = FaultyFiles()
    queue = queue_of(tmp_path, 500, files)
    blocks = EntryBlocks()
    for _group in range(10):
        for queue_offset in range(BLOCK_ENTRIES - 1):
            blocks.entries(queue, queue_offset, 2)
    assert reads_of(files) == 1
    blocks.entries(queue, BLOCK_ENTRIES - 1, 2)
    assert reads_of(files) == 2, "the second entry is behind the block"
    for queue_offset in (0, 32):
        blocks.entries(queue, queue_offset, 33)
    assert reads_of(files) == 3


def test_a_long_read_is_one_of_its_own_and_changes_no_block(tmp_path: Path) -> None:
    files = FaultyFiles()
    queue = queue_of(tmp_path, 500, files)
    blocks = EntryBlocks()
    blocks.entries(queue, 0, 2)
    assert blocks.entries(queue, 7, BLOCK_ENTRIES + 1) == queue.entries(7, BLOCK_ENTRIES + 1)
    reads = reads_of(files)
    blocks.entries(queue, 0, 2)
    assert reads_of(files) == reads


@pytest.mark.parametrize("change", ["cut", "replace", "begin_anew", "delete", "detach"])
def test_what_is_gone_or_replaced_is_not_returned_again(tmp_path: Path, change: str) -> None:
    queue = queue_of(tmp_path, 25, per_file=10)
    blocks = EntryBlocks()
    before = blocks.entries(queue, 3, 4)
    assert len(before) == 4 * ENTRY_BYTES
    if change == "cut":
        queue.cut(4)
        add(queue, 30)
    elif change == "replace":
        queue.replace(5, FILLER)
    elif change == "begin_anew":
        queue.begin_anew()
        add(queue, 30)
    elif change == "delete":
        queue.delete()
    else:
        queue.sequence.detach_first()
    assert blocks.entries(queue, 3, 4) == queue.entries(3, 4) != before


def test_messages_that_came_are_returned(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, 3)
    blocks = EntryBlocks()
    assert len(blocks.entries(queue, 1, 33)) == 2 * ENTRY_BYTES
    add(queue, 4)
    assert blocks.entries(queue, 1, 33) == queue.entries(1, 33)
    assert blocks.entries(queue, 7, 33) == b""


def test_the_number_of_blocks_is_bounded(tmp_path: Path) -> None:
    files = FaultyFiles()
    queues = [queue_of(tmp_path / str(number), 0, files) for number in range(MOST_QUEUES + 1)]
    blocks = EntryBlocks()
    for queue in queues:
        blocks.entries(queue, 0, 2)
    assert len(blocks._blocks) == MOST_QUEUES
    assert queues[0] not in blocks._blocks


STEPS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 200), st.just(0)),
    st.tuples(st.just("cut"), st.integers(0, 300), st.just(0)),
    st.tuples(st.just("replace"), st.integers(0, 300), st.just(0)),
    st.tuples(st.sampled_from(["begin_anew", "detach"]), st.just(0), st.just(0)),
    st.tuples(st.just("read"), st.integers(-3, 300), st.integers(1, BLOCK_ENTRIES + 2)),
)


@given(st.lists(STEPS, max_size=30))
def test_blocks_return_what_the_queue_returns_whatever_happened_to_it(steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        queue = queue_of(directory, 20, per_file=64)
        blocks = EntryBlocks()
        for step, number, count in steps:
            if step == "add":
                add(queue, number)
            elif step == "cut":
                queue.cut(max(queue.first_in_files, min(number, queue.end)))
            elif step == "replace" and queue.first_in_files <= number < queue.end:
                queue.replace(number, FILLER)
            elif step == "begin_anew":
                queue.begin_anew()
            elif step == "detach" and len(queue.sequence.files) > 1:
                queue.sequence.detach_first()
            elif step == "read":
                assert blocks.entries(queue, number, count) == queue.entries(number, count)
        for queue_offset in range(0, queue.end, 16):
            assert blocks.entries(queue, queue_offset, 33) == queue.entries(queue_offset, 33)
