"""The state that recovery trusts, and what makes it distrust: one case for each guard, in which only that guard
decides. The reasons are in docs/internals/crash-safety.md.

The reasons are in docs/internals/crash-safety.md.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from fake_clock import FakeClock
from file_faults import FULL, WRITES, FaultyFiles
from store_faults import RecordingFiles
from store_support import abandon, message, open_store

from triomq.protocol import record
from triomq.store.disk.files import Files
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.log.checkpoint import SAFETY_MS, Checkpoint, CleanNote
from triomq.store.message_store import DefaultMessageStore
from triomq.store.queues.consume_queue import ConsumeQueue
from triomq.store.results import RecoveryReport
from triomq.store.upkeep.recovery import crc64

SLOW_MS = 10_000
"""Time between two messages, longer than the checkpoint's safety margin: each file's age then tells."""


def put(store: DefaultMessageStore, count: int, queue_id: int = 0, **changes: object) -> None:
    for number in range(count):
        body = b"%d" % number
        assert store.append(message(queue_id=queue_id, body=body, uniq_key=f"{queue_id}-{number}", **changes)).is_ok
        store.commit()


def report_of(store: DefaultMessageStore) -> RecoveryReport:
    assert store.recovery_report is not None
    return store.recovery_report


def bodies(store: DefaultMessageStore, queue_id: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while True:
        result = store.reading.get_messages("T", queue_id, len(found), 32)
        if not result.records:
            return found
        found += [record.decode_record(data).body for data in result.records]


# -- the checkpoint ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("log_ms", "queues_ms"), [(50_000, 90_000), (90_000, 50_000)])
def test_what_counts_as_safe_is_the_older_of_log_and_queues_less_a_margin(log_ms: int, queues_ms: int) -> None:
    """The margin is needed because store times need not grow with offsets, clocks are set back, and one ms holds many
    messages.
    """
    checkpoint = Checkpoint(Files(), "")
    checkpoint.log_ms, checkpoint.queues_ms = log_ms, queues_ms
    assert checkpoint.safe_ms == 50_000 - SAFETY_MS
    assert SAFETY_MS == 3000  # RocketMQ's
    checkpoint.log_ms = 1
    assert checkpoint.safe_ms == 0


@pytest.mark.parametrize("changed_at", [0, 8, 16, 72, 80, 88, 96, 104])
async def test_the_note_of_offsets_counts_only_whole(tmp_path: Path, changed_at: int) -> None:
    """Also if only the times differ: another broker has written the checkpoint since."""
    store = await open_store(tmp_path)
    put(store, 5)
    await store.flushing.flush_thoroughly()
    assert store.contents.checkpoint.safe_offset == store.reading.max_physical_offset
    abandon(store)
    path = tmp_path / "checkpoint"
    data = bytearray(path.read_bytes())
    data[changed_at + 7] ^= 1
    path.write_bytes(data)
    checkpoint = Checkpoint(Files(), str(path))
    checkpoint.load()
    assert (checkpoint.safe_offset, checkpoint.safe_index_offset, checkpoint.safe_ends) == (0, 0, 0)
    store = await open_store(tmp_path)
    assert report_of(store).scanned_from == 0
    assert len(bodies(store)) == 5
    await store.close()


async def test_without_the_note_reading_begins_where_the_margin_says(tmp_path: Path) -> None:
    """Messages within the margin of the last flush may not be on disk, so their file is read, too."""
    clock = FakeClock(step_ms=0)
    store = await open_store(tmp_path, clock=clock)
    for _ in range(4):  # one message fills a file
        clock.now_ms += 2000
        assert store.append(message(body=bytes(2900))).is_ok
        store.commit()
    await store.flushing.flush_thoroughly()
    store.contents.checkpoint.forget_offsets()
    abandon(store)
    store = await open_store(tmp_path)
    # the last one is 0 s old, the third 2 s: the second is the first that is 3 s old
    assert report_of(store).scanned_from == 1 * 4096
    await store.close()


# -- the note of a crash --------------------------------------------------------------------------------------------


async def test_queues_that_end_before_the_note_are_read_on_from_their_end(tmp_path: Path) -> None:
    """The note says that the queues were on disk up to its offset. If they are not, it describes another state. Only
    the log after the end of the queues has to be read, not all of it.
    """
    store = await open_store(tmp_path, clock=FakeClock(step_ms=SLOW_MS))
    for number in range(7):
        if number == 6:  # a record begins where the note says
            await store.flushing.flush_thoroughly()
        body = bytes(2900 if number < 5 else 100)  # a large one fills a file
        assert store.append(message(body=body)).is_ok
        store.commit()
    abandon(store)
    path = next((tmp_path / "consumequeue" / "T" / "0").iterdir())
    data = bytearray(path.read_bytes())
    data[5 * 20 : 7 * 20] = bytes(2 * 20)
    path.write_bytes(data)
    store = await open_store(tmp_path)
    assert 0 < report_of(store).scanned_from <= 5 * 4096
    assert len(bodies(store)) == 7
    await store.close()


async def test_a_queue_file_that_vanished_is_noticed_by_the_count_of_entries(tmp_path: Path) -> None:
    """The ends of the queues are all as noted: only the number of entries differs."""
    store = await open_store(tmp_path)
    put(store, 25)
    await store.flushing.flush_thoroughly()
    abandon(store)
    files = sorted((tmp_path / "consumequeue" / "T" / "0").iterdir())
    assert len(files) == 3
    files[0].unlink()
    store = await open_store(tmp_path)
    assert store.reading.min_offset("T", 0) == 0
    assert bodies(store) == [b"%d" % number for number in range(25)]
    await store.close()


# -- the note of a clean exit ---------------------------------------------------------------------------------------


async def test_a_record_behind_the_noted_end_is_found(tmp_path: Path) -> None:
    """Another broker continued writing without touching queues or checkpoint: the note is out of date."""
    store = await open_store(tmp_path)
    put(store, 3)
    await store.close()
    tail = bytearray()
    other = await open_store(tmp_path / "other")
    put(other, 4)
    tail += other.reading.record_at(other.reading.queue_entries("T", 0, 3, 1)[0][0]) or b""
    await other.close()
    log_file = next((tmp_path / "commitlog").iterdir())
    end = len(log_file.read_bytes().rstrip(b"\0"))
    data = bytearray(log_file.read_bytes())
    checkpoint = Checkpoint(Files(), str(tmp_path / "checkpoint"))
    checkpoint.load()
    assert checkpoint.note is not None
    end = checkpoint.note.log_end
    data[end : end + len(tail)] = tail
    log_file.write_bytes(data)
    store = await open_store(tmp_path)
    assert store.reading.max_physical_offset == end + len(tail)
    assert bodies(store) == [b"0", b"1", b"2", b"3"]
    await store.close()


async def test_a_note_of_the_former_format_does_not_count_and_costs_nothing_else(tmp_path: Path) -> None:
    """Its digest had 32 bits. The store is then recovered like one that RocketMQ has closed."""
    store = await open_store(tmp_path)
    put(store, 3)
    await store.close()
    path = tmp_path / "checkpoint"
    checkpoint = Checkpoint(Files(), str(path))
    checkpoint.load()
    assert checkpoint.note is not None
    data = bytearray(path.read_bytes())
    data[32:60] = bytes(28)
    data[32:52] = struct.pack(">8sqI", b"TRIOMQ11", checkpoint.note.log_end, 0x12345678)
    data[52:56] = zlib.crc32(data[:52]).to_bytes(4, "big")
    path.write_bytes(data)
    checkpoint = Checkpoint(Files(), str(path))
    checkpoint.load()
    assert checkpoint.note is None
    assert checkpoint.safe_offset > 0, "the note of offsets is another one"
    store = await open_store(tmp_path)
    assert report_of(store).records == 3, "the log is read"
    assert bodies(store) == [b"0", b"1", b"2"]
    await store.close()
    store = await open_store(tmp_path)
    assert report_of(store).records == 0, "the note of the present format counts"
    await store.close()


async def test_a_note_whose_digest_differs_in_any_bit_does_not_count(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    put(store, 3)
    await store.close()
    checkpoint = Checkpoint(Files(), str(tmp_path / "checkpoint"))
    checkpoint.load()
    assert checkpoint.note is not None
    for bit in (0, 31, 32, 63):
        checkpoint.save(CleanNote(checkpoint.note.log_end, checkpoint.note.digest ^ 1 << bit))
        read_back = Checkpoint(Files(), str(tmp_path / "checkpoint"))
        read_back.load()
        assert read_back.note is not None and read_back.note.digest == checkpoint.note.digest
        store = await open_store(tmp_path)
        assert report_of(store).records == 3, "the log is read"
        await store.close()
        checkpoint.load()


def test_the_digest_is_the_crc_that_others_call_crc_64_xz() -> None:
    assert crc64(b"123456789") == 0x995DC9BBDF1939FA


# -- consume queues -------------------------------------------------------------------------------------------------


def a_queue(tmp_path: Path, files: Files | None = None) -> ConsumeQueue:
    directory = tmp_path / "consumequeue" / "T" / "0"
    directory.mkdir(parents=True)
    return ConsumeQueue(OpenFiles(files or Files(), 100), str(directory), 200, "T", 0)


def test_the_entry_that_ends_exactly_at_the_cut_stays(tmp_path: Path) -> None:
    queue = a_queue(tmp_path)
    for number in range(5):
        queue.add(number * 100, 100, 0)
    queue.write(set())
    assert queue.truncate_beyond(300) == 2
    assert (queue.end, queue.max_physical_end) == (3, 300)
    assert queue.truncate_beyond(299) == 1
    assert (queue.end, queue.max_physical_end) == (2, 200)


def test_a_cut_makes_no_entry_count_as_synced(tmp_path: Path) -> None:
    queue = a_queue(tmp_path)
    for number in range(25):
        queue.add(number * 100, 100, 0)
    queue.write(set())
    queue.synced_end = 4
    queue.cut(22)
    assert (queue.end, queue.synced_end) == (22, 4)
    queue.cut(2)
    assert (queue.end, queue.synced_end) == (2, 2)


async def test_what_a_cut_leaves_is_synced_by_the_next_flush(tmp_path: Path) -> None:
    files = RecordingFiles()
    store = await open_store(tmp_path, files=files)
    put(store, 25)
    queue = store.contents.queues.get("T", 0)
    queue.cut(22)
    files.journal.clear()
    await store.flushing.flush_queues(0)
    synced = {Path(operation.path).name for operation in files.journal if operation.kind == "sync"}
    assert synced == {f"{start:020d}" for start in (0, 200, 400)}
    abandon(store)


# -- a commit that is undone ----------------------------------------------------------------------------------------


async def test_a_commit_that_is_taken_back_gives_its_queue_offsets_back(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files, enable_multi_dispatch=True, enable_lmq=True)
    several = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
    text = "\x02".join(f"{name}\x01{value}" for name, value in several.items()).encode()
    first = message(body=b"first", properties=text)
    assert store.append(first).is_ok
    store.commit()
    files.fail(FULL, *WRITES, where="commitlog")
    for _ in range(3):
        assert store.append(message(body=b"x", properties=text)).queue_offset >= 1
        assert store.append(message(queue_id=1, body=b"x")).is_ok
    store.commit()
    files.mend()
    again = store.append(message(body=b"again", properties=text))
    assert again.queue_offset == 1
    assert store.append(message(queue_id=1, body=b"x")).queue_offset == 0
    store.commit()
    ends = [store.reading.max_offset(*queue) for queue in (("T", 0), ("%LMQ%a", 0), ("%LMQ%b", 0), ("T", 1))]
    assert ends == [2, 2, 2, 1]
    assert b"INNER_MULTI_QUEUE_OFFSET\x011,1" in (store.reading.record_at(again.physical_offset) or b"")
    await store.close()
