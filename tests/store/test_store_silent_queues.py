"""Queues of whose messages a slave's log has none: their ends come from the master, and stay."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from store_faults import RecordingFiles, crash
from store_support import abandon, message, open_store
from structlog.testing import capture_logs

from triomq.store.config import BrokerRole
from triomq.store.disk.files import Files
from triomq.store.errors import LogCut
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import GetStatus

FILE_BYTES = 4096
PER_FILE = 10
"""How many entries a queue file has."""


async def late_slave(root: Path, files: Files | None = None) -> DefaultMessageStore:
    """A slave whose log begins at the second file of its master's: it has messages of T, and none of Early."""
    master = await open_store(root / "master")
    for number in range(60):
        topic = "Early" if number < 3 else "T"
        assert master.append(message(topic, body=b"%d" % number * 30)).is_ok
    master.commit()
    store = await open_store(root / "slave", files=files, broker_role=BrokerRole.SLAVE)
    end = master.reading.max_physical_offset
    for begin in range(FILE_BYTES, end, FILE_BYTES):
        data = master.reading.read_log(begin, min(FILE_BYTES, end - begin))
        assert store.replica.append(begin, data)
        store.replica.dispatch()
    abandon(master)
    assert store.reading.min_physical_offset == FILE_BYTES
    return store


def bounds(store: DefaultMessageStore, topic: str = "Early") -> tuple[int, int]:
    return store.reading.min_offset(topic, 0), store.reading.max_offset(topic, 0)


async def led(root: Path) -> DefaultMessageStore:
    """Open the slave's store as that of a master."""
    return await open_store(root / "slave")


@pytest.mark.parametrize("end", [1, 3, PER_FILE, PER_FILE + 1, 7 * PER_FILE, 7 * PER_FILE + 4])
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
async def test_the_end_of_a_queue_without_messages_stays_over_a_restart_as_a_master(
    tmp_path: Path, end: int, is_killed: bool
) -> None:
    store = await late_slave(tmp_path)
    assert store.silent_queues.may_exist and store.silent_queues.has("Early", 0)
    assert store.silent_queues.raise_end("Early", 0, end)
    assert bounds(store) == (end, end)
    if is_killed:
        abandon(store)
    else:
        await store.close()
    store = await led(tmp_path)
    assert bounds(store) == (end, end)
    assert store.reading.get_messages("Early", 0, end, 32).status is GetStatus.OFFSET_OVERFLOW_ONE
    put = store.append(message("Early", body=b"next"))
    store.commit()
    assert (put.queue_offset, bounds(store)) == (end, (end, end + 1))
    assert len(store.reading.get_messages("Early", 0, end, 32).records) == 1
    abandon(store)
    store = await led(tmp_path)
    assert bounds(store) == (end, end + 1)
    await store.close()


@pytest.mark.parametrize("is_flushed_again", [False, True])
async def test_a_start_after_a_kill_takes_an_end_that_was_kept_for_no_loss(
    tmp_path: Path, is_flushed_again: bool
) -> None:
    """The note in the checkpoint counts ends: it must not speak of others."""
    store = await late_slave(tmp_path)
    await store.flushing.flush_thoroughly()
    assert store.silent_queues.raise_end("Early", 0, 3)
    if is_flushed_again:
        await store.flushing.flush_thoroughly()
    end = store.reading.max_physical_offset
    abandon(store)
    with capture_logs() as lines:
        store = await led(tmp_path)
    report = store.recovery_report
    assert report is not None and (report.scanned_from == end) == is_flushed_again
    assert not [line for line in lines if "reading the whole log" in line["event"]]
    assert bounds(store) == (3, 3)
    await store.close()


async def test_only_a_slave_keeps_an_end_and_only_a_later_one_of_a_queue_without_messages(tmp_path: Path) -> None:
    store = await late_slave(tmp_path)
    end = store.reading.max_offset("T", 0)
    assert not store.silent_queues.has("T", 0) and not store.silent_queues.raise_end("T", 0, end + 5)
    assert store.silent_queues.raise_end("Early", 0, 5)
    assert not store.silent_queues.raise_end("Early", 0, 4)
    assert not store.silent_queues.raise_end("Early", 0, 1 << 60)
    assert not store.silent_queues.raise_end("../Early", 0, 5)
    assert bounds(store, "T")[1] == end and bounds(store) == (5, 5)
    await store.close()
    store = await led(tmp_path)
    assert not store.silent_queues.raise_end("Early", 0, 9)
    assert not store.silent_queues.raise_end("New", 0, 9) and "New" not in store.reading.queues()
    await store.close()


async def test_messages_of_the_master_follow_an_end_that_was_kept(tmp_path: Path) -> None:
    master = await open_store(tmp_path / "source")
    for number in range(60):
        master.append(message("Early" if number < 3 or number == 59 else "T", body=b"%d" % number * 30))
    master.commit()
    last = max(master.reading.queue_entries("Early", 0, 3, 1))[0]
    end = master.reading.max_physical_offset
    store = await open_store(tmp_path / "slave", broker_role=BrokerRole.SLAVE)
    for begin, stop in ((FILE_BYTES, 2 * FILE_BYTES), (2 * FILE_BYTES, last), (last, end)):
        if begin == last:
            assert store.silent_queues.raise_end("Early", 0, 3)
        assert store.replica.append(begin, master.reading.read_log(begin, stop - begin))
        store.replica.dispatch()
    assert bounds(store) == (3, 4)
    abandon(master)
    await store.close()


