"""A slave's store by itself: which bytes it takes, which records it enters, and where it can be cut."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from fake_clock import FakeClock
from store_support import abandon, message, open_store, small_settings

from triomq.protocol import record
from triomq.store.config import BrokerRole
from triomq.store.errors import LogCut
from triomq.store.message_store import DefaultMessageStore

FILE_BYTES = 4096


async def open_slave(root: Path, **changes: object) -> DefaultMessageStore:
    return await open_store(root, broker_role=BrokerRole.SLAVE, **changes)


async def master_log(root: Path, bodies: list[bytes], **changes: object) -> tuple[bytes, list[int]]:
    """The log of a master with these messages of one queue, and where each begins."""
    store = await open_store(root)
    places = [
        store.append(message(body=body, uniq_key=f"u{number}", **changes)).physical_offset
        for number, body in enumerate(bodies)
    ]
    store.commit()
    end = store.reading.max_physical_offset
    abandon(store)
    files = sorted((root / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files)[:end], places


def bodies_of(store: DefaultMessageStore, queue_id: int = 0) -> list[bytes]:
    found: list[bytes] = []
    at = store.reading.min_offset("T", queue_id)
    while at < store.reading.max_offset("T", queue_id):
        result = store.reading.get_messages("T", queue_id, at, 64)
        found += [record.decode_record(data).body for data in result.records]
        at = result.next_begin_offset
    return found


def saved_bytes(path: str) -> bytes:
    return Path(path).read_bytes()


def feed(store: DefaultMessageStore, data: bytes, begin: int, size: int) -> None:
    """Hand over the bytes from `begin` on in pieces of this size that cross no file end."""
    while begin < len(data):
        stop = min(begin + size, len(data), begin - begin % FILE_BYTES + FILE_BYTES)
        assert store.replica.append(begin, data[begin:stop])
        store.replica.dispatch()
        begin = stop


@pytest.mark.parametrize("size", [1, 7, 100, 4096])
async def test_records_are_entered_when_they_are_whole_however_their_bytes_arrive(tmp_path: Path, size: int) -> None:
    bodies = [b"%d" % number * 90 for number in range(30)]
    data, places = await master_log(tmp_path / "master", bodies)
    assert len(data) > FILE_BYTES
    store = await open_slave(tmp_path / "slave")
    feed(store, data, 0, size)
    assert bodies_of(store) == bodies
    assert store.replica.is_whole and store.replica.fault is None
    found = store.reading.query_by_key("T", "u7", 9, 0, 1 << 60)
    assert found.physical_offsets == [places[7]]
    await store.close()


async def test_a_record_is_entered_with_its_last_byte_and_the_log_is_whole_only_then(tmp_path: Path) -> None:
    data, _ = await master_log(tmp_path / "master", [b"one", b"two"])
    store = await open_slave(tmp_path / "slave")
    feed(store, data[:-1], 0, 4096)
    assert (bodies_of(store), store.replica.is_whole) == ([b"one"], False)
    feed(store, data, len(data) - 1, 1)
    assert (bodies_of(store), store.replica.is_whole) == ([b"one", b"two"], True)
    await store.close()


async def test_bytes_are_taken_only_at_the_end_of_the_log_and_within_one_file(tmp_path: Path) -> None:
    data, _ = await master_log(tmp_path / "master", [b"%d" % number * 200 for number in range(20)])
    store = await open_slave(tmp_path / "slave")
    assert store.replica.append(0, data[:1000])
    assert not store.replica.append(999, data[999:1200])
    assert not store.replica.append(1001, data[1001:1200])
    assert not store.replica.append(1000, data[1000 : FILE_BYTES + 1]), "one byte too many for the file"
    assert store.replica.append(1000, data[1000:FILE_BYTES])
    assert store.replica.append(FILE_BYTES, data[FILE_BYTES:])
    store.replica.dispatch()
    assert store.reading.max_physical_offset == len(data) and len(bodies_of(store)) == 20
    await store.close()


async def test_the_log_of_an_empty_slave_begins_where_the_first_bytes_belong(tmp_path: Path) -> None:
    """Its queues begin with the first message that it has, at the offset of the master."""
    data, places = await master_log(tmp_path / "master", [b"%d" % number * 200 for number in range(20)])
    store = await open_slave(tmp_path / "slave")
    feed(store, data, FILE_BYTES, 4096)
    first = next(number for number, place in enumerate(places) if place >= FILE_BYTES)
    assert store.reading.min_physical_offset == FILE_BYTES
    assert (store.reading.min_offset("T", 0), store.reading.max_offset("T", 0)) == (first, 20)
    await store.close()


@pytest.mark.parametrize("size", [90, 4097, 1 << 30])
async def test_where_no_record_can_begin_nothing_more_is_taken(tmp_path: Path, size: int) -> None:
    data, places = await master_log(tmp_path / "master", [b"one", b"two", b"three"])
    wrong = bytearray(data)
    wrong[places[1] : places[1] + 4] = size.to_bytes(4, "big")
    store = await open_slave(tmp_path / "slave")
    assert store.replica.append(0, bytes(wrong))
    store.replica.dispatch()
    assert str(places[1]) in (store.replica.fault or "") and str(size) in (store.replica.fault or "")
    assert not store.replica.append(len(data), b"more")
    assert bodies_of(store) == [b"one"]
    await store.close()


async def test_bytes_that_only_begin_like_a_record_enter_no_queue_and_cost_no_other(tmp_path: Path) -> None:
    data, places = await master_log(tmp_path / "master", [b"one", b"two", b"three"])
    wrong = bytearray(data)
    at = places[1] + 84  # the length of the body
    wrong[at : at + 4] = (1 << 20).to_bytes(4, "big")
    store = await open_slave(tmp_path / "slave")
    assert store.replica.append(0, bytes(wrong))
    store.replica.dispatch()
    assert store.replica.fault is None
    assert bodies_of(store) == [b"one", b"three"]
    assert store.reading.max_offset("T", 0) == 3, "a filler has the place of the one between"
    await store.close()


async def test_the_border_of_any_byte_is_the_begin_of_its_record(tmp_path: Path) -> None:
    data, places = await master_log(tmp_path / "master", [b"%d" % number * 400 for number in range(12)])
    store = await open_slave(tmp_path / "slave")
    feed(store, data, 0, 4096)
    end_of_first_file = max(place for place in places if place < FILE_BYTES)
    size = int.from_bytes(data[end_of_first_file : end_of_first_file + 4], "big")
    borders = sorted([*places, end_of_first_file + size, len(data)])  # the blank record counts, too
    for offset in range(0, len(data) + 1, 13):
        assert await store.replica.border(offset) == max(border for border in borders if border <= offset), offset
    for place in places:
        assert await store.replica.border(place) == place
        assert await store.replica.border(place + 1) == place
    await store.close()


async def test_the_search_for_a_border_lets_other_tasks_run(tmp_path: Path) -> None:
    store = await open_slave(tmp_path / "slave", mapped_file_size_commit_log_bytes=1 << 20)
    master = await open_store(tmp_path / "master", mapped_file_size_commit_log_bytes=1 << 20)
    for _ in range(8300):  # two looks: in a round of the event loop the one or the other task may be first
        put = master.append(message(body=b""))
    master.commit()
    assert store.replica.append(0, master.reading.read_log(0, 1 << 20))
    store.replica.dispatch()
    looks = 0

    async def watch() -> None:
        nonlocal looks
        while True:
            looks += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await trio.lowlevel.checkpoint()
        before = looks
        assert await store.replica.border(put.last_offset) == put.physical_offset
        assert looks > before
        nursery.cancel_scope.cancel()
    abandon(master)
    await store.close()


async def test_a_cut_takes_away_what_lies_behind_it_and_wakes_who_waits_for_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    data, places = await master_log(tmp_path / "master", [b"%d" % number * 200 for number in range(20)])
    store = await open_slave(tmp_path / "slave")
    feed(store, data, 0, 4096)
    await store.flushing.flush_log()
    told: list[Exception | None] = []
    store.committed.call_beyond(len(data), told.append)
    store.reading.queue_end("T", 0).call_beyond(20, told.append)
    saved = await store.replica.cut(places[8])
    assert saved is not None and saved_bytes(saved) == data[places[8] :]
    assert [type(error) for error in told] == [LogCut, LogCut]
    assert (store.committed.value, store.flushed.value, store.reading.queue_end("T", 0).value) == (
        places[8],
        places[8],
        8,
    )
    assert len(bodies_of(store)) == 8
    assert store.reading.query_by_key("T", "u8", 9, 0, 1 << 60).records == []
    assert len(store.reading.query_by_key("T", "u7", 9, 0, 1 << 60).records) == 1
    feed(store, data, places[8], 4096)
    assert len(bodies_of(store)) == 20
    await store.close()


async def test_a_cut_is_refused_at_the_ends_of_the_log_and_for_a_master(tmp_path: Path) -> None:
    data, places = await master_log(tmp_path / "master", [b"%d" % number * 200 for number in range(20)])
    store = await open_slave(tmp_path / "slave")
    feed(store, data, FILE_BYTES, 4096)
    for offset in (0, FILE_BYTES, len(data), len(data) + 1):
        assert await store.replica.cut(offset) is None, offset
    assert store.reading.max_physical_offset == len(data)
    await store.close()
    store = await open_store(tmp_path / "master")
    assert await store.replica.cut(places[8]) is None
    await store.close()


async def test_a_cut_is_refused_while_the_index_waits_for_room(tmp_path: Path) -> None:
    """What it still has to take from the log, a cut could take away, from the first record on."""
    data, places = await master_log(tmp_path / "master", [b"%d" % number * 200 for number in range(9)])
    store = await open_slave(tmp_path / "slave")
    feed(store, data, 0, 4096)
    store.contents.index.stalled_at = 0
    assert await store.replica.cut(places[8]) is None
    store.contents.index.stalled_at = -1
    assert await store.replica.cut(places[8]) is not None
    await store.close()


async def test_the_further_queues_of_a_message_begin_at_the_masters_offset_too(tmp_path: Path) -> None:
    """A slave that has only the end of the log fills each of them up to its first message there."""
    options = {"enable_multi_dispatch": True, "enable_lmq": True}
    master = await open_store(tmp_path / "master", **options)
    text = b"INNER_MULTI_DISPATCH\x01%LMQ%a"
    for _ in range(20):
        assert master.append(message(body=bytes(300), properties=text)).is_ok
    master.commit()
    data = b"".join(path.read_bytes() for path in sorted((tmp_path / "master" / "commitlog").iterdir()))
    data = data[: master.reading.max_physical_offset]
    store = await open_slave(tmp_path / "slave", **options)
    feed(store, data, FILE_BYTES, 4096)
    for topic in ("T", "%LMQ%a"):
        first, end = store.reading.min_offset(topic, 0), store.reading.max_offset(topic, 0)
        assert 0 < first < end == 20
        entries = store.reading.queue_entries(topic, 0, first, 1)
        assert entries == master.reading.queue_entries(topic, 0, first, 1)
    abandon(master)
    await store.close()


async def test_nothing_is_taken_before_the_store_is_open_and_after_it_is_closed(tmp_path: Path) -> None:
    data, _ = await master_log(tmp_path / "master", [b"one"])
    (tmp_path / "slave" / "commitlog").mkdir(parents=True)
    store = DefaultMessageStore(small_settings(tmp_path / "slave", broker_role=BrokerRole.SLAVE), now_ms=FakeClock())
    assert not store.replica.append(0, data)
    await store.load()
    assert store.replica.append(0, data)
    await store.close()
    assert not store.replica.append(len(data), data)
    assert sum(len(path.read_bytes().rstrip(b"\0")) > 0 for path in (tmp_path / "slave" / "commitlog").iterdir()) == 1


async def test_a_queue_that_the_master_restarted_is_restarted(tmp_path: Path) -> None:
    """Its topic was deleted there and created again. A wait for the old queue's end fails."""
    master = await open_store(tmp_path / "master")
    for body in (b"0", b"1", b"2"):
        assert master.append(message(body=body)).is_ok
    master.commit()
    end = master.reading.max_physical_offset
    master.upkeep.delete_topic("T")
    for body in (b"3", b"4"):
        assert master.append(message(body=body)).is_ok
    master.commit()
    data = master.reading.read_log(0, 4096)
    store = await open_slave(tmp_path / "slave")
    feed(store, data[:end], 0, 4096)
    told: list[Exception | None] = []
    store.reading.queue_end("T", 0).call_beyond(3, told.append)
    feed(store, data, end, 4096)
    assert (store.reading.min_offset("T", 0), store.reading.max_offset("T", 0)) == (0, 2)
    assert bodies_of(store) == [b"3", b"4"]
    assert [type(error) for error in told] == [LogCut]
    abandon(master)
    await store.close()


