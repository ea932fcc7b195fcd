"""Sources at a real broker and on its store directory, without a Spark session: the effect of options on the rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from plain_rows import schema_of, store_rows, topic_rows

from triomq.protocol.message_queue import MessageQueue
from triomq.spark.errors import DataLost, OptionError
from triomq.spark.markers import StoredRows

pytestmark = pytest.mark.spark

COUNT = 400


@pytest.fixture(scope="module")
def filled(cluster: Any) -> str:
    """A topic of 4 queues with the keys k0, k1, ..., message n in queue n % 4."""
    from stream_kills import fill

    topic: str = cluster.create_topic("AtWork", 4)
    fill(cluster, topic, COUNT)
    return topic


def keys(rows: list[dict[str, Any]], column: str = "keys") -> list[str]:
    return sorted(row[column] if isinstance(row[column], str) else row[column].decode() for row in rows)


def every(begin: int = 0, end: int = COUNT) -> list[str]:
    return sorted(f"k{number}" for number in range(begin, end))


def test_kafka_rows(cluster: Any, filled: str) -> None:
    rows = topic_rows(cluster, subscribe=filled, rowFormat="kafka")
    assert list(rows[0]) == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert keys(rows, "key") == every()
    row = next(row for row in rows if row["key"] == b"k6")
    assert (row["value"], row["topic"], row["partition"], row["offset"]) == (b"b6", filled, 2, 1)
    [with_headers, *_] = topic_rows(cluster, subscribe=filled, rowFormat="kafka", includeProperties="true")
    names = {header["key"]: header["value"] for header in with_headers["headers"]}
    assert names["KEYS"] == with_headers["key"]


def test_properties_are_left_out_when_nobody_wants_them(cluster: Any, filled: str) -> None:
    rows = topic_rows(cluster, subscribe=filled, includeProperties="false")
    assert "properties" not in rows[0] and keys(rows) == every()
    assert topic_rows(cluster, subscribe=filled)[0]["properties"]["KEYS"].startswith("k")


def test_bounds_by_time_for_topics_brokers_and_queues(cluster: Any, filled: str) -> None:
    rows = sorted(topic_rows(cluster, subscribe=filled), key=lambda row: row["storeTimestamp"])
    middle = rows[COUNT // 2]["storeTimestamp"]
    ms = round(middle.timestamp() * 1000)
    later = keys([row for row in rows if row["storeTimestamp"] >= middle])
    earlier = keys([row for row in rows if row["storeTimestamp"] < middle])
    assert keys(topic_rows(cluster, subscribe=filled, startingOffsetsByTimestamp=json.dumps({filled: ms}))) == later
    assert keys(topic_rows(cluster, subscribe=filled, endingTimestamp=str(ms))) == earlier
    ids = sorted({str(row["queueId"]) for row in rows})
    one_queue = {filled: {"broker-a": {**dict.fromkeys(ids, 0), "1": ms}}}
    found = keys(topic_rows(cluster, subscribe=filled, startingOffsetsByTimestamp=json.dumps(one_queue)))
    assert found == keys([row for row in rows if row["queueId"] != 1 or row["storeTimestamp"] >= middle])
    del one_queue[filled]["broker-a"]["0"]
    with pytest.raises(OptionError, match=f"option endingOffsetsByTimestamp: it leaves out {filled}/broker-a/0; name"):
        topic_rows(cluster, subscribe=filled, endingOffsetsByTimestamp=json.dumps(one_queue))


@pytest.mark.parametrize(
    "more",
    [
        {"pullBatchSize": "1", "pullsInFlight": "2"},
        {"pullBatchSize": "5000"},
        {"pullsInFlight": "64"},
        {"minPartitions": "37"},
        {"consumerGroup": "Others"},
    ],
)
def test_ways_to_read_give_the_same_rows(cluster: Any, filled: str, more: dict[str, str]) -> None:
    assert keys(topic_rows(cluster, {"keys": "string"}, subscribe=filled, **more)) == every()


def test_a_stream_is_cut_into_parts_and_tells_its_group(cluster: Any, filled: str) -> None:
    from triomq.spark.cluster import Cluster
    from triomq.spark.options import ConnectionOptions, source_options
    from triomq.spark.source import StreamReader

    given = {
        "nameServer": cluster.namesrv_address,
        "subscribe": filled,
        "startingOffsets": "earliest",
        "minPartitions": "10",
        "commitOffsets": "true",
        "consumerGroup": "SparkTold",
    }
    stream = StreamReader(source_options(given, streaming=True), schema_of({"keys": "string"}))
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert end == stream.reportLatestOffset() == {filled: {"broker-a": dict.fromkeys("0123", COUNT // 4)}}
    parts = stream.partitions(start, end)
    assert len(parts) >= 10
    assert keys([row for part in parts for batch in stream.read(part) for row in batch.to_pylist()]) == every()
    stream.commit(end)
    stream.stop()
    queues = [MessageQueue(filled, "broker-a", number) for number in range(4)]
    with Cluster(ConnectionOptions((cluster.namesrv_address,))) as brokers:
        assert brokers.group_offsets("SparkTold", queues) == dict.fromkeys(queues, COUNT // 4)


def test_messages_deleted_before_they_were_read() -> None:
    """The checkpoint is at 5 and 7; retention has reached 10 and 0."""
    from triomq.spark.options import source_options
    from triomq.spark.reading import Plan

    one, two = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
    oldest = SimpleNamespace(min_offsets=lambda queues: {queue: {one: 10, two: 0}[queue] for queue in queues})

    def parts(fail: str) -> list[tuple[int, int, int]]:
        options = source_options({"nameServer": "h:1", "subscribe": "T", "failOnDataLoss": fail}, streaming=True)
        plan = Plan(options, oldest)  # type: ignore[arg-type]
        return [(part.queue_id, part.begin, part.end) for part in plan.parts({one: 5, two: 7}, {one: 20, two: 9})]

    assert parts("false") == [(0, 10, 20), (1, 7, 9)]
    with pytest.raises(DataLost, match="offsets 5 to 10 of T/b/0 were deleted before they were read"):
        parts("true")


def test_a_broker_is_asked_for_little_at_a_time(cluster: Any, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options bound the requests that a task has in flight, whatever it reads: pullsInFlight requests of pullBatchSize
    messages, over one connection.
    """
    from triomq.remoting.blocking_connection import BlockingConnection

    made: list[BlockingConnection] = []
    most = 0
    first, send = BlockingConnection.__init__, BlockingConnection.send

    def make(self: BlockingConnection, *arguments: Any, **options: Any) -> None:
        made.append(self)
        first(self, *arguments, **options)

    def count(self: BlockingConnection, *requests: Any) -> list[int]:
        nonlocal most
        numbers = send(self, *requests)
        if self.address == cluster.broker_address:
            most = max(most, len(self._outstanding))
        return numbers

    from triomq.spark.options import source_options
    from triomq.spark.source import BatchReader

    given = {"nameServer": cluster.namesrv_address, "subscribe": filled, "pullBatchSize": "4", "pullsInFlight": "3"}
    reader = BatchReader(source_options(given, streaming=False), schema_of({"keys": "string"}))
    parts = reader.partitions()
    monkeypatch.setattr(BlockingConnection, "__init__", make)
    monkeypatch.setattr(BlockingConnection, "send", count)
    for part in parts:
        made.clear()
        assert sum(batch.num_rows for batch in reader.read(part)) == COUNT // 4
        assert [one.address for one in made].count(cluster.broker_address) == 1
    assert most == 3


