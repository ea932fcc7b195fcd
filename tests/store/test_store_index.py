"""The index: bounds of time, room on a full disk, and what a repair keeps."""

from __future__ import annotations

import mmap
import struct
from hashlib import md5
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from fake_clock import FakeClock
from file_faults import FULL, WRITES, FaultyFiles
from store_faults import RecordingFiles
from store_support import abandon, message, open_store
from structlog.testing import capture_logs

from triomq.protocol import record
from triomq.protocol.speedups import running_build
from triomq.store.disk.files import Files
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.queues import index as index_module
from triomq.store.queues.index_file import PAGES_IN_A_PART, IndexFile, IndexKeys, key_hash


async def test_a_query_by_key_includes_both_ends_of_its_time(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await open_store(tmp_path, clock=clock)
    at = clock.now_ms
    assert store.append(message(keys="k")).is_ok
    clock.now_ms += 5000
    assert store.append(message(keys="k")).is_ok
    store.commit()

    def count(begin_ms: int, end_ms: int) -> int:
        return len(store.reading.query_by_key("T", "k", 9, begin_ms, end_ms).records)

    assert [count(at, at), count(at + 5000, at + 5000), count(at, at + 5000)] == [1, 1, 2]
    assert [count(at - 9, at - 1), count(at + 1, at + 4999), count(at + 5001, at + 9000)] == [0, 0, 0]
    abandon(store)


async def test_a_query_by_key_is_exact_within_a_second(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await open_store(tmp_path, clock=clock)
    at = clock.now_ms
    for later_ms in (0, 5200, 5700):  # an entry has the second of its message only
        clock.now_ms = at + later_ms
        assert store.append(message(keys="k")).is_ok
    store.commit()

    def found(begin_ms: int, end_ms: int) -> list[int]:
        records = store.reading.query_by_key("T", "k", 9, at + begin_ms, at + end_ms).records
        return [record.store_timestamp_at(data) - at for data in records]

    assert [found(5700, 5700), found(5300, 9000), found(5201, 5699)] == [[5700], [5700], []]
    assert [found(5000, 5500), found(1, 5200), found(5700, 6000)] == [[5200], [5200], [5700]]
    abandon(store)


async def test_an_index_whose_file_is_full_has_room_only_when_a_new_file_can_be_made(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    index = store.contents.index
    while not (index.files and index.files[-1].is_full):
        assert store.append(message(keys="k")).is_ok
        store.commit()
    files.fail(FULL, *WRITES, where="index/")
    assert not index.has_room()
    files.mend()
    assert index.has_room()
    assert [file.is_full for file in index.files] == [True, False]
    abandon(store)


def test_an_empty_slot_leads_to_no_entry_not_even_to_one_of_zeros(tmp_path: Path) -> None:
    """Entry 0 is never used and reads as zeros, which is a possible hash at a possible offset."""
    files = Files()
    file = IndexFile(OpenFiles(files, 10), str(tmp_path), "20260101000000000", 50, 60)
    file.create(None)
    file.open_for_writing(files)
    assert not file.has(0, 0)
    found: list[int] = []
    file.find(0, 0, 1 << 60, 9, found)
    assert found == []
    file.close()
    with pytest.raises(RuntimeError, match="not open for writing"):
        file.put([("T", "u", None, 0, 1)])


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
async def test_after_a_start_keys_go_on_in_the_file_that_is_not_full(tmp_path: Path, is_closed: bool) -> None:
    for number in range(2):
        store = await open_store(tmp_path)
        assert store.append(message(uniq_key=f"u{number}")).is_ok
        store.commit()
        await store.close() if is_closed else abandon(store)
    store = await open_store(tmp_path)
    assert len(store.contents.index.files) == 1
    for number in range(2):
        assert len(store.reading.query_by_key("T", f"u{number}", 9, 0, 1 << 60).records) == 1
    await store.close()


class Mappings(Files):
    def __init__(self) -> None:
        self.made: list[mmap.mmap] = []

    def map_read(self, fd: int, size_bytes: int) -> mmap.mmap:
        self.made.append(super().map_read(fd, size_bytes))
        return self.made[-1]

    def map_private(self, fd: int, size_bytes: int) -> mmap.mmap:
        self.made.append(super().map_private(fd, size_bytes))
        return self.made[-1]


async def test_a_closed_store_maps_nothing(tmp_path: Path) -> None:
    """Slots alone are 20 MB for each index file that is written."""
    files = Mappings()
    store = await open_store(tmp_path, files=files)
    for number in range(100):  # more than one index file has room for
        assert store.append(message(uniq_key=f"u{number}")).is_ok
    store.commit()
    assert len(store.reading.query_by_key("T", "u3", 9, 0, 1 << 60).records) == 1
    assert len(files.made) >= 3
    await store.close()
    assert [made for made in files.made if not made.closed] == []


def test_only_slot_pages_that_changed_are_written(tmp_path: Path) -> None:
    """All slots of a file of usual size are 20 MB, and one message changes one page of them."""
    files = RecordingFiles()
    slots = 5000  # 20,040 bytes with the header: five pages
    file = IndexFile(OpenFiles(files, 10), str(tmp_path), "20260101000000000", slots, 60)
    file.create(None)
    file.open_for_writing(files)
    keys: dict[int, str] = {}
    for number in range(500):
        at = 40 + key_hash("T", f"k{number}") % slots * 4
        keys.setdefault(at // 4096, f"k{number}")
    pages = {0: (40, 4056), 1: (4096, 4096), 3: (12288, 4096), 4: (16384, 20040 - 16384)}
    for page, written in pages.items():
        files.journal.clear()
        assert file.put([("T", keys[page], None, page, 1)]) == 1
        file.write_out()
        sizes = [(operation.at, len(operation.data)) for operation in files.journal]
        assert sizes == [(20040 + (1 + list(pages).index(page)) * 20, 20), written, (0, 40)], page
    file.close()


def scattered_index(directory: Path, files: Files, keys: int) -> IndexFile:
    """An index file of 391 slot pages, most of which its keys changed."""
    file = IndexFile(OpenFiles(files, 10), str(directory), "20260101000000000", 400_000, 100_000)
    file.create(None)
    file.open_for_writing(files)
    add_keys(file, 0, keys)
    return file


def key(number: int) -> str:
    """Like unique keys of clients: their slots lie all over the file. Those of k1 and k2 are neighbours."""
    return md5(str(number).encode()).hexdigest()


def add_keys(file: IndexFile, first: int, count: int) -> None:
    messages: list[IndexKeys] = [("T", key(number), None, number * 100, 1) for number in range(first, first + count)]
    assert file.put(messages) == count


def keys_on_disk(path: Path, count: int) -> list[bool]:
    """Return for each key whether a process that begins now would find it."""
    file = IndexFile(OpenFiles(Files(), 10), str(path), "20260101000000000", 400_000, 100_000)
    file.load()
    return [file.has(key_hash("T", key(number)), number * 100) for number in range(count)]


@pytest.mark.parametrize("neighbours", [False, True], ids=["scattered", "side by side"])
def test_a_part_of_the_index_is_short(tmp_path: Path, neighbours: bool) -> None:
    """A second brings keys on hundreds of pages, and to write them all takes milliseconds."""
    files = RecordingFiles()
    file = scattered_index(tmp_path, files, 20_000 if neighbours else 110)
    page, parts = 0, 0
    while page >= 0:
        files.journal.clear()
        page = file.write_part(page)
        parts += 1
        slots = [operation for operation in files.journal if 40 <= operation.at < 1_600_040]
        assert len(slots) <= PAGES_IN_A_PART // 2
        assert sum(len(operation.data) for operation in slots) <= PAGES_IN_A_PART * 4096
    assert parts >= (4 if neighbours else 2)
    assert not file.is_dirty
    assert all(keys_on_disk(tmp_path, 110))


def test_what_comes_between_two_parts_is_written_now_or_next_time(tmp_path: Path) -> None:
    files = RecordingFiles()
    file = scattered_index(tmp_path, files, 1000)
    keys = 1000
    page = file.write_part(0)
    while page >= 0:
        add_keys(file, keys, 100)
        keys += 100
        page = file.write_part(page)
    entries_end = 0
    for operation in files.journal:
        if operation.at >= 1_600_040 and operation.data:
            entries_end = (operation.at + len(operation.data) - 1_600_040) // 20
        elif 40 <= operation.at < 1_600_040:
            slots = struct.unpack(f">{len(operation.data) // 4}i", operation.data)
            assert max(slots) < entries_end, "a slot points to an entry that is not written yet"
    assert file.is_dirty, "pages changed behind the parts"
    assert not [operation for operation in files.journal if operation.at == 0 and operation.data], "no header yet"
    assert not all(keys_on_disk(tmp_path, keys))
    file.write_out()
    assert not file.is_dirty
    assert all(keys_on_disk(tmp_path, keys))


async def test_other_tasks_run_between_the_parts_of_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await open_store(tmp_path)
    told: list[object] = []
    pages = iter([7, 9, -1])

    def write_part(page: int) -> int:
        told.append(page)
        return next(pages)

    async def look() -> None:
        while True:
            told.append("other")
            await trio.lowlevel.checkpoint()

    monkeypatch.setattr(store.flushing, "_index", SimpleNamespace(write_part=write_part, worked=lambda: None))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await trio.lowlevel.checkpoint()
        await store.flushing.write_index()
        nursery.cancel_scope.cancel()
    assert [each for each in told if each != "other"] == [0, 7, 9]
    assert "other" in told[told.index(0) : told.index(9)], "in each pass, before or behind the part"
    abandon(store)


async def test_keys_of_one_message_that_did_not_all_find_room_are_completed_later(tmp_path: Path) -> None:
    """The disk fills up twice in the middle of them."""
    files = FaultyFiles()
    full = files.fail(FULL, "create", where="/index/", after=1)
    store = await open_store(tmp_path, files=files, max_message_size_bytes=3000)
    index = store.contents.index
    assert store.append(message(keys="before")).is_ok
    put = store.append(message(keys=" ".join(f"k{number}" for number in range(130))))
    store.commit()
    assert (put.is_ok, index.stalled_at, len(index.files)) == (True, put.physical_offset, 1)
    with capture_logs() as lines:
        await store.backlog.catch_up_index()
        assert (index.stalled_at, len(index.files)) == (put.physical_offset, 1), "still full"
        full.after = 1
        await store.backlog.catch_up_index()
        assert (index.stalled_at, len(index.files)) == (put.physical_offset, 2), "full again"
    assert lines == [], "the first failure was logged, and the next line is due in a minute"
    files.mend()
    await store.backlog.catch_up_index()
    assert index.stalled_at == -1
    for number in range(130):
        found = store.reading.query_by_key("T", f"k{number}", 9, 0, 1 << 60)
        assert set(found.physical_offsets) == {put.physical_offset}, number
    await store.close()


@pytest.mark.skipif(running_build() == "compiled", reason="replaces a constant of the index")
@pytest.mark.parametrize("messages", [20, 100], ids=["in one file", "in several files"])
async def test_keys_of_one_commit_that_cannot_be_written_are_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: int
) -> None:
    """What the index buffers becomes too much at the end of the commit, or in its middle."""
    monkeypatch.setattr(index_module, "WRITE_OUT_BYTES", 200)
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    index = store.contents.index
    assert store.append(message(keys="before")).is_ok
    store.commit()
    puts = [store.append(message(uniq_key=f"u{number}", keys=f"k{number}")) for number in range(messages)]
    files.fail(FULL, *WRITES, where="/index/")
    store.commit()
    assert all(put.is_ok for put in puts), "the log has them"
    assert puts[0].physical_offset <= index.stalled_at <= puts[-1].physical_offset
    files.mend()
    await store.backlog.catch_up_index()
    assert index.stalled_at == -1
    for number, put in enumerate(puts):
        for key_text in (f"u{number}", f"k{number}"):
            assert store.reading.query_by_key("T", key_text, 9, 0, 1 << 60).physical_offsets == [put.physical_offset]
    await store.close()


@pytest.mark.parametrize("keys", ["", " ", "   "])
async def test_a_message_without_a_key_leaves_no_trace_in_the_index(tmp_path: Path, keys: str) -> None:
    store = await open_store(tmp_path)
    assert store.append(message(keys=keys)).is_ok
    indexed = store.append(message(keys=" k  k2 "))
    assert store.append(message(keys=keys)).is_ok
    store.commit()
    [file] = store.contents.index.files
    assert (file.index_count, file.begin_physical_offset) == (3, indexed.physical_offset)
    assert file.end_physical_offset == indexed.physical_offset
    await store.close()
