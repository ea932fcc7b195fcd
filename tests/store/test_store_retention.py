"""Retention: what it deletes, when, and what stays."""

from __future__ import annotations

import errno
import os
from datetime import datetime
from pathlib import Path

import pytest
import trio
from fake_clock import FakeClock
from file_faults import FaultyFiles
from store_support import message, open_store, unique_key

from triomq.protocol import record
from triomq.store.config import BrokerRole
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import GetStatus, PutStatus

HOUR_MS = 3_600_000
NOON_MS = int(datetime(2026, 5, 5, 12).timestamp() * 1000)
FOUR_MS = int(datetime(2026, 5, 5, 4, 30).timestamp() * 1000)


async def filled(
    root: Path, clock: FakeClock, files: FaultyFiles, count: int = 200, **changes: object
) -> DefaultMessageStore:
    """Create a store of about 10 log files, all last written at the clock's time."""
    store = await open_store(root, clock=clock, files=files, **changes)
    for number in range(count):
        assert store.append(message("T", number % 3, bytes(100), uniq_key=unique_key())).is_ok
    store.commit()
    age(root, clock.now_ms)
    return store


def age(root: Path, modified_ms: int) -> None:
    for path in (root / "commitlog").iterdir():
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))


def log_files(root: Path) -> list[int]:
    return sorted(int(path.name) for path in (root / "commitlog").iterdir())


def counted(store: DefaultMessageStore) -> dict[str, int]:
    """Return reason -> deleted log files, without the reasons that had none."""
    counts = store.upkeep.deleted_files
    assert set(counts) == {"expired", "asked", "disk_full", "max_store_bytes"}
    return {reason: count for reason, count in counts.items() if count}


