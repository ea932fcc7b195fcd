"""The note of the queues: a start after a clean exit reads no queue that is as noted, and every other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from file_faults import FULL, FaultyFiles
from hypothesis import given
from hypothesis import strategies as st
from store_support import abandon, message, open_store

from triomq.protocol import record
from triomq.store.errors import StoreRefused
from triomq.store.message_store import DefaultMessageStore
from triomq.store.queues import queue_note

WIDE = {"mapped_file_size_consume_queue_bytes": 20_000}
QUEUES = 5
HOUR_NS = 3_600_000_000_000


def put(store: DefaultMessageStore, queue_id: int, count: int = 2) -> None:
    for number in range(count):
        assert store.append(message(queue_id=queue_id, body=b"%d-%d" % (queue_id, number))).is_ok
    store.commit()


def age(root: Path) -> None:
    """Make the queues an hour older: what is as young as the note is not in it."""
    for path in (root / "consumequeue").rglob("*"):
        times = path.stat()
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns - HOUR_NS))


async def closed_store(root: Path, **settings: int) -> None:
    store = await open_store(root, **WIDE | settings)
    for queue_id in range(QUEUES):
        put(store, queue_id)
    age(root)
    await store.close()


def state(store: DefaultMessageStore) -> dict[str, tuple[int, int, int, int]]:
    queues = store.contents.queues
    return {
        f"{queue.topic}/{queue.queue_id}": (queue.min_offset, queue.end, queue.next_offset, queue.max_physical_end)
        for queue in queues
    }


def bodies(store: DefaultMessageStore) -> list[bytes]:
    found = [store.reading.get_messages("T", queue_id, 0, 32) for queue_id in range(QUEUES)]
    return [record.decode_record(data).body for result in found for data in result.records]


def queues_opened(files: FaultyFiles) -> set[str]:
    return {"/".join(call.path.split("/")[-3:-1]) for call in files.noted("open", where="/consumequeue/")}


async def opened(root: Path, **settings: int) -> tuple[set[str], dict[str, tuple[int, int, int, int]], bool]:
    """Return which queues a start opens, what it finds, and whether it is what the last exit noted; then be killed."""
    files = FaultyFiles()
    store = await open_store(root, files=files, **WIDE | settings)
    found = queues_opened(files), state(store), store.recovery_report is not None and store.recovery_report.is_as_noted
    abandon(store)
    return found


NEWEST = {f"T/{QUEUES - 1}"}
"""A start compares the newest entry with the log."""
ALL = {f"T/{queue_id}" for queue_id in range(QUEUES)}


async def test_a_start_after_a_clean_exit_opens_no_queue_but_that_of_the_newest_message(tmp_path: Path) -> None:
    store = await open_store(tmp_path, **WIDE)
    for queue_id in range(QUEUES):
        put(store, queue_id, 300 if queue_id == 1 else 2)  # more than a page
    age(tmp_path)
    wanted, texts = state(store), bodies(store)
    await store.close()
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files, **WIDE)
    assert (queues_opened(files), state(store)) == (NEWEST, wanted)
    assert bodies(store) == texts
    assert store.recovery_report is not None and store.recovery_report.is_as_noted
    put(store, 0)
    assert store.reading.max_offset("T", 0) == 4
    await store.close()
    assert (await opened(tmp_path))[0] == {"T/0"}


async def test_a_second_clean_exit_notes_queues_that_were_never_opened(tmp_path: Path) -> None:
    await closed_store(tmp_path)
    store = await open_store(tmp_path, **WIDE)
    await store.close()
    assert (await opened(tmp_path))[0] == NEWEST


def remove_file(root: Path) -> None:
    (root / "consumequeue" / "T" / "1" / f"{0:020d}").unlink()


def remove_directory(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "T" / "1")


def shorten(root: Path) -> None:
    os.truncate(root / "consumequeue" / "T" / "1" / f"{0:020d}", 20)


def damage(root: Path) -> None:
    with (root / "consumequeue" / "T" / "1" / f"{0:020d}").open("r+b") as file:
        file.seek(20)
        file.write(bytes(20))


@pytest.mark.parametrize("change", [remove_file, remove_directory, shorten, damage])
async def test_a_queue_that_was_changed_after_the_exit_is_read_and_made_whole(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    await closed_store(tmp_path / "store")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    wanted = (await opened(tmp_path / "copy"))[1]
    change(tmp_path / "store")
    _, found, is_as_noted = await opened(tmp_path / "store")
    assert (found, is_as_noted) == (wanted, False)


def lengthen(root: Path) -> None:
    os.truncate(root / "consumequeue" / "T" / "1" / f"{0:020d}", 20_020)


def add_file(root: Path) -> None:
    (root / "consumequeue" / "T" / "1" / f"{20:020d}").write_bytes(bytes(20_000))


@pytest.mark.parametrize("change", [lengthen, add_file])
async def test_what_is_unexpected_in_a_queue_stops_a_start_all_the_same(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    await closed_store(tmp_path)
    change(tmp_path)
    with pytest.raises(StoreRefused, match="file size"):
        await open_store(tmp_path, **WIDE)


def without_note(root: Path) -> None:
    (root / "queuenote").unlink()


def torn_note(root: Path) -> None:
    path = root / "queuenote"
    path.write_bytes(path.read_bytes()[:-30] + bytes(30))


def empty_note(root: Path) -> None:
    (root / "queuenote").write_bytes(b"")


def note_of_another_exit(root: Path) -> None:
    path = root / "queuenote"
    path.write_bytes(queue_note.encode(1, 0, []))


def checkpoint_of_rocketmq(root: Path) -> None:
    """It has later times, and leaves what is behind them."""
    with (root / "checkpoint").open("r+b") as file:
        later = int.from_bytes(file.read(8), "big") + 1
        file.seek(0)
        file.write(later.to_bytes(8, "big"))


def unclean(root: Path) -> None:
    (root / "abort").write_text("1")


@pytest.mark.parametrize(
    "change", [without_note, torn_note, empty_note, note_of_another_exit, checkpoint_of_rocketmq, unclean]
)
async def test_without_the_note_of_this_exit_every_queue_is_read(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    await closed_store(tmp_path / "store")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    read, wanted, _ = await opened(tmp_path / "copy")
    assert read == NEWEST
    change(tmp_path / "store")
    assert (await opened(tmp_path / "store"))[:2] == (ALL, wanted)


async def test_a_queue_written_shortly_before_the_exit_is_read(tmp_path: Path) -> None:
    """A change after the exit could have the same time, where clocks have steps."""
    store = await open_store(tmp_path, **WIDE)
    for queue_id in range(QUEUES):
        put(store, queue_id)
    age(tmp_path)
    put(store, 2)
    await store.close()
    noted_ns = (tmp_path / "queuenote").stat().st_mtime_ns
    os.utime(tmp_path / "consumequeue" / "T" / "2" / f"{0:020d}", ns=(noted_ns, noted_ns))
    assert (await opened(tmp_path))[0] == {"T/2"}


async def test_queues_of_several_files_and_without_entries_are_read(tmp_path: Path) -> None:
    settings = {"mapped_file_size_consume_queue_bytes": 200}
    store = await open_store(tmp_path, **settings)
    put(store, 0, 15)
    put(store, 1)
    put(store, 2)
    store.contents.queues.get("T", 1).cut(0)
    age(tmp_path)
    wanted = state(store)
    await store.close()
    read, found, _ = await opened(tmp_path, **settings)
    assert (read, found) == ({"T/0", "T/1", "T/2"}, wanted)


async def test_queues_with_ext_files_are_read(tmp_path: Path) -> None:
    await closed_store(tmp_path, enable_consume_queue_ext=1)
    assert (await opened(tmp_path, enable_consume_queue_ext=1))[0] == ALL


async def test_a_queue_whose_first_messages_are_gone_keeps_its_min_offset(tmp_path: Path) -> None:
    store = await open_store(tmp_path, **WIDE)
    for queue_id in (0, 1, 0, 1):
        assert store.append(message(queue_id=queue_id, body=bytes(1800))).is_ok  # two fill a file of the log
        store.commit()
    age(tmp_path)
    store.contents.log.sequence.drop_first()
    for queue in store.contents.queues:
        queue.correct_min_offset(store.contents.log.min_offset)
    store.contents.queues.cleaned_start = store.contents.log.min_offset
    wanted = state(store)
    assert [values[0] for values in wanted.values()] == [1, 1]
    await store.close()
    assert (await opened(tmp_path))[:2] == ({"T/1"}, wanted)


async def test_a_min_offset_of_an_earlier_start_of_the_log_is_corrected(tmp_path: Path) -> None:
    """Retention has removed a file of the log and was not done with the queues."""
    store = await open_store(tmp_path, **WIDE)
    for queue_id in (0, 1, 0, 1):
        assert store.append(message(queue_id=queue_id, body=bytes(1800))).is_ok
        store.commit()
    age(tmp_path)
    store.contents.log.sequence.drop_first()
    assert [values[0] for values in state(store).values()] == [0, 0]
    await store.close()
    assert [values[0] for values in (await opened(tmp_path))[1].values()] == [1, 1]


async def test_a_disk_without_space_for_the_note_costs_the_reading_only(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.fail(FULL, "pwrite", where="/queuenote")
    store = await open_store(tmp_path, files=files, **WIDE)
    for queue_id in range(QUEUES):
        put(store, queue_id)
    age(tmp_path)
    wanted = state(store)
    await store.close()
    assert await opened(tmp_path) == (ALL, wanted, True)


async def test_a_queue_whose_directory_is_gone_at_the_exit_is_not_noted(tmp_path: Path) -> None:
    store = await open_store(tmp_path, **WIDE)
    for queue_id in range(QUEUES):
        put(store, queue_id)
    age(tmp_path)
    wanted = state(store)
    remove_directory(tmp_path)
    await store.close()
    assert (await opened(tmp_path))[1] == wanted


int64 = st.integers(-(1 << 63), (1 << 63) - 1)
rows = st.lists(st.tuples(*[int64] * 7), max_size=4, unique_by=lambda row: row[0])
topics = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), rows, max_size=4)


@given(st.integers(0, (1 << 64) - 1), int64, topics, st.data())
def test_a_note_is_read_as_it_was_written_and_not_at_all_if_one_byte_differs(
    digest: int, log_begin: int, values: dict[str, list[queue_note.Row]], data: st.DataObject
) -> None:
    written = queue_note.encode(digest, log_begin, values.items())
    note = queue_note.decode(written, digest, 1_000_000_000)
    assert note is not None
    assert (note.log_begin, note.before_ns) == (log_begin, 900_000_000)
    for topic, expected in values.items():
        assert list(note.of_topic(topic).values()) == expected
    assert note.of_topic("another topic\0") == {}
    assert queue_note.decode(written, digest ^ 1, 0) is None
    at = data.draw(st.integers(0, len(written) - 1))
    other = bytearray(written)
    other[at] ^= data.draw(st.integers(1, 255))
    assert queue_note.decode(bytes(other), digest, 0) is None
    assert queue_note.decode(written[:at], digest, 0) is None


def test_the_note_of_a_topic_whose_name_is_not_utf_8_is_read() -> None:
    topic = os.fsdecode(b"\xff\xfe")
    row = (0, 1, 2, 3, 4, 5, 6)
    note = queue_note.decode(queue_note.encode(7, 0, [(topic, [row])]), 7, 0)
    assert note is not None and note.of_topic(topic) == {0: row}


def test_the_bytes_of_a_note_are_these() -> None:
    data = queue_note.encode(0x0102030405060708, 9, [("Tü", [(1, 2, 3, 4, 5, 6, 7)])])
    row = b"".join(number.to_bytes(8, "big") for number in range(1, 8))
    body = b"TRIOMQ15\1\2\3\4\5\6\7\x08" + (9).to_bytes(8, "big") + b"\0\3T\xc3\xbc" + (1).to_bytes(4, "big") + row
    assert data[:-4] == body
