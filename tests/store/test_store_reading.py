"""How much one read returns, and which of two neighbours a search returns."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from store_support import abandon, message, open_store

from triomq.protocol import record, sys_flag
from triomq.protocol.address import HostPort
from triomq.protocol.record import BatchUnit
from triomq.store.config import BrokerRole
from triomq.store.reading import collecting
from triomq.store.results import GetStatus

MEMORY = {"access_message_in_memory_max_ratio_percent": 40}
DISK = {"access_message_in_memory_max_ratio_percent": 0}


@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize(("spare_bytes", "count"), [(-1, 2), (0, 3), (1, 3)])
async def test_a_read_returns_as_many_bytes_as_the_limit_and_no_more(
    tmp_path: Path, where: str, spare_bytes: int, count: int
) -> None:
    """Records that lie far behind the end of the log have limits of their own."""
    store = await open_store(tmp_path)
    puts = [store.append(message(body=b"%d" % number)) for number in range(5)]
    size = puts[0].size_bytes
    await store.close()
    limits = {
        f"max_transfer_bytes_on_message_in_{where}": 3 * size + spare_bytes,
        f"max_transfer_bytes_on_message_in_{'disk' if where == 'memory' else 'memory'}": 1,
        **(MEMORY if where == "memory" else DISK),
    }
    store = await open_store(tmp_path, **limits)
    found = store.reading.get_messages("T", 0, 0, 32)
    assert (found.message_count, found.next_begin_offset, found.size_bytes) == (count, count, count * size)
    abandon(store)


@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize(("limit", "asked", "count"), [(3, 32, 3), (32, 3, 3), (1, 32, 1), (32, 1, 1)])
async def test_a_read_returns_as_many_messages_as_the_limit_and_no_more(
    tmp_path: Path, where: str, limit: int, asked: int, count: int
) -> None:
    limits = {
        f"max_transfer_count_on_message_in_{where}": limit,
        f"max_transfer_count_on_message_in_{'disk' if where == 'memory' else 'memory'}": 1,
        **(MEMORY if where == "memory" else DISK),
    }
    store = await open_store(tmp_path, **limits)
    for number in range(5):
        assert store.append(message(body=b"%d" % number)).is_ok
    store.commit()
    assert store.reading.get_messages("T", 0, 0, asked).message_count == count
    abandon(store)


async def test_one_record_is_returned_even_if_it_exceeds_the_limit(tmp_path: Path) -> None:
    """Otherwise its consumer would never get past it."""
    store = await open_store(tmp_path, max_transfer_bytes_on_message_in_memory=10)
    store.append(message(body=bytes(100)))
    store.commit()
    assert store.reading.get_messages("T", 0, 0, 32).message_count == 1
    abandon(store)


@pytest.mark.parametrize("is_checked", [False, True])
async def test_a_slave_leaves_the_offset_that_was_asked_for_unless_it_checks_offsets(
    tmp_path: Path, is_checked: bool
) -> None:
    """Its own queues may be behind its master's."""
    store = await open_store(tmp_path)
    for number in range(3):
        assert store.append(message(body=b"%d" % number)).is_ok
    await store.close()
    store = await open_store(tmp_path, broker_role=BrokerRole.SLAVE, offset_check_in_slave=is_checked)
    found = store.reading.get_messages("T", 0, 9, 32)
    assert (found.status, found.next_begin_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 3 if is_checked else 9)
    found = store.reading.get_messages("Unknown", 0, 9, 32)
    assert (found.status, found.next_begin_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0 if is_checked else 9)
    assert (found.records, found.message_count, found.size_bytes, found.suggest_slave) == ([], 0, 0, False)
    abandon(store)


async def test_messages_whose_log_file_is_gone_are_passed_over_as_being_removed(tmp_path: Path) -> None:
    """Retention has deleted the file and is not yet at the queue. A damaged entry is another matter."""
    store = await open_store(tmp_path)
    for queue_id in (1, 1, 0, 0, 0):
        assert store.append(message(queue_id=queue_id, body=bytes(1800))).is_ok
    store.commit()
    store.contents.log.sequence.drop_first()
    found = store.reading.get_messages("T", 1, 0, 32)
    assert (found.status, found.next_begin_offset, found.records) == (GetStatus.MESSAGE_WAS_REMOVING, 2, [])
    queue = store.contents.queues.get("T", 2)
    queue.add(4096, 5000, 0)  # more than its file has
    store.contents.queues.touched.append(queue)
    store.contents.queues.write_touched([])
    found = store.reading.get_messages("T", 2, 0, 32)
    assert (found.status, found.next_begin_offset, found.records) == (GetStatus.NO_MATCHED_MESSAGE, 1, [])
    abandon(store)


@pytest.mark.parametrize("with_ext", [True, False])
async def test_an_entry_leads_to_an_ext_unit_only_where_there_are_such(tmp_path: Path, with_ext: bool) -> None:
    store = await open_store(tmp_path, enable_consume_queue_ext=with_ext)
    assert store.append(message(tags="A")).is_ok
    store.commit()
    [(_, _, tags_code)] = store.reading.queue_entries("T", 0, 0, 9)
    assert store.reading.leads_to_ext_unit("T", 0, tags_code) is with_ext
    assert store.reading.leads_to_ext_unit("T", 0, ord("A")) is False
    assert store.reading.leads_to_ext_unit("T", 1, tags_code) is False
    unit = store.reading.ext_unit("T", 0, tags_code)
    assert (unit is not None and unit.tags_code) == (ord("A") if with_ext else False)
    assert store.reading.ext_unit("T", 1, tags_code) is None
    abandon(store)


