"""One consume queue alone: fillers, the search by log offset, the minimum."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_support import small_settings

from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.queues.consume_queue import ENTRY, ENTRY_BYTES, FILLER, ConsumeQueue
from triomq.store.queues.consume_queue_ext import MAX_UNIT_BYTES, ConsumeQueueExt
from triomq.store.queues.queue_table import QueueTable
from triomq.store.results import ExtUnit

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
    """A step is the distance to the previous message, None a filler."""
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


def test_the_search_is_not_misled_by_a_damaged_entry(tmp_path: Path) -> None:
    """An entry that claims an offset too low sends the search behind the entry that it looks for."""
    queue = with_messages(tmp_path, 100, 5, 300)
    assert queue.first_at_or_beyond(100) == 0
    assert queue.first_at_or_beyond(101) == 2


def test_a_queue_that_begins_in_the_middle_has_nothing_to_sync_before_its_first_entry(tmp_path: Path) -> None:
    queue = queue_at(tmp_path)
    queue.fill(12)
    assert (queue.end, queue.synced_end, queue.buffered_count) == (10, 10, 2)


def test_the_mark_of_the_end_follows_a_cut(tmp_path: Path) -> None:
    queue = with_messages(tmp_path, 1000, 1100, 1200)
    mark = queue.end_mark
    assert mark.value == 3
    queue.cut(1)
    assert mark.value == 1
    waiter = mark.call_beyond(1, lambda error: None)
    assert waiter is not None, "entry 1 is not there any more"
    with pytest.raises(RuntimeError, match="waiters"):
        queue.cut(0)


def test_a_deleted_topic_leaves_nothing_in_the_table_and_on_disk(tmp_path: Path) -> None:
    settings = small_settings(tmp_path)
    files = Files()
    table = QueueTable(OpenFiles(files, 10), files, Layout(settings), 200, 0)
    for queue_id in (0, 1):
        queue = table.get("T", queue_id)
        queue.add(queue_id * 100, 100, 0)
        table.touched.append(queue)
    table.write_touched([])
    first, second = table.get("T", 0), table.get("T", 1)
    table.delete(first)
    assert (table.topics(), table.count, list(table.dirty)) == ({"T": [1]}, 1, [second])
    table.delete(second)
    table.delete(second)
    assert (table.topics(), table.count, table.deleted_count, list(table.dirty)) == ({}, 0, 2, [])
    assert table._by_topic == {}, "names of deleted topics would pile up"
    assert list((tmp_path / "consumequeue").iterdir()) == []


def test_a_queue_that_is_cut_to_its_begin_keeps_its_first_file_and_its_next_offset(tmp_path: Path) -> None:
    """The file's name is what remains of the queue's offsets."""
    queue = with_messages(tmp_path, 1000, 1100, fillers=12)
    assert queue.first_in_files == 10
    queue.cut(10)
    assert (queue.end, queue.next_offset, queue.first_in_files, queue.max_physical_end) == (10, 10, 10, 0)
    assert [path.name for path in tmp_path.iterdir()] == [f"{200:020d}"]
    again = queue_at(tmp_path)
    again.load(3, 0)
    assert (again.end, again.next_offset, again.was_cut_short) == (10, 10, False)


def state_of(queue: ConsumeQueue) -> tuple[object, ...]:
    offsets = (queue.end, queue.next_offset, queue.synced_end, queue.min_offset, queue.max_physical_end)
    return *offsets, queue.was_cut_short, [file.start for file in queue.sequence.files]


REAL = st.tuples(st.integers(0, 4000), st.just(SIZE_BYTES), st.just(0)).map(lambda fields: ENTRY.pack(*fields))
CONTENT = st.lists(
    st.one_of(REAL, st.sampled_from([FILLER, bytes(20), bytes(19) + b"\1", ENTRY.pack(-5, 100, 0)])), max_size=12
).map(b"".join)


@given(
    start=st.sampled_from([0, 400]), content=CONTENT, hole=st.sampled_from([0, 0, 7, 4096]), begin=st.integers(0, 5000)
)
def test_a_queue_that_is_read_at_once_is_as_if_it_had_been_searched(
    tmp_path_factory: pytest.TempPathFactory, start: int, content: bytes, hole: int, begin: int
) -> None:
    """`hole` bytes lie between the content and a copy of it, so that some queues are longer than a page."""
    data = content + bytes(hole) + content if hole else content
    size_bytes = 400 if len(data) <= 400 else 6000
    queues: list[ConsumeQueue] = []
    for name in ("read", "searched"):
        directory = tmp_path_factory.mktemp(name)
        (directory / f"{start // 400 * size_bytes:020d}").write_bytes(data.ljust(size_bytes, b"\0"))
        queues.append(ConsumeQueue(OpenFiles(Files(), 10), str(directory), size_bytes, "T", 0))
    read, searched = queues
    is_corrected = read.load(3, begin)
    searched.sequence.load(searched.sequence.directory)
    searched._load_files(3)
    assert state_of(read) == state_of(searched)
    searched.correct_min_offset(begin)
    assert not is_corrected or read.min_offset == searched.min_offset
    read.correct_min_offset(begin)
    assert state_of(read) == state_of(searched)


@pytest.mark.parametrize("map_bytes", [0, 1, MAX_UNIT_BYTES - 20, MAX_UNIT_BYTES - 19])
def test_an_ext_unit_is_as_large_as_its_size_field_allows(tmp_path: Path, map_bytes: int) -> None:
    ext = ConsumeQueueExt(OpenFiles(Files(), 10), str(tmp_path), 100_000)
    address = ext.put(ExtUnit(7, 99, bytes(map_bytes)))
    ext.write(set())
    if map_bytes > MAX_UNIT_BYTES - 20:
        assert address == 7, "too large: the tags code itself"
        return
    unit = ext.read(address)
    assert ext.is_address(address) and unit is not None
    assert (unit.tags_code, unit.store_timestamp, unit.bit_map or b"") == (7, 99, bytes(map_bytes))


def test_an_ext_unit_and_the_mark_behind_it_never_cross_a_file_end(tmp_path: Path) -> None:
    """Files of 100 bytes take two units of 48 bytes and the reserve of 4, or one of 96; a larger one fits no file."""
    ext = ConsumeQueueExt(OpenFiles(Files(), 10), str(tmp_path), 100)
    begin = -(1 << 63)
    assert ext.put(ExtUnit(7, 1, bytes(77))) == 7
    assert [ext.put(ExtUnit(7, number, bytes(28))) - begin for number in range(3)] == [0, 48, 100]
    assert ext.put(ExtUnit(7, 3, bytes(76))) - begin == 200
    ext.write(set())
    assert [unit.store_timestamp for at in (0, 48, 100, 200) if (unit := ext.read(at + begin))] == [0, 1, 2, 3]
    assert ext.read(begin + 296) is None, "behind the end"
    assert (tmp_path / f"{100:020d}").read_bytes()[48:50] == b"\xff\xff", "the end mark"


@pytest.mark.parametrize("last", [None, 0, 1, 2])
def test_a_cut_removes_the_files_of_ext_units_behind_it(tmp_path: Path, last: int | None) -> None:
    """Each file has one unit of 70 bytes."""
    ext = ConsumeQueueExt(OpenFiles(Files(), 10), str(tmp_path), 100)
    addresses = [ext.put(ExtUnit(7, 1, bytes(50))) for _ in range(3)]
    ext.write(set())
    ext.truncate_after(None if last is None else addresses[last])
    assert len(list(tmp_path.iterdir())) == (1 if last is None else last + 1), "the first file always stays"
    assert ext.end == (0 if last is None else 100 * last + 70)


def test_a_cut_below_the_minimum_lowers_the_minimum(tmp_path: Path) -> None:
    queue = with_messages(tmp_path, 1000, 1100, 1200)
    queue.correct_min_offset(1200)
    assert queue.min_offset == 2
    assert queue.truncate_beyond(1100) == 2
    assert (queue.end, queue.min_offset) == (1, 1)


@pytest.mark.parametrize("last_address_at", [None, 0, 3, 9, 10, 11, 17])
@pytest.mark.parametrize("end", [1, 10, 11, 18, 24])
def test_a_cut_keeps_the_ext_units_up_to_the_last_that_an_entry_leads_to(
    tmp_path: Path, last_address_at: int | None, end: int
) -> None:
    """Not every entry has a unit, and the last that has may be in an earlier file of the queue."""
    queue = queue_at(tmp_path / "queue")
    (tmp_path / "queue").mkdir()
    (tmp_path / "ext").mkdir()
    queue.ext = ConsumeQueueExt(OpenFiles(Files(), 10), str(tmp_path / "ext"), 1000)
    for number in range(25):
        has_unit = last_address_at is not None and number in (last_address_at, 24)
        tags_code = queue.ext.put(ExtUnit(5, 1, None)) if has_unit else 5
        queue.add(number * 100, 100, tags_code)
    written(queue)
    queue.cut(end)
    stays = last_address_at is not None and last_address_at < end
    assert (queue.end, queue.ext.end, queue.ext.written_end) == (end, 20 * stays, 20 * stays)
