"""Rules of the walks through a store directory, of its segments' edges, and of the samples of a group's lag."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo
from pyspark.sql.types import LongType, StringType, StructField, StructType
from stored_records import encoded

from triomq.protocol.bodies import fastjson
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.record import MESSAGE_MAGIC_BYTES
from triomq.spark.jobs import lag
from triomq.spark.jobs.pieces_source import ROWS_PER_BATCH, PiecesReader
from triomq.spark.jobs.store_tables import StoreFacts
from triomq.spark.jobs.store_walk import SegmentWalk, index_entries
from triomq.spark.options import store_options
from triomq.spark.store_files import Segment
from triomq.spark.store_source import PushingStoreReader, _map_at
from triomq.store.delay import DelayLevels
from triomq.store.queues.index_file import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES

SLOTS, LIMIT = 2, 8


@pytest.mark.parametrize(
    "between",
    [b"\xff", b"\xff" * 8 + bytes(4) + MESSAGE_MAGIC_BYTES + b"\xff" * 5],
    ids=["a byte", "a magic without a record"],
)
def test_a_walk_resumes_at_the_next_whole_record_and_at_no_magic_before_it(tmp_path: Path, between: bytes) -> None:
    path = tmp_path / "0"
    data = encoded(b"T", b"one")
    first_end = len(data)
    data += between
    second_at = len(data)
    encoded(b"T", b"two", physical_offset=1000 + second_at, tail=data)
    path.write_bytes(data)
    walk = SegmentWalk(Segment(str(path), 1000, len(data)), DelayLevels("1s"), is_last=True)
    places = [(record.physical_offset, record.size_bytes) for record in walk.records()]
    assert places == [(1000, first_end), (1000 + second_at, len(data) - second_at)]
    skipped = [finding for finding in walk.findings if finding.kind == "no record"]
    assert [(finding.place, finding.text) for finding in skipped] == [
        (f"physical offset {1000 + first_end}", f"{second_at - first_end} bytes are not a record")
    ]


def index_file(path: Path, slots: list[int], entries: list[tuple[int, int]]) -> str:
    """Write an index file with (key hash, previous entry), of which the header counts all but the last one."""
    data = struct.pack(">qqqqii", 0, 9000, 0, 999, len(slots), len(entries))
    data += struct.pack(f">{len(slots)}i", *slots) + bytes(ENTRY_BYTES)
    data += b"".join(struct.pack(">iqii", code, 10, 0, previous) for code, previous in entries)
    size_bytes = HEADER_BYTES + SLOTS * SLOT_BYTES + LIMIT * ENTRY_BYTES
    path.write_bytes(data.ljust(size_bytes, b"\0"))
    return str(path)


@pytest.mark.parametrize(
    ("slots", "reached"),
    [
        ([3, 2], [True, True, True]),
        ([3, 0], [True, False, True]),
        ([0, 2], [False, True, False]),
        ([4, 2], [False, True, False]),  # what the header does not count is no entry, nor is what it leads to
        ([2, 2], [False, True, False]),  # an entry of another slot
    ],
)
def test_an_index_entry_is_reachable_by_the_chain_of_its_slot(
    tmp_path: Path, slots: list[int], reached: list[bool]
) -> None:
    path = index_file(tmp_path / "0", slots, [(0, 0), (1, 0), (2, 1), (4, 3)])
    assert [entry.is_reachable for entry in index_entries(path, SLOTS, [])] == reached


def test_an_index_file_that_is_full_is_read_to_its_end_and_no_further(tmp_path: Path) -> None:
    entries = [(0, max(0, number - 1)) for number in range(1, LIMIT)]
    path = index_file(tmp_path / "0", [LIMIT - 1, LIMIT + 1], entries)
    data = bytearray(Path(path).read_bytes())
    struct.pack_into(">i", data, 36, LIMIT)
    Path(path).write_bytes(data)
    assert [entry.is_reachable for entry in index_entries(path, SLOTS, [])] == [True] * (LIMIT - 1)
    struct.pack_into(">i", data, HEADER_BYTES, LIMIT)
    Path(path).write_bytes(data)
    assert [entry.is_reachable for entry in index_entries(path, SLOTS, [])] == [False] * (LIMIT - 1)


def test_every_entry_of_a_real_index_is_reachable(unpacked: Callable[[str], Path]) -> None:
    facts = StoreFacts.of(str(unpacked("1a_clean")))
    entries = [entry for path in facts.index_files for entry in index_entries(path, facts.hash_slots, [])]
    assert len(entries) > 1000
    assert all(entry.is_reachable for entry in entries)


def test_an_offset_is_in_the_segment_that_begins_with_it(tmp_path: Path) -> None:
    log = []
    for number in range(2):
        path = tmp_path / str(number)
        path.write_bytes(bytes([number]) * 16)
        log.append(Segment(str(path), 100 + 16 * number, 16))
    found = {offset: _map_at(log, offset) for offset in (99, 100, 115, 116, 131, 132)}
    assert [at and at[0].start for at in found.values()] == [None, 100, 100, 116, 116, None]
    assert [at and at[1][0] for at in found.values()] == [None, 0, 0, 1, 1, None]


def test_conditions_that_a_store_takes_bound_what_it_reads_and_the_others_stay_with_spark(tmp_path: Path) -> None:
    options = store_options({"path": str(tmp_path), "pushDownFilters": "true"})
    reader = PushingStoreReader(options, StructType([StructField("keys", StringType())]))
    others = [EqualTo(("keys",), "k")]
    assert reader.pushFilters([EqualTo(("topic",), "T"), *others]) == others
    assert reader.limits.topics == {"T"}


class Piece:
    def __init__(self, value: Any) -> None:
        self.value = value


def test_rows_of_a_piece_come_in_batches() -> None:
    schema = StructType([StructField("number", LongType())])
    reader = PiecesReader(lambda count: ((number,) for number in range(count)), [2 * ROWS_PER_BATCH + 1], schema)
    batches = list(reader.read(Piece(2 * ROWS_PER_BATCH + 1)))
    assert [batch.num_rows for batch in batches] == [10_000, 10_000, 1]
    assert [batch.column(0)[0].as_py() for batch in batches] == [0, 10_000, 20_000]
    assert list(reader.read(Piece(0))) == list(reader.read(Piece(None))) == []


class Lagging:
    """One broker with the queues 0 to 2 of a topic, each of ten messages, and a group that is at 4, 10 and 12."""

    def brokers(self) -> dict[str, str]:
        return {"b": "10.0.0.1:10911"}

    def until_done(self, what: str, act: Callable[[], Any]) -> Any:
        return act()

    def call(self, address: str, call: Any) -> Any:
        return fastjson.loads(b'{"offsetTable":{"T@G":{2:12,0:4,1:10},"gone@G":{0:1},"%RETRY%G@G":{0:1}}}')

    def find_route(self, topic: str) -> object | None:
        return None if topic == "gone" else object()

    def max_offsets(self, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
        return dict.fromkeys(queues, 10)


@pytest.mark.parametrize(("stored_ms", "delay_ms"), [(400, 600), (1001, 0), (0, 0)])
def test_a_sample_has_a_row_for_each_queue_with_what_the_group_has_left(
    monkeypatch: pytest.MonkeyPatch, stored_ms: int, delay_ms: int
) -> None:
    asked = []

    def store_time(cluster: Any, queue: MessageQueue, offset: int, group: str) -> int:
        asked.append((queue.queue_id, offset))
        return stored_ms

    monkeypatch.setattr(lag, "store_time", store_time)
    assert lag.sample(Lagging(), set(), False, 1000) == [  # type: ignore[arg-type]
        (1000, "G", "T", "b", 0, 6, delay_ms),
        (1000, "G", "T", "b", 1, 0, 0),
        (1000, "G", "T", "b", 2, 0, 0),
    ]
    assert asked == [(0, 4)], "of a queue without lag no message is read"