@pytest.mark.parametrize("is_batch", [False, True])
async def test_records_with_ipv6_hosts_lie_where_their_results_say(tmp_path: Path, is_batch: bool) -> None:
    """Such a host takes 12 bytes more."""
    host = HostPort("2001:db8::1", 10911).packed
    assert len(host) == 20
    flags = sys_flag.BORN_HOST_V6 | sys_flag.STORE_HOST_V6
    store = await open_store(tmp_path)
    for number in range(30):  # over file ends
        each = message(body=b"%d" % number * 50, born_host=host, store_host=host, sys_flag=flags)
        units = [BatchUnit(0, each.body, b""), BatchUnit(0, each.body, b"")]
        put = store.append_batch(each, units) if is_batch else store.append(each)
        assert put.is_ok and put.physical_offset + put.size_bytes == put.end_offset
    store.commit()
    count = 60 if is_batch else 30
    places = [store.reading.queue_entries("T", 0, at, 1)[0][:2] for at in range(count)]
    for at, (physical_offset, size) in enumerate(places):
        data = store.reading.record_at(physical_offset)
        assert data is not None and len(data) == size and physical_offset // 4096 == (physical_offset + size) // 4096
        assert record.decode_record(data).queue_offset == at
    await store.close()


@pytest.mark.parametrize("loses_names", [True, False])
async def test_a_queue_that_has_files_gets_ext_units_where_there_is_no_directory_for_them(
    tmp_path: Path, loses_names: bool
) -> None:
    """The setting may be new, or a power failure took the directory."""
    store = await open_store(tmp_path, enable_consume_queue_ext=loses_names)
    assert store.append(message(tags="A")).is_ok
    await store.close()
    shutil.rmtree(tmp_path / "consumequeue_ext", ignore_errors=True)
    store = await open_store(tmp_path, enable_consume_queue_ext=True)
    assert store.append(message(tags="B")).is_ok
    store.commit()
    (_, _, tags_code) = store.reading.queue_entries("T", 0, 1, 9)[0]
    unit = store.reading.ext_unit("T", 0, tags_code)
    assert unit is not None and unit.tags_code == ord("B")
    await store.close()


async def test_an_entry_leads_to_a_record_of_its_size_at_its_place_or_to_none(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    within = record.MESSAGE_MAGIC_BYTES + b"-" * 200
    puts = [store.append(message(body=body)) for body in (b"first", within, b"last")]
    store.commit()
    reading = store.reading
    for put in puts:
        whole = reading.record_at(put.physical_offset)
        assert whole is not None
        assert reading.record_of_entry(put.physical_offset, put.size_bytes) == whole
        for offset, size in ((0, 1), (0, -1), (1, 0), (0, -put.size_bytes), (0, 1 << 30)):
            assert reading.record_of_entry(put.physical_offset + offset, put.size_bytes + size) is None
    inside = puts[1].physical_offset + 84  # there the bytes of the body look like a record
    assert reading.record_of_entry(inside, 120) is None
    await store.close()
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(puts[0].physical_offset + 88)
        file.write(b"F")
    store = await open_store(tmp_path)
    assert store.reading.record_of_entry(puts[0].physical_offset, puts[0].size_bytes) is None
    assert store.reading.record_of_entry(puts[2].physical_offset, puts[2].size_bytes) is not None
    abandon(store)


async def test_groups_that_read_the_same_messages_share_the_copy_of_them(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    for number in range(5):
        assert store.append(message(body=b"%d" % number)).is_ok
    store.commit()
    reading = store.reading
    first, second = reading.get_messages("T", 0, 1, 32), reading.get_messages("T", 0, 1, 32)
    assert repr(first) == repr(second)
    assert first.runs == second.runs
    if collecting._take_records is not None:
        assert first.runs[0] is second.runs[0]
    assert reading.get_messages("T", 0, 1, 2).records == first.records[:2]
    assert reading.get_messages("T", 0, 2, 32).records == first.records[1:]
    assert store.append(message(body=b"5")).is_ok
    store.commit()
    assert len(reading.get_messages("T", 0, 1, 32).records) == 5
    abandon(store)


async def test_a_record_that_replaced_another_at_its_place_is_returned_instead_of_it(tmp_path: Path) -> None:
    """The end of a log may be cut, and written again with records of the same size."""
    store = await open_store(tmp_path)
    for number in range(3):
        assert store.append(message(body=b"%d" % number)).is_ok
    store.commit()
    before = store.reading.get_messages("T", 0, 0, 32)
    queue = store.contents.queues.get("T", 0)
    entries = [queue.entry(number) for number in range(3)]
    queue.cut(0)
    for entry in entries:
        assert entry is not None
        queue.add(*entry)
    queue.write(set())
    store.contents.log.sequence.files[0].write(before.body.swapcase(), 0)
    assert store.reading.get_messages("T", 0, 0, 32).body == before.body.swapcase() != before.body
    abandon(store)


async def test_entries_that_are_read_one_by_one_are_read_from_the_file_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(tmp_path)
    for number in range(10):
        assert store.append(message(body=b"%d" % number)).is_ok
    store.commit()
    reads: list[int] = []
    pread = store.files.pread

    def counted(fd: int, size_bytes: int, at: int) -> bytes:
        reads.append(at)
        return pread(fd, size_bytes, at)

    monkeypatch.setattr(store.files, "pread", counted)
    one_by_one = [store.reading.queue_entries("T", 0, number, 1)[0] for number in (5, 7, 6, 9)]
    together = store.reading.queue_entries("T", 0, 5, 5)
    assert one_by_one == [together[0], together[2], together[1], together[4]]
    assert len(reads) == 1
    assert store.reading.queue_entries("T", 0, 10, 1) == []
    assert store.append(message(body=b"10")).is_ok
    store.commit()
    assert len(store.reading.queue_entries("T", 0, 10, 1)) == 1
    abandon(store)
