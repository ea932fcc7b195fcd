"""What a start takes over from the files: marks, times, and what its report says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_clock import FakeClock
from file_faults import FaultyFiles
from store_faults import RecordingFiles
from store_support import abandon, message, open_store, small_settings, sync_log
from structlog.testing import capture_logs

from triomq.protocol import record
from triomq.store.disk.files import Files
from triomq.store.log.checkpoint import Checkpoint
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import RecoveryReport
from triomq.store.upkeep.progress import State


def put(store: DefaultMessageStore, count: int, queue_id: int = 0) -> None:
    for number in range(count):
        assert store.append(message(queue_id=queue_id, body=b"%d" % number, uniq_key=f"{queue_id}-{number}")).is_ok
    store.commit()


def report_of(store: DefaultMessageStore) -> RecoveryReport:
    assert store.recovery_report is not None
    return store.recovery_report


def checkpoint_of(root: Path) -> Checkpoint:
    checkpoint = Checkpoint(Files(), str(root / "checkpoint"))
    checkpoint.load()
    return checkpoint


async def test_the_checkpoint_of_an_empty_store_claims_nothing(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    await store.close()
    checkpoint = checkpoint_of(tmp_path)
    assert (checkpoint.log_ms, checkpoint.queues_ms, checkpoint.index_ms) == (0, 0, 0)


async def test_a_newest_entry_that_leads_to_no_record_has_no_time(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    assert store.contents.newest_store_timestamp == 0
    put(store, 1)
    assert store.contents.newest_store_timestamp > 0
    queue = store.contents.queues.get("T", 0)
    queue.add(1 << 20, 100, 0)
    queue.write(set())
    assert store.contents.newest_store_timestamp == 0
    abandon(store)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
async def test_after_a_clean_exit_nothing_is_synced_again_and_after_a_crash_what_was_read(
    tmp_path: Path, is_closed: bool
) -> None:
    store = await open_store(tmp_path)
    put(store, 30)
    end = store.committed.value
    await store.close() if is_closed else abandon(store)
    files = RecordingFiles()
    store = await open_store(tmp_path, files=files)
    assert (store.committed.value, store.accepted.value, store.flushed.value) == (end, end, end)
    assert report_of(store).records == (0 if is_closed else 30)
    synced = [operation.path for operation in files.journal if operation.kind == "sync"]
    logs = [str(path) for path in sorted((tmp_path / "commitlog").iterdir())]
    assert [path for path in synced if "commitlog" in path] == ([] if is_closed else logs)
    assert checkpoint_of(tmp_path).synced_offset == end
    abandon(store)


def touch_queues(root: Path) -> None:
    for path in root.glob("consumequeue/T/*/*"):
        os.utime(path)


async def test_a_start_after_a_clean_exit_opens_and_reads_each_short_queue_once(tmp_path: Path) -> None:
    """There may be a hundred thousand of them, and fewer descriptors: what is opened again costs as much again."""
    queues = 40
    wide = {"mapped_file_size_consume_queue_bytes": 20_000, "max_open_files": 16}
    store = await open_store(tmp_path, **wide)
    for queue_id in range(queues):
        put(store, 2, queue_id=queue_id)
    await store.close()
    touch_queues(tmp_path)  # the note of one that was written a while before the exit would be trusted unread
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files, **wide)
    assert report_of(store).is_as_noted
    newest = f"T/{queues - 1}"  # whose last entry leads to the last record
    for queue_id in range(queues - 1):
        calls = files.noted("open", "pread", "next_data", where=f"/T/{queue_id}/")
        assert sorted(call.name for call in calls) == ["next_data", "open", "pread"], queue_id
    assert len(files.noted("open", where=f"/{newest}/")) == 1
    assert [queue.end for queue in store.contents.queues] == [2] * queues
    abandon(store)


async def test_the_report_counts_what_was_read_entered_and_removed(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    put(store, 10)
    put(store, 5, queue_id=1)
    abandon(store)
    for path in (tmp_path / "consumequeue" / "T" / "1").iterdir():
        path.unlink()
    store = await open_store(tmp_path)
    report = report_of(store)
    assert (report.records, report.added_entries, report.rebuilt_queues) == (15, 15, [])
    assert report.log_end == store.reading.max_physical_offset
    await store.close()


async def test_an_entry_after_a_damaged_one_keeps_its_place(tmp_path: Path) -> None:
    """The last entry of the queue leads to damage, and the scan finds a newer record that has no entry yet."""
    store = await open_store(tmp_path)
    places = [store.append(message(body=b"%d" % number * 300)) for number in range(7)]
    store.commit()
    queue = store.contents.queues.get("T", 0)
    queue.cut(6)
    await store.close()
    (tmp_path / "checkpoint").unlink()  # as another broker leaves it
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(places[5].physical_offset + 100)
        file.write(b"damage")
    store = await open_store(tmp_path)
    assert report_of(store).was_clean and len(report_of(store).damages) == 1
    found = store.reading.get_messages("T", 0, 0, 32)
    assert [record.decode_record(data).queue_offset for data in found.records] == [0, 1, 2, 3, 4, 6]
    assert store.contents.queues.get("T", 0).max_physical_end == store.reading.max_physical_offset
    await store.close()


async def test_an_entry_at_the_end_of_a_queue_that_leads_to_no_record_of_it_is_removed(tmp_path: Path) -> None:
    """The queue has no record in what is read: only its last entry itself can show that it is wrong."""
    clock = FakeClock(step_ms=10_000)
    store = await open_store(tmp_path, clock=clock)
    put(store, 2, queue_id=1)
    assert store.append(message(queue_id=1, body=bytes(2900))).is_ok
    for _ in range(4):
        assert store.append(message(body=bytes(2900))).is_ok
        store.commit()
    await store.flushing.flush_thoroughly()
    store.contents.checkpoint.forget_offsets()
    abandon(store)
    path = tmp_path / "consumequeue" / "T" / "1" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[20:28] = (int.from_bytes(data[20:28], "big") + 8).to_bytes(8, "big")
    data[40:60] = bytes(20)
    path.write_bytes(data)
    store = await open_store(tmp_path)
    report = report_of(store)
    assert report.scanned_from >= 4096
    assert (store.reading.max_offset("T", 1), report.truncated_entries) == (1, 1)
    await store.close()


async def test_a_record_with_a_damaged_queue_offset_does_not_take_the_place_of_the_next_one(tmp_path: Path) -> None:
    """It claims the place of the record behind it, which alone shows that the claim is wrong."""
    store = await open_store(tmp_path)
    places = []
    for number in range(10):
        store.append(message(queue_id=1))  # room in the log, in which the missing one could have been
        places.append(store.append(message(body=b"%d" % number)))
    store.commit()
    abandon(store)
    for path in (tmp_path / "consumequeue" / "T" / "0").iterdir():
        path.unlink()
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(places[5].physical_offset + 20)
        file.write((6).to_bytes(8, "big"))
    store = await open_store(tmp_path)
    found = store.reading.get_messages("T", 0, 0, 32)
    bodies = [record.decode_record(data).body for data in found.records]
    assert bodies == [b"0", b"1", b"2", b"3", b"4", b"6", b"7", b"8", b"9"]
    await store.close()


async def test_a_note_without_the_offset_of_the_index_does_not_count(tmp_path: Path) -> None:
    """The index was behind the log when the note was made, so nothing says how much of it is on disk."""
    store = await open_store(tmp_path)
    put(store, 10)
    store.contents.index.stalled_at = 0
    await store.flushing.flush_thoroughly()
    abandon(store)
    checkpoint = checkpoint_of(tmp_path)
    assert (checkpoint.safe_offset, checkpoint.safe_index_offset) == (store.committed.value, 0)
    store = await open_store(tmp_path)
    assert report_of(store).scanned_from == 0
    assert len(store.reading.query_by_key("T", "0-3", 9, 0, 1 << 60).records) == 1
    await store.close()


@pytest.mark.parametrize("decides", [True, False])
async def test_with_message_index_safe_reading_begins_where_the_index_is_on_disk_too(
    tmp_path: Path, decides: bool
) -> None:
    clock = FakeClock()
    store = await open_store(tmp_path, clock=clock)
    times: list[int] = []
    for number in range(6):  # one message fills a file
        clock.now_ms += 10_000
        times.append(clock.now_ms)
        assert store.append(message(body=bytes(2900), uniq_key=f"u{number}")).is_ok
        store.commit()
    await store.flushing.flush_thoroughly()
    store.contents.checkpoint.forget_offsets()
    store.contents.checkpoint.index_ms = times[2]
    store.contents.checkpoint.save()
    abandon(store)
    store = await open_store(tmp_path, clock=clock, message_index_safe=decides)
    assert report_of(store).scanned_from == (2 if decides else 4) * 4096
    abandon(store)


async def test_an_index_without_entries_is_whole_when_the_note_says_so(tmp_path: Path) -> None:
    """No message has a key. The log in front of the note is not read again in search of one."""
    store = await open_store(tmp_path)
    for _ in range(10):
        assert store.append(message()).is_ok
    store.commit()
    await store.flushing.flush_thoroughly()
    abandon(store)
    with capture_logs() as logs:
        store = await open_store(tmp_path)
    assert report_of(store).scanned_from == store.reading.max_physical_offset
    assert [entry["event"] for entry in logs if "index" in entry["event"]] == []
    await store.close()


async def test_a_recovery_holds_a_bounded_number_of_entries_in_memory(tmp_path: Path) -> None:
    sizes = {"mapped_file_size_commit_log_bytes": 1 << 24, "mapped_file_size_consume_queue_bytes": 2_000_000}
    store = await open_store(tmp_path, **sizes)
    each = message(body=b"")
    for _ in range(50_010):
        store.append(each)
    store.commit()
    abandon(store)
    for path in (tmp_path / "consumequeue" / "T" / "0").iterdir():
        path.unlink()
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files, **sizes)
    assert store.reading.max_offset("T", 0) == 50_010
    assert max(call.size_bytes for call in files.noted("pwrite", where="consumequeue")) == 50_000 * 20
    abandon(store)


@pytest.mark.parametrize("count", [1, 2])
async def test_a_log_that_ends_with_the_last_entry_where_the_note_says_is_not_read(tmp_path: Path, count: int) -> None:
    store = await open_store(tmp_path)
    put(store, count)
    await store.flushing.flush_thoroughly()
    abandon(store)
    store = await open_store(tmp_path)
    assert report_of(store).scanned_from == store.reading.max_physical_offset > 0
    await store.close()


async def test_a_log_whose_last_record_is_not_that_of_the_last_entry_is_read(tmp_path: Path) -> None:
    """Another broker has cut the log and put something else there, of the same length."""
    store = await open_store(tmp_path)
    put(store, 2)
    place = store.reading.queue_entries("T", 0, 1, 1)[0][0]
    await store.flushing.flush_thoroughly()
    abandon(store)
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(place + 12)
        file.write((1).to_bytes(4, "big"))  # its queue
    store = await open_store(tmp_path)
    assert report_of(store).scanned_from == 0
    assert store.reading.max_offset("T", 0) == 1
    await store.close()


async def test_without_log_files_the_report_counts_the_entries_that_go(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    put(store, 7)
    put(store, 3, queue_id=1)
    abandon(store)
    for path in (tmp_path / "commitlog").iterdir():
        path.unlink()
    store = await open_store(tmp_path)
    assert (report_of(store).truncated_entries, store.reading.queues()) == (10, {})
    await store.close()


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
async def test_an_index_file_of_another_size_is_removed_and_made_anew(tmp_path: Path, is_closed: bool) -> None:
    store = await open_store(tmp_path)
    put(store, 10)
    await store.close() if is_closed else abandon(store)
    store = await open_store(tmp_path, max_index_num=70)
    assert len(list((tmp_path / "index").iterdir())) == 1
    for number in range(10):
        assert len(store.reading.query_by_key("T", f"0-{number}", 9, 0, 1 << 60).records) == 1
    await store.close()


async def test_a_file_whose_first_record_has_no_time_says_nothing_about_what_is_on_disk(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await open_store(tmp_path, clock=clock)
    newest_ms = clock.now_ms + 60_000
    for now_ms in (clock.now_ms, 0, newest_ms):  # one message fills a file
        clock.now_ms = now_ms
        assert store.append(message(body=bytes(2900))).is_ok
        store.commit()
    await store.flushing.flush_thoroughly()
    store.contents.checkpoint.forget_offsets()
    abandon(store)
    store = await open_store(tmp_path, clock=clock)
    assert report_of(store).scanned_from == 0
    abandon(store)


async def test_a_log_without_queue_entries_is_not_read_after_a_clean_exit(tmp_path: Path) -> None:
    """It has a half message only, which enters no queue."""
    store = await open_store(tmp_path)
    assert store.append(message(sys_flag=4)).is_ok
    await store.close()
    store = await open_store(tmp_path)
    assert (report_of(store).records, store.reading.max_physical_offset > 0) == (0, True)
    await store.close()


class CountedSteps:
    """A listener that counts the steps of a scan."""

    every_ms = 0

    def __init__(self) -> None:
        self.count = 0

    def tell(self, state: State) -> None:
        self.count += 1

    def end(self) -> None:
        pass


@pytest.mark.parametrize(
    ("count", "body_bytes", "steps"), [(1000, 0, 0), (2500, 0, 2), (14, 1 << 20, 2)], ids=["one", "records", "bytes"]
)
async def test_a_step_of_recovery_is_1024_records_or_4_mib(
    tmp_path: Path, count: int, body_bytes: int, steps: int
) -> None:
    """Long enough to cost nothing, short enough to notice a signal."""
    sizes = {"mapped_file_size_commit_log_bytes": 1 << 25, "max_message_size_bytes": 2 << 20}
    store = await open_store(tmp_path, **sizes)
    for _ in range(count):
        assert store.append(message(body=bytes(body_bytes))).is_ok
    store.commit()
    abandon(store)
    (tmp_path / "checkpoint").unlink(missing_ok=True)
    counted = CountedSteps()
    store = DefaultMessageStore(small_settings(tmp_path, **sizes), now_ms=FakeClock())
    await store.load(counted)
    assert (report_of(store).records, counted.count) == (count, steps)
    abandon(store)


async def test_a_checkpoint_during_retention_says_that_it_counted_no_entries(tmp_path: Path) -> None:
    """The log has lost files, and their entries are still in the queues: their number would soon be wrong."""
    store = await open_store(tmp_path)
    for _ in range(5):
        assert store.append(message(body=bytes(2900))).is_ok
    store.commit()
    await store.flushing.flush_thoroughly()
    assert checkpoint_of(tmp_path).safe_entries == 5
    store.contents.log.sequence.drop_first()
    await store.flushing.flush_thoroughly()
    assert (checkpoint_of(tmp_path).safe_entries, checkpoint_of(tmp_path).safe_begin) == (-1, 4096)
    abandon(store)


async def test_the_record_in_place_of_a_damaged_one_is_a_rolled_back_one_of_a_topic_of_its_own(tmp_path: Path) -> None:
    """Every reader, RocketMQ included, passes over it. Its time is that of the next record, which the search by time
    and the start of a later recovery need."""
    store = await open_store(tmp_path, clock=FakeClock(step_ms=1000))
    places = [store.append(message(body=b"%d" % number * 100)) for number in range(5)]
    store.commit()
    await sync_log(store)
    abandon(store)
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(places[2].physical_offset + 100)
        file.write(b"damage")
    store = await open_store(tmp_path)
    found = record.decode_record(store.contents.log.record_at(places[2].physical_offset) or b"")
    assert (found.topic, found.queue_id, found.queue_offset, found.flag) == ("rmq_sys_TRIOMQ_LOST", 0, 0, 0)
    assert (found.sys_flag, found.reconsume_times, found.prepared_transaction_offset) == (12, 0, 0)
    assert found.store_timestamp == found.born_timestamp == places[3].store_timestamp
    assert b"the body does not match its CRC" in found.body and found.properties == {}
    assert store.reading.record_at(places[2].physical_offset) is None
    await store.close()


async def test_entries_of_another_broker_that_lie_ahead_of_the_log_are_counted_and_removed(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    put(store, 5)
    queue = store.contents.queues.get("T", 0)
    for number in range(3):
        queue.add(store.committed.value + number * 100, 100, 0)
    queue.write(set())
    await store.close()
    (tmp_path / "checkpoint").unlink()
    store = await open_store(tmp_path)
    report = report_of(store)
    assert (report.was_clean, report.truncated_entries, store.reading.max_offset("T", 0)) == (True, 3, 5)
    await store.close()


async def test_a_start_knows_up_to_where_retention_has_cleaned_the_queues(tmp_path: Path) -> None:
    """Otherwise no checkpoint would count the entries before retention has run again."""
    store = await open_store(tmp_path)
    for _ in range(4):
        assert store.append(message(body=bytes(2900))).is_ok
    store.commit()
    store.contents.log.sequence.drop_first()
    store.contents.queues.cleaned_start = store.reading.min_physical_offset
    await store.close()
    assert checkpoint_of(tmp_path).safe_entries == 4
    store = await open_store(tmp_path)
    assert store.contents.queues.cleaned_start == store.reading.min_physical_offset == 4096
    await store.flushing.flush_thoroughly()
    assert checkpoint_of(tmp_path).safe_entries == 4
    await store.close()
