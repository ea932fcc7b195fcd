"""Rules of the walks through a store directory, of its segments' edges, and of the samples of a group's lag."""

from __future__ import annotations

import argparse
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType
from stored_records import encoded
from test_spark_data_loss import FakeCluster

from triomq.protocol.bodies import fastjson
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.record import MESSAGE_MAGIC_BYTES
from triomq.spark.jobs import lag
from triomq.spark.jobs.pieces_source import ROWS_PER_BATCH, PiecesReader
from triomq.spark.jobs.session import JobFailed, check_folder
from triomq.spark.jobs.store_tables import StoreFacts
from triomq.spark.jobs.store_walk import Finding, SegmentWalk, index_entries
from triomq.spark.options import source_options, store_options
from triomq.spark.reading import Plan
from triomq.spark.source import StreamReader
from triomq.spark.store_files import Segment, map_at
from triomq.spark.store_source import PushingStoreReader, StoreReader
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


@pytest.mark.parametrize(("slot_count", "slots"), [(None, 2), (2, 2), (7, 7)])
def test_an_index_has_the_slots_that_are_given_or_one_for_four_entries(
    tmp_path: Path, slot_count: int | None, slots: int
) -> None:
    path = tmp_path / "0"
    data = struct.pack(">qqqqii", 0, 9000, 0, 999, 1, 2) + struct.pack(f">{slots}i", 1, *[0] * (slots - 1))
    data += bytes(ENTRY_BYTES) + struct.pack(">iqii", slots, 10, 0, 0)
    path.write_bytes(data.ljust(HEADER_BYTES + slots * SLOT_BYTES + LIMIT * ENTRY_BYTES, b"\0"))
    findings: list[Finding] = []
    entries = list(index_entries(str(path), slot_count, findings))
    assert findings == []
    assert [(entry.key_hash, entry.physical_offset, entry.is_reachable) for entry in entries] == [(slots, 10, True)]


def test_a_size_of_0_that_is_no_blank_does_not_end_the_walk_of_a_segment(tmp_path: Path) -> None:
    data = encoded(b"T", b"one")
    second_at = len(data) + 9
    data += bytes(8) + b"\xff"
    encoded(b"T", b"two", physical_offset=second_at, tail=data)
    path = tmp_path / "0"
    path.write_bytes(data)
    walk = SegmentWalk(Segment(str(path), 0, len(data)), DelayLevels("1s"), is_last=False)
    assert [record.physical_offset for record in walk.records()] == [0, second_at]
    assert [finding.kind for finding in walk.findings] == ["no record"]
    assert not walk.has_blank


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
    found = {offset: map_at(log, offset) for offset in (99, 100, 115, 116, 131, 132)}
    assert [at and at[0].start for at in found.values()] == [None, 100, 100, 116, 116, None]
    assert [at and at[1][0] for at in found.values()] == [None, 0, 0, 1, 1, None]


STORE_SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("queueId", IntegerType()),
        StructField("queueOffset", LongType()),
        StructField("storeTimestamp", TimestampType()),
    ]
)


def stored(root: Path, **options: str) -> list[tuple[Any, ...]]:
    """Return the rows of STORE_SCHEMA that a read with these options returns."""
    reader = StoreReader(store_options({"path": str(root), **options}), STORE_SCHEMA)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    return sorted(rows)


def test_a_read_of_topics_returns_their_records_whichever_way_the_store_is_split(
    unpacked: Callable[[str], Path],
) -> None:
    everything = stored(unpacked("1a_clean"))
    topic = everything[0][0]
    wanted = [row for row in everything if row[0] == topic]
    assert 0 < len(wanted) < len(everything)
    assert stored(unpacked("1a_clean"), subscribe=topic) == wanted
    assert stored(unpacked("1a_clean"), subscribe=topic, split="queue") == wanted


