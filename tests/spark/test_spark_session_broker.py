"""Topics in real Spark against a real broker: batch, stream, sink, jobs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from golden_data import golden_frames

pytestmark = pytest.mark.spark


def rows_of(spark: Any, count: int, start: int = 0) -> Any:
    return spark.range(start, start + count, numPartitions=2).selectExpr(
        "cast(concat('body ', id) as binary) as body",
        "concat('k', id) as keys",
        "if(id % 2 = 0, 'even', 'odd') as tags",
        "map('number', cast(id as string)) as properties",
    )


def write(cluster: Any, table: Any, topic: str, **options: Any) -> None:
    writer = table.write.format("rocketmq").options(nameServer=cluster.namesrv_address, topic=topic, **options)
    writer.mode("append").save()


def read(spark: Any, cluster: Any, topic: str, **options: Any) -> Any:
    options = {"nameServer": cluster.namesrv_address, "subscribe": topic, **options}
    return spark.read.format("rocketmq").options(**options).load()


def keys(table: Any) -> list[str]:
    return sorted(row["keys"] for row in table.select("keys").collect())


def numbers(count: int, start: int = 0) -> list[str]:
    return sorted(f"k{number}" for number in range(start, start + count))


@pytest.fixture(scope="module")
def filled(spark: Any, cluster: Any) -> str:
    """A topic of 4 queues with 1000 messages."""
    topic: str = cluster.create_topic("SparkFilled", 4)
    write(cluster, rows_of(spark, 1000).selectExpr("*", "cast(properties['number'] as int) % 4 as queueId"), topic)
    return topic


def test_what_is_written_is_read(spark: Any, cluster: Any, filled: str) -> None:
    table = read(spark, cluster, filled)
    rows = table.orderBy("queueId", "queueOffset").collect()
    assert sorted(row["keys"] for row in rows) == numbers(1000)
    row = rows[0]
    number = row.properties["number"]
    assert (row.topic, row.brokerName, bytes(row.body)) == (filled, "broker-a", f"body {number}".encode())
    assert row.tags == ("even" if int(number) % 2 == 0 else "odd")
    assert len(row.msgId) == 32
    assert len({(row.queueId, row.queueOffset) for row in rows}) == 1000


def test_offsets_times_and_parts(spark: Any, cluster: Any, filled: str) -> None:
    rows = read(spark, cluster, filled).orderBy("storeTimestamp").collect()
    some = json.dumps({filled: {"broker-a": {"0": 5, "1": -1, "2": 0, "3": 0}}})
    ends = {queue: sum(row.queueId == queue for row in rows) for queue in range(4)}
    assert read(spark, cluster, filled, startingOffsets=some).count() == ends[0] - 5 + ends[2] + ends[3]
    assert read(spark, cluster, filled, endingOffsets=some).where("queueId = 0").count() == 5
    middle = rows[500].storeTimestamp
    later = read(spark, cluster, filled, startingTimestamp=int(middle.timestamp() * 1000 + 0.5))
    assert later.count() == sum(row.storeTimestamp >= middle for row in rows)
    assert read(spark, cluster, filled, minPartitions="10").rdd.getNumPartitions() >= 10
    assigned = {"assign": json.dumps({filled: [1, 2]}), "subscribe": ""}
    assert read(spark, cluster, filled, **assigned).count() == ends[1] + ends[2]
    pattern = {"subscribePattern": f"{filled[:6]}.*{filled[-4:]}", "subscribe": ""}
    assert read(spark, cluster, filled, **pattern).count() == 1000
    selected = read(spark, cluster, filled).where(f"queueId = 2 and queueOffset < 7 and storeTimestamp <= '{middle}'")
    wanted = [row for row in rows if row.queueId == 2 and row.queueOffset < 7 and row.storeTimestamp <= middle]
    assert selected.count() == len(wanted)


def test_filters_run_at_the_broker(spark: Any, cluster: Any, filled: str) -> None:
    assert read(spark, cluster, filled, filter="odd || other").count() == 500
    sql = {"filterType": "SQL92", "filter": "number >= 990 AND TAGS = 'even'"}
    assert read(spark, cluster, filled, **sql).count() == 5
    refused = r"option filter: checking the subscription to .* was refused: SUBSCRIPTION_PARSE_FAILED"
    with pytest.raises(Exception, match=refused):
        read(spark, cluster, filled, filterType="SQL92", filter="a >>> 1").count()
    with pytest.raises(Exception, match="option subscribe: topic 'NoSuchTopic' does not exist"):
        read(spark, cluster, "NoSuchTopic").count()


def test_conditions_on_tags_run_at_the_broker(
    spark: Any, cluster: Any, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def selected(condition: str) -> Any:
        return read(spark, cluster, filled, pushDownFilters="true").where(condition)

    capsys.readouterr()
    selected("tags = 'even' and queueOffset >= 10 and storeTimestamp > '2026-01-01' and keys like 'k%'").explain(
        "formatted"
    )
    text = capsys.readouterr().out
    shown = text.partition("PushedFilters: ")[2].partition("\n")[0]
    assert "EqualTo(tags,even)" in shown and "GreaterThanOrEqual(queueOffset,10)" in shown
    assert "GreaterThan(storeTimestamp" not in shown and "StringStartsWith" not in shown
    assert "body:binary" in text.partition("ReadSchema: ")[2].partition("\n")[0]
    even = [row for row in read(spark, cluster, filled).collect() if row.tags == "even"]
    assert selected("tags = 'even'").count() == len(even) == 500
    early = selected("tags in ('even', 'other') and queueOffset < 100")
    assert early.count() == sum(row.queueOffset < 100 for row in even)
    assert selected("tags like 'ev%'").count() == selected("tags != 'odd'").count() == 500


def test_sharding_keys_and_queue_ids_keep_their_order(spark: Any, cluster: Any) -> None:
    topic = cluster.create_topic("SparkOrder", 3)
    table = (
        rows_of(spark, 300)
        .coalesce(1)
        .selectExpr("*", "concat('s', cast(properties['number'] as int) % 5) as shardingKey")
    )
    write(cluster, table, topic)
    write(cluster, rows_of(spark, 10, 1000).selectExpr("*", "1 as queueId"), topic)
    rows = read(spark, cluster, topic).orderBy("queueId", "queueOffset").collect()
    places: dict[int, set[int]] = {}
    for shard in range(5):
        mine = [
            row for row in rows if int(row.properties["number"]) % 5 == shard and int(row.properties["number"]) < 300
        ]
        places[shard] = {row.queueId for row in mine}
        assert [int(row.properties["number"]) for row in mine] == list(range(shard, 300, 5))
    assert all(len(queues) == 1 for queues in places.values())
    assert {row.queueId for row in rows if int(row.properties["number"]) >= 1000} == {1}


class Stream:
    """A query from one topic to another with its own checkpoint."""

    def __init__(self, spark: Any, cluster: Any, source: str, target: str, checkpoint: Path) -> None:
        self.spark = spark
        self.cluster = cluster
        self.source = source
        self.target = target
        self.checkpoint = checkpoint

    def run(self, **options: Any) -> list[int]:
        """Run it with Trigger.AvailableNow. Return the rows of each batch."""
        options = {
            "nameServer": self.cluster.namesrv_address,
            "subscribe": self.source,
            "startingOffsets": "earliest",
            **options,
        }
        table = self.spark.readStream.format("rocketmq").options(**options).load()
        query = (
            table.select("body", "tags", "keys", "properties")
            .writeStream.format("rocketmq")
            .options(
                nameServer=self.cluster.namesrv_address, topic=self.target, checkpointLocation=str(self.checkpoint)
            )
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def forget_commit(self) -> None:
        """Act as if the driver had died before Spark recorded the last batch as done."""
        last = max(int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit())
        (self.checkpoint / "commits" / str(last)).unlink()
        (self.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)


def test_a_stream_delivers_each_message_once(spark: Any, cluster: Any, tmp_path: Path) -> None:
    source, target = cluster.create_topic("SparkFrom", 3), cluster.create_topic("SparkTo", 2)
    write(cluster, rows_of(spark, 500), source)
    stream = Stream(spark, cluster, source, target, tmp_path / "checkpoint")
    assert stream.run(maxOffsetsPerTrigger="200") == [200, 200, 100]
    assert keys(read(spark, cluster, target)) == numbers(500)
    stream.forget_commit()
    write(cluster, rows_of(spark, 50, 500), source)
    assert stream.run() == [100, 50]
    assert keys(read(spark, cluster, target)) == numbers(550)
    assert stream.run() == []


def test_a_batch_write_with_an_id_can_be_run_again(spark: Any, cluster: Any) -> None:
    topic = cluster.create_topic("SparkAgain", 2)
    for count in (60, 100, 100):
        write(cluster, rows_of(spark, 100).limit(count).coalesce(1), topic, writeId="job 7")
    assert keys(read(spark, cluster, topic)) == numbers(100)
    write(cluster, rows_of(spark, 3, 200).selectExpr("*", "1 as delayLevel").coalesce(1), topic, writeId="job 8")
    write(cluster, rows_of(spark, 3, 200).selectExpr("*", "1 as delayLevel").coalesce(1), topic, writeId="job 8")
    deadline = time.monotonic() + 10
    while read(spark, cluster, topic).count() < 103 and time.monotonic() < deadline:
        pass
    assert keys(read(spark, cluster, topic)) == sorted(numbers(100) + numbers(3, 200))


def test_archive_and_replay(
    spark: Any, cluster: Any, filled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from triomq.spark.jobs import main

    folder, copy = str(tmp_path / "archive"), cluster.create_topic("SparkCopy", 4)
    common = ["-n", cluster.namesrv_address, "--quiet"]
    archive = ["archive", *common, "--topics", filled, "--to", folder, "--slice-rows", "400"]
    assert (main.run(archive), main.run(archive)) == (0, 0)
    assert "1,000 messages archived" in capsys.readouterr().out
    assert spark.read.parquet(folder).count() == 1000
    # as if the job had been killed before it recorded its last slice
    last = max((tmp_path / "archive" / "_manifest").glob("*.json"))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()
    assert main.run(archive) == 0
    assert spark.read.parquet(folder).select("keys").distinct().count() == spark.read.parquet(folder).count() == 1000
    replay = ["replay", *common, "--from", folder, "--to-topic", copy]
    assert (main.run(replay), main.run(replay)) == (0, 0)
    columns = ["queueId", "queueOffset", "keys", "body"]
    copied, original = (read(spark, cluster, topic).select(*columns).collect() for topic in (copy, filled))
    assert sorted(copied) == sorted(original)


def test_lag_and_trace(spark: Any, cluster: Any, filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    from triomq.protocol.message_queue import MessageQueue
    from triomq.spark.cluster import Cluster
    from triomq.spark.jobs import main, trace
    from triomq.spark.options import ConnectionOptions

    common = ["-n", cluster.namesrv_address, "--quiet"]
    with Cluster(ConnectionOptions((cluster.namesrv_address,))) as admin:
        ends = admin.max_offsets([MessageQueue(filled, "broker-a", number) for number in range(4)])
        admin.store_group_offsets("SparkWatched", {queue: end - 10 for queue, end in ends.items()})
    topic = cluster.create_topic("SparkTraces", 1)
    traces = [
        (bytearray.fromhex(frame["body_hex"]),)
        for frame in golden_frames("clients_json", scenario="message_trace")
        if (frame["header"].get("extFields") or {}).get("b") == "RMQ_SYS_TRACE_TOPIC"
    ]
    write(cluster, spark.createDataFrame(traces, "body binary"), topic)
    assert main.run(["lag", *common, "--samples", "2", "--interval", "0.1", "--groups", "SparkWatched"]) == 0
    assert main.run(["trace", *common, "--trace-topic", topic]) == 0
    assert main.run(["trace", *common, "--trace-topic", "NoSuchTopic"]) == 2
    output = capsys.readouterr()
    assert " 40 " in next(line for line in output.out.splitlines() if "SparkWatched" in line)
    assert "consumed from 1795243879785 by GID_Wire_trace" in output.out
    assert "end to end 100 ms" in output.out
    assert output.err == f"mqpipeline trace: topic 'NoSuchTopic' does not exist. {trace.HOW_TO_TRACE}\n"
    assert main.run(["trace", *common, "--trace-topic", topic, "--msg-id", "NoSuchMessage"]) == 1
    output = capsys.readouterr()
    assert (output.out, output.err) == ("0 timelines\n", f"mqpipeline trace: no trace matches. {trace.HOW_TO_TRACE}\n")


def test_admission_control(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
    from pyspark.sql.types import BinaryType, StructField, StructType

    from triomq.protocol.message_queue import MessageQueue
    from triomq.spark import source
    from triomq.spark.options import source_options
    from triomq.spark.positions import from_tree

    def reader(**more: str) -> Any:
        options = source_options({"nameServer": "h:1", "subscribe": "T", **more}, streaming=True)
        made = source.StreamReader(options, StructType([StructField("body", BinaryType())]))
        monkeypatch.setattr(made, "_ends", lambda: {MessageQueue("T", "b", 0): 50, MessageQueue("T", "b", 1): 30})
        return made

    start = {"T": {"b": {"0": 10, "1": 30}}}
    everything = {"T": {"b": {"0": 50, "1": 30}}}
    assert reader().getDefaultReadLimit() == ReadAllAvailable()
    assert reader().latestOffset(start, ReadAllAvailable()) == everything
    limited = reader(maxOffsetsPerTrigger="7", minOffsetsPerTrigger="5")
    assert limited.getDefaultReadLimit() == ReadMaxRows(7)
    assert limited.latestOffset(start, ReadMaxRows(7)) == {"T": {"b": {"0": 17, "1": 30}}}
    waiting = reader(minOffsetsPerTrigger="41")
    assert waiting.latestOffset(start, ReadMinRows(41)) == everything  # the first batch waits for nothing
    assert waiting.latestOffset(start, ReadMinRows(41)) == start
    assert waiting.latestOffset(start, ReadAllAvailable()) == everything
    now = time.monotonic()
    monkeypatch.setattr(source.time, "monotonic", lambda: now + 1000)
    assert waiting.latestOffset(start, ReadMinRows(41)) == everything
    available = reader()
    available.prepareForTriggerAvailableNow()
    monkeypatch.setattr(available, "_ends", lambda: {MessageQueue("T", "b", 0): 99})
    assert available.latestOffset(start, ReadAllAvailable()) == everything
    with pytest.raises(Exception, match="offsets 50 to 60 of T/b/0 were read before and are gone"):
        reader().latestOffset({"T": {"b": {"0": 60}}}, ReadAllAvailable())
    assert (
        from_tree(reader().latestOffset({"Gone": {"b": {"0": 5}}}, ReadAllAvailable()))[MessageQueue("Gone", "b", 0)]
        == 5
    )
