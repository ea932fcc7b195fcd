"""Every store directory that the real broker wrote, sound and damaged, opened here and compared with the result of the
real code. Where that one loses messages this store keeps more, never fewer; the differences are listed below.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from golden_data import copy_golden_store, golden_expectation
from store_golden import DAMAGED, SETS, open_golden, settings_of
from store_support import abandon, inline

from triomq.protocol import record, stored_properties
from triomq.protocol.system_topics import SCHEDULE_TOPIC, is_system_topic
from triomq.store.delay import DelayLevels
from triomq.store.log.scanned_record import scanned
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import MessageToStore

FILLER_SIZE = 0x7FFFFFFF
# The real broker refuses to start on these: compare with a set that has the same messages.
COMPARE_WITH = {
    "c02_file_cut_short": "c01_tail_zeroed",
    "c14_next_file_empty": "c15_next_file_zeros",
    "k10_cut_file": "k01_tail_zeroed",
}
# Where this store keeps more of the log: after damage, and the end-of-file blank if the last file is missing.
LONGER = {
    "c03_flip_body_last_file",
    "c05_flip_magic_second_last_file",
    "c10_last_commitlog_file_missing",
    "c23_flip_totalsize_last_file",
    "k03_flip_body_third_last_file",
}
# Queues that it rebuilds although the real broker does not, or only after filler entries.
MORE_ENTRIES = LONGER | {
    "c17_cq_short",
    "c19_topics_json_empty",
    "c20_topics_json_torn",
    "k04_no_consumequeue",
    "k05_no_consumequeue_of_one_queue",
}

# A flipped body that the real broker does not check at its start and serves as it is.
NOT_SERVED = {"c04_flip_body_first_file"}


@pytest.mark.parametrize("name", [*SETS, *DAMAGED])
async def test_opens_with_everything(name: str, tmp_path: Path) -> None:
    root = copy_golden_store(name, tmp_path)
    store = await open_golden(root)
    wanted = golden_expectation(COMPARE_WITH.get(name, name))
    compare_log(store, wanted, name)
    compare_queues(store, wanted, name)
    compare_index(store, wanted, name)
    ends = queue_ends(store)
    log_end = store.reading.max_physical_offset
    await store.close()
    # again, on the result of the first recovery
    store = await open_golden(root)
    assert store.recovery_report is not None
    assert store.recovery_report.was_clean
    assert store.recovery_report.records == 0
    assert (store.reading.max_physical_offset, queue_ends(store)) == (log_end, ends)
    compare_index(store, wanted, name)
    await store.close()


@pytest.mark.parametrize(
    "name",
    [
        "1b_killed",
        "k00_killed",
        "k02_flip_body_last_file",
        "k07_no_checkpoint",
        "k05_no_consumequeue_of_one_queue",
        "c03_flip_body_last_file",
    ],
)
async def test_recovering_twice_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    root = copy_golden_store(name, tmp_path)
    pictures = []
    for _ in range(2):
        store = await open_golden(root)
        store.contents.index.write_out()
        abandon(store)
        picture = {
            str(path.relative_to(root)): zlib.crc32(path.read_bytes())
            for directory in ("commitlog", "consumequeue", "salvage")
            for path in sorted((root / directory).rglob("*"))
            if path.is_file()
        }
        index = [zlib.crc32(path.read_bytes()) for path in sorted((root / "index").iterdir())]  # names are times
        pictures.append((picture, index))
    assert pictures[0] == pictures[1]


def compare_log(store: DefaultMessageStore, wanted: dict[str, Any], name: str) -> None:
    log = wanted["commitlog"]
    assert store.reading.min_physical_offset == log["min_offset"]
    if name in LONGER:
        assert store.reading.max_physical_offset > log["max_offset"]
    else:
        assert store.reading.max_physical_offset == log["max_offset"]
    damaged = 0
    for row in wanted["messages"]:
        data = store.reading.record_at(row["phys"])
        if data is None and name in NOT_SERVED:
            damaged += 1
            continue
        assert data is not None, row
        assert (len(data), zlib.crc32(data)) == (row["size"], row["recordCrc32"]), row
    assert damaged == (name in NOT_SERVED)


def entries_of(store: DefaultMessageStore, topic: str, queue_id: int) -> dict[int, tuple[int, int, int]]:
    found: dict[int, tuple[int, int, int]] = {}
    offset = store.reading.min_offset(topic, queue_id)
    while offset < store.reading.max_offset(topic, queue_id):
        some = store.reading.queue_entries(topic, queue_id, offset, 1000)
        assert some
        for at, entry in enumerate(some):
            if entry[1] != FILLER_SIZE:
                found[offset + at] = entry
        offset += len(some)
    return found


def compare_queues(store: DefaultMessageStore, wanted: dict[str, Any], name: str) -> None:
    topics = wanted["config"]["topics"]
    for topic, queues in wanted["queues"].items():
        for queue, row in queues.items():
            if topic not in topics and not is_system_topic(topic) and name == "c06_no_consumequeue":
                assert store.reading.max_offset(topic, int(queue)) == 0  # a deleted topic, which stays deleted here
                continue
            compare_queue(store, topic, int(queue), row, name)


def compare_queue(store: DefaultMessageStore, topic: str, queue_id: int, row: dict[str, Any], name: str) -> None:
    mine = entries_of(store, topic, queue_id)
    theirs = {entry[0]: tuple(entry[1:]) for entry in row["entries"] if entry[2] != FILLER_SIZE}
    has_more = False
    for queue_offset, entry in theirs.items():
        if queue_offset < store.reading.min_offset(topic, queue_id):
            assert store.reading.record_at(entry[0]) is None  # below the start of the log
            continue
        assert mine[queue_offset][:2] == entry[:2], (topic, queue_id, queue_offset)
        if mine[queue_offset] != entry:
            # A rebuilt schedule entry: the real broker writes the hash of the tag, so it delivers at once.
            assert topic == SCHEDULE_TOPIC
            data = store.reading.record_at(entry[0])
            assert data is not None
            stored = record.decode_record(data)
            levels = DelayLevels(store.settings.message_delay_level)
            assert mine[queue_offset][2] == levels.deliver_at(stored.delay_level, stored.store_timestamp)
            has_more = True
    is_longer = store.reading.max_offset(topic, queue_id) > row["max"]
    if has_more or len(mine) > len(theirs) or (is_longer and name in LONGER):
        assert name in MORE_ENTRIES or topic == SCHEDULE_TOPIC
        assert store.reading.max_offset(topic, queue_id) >= row["max"]
        return
    assert (
        store.reading.max_offset(topic, queue_id)
        == row["max"]
        == store.contents.queues.get(topic, queue_id).next_offset
    )
    if theirs and row["min"] in theirs and store.reading.record_at(theirs[row["min"]][0]) is not None:
        assert store.reading.min_offset(topic, queue_id) == row["min"]
    if "get_message" in row and theirs:
        pulled = pull_all(store, topic, queue_id, row["min"])
        if name in NOT_SERVED and pulled["count"] == row["get_message"]["count"] - 1:
            return
        assert pulled == row["get_message"], (topic, queue_id)
    for timestamp, _nearest in row.get("offset_by_time", []):
        assert_first(store, topic, queue_id, timestamp)


def assert_first(store: DefaultMessageStore, topic: str, queue_id: int, timestamp: int) -> None:
    """Check that the first message stored then or later is found. The real broker found the nearest one in the file
    that it had chosen by the times of the files."""
    offsets = range(store.reading.min_offset(topic, queue_id), store.reading.max_offset(topic, queue_id))
    not_older = (offset for offset in offsets if store.reading.store_time_at(topic, queue_id, offset) >= timestamp)
    assert store.reading.queue_offset_by_time(topic, queue_id, timestamp) == next(not_older, offsets.stop)


def pull_all(store: DefaultMessageStore, topic: str, queue_id: int, offset: int) -> dict[str, Any]:
    count, crc = 0, 0
    while True:
        found = store.reading.get_messages(topic, queue_id, offset, 32)
        for data in found.records:
            crc = zlib.crc32(data, crc)
        count += found.message_count
        if found.next_begin_offset <= offset:
            return {"count": count, "crc32": crc, "end_status": found.status.name}
        offset = found.next_begin_offset


def compare_index(store: DefaultMessageStore, wanted: dict[str, Any], name: str) -> None:
    for topic, keys in wanted["index"]["by_key"].items():
        for key, offsets in keys.items():
            mine = store.reading.query_by_key(topic, key, 64, 0, 1 << 62).physical_offsets
            served = {offset for offset in offsets if store.reading.record_at(offset) is not None}
            assert served <= set(mine) and (name in NOT_SERVED or len(served) == len(set(offsets))), (topic, key)
            assert len(set(mine)) == len(mine), (topic, key)


def queue_ends(store: DefaultMessageStore) -> dict[tuple[str, int], tuple[int, int]]:
    return {(q.topic, q.queue_id): (q.min_offset, q.end) for q in store.contents.queues if q.end}


@pytest.mark.parametrize(
    "name", ["c03_flip_body_last_file", "c05_flip_magic_second_last_file", "c23_flip_totalsize_last_file"]
)
async def test_damage_costs_the_damaged_record_only(name: str, tmp_path: Path) -> None:
    """All three are made from one store; c15 has its content."""
    store = await open_golden(copy_golden_store(name, tmp_path))
    report = store.recovery_report
    assert report is not None
    assert len(report.damages) == 1
    damage = report.damages[0]
    whole = golden_expectation("c15_next_file_zeros")
    lost = [row for row in whole["messages"] if damage.begin <= row["phys"] < damage.end]
    assert 1 <= len(lost) <= 2
    compare_log(store, {**whole, "messages": [row for row in whole["messages"] if row not in lost]}, "")
    saved = next((tmp_path / "store" / "salvage").iterdir()).read_bytes()
    assert len(saved) == damage.end - damage.begin
    for row in lost:
        entries = store.reading.queue_entries(row["topic"], row["queueId"], row["queueOffset"], 1)
        assert entries == [(0, FILLER_SIZE, 0)]
        found = store.reading.get_messages(row["topic"], row["queueId"], row["queueOffset"], 32)
        assert all(zlib.crc32(data) != row["recordCrc32"] for data in found.records)
    await store.close()


async def test_ext_units_are_read_as_the_real_broker_wrote_them(tmp_path: Path) -> None:
    store = await open_golden(copy_golden_store("1d_sql92_ext", tmp_path))
    compared = 0
    for topic, queues in golden_expectation("1d_sql92_ext")["queues"].items():
        for queue_id, row in queues.items():
            ext = store.contents.queues.get(topic, int(queue_id)).ext
            assert ext is not None
            for unit in row.get("ext") or []:
                assert (
                    store.reading.queue_entries(topic, int(queue_id), unit["queueOffset"], 1)[0][2] == unit["address"]
                )
                found = ext.read(unit["address"])
                assert found is not None
                bit_map = None if unit["bitmap"] is None else bytes.fromhex(unit["bitmap"])
                assert (found.tags_code, found.store_timestamp) == (unit["tagsCode"], unit["msgStoreTime"])
                assert found.bit_map == bit_map
                compared += 1
    assert compared == 160
    await store.close()


@pytest.mark.parametrize("name", ["1a_clean", "1d_sql92_ext"])
async def test_writes_the_same_bytes(name: str, tmp_path: Path) -> None:
    """The messages of a real store, put again in the same order and at the same times, give the same files."""
    real = copy_golden_store(name, tmp_path)
    wanted = golden_expectation(name)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "broker.conf").write_bytes((real / "broker.conf").read_bytes())
    clock = FakeClock()
    store = DefaultMessageStore(settings_of(mine), now_ms=clock, offload=inline)
    bit_maps = {
        (topic, int(queue_id), unit["queueOffset"]): unit["bitmap"]
        for topic, queues in wanted["queues"].items()
        for queue_id, row in queues.items()
        for unit in row.get("ext") or []
    }
    asked: list[dict[str, Any]] = []

    def bit_map_of(topic: str, stored_properties: bytes) -> bytes | None:
        row = asked.pop(0)
        text = bit_maps[topic, row["queueId"], row["queueOffset"]]
        return None if text is None else bytes.fromhex(text)

    store.compute_bit_maps(bit_map_of)
    await store.load()
    log_files = {int(path.name): path.read_bytes() for path in (real / "commitlog").iterdir()}
    file_size = wanted["settings"]["mappedFileSizeCommitLog"]
    for number, row in enumerate(wanted["messages"]):
        start = row["phys"] // file_size * file_size
        put = message_of(log_files[start], row["phys"] - start, store)
        clock.now_ms = row["storeTimestamp"]
        asked.append(row)
        assert store.append(put).physical_offset == row["phys"]
        if number % 7 == 0:
            store.commit()
    await store.close()
    for start, data in log_files.items():
        assert (mine / "commitlog" / f"{start:020d}").read_bytes() == data, start
    compared = 0
    for path in sorted([*(real / "consumequeue").rglob("*"), *(real / "consumequeue_ext").rglob("*")]):
        if path.is_file():
            compared += 1
            assert (mine / path.relative_to(real)).read_bytes() == path.read_bytes(), path
    assert compared > 10
    theirs = sorted((real / "index").iterdir())
    ours = sorted((mine / "index").iterdir())
    assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in theirs]


def message_of(data: bytes, at: int, store: DefaultMessageStore) -> MessageToStore:
    """Return the message as a broker would pass it to the store for this record."""
    fields = record.read_fields(data, at, len(data))
    entry = store._dispatch.entry_of(scanned(fields, fields.physical_offset))
    return MessageToStore(
        fields.topic.decode(),
        fields.queue_id,
        data[fields.body_at : fields.body_at + fields.body_length],
        stored_properties.read(fields.properties),
        born_timestamp=fields.born_timestamp,
        born_host=fields.born_host,
        store_host=fields.store_host,
        flag=fields.flag,
        sys_flag=fields.sys_flag,
        reconsume_times=fields.reconsume_times,
        prepared_transaction_offset=fields.prepared_transaction_offset,
        deliver_after_ms=entry.tags_code - fields.store_timestamp if fields.topic == b"SCHEDULE_TOPIC_XXXX" else 0,
    )