@pytest.mark.parametrize("is_cut", [False, True], ids=["the deletion stays", "the deletion is cut off"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["running on", "after a kill"])
async def test_a_deleted_topic_is_deleted_at_a_slave_as_far_as_its_log_says_so(
    tmp_path: Path, is_cut: bool, is_killed: bool
) -> None:
    master = await open_store(tmp_path / "master")
    for number in range(30):
        assert master.append(message(body=b"%d" % number)).is_ok
        assert master.append(message("Other", body=b"%d" % number)).is_ok
    master.commit()
    deleted_at = master.reading.max_physical_offset
    master.upkeep.delete_topic("T")
    data = b"".join(path.read_bytes() for path in sorted((tmp_path / "master" / "commitlog").iterdir()))
    data = data[: master.reading.max_physical_offset]
    abandon(master)
    store = await open_slave(tmp_path / "slave")
    feed(store, data, 0, 4096)
    assert bodies_of(store) == []
    await store.flushing.flush_thoroughly()
    if is_cut:
        assert await store.replica.cut(deleted_at) is not None
    if is_killed:
        abandon(store)
        store = await open_slave(tmp_path / "slave")
    assert bodies_of(store) == ([b"%d" % number for number in range(30)] if is_cut else [])
    assert store.reading.max_offset("T", 0) == (30 if is_cut else 0)
    assert store.reading.max_offset("Other", 0) == 30
    await store.close()


async def test_a_kill_during_the_return_of_a_topic_costs_no_entry(tmp_path: Path) -> None:
    """The log is cut, and the queues of the topic are not made again yet."""
    master = await open_store(tmp_path / "master")
    for number in range(30):
        assert master.append(message(body=b"%d" % number)).is_ok
    master.commit()
    deleted_at = master.reading.max_physical_offset
    master.upkeep.delete_topic("T")
    data = b"".join(path.read_bytes() for path in sorted((tmp_path / "master" / "commitlog").iterdir()))
    data = data[: master.reading.max_physical_offset]
    abandon(master)
    store = await open_slave(tmp_path / "slave")
    feed(store, data, 0, 4096)
    await store.flushing.flush_thoroughly()
    await store.replica._tail_cut.cut(deleted_at, are_queues_whole=False)
    abandon(store)
    store = await open_slave(tmp_path / "slave")
    assert bodies_of(store) == [b"%d" % number for number in range(30)]
    await store.close()