def test_a_store_in_use_and_its_read_only_copy(
    cluster: Any, filled: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The files of the running broker contain what it has confirmed; a copy of them has the same content."""
    from stream_kills import fill

    topic = cluster.create_topic("InUse", 2)
    for round_number in range(3):
        fill(cluster, topic, 100)
        rows = store_rows(cluster.store, subscribe=topic)
        assert len(rows) == 100 * (round_number + 1)
    columns = {"topic": "string", "queueId": "int", "queueOffset": "bigint", "body": "binary"}
    live = store_rows(cluster.store, columns, subscribe=topic)
    asked = topic_rows(cluster, columns, subscribe=topic)

    def place(row: dict[str, Any]) -> tuple[int, int]:
        return row["queueId"], row["queueOffset"]

    assert sorted(live, key=place) == sorted(asked, key=place)
    shutil.copytree(cluster.store, tmp_path / "copy")
    for path in [tmp_path / "copy", *(tmp_path / "copy").rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    request.addfinalizer(writable(tmp_path / "copy"))
    assert store_rows(tmp_path / "copy", columns, subscribe=topic) == live
    by_queue = store_rows(tmp_path / "copy", columns, subscribe=topic, split="queue", minPartitions="9")
    assert sorted(by_queue, key=place) == sorted(asked, key=place)


def writable(root: Path) -> Callable[[], None]:
    def restore() -> None:
        for path in (path for path in [root, *root.rglob("*")] if path.is_dir()):
            path.chmod(0o755)

    return restore


def test_the_sink_finds_what_an_earlier_attempt_stored(cluster: Any) -> None:
    """In real queues, messages after the beginning count and messages before it do not."""
    from triomq.spark.cluster import Cluster
    from triomq.spark.options import ConnectionOptions
    from triomq.spark.outgoing import RowReader
    from triomq.spark.sending import Sender

    topic = cluster.create_topic("Earlier", 1)
    queue = MessageQueue(topic, "broker-a", 0)

    def bodies(*texts: str) -> Any:
        column = SimpleNamespace(to_pylist=lambda: [text.encode() for text in texts])
        return SimpleNamespace(num_rows=len(texts), column=lambda at: column)

    with Cluster(ConnectionOptions((cluster.namesrv_address,))) as brokers:

        def write(begin: int | None, *texts: str) -> tuple[int, int]:
            ids = iter(f"{number:032d}" for number in range(100))
            rows = RowReader({"body": 0}, topic, "key:0:0:", ids.__next__)
            found = StoredRows(brokers, "key:0:0:", "g", lambda queues: None if begin is None else {queue: begin})
            sender = Sender(brokers, "g", batch_bytes=64, retries=0, now_ms=lambda: 1, stored=found)
            for message in rows.messages(bodies(*texts)):
                sender.add(message)
            sender.flush()
            return sender.sent, sender.skipped

        assert write(None, "a", "b") == (2, 0)
        assert write(0, "b", "c", "a", "a") == (2, 2)
        assert write(2, "a", "c") == (0, 2)
        assert write(4, "c") == (1, 0)