@pytest.mark.parametrize(("name", "fails"), [("1e_retention", "true"), ("c12_middle_commitlog_file_missing", "false")])
def test_an_entry_of_a_queue_whose_record_is_not_there_is_passed_over(
    unpacked: Callable[[str], Path], name: str, fails: str
) -> None:
    root = unpacked(name)
    everything = stored(root, failOnDataLoss="false")
    found = stored(root, split="queue", failOnDataLoss=fails)
    assert found
    assert set(found) <= set(everything)


@pytest.mark.parametrize("split", ["segment", "queue"])
def test_a_read_between_two_times_returns_what_was_stored_then(unpacked: Callable[[str], Path], split: str) -> None:
    root = unpacked("1a_clean")
    everything = stored(root, split=split)
    times = sorted({row[3] for row in everything})
    begin, end = times[len(times) // 3], times[len(times) * 2 // 3]
    bounds = [str(round(time.timestamp() * 1000)) for time in (begin, end)]
    wanted = [row for row in everything if begin <= row[3] < end]
    assert 0 < len(wanted) < len(everything)
    assert stored(root, split=split, startingTimestamp=bounds[0], endingTimestamp=bounds[1]) == wanted


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


def lag_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    lag.add_arguments(parser)
    arguments = parser.parse_args(["-n", "h:1", "--samples", "1"])
    arguments.quiet = True
    return arguments


class Unlagging(Lagging):
    """The same broker as a context, without offsets."""

    def __init__(self, options: object) -> None:
        pass

    def __enter__(self) -> Unlagging:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def call(self, address: str, call: Any) -> Any:
        return {"offsetTable": {}}


def test_lag_without_any_offsets_says_so_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lag, "Cluster", Unlagging)
    assert lag.run(lag_arguments()) == 1
    assert capsys.readouterr().out == "no group has offsets\n"


def test_the_plot_of_the_delay_shows_the_slowest_queue_of_each_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[dict[str, list[tuple[float, float]]]] = []

    def lines(series: dict[str, list[tuple[float, float]]], unit: str) -> str:
        drawn.append(series)
        return ""

    monkeypatch.setattr(lag.report, "lines", lines)
    rows = [(1000, "G", "T", "b", 0, 6, 5), (1000, "G", "T", "b", 1, 1, 70), (2000, "G", "T", "b", 0, 2, 3)]
    lag.as_html(rows, lag.summarize(rows, 60))
    assert drawn == [{"G": [(1.0, 7), (2.0, 2)]}, {"G": [(1.0, 70), (2.0, 3)]}]


@pytest.mark.parametrize(
    ("commits", "stored_offsets"), [("true", {("G", MessageQueue("T", "b", 0)): 7}), ("false", {})]
)
def test_a_stream_stores_the_offsets_of_its_group_when_it_is_to_commit_them(
    commits: str, stored_offsets: dict[tuple[str, MessageQueue], int]
) -> None:
    noted: dict[tuple[str, MessageQueue], int] = {}

    class Noting(FakeCluster):
        def store_group_offsets(self, group: str, offsets: dict[MessageQueue, int]) -> None:
            noted.update({(group, queue): offset for queue, offset in offsets.items()})

    options = {"nameServer": "h:1", "subscribe": "T", "consumerGroup": "G", "commitOffsets": commits}
    stream = StreamReader(source_options(options, streaming=True), STORE_SCHEMA)
    stream._plan = Plan(stream.options, Noting(0, 10))  # type: ignore[arg-type]
    stream.commit({"T": {"b": {"0": 7}}})
    assert noted == stored_offsets


def test_a_folder_that_is_a_file_is_refused_before_a_jvm_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "file"
    file.write_text("")
    here = argparse.Namespace(master=None, conf=[], option=[])
    for path in (str(file), f"file:{file}", f"file://{file}", str(file / "below")):
        with pytest.raises(JobFailed, match="is not a directory"):
            check_folder(here, path, "--to")
    check_folder(here, f"s3://{file}", "--to")
    check_folder(here, str(tmp_path / "new"), "--to")