async def test_a_later_end_far_behind_messages_that_are_gone_takes_their_files_along(tmp_path: Path) -> None:
    """Millions of fillers would join them."""
    store = await late_slave(tmp_path)
    assert store.silent_queues.raise_end("Early", 0, 3)
    ended: list[Exception | None] = []
    store.reading.queue_end("Early", 0).call_beyond(3, ended.append)
    end = 1_000_000 * PER_FILE + 4
    assert store.silent_queues.raise_end("Early", 0, end)
    assert bounds(store) == (end, end) and isinstance(ended[0], LogCut)
    directory = tmp_path / "slave" / "consumequeue" / "Early" / "0"
    assert [path.name for path in directory.iterdir()] == [f"{1_000_000 * 200:020}"]
    await store.close()
    store = await led(tmp_path)
    assert bounds(store) == (end, end)
    await store.close()


async def test_a_power_failure_leaves_an_end_or_a_queue_that_is_asked_for_again(tmp_path: Path) -> None:
    files = RecordingFiles()
    store = await late_slave(tmp_path, files)
    await store.flushing.flush_thoroughly()
    begin = len(files.journal)
    end = 6 * PER_FILE + 7
    assert store.silent_queues.raise_end("Early", 0, PER_FILE - 3)
    assert store.silent_queues.raise_end("Early", 0, end)
    middle = len(files.journal)
    await store.flushing.flush_thoroughly()
    abandon(store)
    messages = bounds(store, "T")
    choose = Random(7)
    for at in range(begin, len(files.journal) + 1):
        for survive in (0.0, 0.3, 0.7, 1.0):
            target = tmp_path / f"{at}-{survive}"
            crash(files.journal, at, str(tmp_path / "slave"), target, choose, survive)
            after = await open_store(target, broker_role=BrokerRole.SLAVE)
            low, high = bounds(after)
            assert low == high and high <= end and after.silent_queues.has("Early", 0)
            if at == len(files.journal):
                assert high == end, "what was synced stays"
            assert bounds(after, "T") == messages
            assert after.silent_queues.raise_end("Early", 0, end) == (high < end)
            assert bounds(after) == (end, end)
            abandon(after)
            again = await open_store(target, broker_role=BrokerRole.SLAVE)
            assert bounds(again) == (end, end)
            abandon(again)
    assert begin < middle


async def test_a_queue_that_begins_anew_below_its_files_has_its_messages_at_their_places(tmp_path: Path) -> None:
    """RocketMQ's master writes no record of a deletion: a topic that was made again has messages from 0 on."""
    master = await open_store(tmp_path / "source")
    for number in range(3):
        master.append(message("Early", body=b"new %d" % number))
    for number in range(50):
        master.append(message("T", body=b"%d" % number * 30))
    master.commit()
    store = await open_store(tmp_path / "slave", broker_role=BrokerRole.SLAVE)
    data = master.reading.read_log(0, FILE_BYTES)
    assert store.silent_queues.raise_end("Early", 0, 25)
    ended: list[Exception | None] = []
    store.reading.queue_end("Early", 0).call_beyond(30, ended.append)
    assert store.replica.append(0, data)
    store.replica.dispatch()
    assert bounds(store) == (0, 3) and isinstance(ended[0], LogCut)
    assert store.reading.get_messages("Early", 0, 1, 1).records[0].endswith(b"new 1\x05Early\x00\x00")
    abandon(master)
    await store.close()
    store = await led(tmp_path)
    assert bounds(store) == (0, 3) and [queue.sequence.first_start for queue in store.contents.queues] == [0, 0]
    await store.close()


async def test_a_message_far_behind_those_that_are_gone_is_at_its_place_and_needs_no_fillers_between(
    tmp_path: Path,
) -> None:
    """A slave, or a member of a group, was away while the master had millions of messages of a queue."""
    master = await late_slave(tmp_path / "source")
    begin = 1_000_000 * PER_FILE + 4
    assert master.silent_queues.raise_end("Early", 0, begin)
    await master.close()
    master = await led(tmp_path / "source")
    late = master.append(message("Early", body=b"late"))
    master.commit()
    assert late.queue_offset == begin
    store = await late_slave(tmp_path)
    assert store.silent_queues.raise_end("Early", 0, 3)
    assert store.replica.append(late.physical_offset, master.reading.read_log(late.physical_offset, late.size_bytes))
    store.replica.dispatch()
    assert bounds(store) == (begin, begin + 1)
    directory = tmp_path / "slave" / "consumequeue" / "Early" / "0"
    assert [path.name for path in directory.iterdir()] == [f"{1_000_000 * 200:020}"]
    abandon(master)
    await store.close()


async def test_an_end_that_is_kept_during_a_flush_is_in_no_note_of_it(tmp_path: Path) -> None:
    """The note counts the ends of the moment in which the flush began."""
    store = await late_slave(tmp_path)
    thread = store.flushing._syncs._offload
    kept: list[bool] = []

    async def keep_first(function: Any, *arguments: Any) -> Any:
        if not kept:
            kept.append(store.silent_queues.raise_end("Early", 0, 3))
        return await thread(function, *arguments)

    store.flushing._syncs._offload = keep_first
    await store.flushing.flush_thoroughly()
    assert kept == [True]
    abandon(store)
    with capture_logs() as lines:
        store = await led(tmp_path)
    assert not [line for line in lines if "reading the whole log" in line["event"]]
    assert bounds(store) == (3, 3)
    await store.close()