def check_consistent(store: DefaultMessageStore) -> None:
    """Check that queues and index point to existing records, from the first message on."""
    start = store.reading.min_physical_offset
    for topic, queue_ids in store.reading.queues().items():
        for queue_id in queue_ids:
            low = store.reading.min_offset(topic, queue_id)
            if low == store.reading.max_offset(topic, queue_id):
                continue  # all its messages are gone
            found = store.reading.get_messages(topic, queue_id, low, 1)
            assert found.status is GetStatus.FOUND
            assert found.next_begin_offset == low + 1
            first = record.decode_record(found.records[0])
            assert first.queue_offset == low and first.physical_offset >= start
            if low:
                assert store.reading.get_messages(topic, queue_id, low - 1, 1).status is GetStatus.OFFSET_TOO_SMALL
            assert store.reading.query_by_key(topic, first.uniq_key or "", 1, 0, 1 << 60).physical_offsets == [
                first.physical_offset
            ]
    for queue in store.contents.queues:
        files = queue.sequence.files
        assert len(files) == 1 or (queue.entry(files[0].end // 20 - 1) or (0,))[0] >= start
    assert all(file.end_physical_offset >= start for file in store.contents.index.files)


async def test_expired_files_go_at_their_hour(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    clock = FakeClock(NOON_MS)
    store = await filled(tmp_path, clock, FaultyFiles(usage=0.5))
    before = log_files(tmp_path)
    assert len(before) > 6
    clock.now_ms += 80 * HOUR_MS  # 20:00, not the hour of deleteWhen
    assert await store.retention.clean() == 0
    clock.now_ms = FOUR_MS + 4 * 24 * HOUR_MS
    recently_ns = clock.now_ms * 1_000_000
    os.utime(tmp_path / "commitlog" / f"{before[4]:020d}", ns=(recently_ns, recently_ns))  # it and those after it stay
    assert await store.retention.clean() == 4
    assert counted(store) == {"expired": 4}
    assert log_files(tmp_path) == before[4:]
    assert store.reading.min_physical_offset == before[4]
    check_consistent(store)
    await store.close()
    store = await open_store(tmp_path, clock=clock)
    assert store.reading.min_physical_offset == before[4]
    check_consistent(store)
    await store.close()


async def test_files_written_while_the_clock_was_ahead_expire_with_those_behind_them(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    files, clock = FaultyFiles(usage=0.5), FakeClock(NOON_MS)
    store = await filled(tmp_path, clock, files)
    before = log_files(tmp_path)
    year_ms = 365 * 24 * HOUR_MS
    for offset in before[:3]:
        ahead_ns = (NOON_MS + year_ms) * 1_000_000
        os.utime(tmp_path / "commitlog" / f"{offset:020d}", ns=(ahead_ns, ahead_ns))
    clock.now_ms = FOUR_MS + 24 * HOUR_MS
    assert await store.retention.clean() == 0, "their time has not come"
    clock.now_ms = FOUR_MS + 24 * 4 * HOUR_MS
    assert await store.retention.clean() >= 3
    await store.close()


async def test_the_last_file_stays_and_a_run_has_a_limit(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clock = FakeClock(NOON_MS)
    store = await filled(tmp_path, clock, FaultyFiles(usage=0.5), 400)
    assert len(log_files(tmp_path)) > 12
    clock.now_ms += 80 * HOUR_MS
    store.upkeep.delete_files_now()
    assert await store.retention.clean() == 10
    await store.retention.clean()
    await store.retention.clean()
    assert len(log_files(tmp_path)) == 1
    check_consistent(store)
    put = store.append(message("T", 0, b"more"))
    store.commit()
    assert put.is_ok
    await store.close()


async def test_a_file_that_cannot_be_deleted_is_tried_again_before_any_other(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clock = FakeClock(NOON_MS)
    files = FaultyFiles(usage=0.5)
    files.fail(PermissionError(errno.EPERM, "not yours"), "unlink", times=2)
    store = await filled(tmp_path, clock, files, redelete_hung_file_interval_ms=60_000)
    before = log_files(tmp_path)
    clock.now_ms += 80 * HOUR_MS
    store.upkeep.delete_files_now()
    for _ in range(2):
        with pytest.raises(PermissionError):
            await store.retention.clean()
        assert await store.retention.clean() == 0  # not before its time
        assert log_files(tmp_path) == before
        assert store.reading.min_physical_offset == before[1]
        assert counted(store) == {}, "it is still there"
        await trio.sleep(59.99)
        assert await store.retention.clean() == 0
        await trio.sleep(0.02)
    gone = await store.retention.clean()
    assert gone > 0
    assert before[0] not in log_files(tmp_path)
    assert counted(store) == {"asked": gone + 1}, "the first file counts, too"
    check_consistent(store)
    await store.close()


async def test_of_a_log_in_several_directories_no_file_outlives_an_older_one_in_a_power_failure(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A later file without its predecessor would be a gap, with which no store starts."""
    both = [f"{tmp_path}/log-a", f"{tmp_path}/log-b"]
    clock, files = FakeClock(NOON_MS), FaultyFiles(usage=0.5)
    store = await open_store(tmp_path, clock=clock, files=files, store_path_commit_log=",".join(both))
    for _ in range(200):
        store.append(message("T", 0, bytes(100)))
    store.commit()
    clock.now_ms += 10**6 * HOUR_MS
    store.upkeep.delete_files_now()
    files.calls.clear()
    gone = await store.retention.clean()
    steps = [
        ("synced", call.path) if call.name == "sync_directory" else ("gone", os.path.dirname(call.path))
        for call in files.noted("unlink", "sync_directory")
    ]
    of_log = [step for step in steps if step[1] in both]
    assert gone > 3
    assert of_log == [
        step for number in range(gone) for step in (("gone", both[number % 2]), ("synced", both[number % 2]))
    ]
    await store.close()


@pytest.mark.parametrize(("ratio", "reserved", "gone"), [(0.8, 0, 10), (0.8, 72, 0), (0.87, 72, 10), (0.7, 0, 0)])
async def test_a_filling_disk(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, ratio: float, reserved: int, gone: int
) -> None:
    clock = FakeClock(NOON_MS)
    files = FaultyFiles(usage=0.5)
    store = await filled(tmp_path, clock, files, 400, file_reserved_time_hours=reserved)
    files.usage = ratio
    clock.now_ms += HOUR_MS
    assert await store.retention.clean() == gone
    assert counted(store) == ({"disk_full" if ratio > 0.85 else "expired": gone} if gone else {})
    await store.close()


async def test_a_full_disk_refuses_puts(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    files = FaultyFiles(usage=0.5)
    store = await open_store(tmp_path, files=files)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        assert store.append(message()).is_ok
        files.usage = 0.95
        await trio.sleep(12)
        refused = store.append(message())
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE and "95.0%" in refused.reason
        files.usage = 0.89
        assert store.append(message()).is_ok
        nursery.cancel_scope.cancel()
    await store.close()


async def test_a_limit_for_the_whole_log(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    store = await filled(tmp_path, FakeClock(NOON_MS), FaultyFiles(usage=0.5), max_store_bytes=3 * 4096)
    end = store.reading.max_physical_offset
    gone = await store.retention.clean()
    assert counted(store) == {"max_store_bytes": gone}
    assert end - store.reading.min_physical_offset <= 3 * 4096
    check_consistent(store)
    await store.close()


async def test_a_manual_request_runs_at_once(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    clock = FakeClock(NOON_MS)
    store = await filled(tmp_path, clock, FaultyFiles(usage=0.5), file_reserved_time_hours=0)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        clock.now_ms += HOUR_MS
        store.upkeep.delete_files_now()
        await trio.sleep(5)
        assert len(log_files(tmp_path)) == 1
        nursery.cancel_scope.cancel()
    await store.close()


def nothing_used(topic: str) -> bool:
    return False


async def test_topics_and_expired_queues(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    clock = FakeClock(NOON_MS)
    store = await open_store(tmp_path, clock=clock, files=FaultyFiles(usage=0.5), file_reserved_time_hours=0)
    store.append(message("Old", 0, b"x"))
    for number in range(100):
        store.append(message("T", number % 2, bytes(200)))
    store.append(message("Unused", 1, b"x"))
    store.commit()
    end = store.reading.queue_end("Unused", 1)
    assert store.upkeep.delete_expired_queues(nothing_used) == 0
    age(tmp_path, clock.now_ms)
    clock.now_ms += HOUR_MS
    store.upkeep.delete_files_now()
    await store.retention.clean()
    assert store.reading.min_offset("Old", 0) == store.reading.max_offset("Old", 0) == 1
    assert store.upkeep.delete_expired_queues(lambda topic: topic == "Old") == 0
    assert store.reading.max_offset("Old", 0) == 1, "a topic that is used begins behind what it had"
    assert store.upkeep.delete_expired_queues(nothing_used) == 1
    assert store.reading.queues() == {"T": [0, 1], "Unused": [1]}
    assert store.upkeep.delete_unused_topics(["T"]) == 1
    assert store.reading.queues() == {"T": [0, 1]}
    assert end.error is not None
    assert sorted(path.name for path in (tmp_path / "consumequeue").iterdir()) == ["T"]
    assert store.append(message("Unused", 1, b"again")).queue_offset == 0
    store.commit()
    await store.close()
    store = await open_store(tmp_path)
    assert store.reading.queues() == {"T": [0, 1], "Unused": [1]}
    await store.close()


async def test_between_two_files_of_a_kind_the_cleaner_pauses(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Deleting a large file keeps the disk busy; the pauses leave it to readers and writers."""
    clock = FakeClock(NOON_MS)
    pauses = {"delete_commit_log_files_interval_ms": 10_000, "delete_consume_queue_files_interval_ms": 1000}
    store = await filled(tmp_path, clock, FaultyFiles(usage=0.5), **pauses)

    def count(name: str) -> int:
        return sum(path.is_file() for path in (tmp_path / name).rglob("*"))

    before = {name: count(name) for name in ("commitlog", "consumequeue", "index")}
    clock.now_ms += 80 * HOUR_MS
    store.upkeep.delete_files_now()
    began = trio.current_time()
    gone = await store.retention.clean()
    others = sum(before[name] - count(name) for name in ("consumequeue", "index"))
    assert gone == before["commitlog"] - count("commitlog") > 2
    assert before["consumequeue"] - count("consumequeue") > 2 and before["index"] - count("index") > 2
    assert trio.current_time() - began == (gone - 1) * 10 + others * 1
    await store.close()


async def test_a_log_truncated_during_a_pause_keeps_its_last_file(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A slave cuts what differs from its master, which may be most of the files that the cleaner has seen."""
    clock = FakeClock(NOON_MS)
    master = await filled(tmp_path, clock, FaultyFiles(usage=0.5))
    await master.close()
    pauses = {"delete_commit_log_files_interval_ms": 10_000}
    store = await open_store(
        tmp_path, clock=clock, files=FaultyFiles(usage=0.5), broker_role=BrokerRole.SLAVE, **pauses
    )
    before = log_files(tmp_path)
    assert len(before) > 6
    age(tmp_path, clock.now_ms - 80 * HOUR_MS)
    store.upkeep.delete_files_now()
    border = await store.replica.border(before[2] + 1500)
    assert border > before[2]
    gone: list[int] = []

    async def clean() -> None:
        gone.append(await store.retention.clean())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(clean)
        await trio.sleep(5)
        assert log_files(tmp_path) == before[1:]
        assert await store.replica.cut(border) is not None
        assert log_files(tmp_path) == before[1:3]
    assert gone == [2]
    assert log_files(tmp_path) == [before[2]]
    assert store.reading.max_physical_offset == border
    check_consistent(store)
    await store.close()
