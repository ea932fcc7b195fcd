"""Questions that the brokers answer without Spark: how many messages there are, and how far behind a query is. These
tests need a broker, but no Java: the readers are those that Spark's workers run."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, Filter, In
from pyspark.sql.types import StringType, StructField, StructType

import triomq.spark
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.properties import encode
from triomq.protocol.system_topics import SCHEDULE_TOPIC
from triomq.spark import reading
from triomq.spark.cluster import Cluster
from triomq.spark.errors import DataLost, OptionError
from triomq.spark.options import ConnectionOptions, source_options
from triomq.spark.outgoing import OutgoingMessage
from triomq.spark.pulling import Pull, QueueRange
from triomq.spark.sending import Sender
from triomq.spark.source import PushingBatchReader

TAGS = ("Aa", "BB", "c", "c", "c")  # the first two have the same hash
MESSAGES = 500


@pytest.fixture(scope="module")
def tagged(cluster: Any) -> str:
    """A topic of two queues with 500 messages, a fifth of them with the tag `Aa`, a fifth with `BB`."""
    topic: str = cluster.create_topic("SparkTagged", 2)
    send_tagged(cluster.namesrv_address, topic)
    return topic


def values(cluster: Any, topic: str, **more: Any) -> dict[str, Any]:
    return {"nameServer": cluster.namesrv_address, "subscribe": topic, **more}


def test_a_count_is_the_number_of_messages_that_a_read_returns(cluster: Any, tagged: str) -> None:
    assert triomq.spark.count(**values(cluster, tagged)) == MESSAGES
    from_ten = json.dumps({tagged: {"broker-a": {"0": 10, "1": -1}}})
    assert triomq.spark.count(**values(cluster, tagged, startingOffsets=from_ten)) == MESSAGES // 2 - 10
    assert triomq.spark.count(**values(cluster, tagged, endingOffsets=from_ten)) == MESSAGES // 2 + 10
    assert triomq.spark.count(**values(cluster, tagged, startingTimestamp=2**60)) == 0
    assert triomq.spark.count(**values(cluster, tagged, startingTimestamp=1, rowFormat="kafka")) == MESSAGES
    one = values(cluster, tagged, assign=json.dumps({tagged: [1]}), subscribe="")
    assert triomq.spark.count(**one) == MESSAGES // 2


def test_a_count_with_a_filter_is_exact_also_when_hashes_collide(cluster: Any, tagged: str) -> None:
    assert triomq.spark.count(**values(cluster, tagged, filter="Aa")) == MESSAGES // 5
    assert triomq.spark.count(**values(cluster, tagged, filter="BB || c")) == MESSAGES * 4 // 5
    sql = {"filter": "number < 7", "filterType": "SQL92"}
    assert triomq.spark.count(**values(cluster, tagged, **sql)) == 7


def test_a_count_fails_as_the_read_does(cluster: Any, tagged: str) -> None:
    beyond = json.dumps({tagged: {"broker-a": {"0": 10_000, "1": -2}}})
    with pytest.raises(DataLost, match=r"offset 10000 of .* is beyond the end"):
        triomq.spark.count(**values(cluster, tagged, startingOffsets=beyond))
    assert triomq.spark.count(**values(cluster, tagged, startingOffsets=beyond, failOnDataLoss=False)) == MESSAGES // 2
    with pytest.raises(OptionError, match="topic 'NoSuchTopic' does not exist"):
        triomq.spark.count(**values(cluster, "NoSuchTopic"))


class CountedRange(QueueRange):
    """Counts the messages that brokers hand out."""

    handed_out = 0

    def bodies(self) -> Iterator[tuple[bytes, int, int]]:
        for body, begin, end in super().bodies():
            at = 0
            while at < len(body):
                CountedRange.handed_out += 1
                at += struct.unpack_from(">i", body, at)[0]
            yield body, begin, end


@pytest.mark.parametrize(
    ("conditions", "rows", "handed_out"),
    [
        ([], MESSAGES, MESSAGES),
        ([EqualTo(("tags",), "Aa")], MESSAGES // 5, MESSAGES * 2 // 5),
        ([In(("tags",), ("Aa", "BB"))], MESSAGES * 2 // 5, MESSAGES * 2 // 5),
        ([EqualTo(("tags",), "c"), EqualTo(("queueId",), 1)], MESSAGES * 3 // 10, MESSAGES * 3 // 10),
        ([EqualTo(("tags",), "other")], 0, 0),
    ],
)
def test_a_condition_on_tags_makes_the_broker_hand_out_fewer_messages(
    cluster: Any,
    tagged: str,
    conditions: list[Filter],
    rows: int,
    handed_out: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "QueueRange", CountedRange)
    CountedRange.handed_out = 0
    schema = StructType([StructField("tags", StringType())])
    reader = PushingBatchReader(source_options(values(cluster, tagged), streaming=False), schema)
    assert list(reader.pushFilters(conditions)) == []
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert (sum(batch.num_rows for batch in batches), CountedRange.handed_out) == (rows, handed_out)


def progress_of(*end_offsets: Any) -> dict[str, Any]:
    return {"sources": [{"endOffset": offset} for offset in end_offsets]}


def test_the_lag_of_a_query_is_what_the_brokers_have_behind_its_position(cluster: Any, tagged: str) -> None:
    reached = {tagged: {"broker-a": {"0": 240, "1": 250}}}
    half = MESSAGES // 2
    expected = {tagged: {"broker-a": {"0": half - 240, "1": half - 250}}}
    given = values(cluster, tagged)
    assert triomq.spark.lag(progress_of(json.dumps(reached)), **given) == expected
    assert triomq.spark.lag(progress_of(reached, "null", '{"kafka": {"0": 1}}'), **given) == expected
    behind = {tagged: {"broker-a": {"0": 200}}}
    expected[tagged]["broker-a"]["0"] = half - 200
    assert triomq.spark.lag(progress_of(reached, behind), **given) == expected


@pytest.mark.parametrize("progress", [None, progress_of("null"), progress_of('{"kafka": {"0": 1}}'), progress_of()])
def test_a_progress_without_a_position_is_an_error_and_no_lag_of_0(progress: Any) -> None:
    with pytest.raises(OptionError, match=r"^progress: "):
        triomq.spark.lag(progress, nameServer="h:1")


class RecordedRange:
    """Records how a queue is pulled, and has no messages."""

    pulls: ClassVar[list[Pull]] = []

    def __init__(self, cluster: Cluster, queue: MessageQueue, begin: int, end: int, pull: Pull) -> None:
        self.pulls.append(pull)

    def bodies(self) -> Iterator[tuple[bytes, int, int]]:
        return iter(())


def test_tags_of_delayed_messages_are_not_compared_by_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their consume queue has delivery times in place of hashes."""
    monkeypatch.setattr(reading, "QueueRange", RecordedRange)
    RecordedRange.pulls.clear()
    options = source_options({"nameServer": "h:1", "subscribe": "T", "filter": "a"}, streaming=False)
    schema = StructType([StructField("tags", StringType())])
    for topic in ("T", SCHEDULE_TOPIC):
        reader = PushingBatchReader(options, schema)
        assert list(reader.read(reading.QueuePart(topic, "b", 0, 0, 9))) == []
    assert [pull.expression for pull in RecordedRange.pulls] == ["a", "*"]


def send_tagged(name_server: str, topic: str) -> None:
    """Fill the two queues of a topic in turn."""
    with Cluster(ConnectionOptions((name_server,))) as cluster:
        sender = Sender(cluster, "TAGGED", batch_bytes=65536, retries=3, now_ms=lambda: 1_700_000_000_000, stored=None)
        for number in range(MESSAGES):
            table = {"TAGS": TAGS[number % 5], "KEYS": f"k{number}", "number": str(number)}
            sender.add(OutgoingMessage(topic, b"x", encode(table), number % 2, "broker-a", None, 0, ""))
        sender.flush()
