"""Every state in which messages are gone, for batch and stream, both triggers, and both settings of failOnDataLoss."""

from __future__ import annotations

import logging
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

from triomq.protocol.message_queue import MessageQueue
from triomq.spark.errors import DataLost
from triomq.spark.options import source_options
from triomq.spark.positions import Positions
from triomq.spark.reading import Plan
from triomq.spark.source import BatchReader, StreamReader

QUEUE = MessageQueue("T", "b", 0)
BEGIN = 60
SCHEMA = StructType([StructField("keys", StringType())])


class FakeCluster:
    """One queue with messages from `oldest` to `end`. It is in the route if `is_routed`; `brokers` are registered."""

    def __init__(self, oldest: int, end: int, *, is_routed: bool = True, brokers: tuple[str, ...] = ("b",)) -> None:
        self.oldest, self.end, self.is_routed = oldest, end, is_routed
        self._brokers = dict.fromkeys(brokers, "10.0.0.1:10911")

    def min_offsets(self, queues: list[MessageQueue]) -> Positions:
        return dict.fromkeys(queues, self.oldest)

    def max_offsets(self, queues: list[MessageQueue]) -> Positions:
        return dict.fromkeys(queues, self.end)

    def brokers(self) -> dict[str, str]:
        return self._brokers

    def settled_route(self, topic: str) -> Any:
        return type("Route", (), {"subscribe": [QUEUE] if self.is_routed else []})

    route = settled_route

    def forget_routes(self) -> None:
        pass

    def close(self) -> None:
        pass


# state: the queue, what it says with failOnDataLoss=true (None: nothing), position and range read with false
STATES: dict[str, tuple[FakeCluster, str | None, int, tuple[int, int] | None]] = {
    "new messages": (FakeCluster(0, 80), None, 80, (60, 80)),
    "nothing new": (FakeCluster(0, 60), None, 60, None),
    "deleted before they were read": (
        FakeCluster(70, 80),
        "offsets 60 to 70 of T/b/0 were deleted before they were read",
        80,
        (70, 80),
    ),
    "shorter": (
        FakeCluster(0, 50),
        "offsets 50 to 60 of T/b/0 were read before and are gone: the queue is shorter now",
        50,
        None,
    ),
    "left the route unread": (
        FakeCluster(0, 75, is_routed=False),
        r"offsets 60 to 75 of T/b/0 were not read, and the queue is not in the route of its topic any more",
        60,
        None,
    ),
    "left the route, all read": (FakeCluster(0, 60, is_routed=False), None, 60, None),
    "gone": (FakeCluster(0, 0, is_routed=False), "T/b/0, which was read up to offset 60, is gone", 0, None),
    "its broker is away": (FakeCluster(0, 0, is_routed=False, brokers=("a",)), None, 60, None),
    "no broker at all": (FakeCluster(0, 0, is_routed=False, brokers=()), None, 60, None),
}


def stream_of(cluster: FakeCluster, *, fails: bool, subscribe: str = "T") -> StreamReader:
    values = {"nameServer": "h:1", "subscribe": subscribe, "failOnDataLoss": str(fails).lower()}
    stream = StreamReader(source_options(values, streaming=True), SCHEMA)
    stream._plan = Plan(stream.options, cluster)  # type: ignore[arg-type]
    return stream


def one_trigger(stream: StreamReader, begin: int, *, available_now: bool) -> tuple[int, list[tuple[int, int]]]:
    """Return the position after one micro-batch, and the ranges that it reads."""
    start = {"T": {"b": {"0": begin}}}
    if available_now:
        stream.prepareForTriggerAvailableNow()
    end = stream.latestOffset(start, ReadAllAvailable())
    return end["T"]["b"]["0"], [(part.begin, part.end) for part in stream.partitions(start, end)]


@pytest.mark.parametrize("available_now", [True, False], ids=["availableNow", "processingTime"])
@pytest.mark.parametrize("state", STATES)
def test_a_stream_stops_with_what_is_missing_and_where(state: str, available_now: bool) -> None:
    cluster, what, position, read = STATES[state]
    stream = stream_of(cluster, fails=True)
    if what is None:
        assert one_trigger(stream, BEGIN, available_now=available_now) == (position, [read] if read else [])
        return
    for _ in range(2):  # every trigger says so
        with pytest.raises(DataLost, match=what) as lost:
            one_trigger(stream, BEGIN, available_now=available_now)
        assert str(lost.value).endswith("Set failOnDataLoss=false to continue without them")


@pytest.mark.parametrize("available_now", [True, False], ids=["availableNow", "processingTime"])
@pytest.mark.parametrize("state", STATES)
def test_a_stream_goes_on_and_says_so_once(state: str, available_now: bool, caplog: pytest.LogCaptureFixture) -> None:
    cluster, what, position, read = STATES[state]
    stream = stream_of(cluster, fails=False)
    with caplog.at_level(logging.WARNING, logger="triomq.spark"):
        for _ in range(3):
            assert one_trigger(stream, BEGIN, available_now=available_now) == (position, [read] if read else [])
    assert len(caplog.records) == (what is not None)
    if what is not None:
        assert "the query continues without them (failOnDataLoss=false)" in caplog.text


def test_a_queue_that_became_shorter_is_read_on_at_its_new_end() -> None:
    cluster = FakeCluster(0, 50)
    stream = stream_of(cluster, fails=False)
    position, _ = one_trigger(stream, BEGIN, available_now=False)
    cluster.end = 55
    assert one_trigger(stream, position, available_now=False) == (55, [(50, 55)])


def test_a_topic_that_was_gone_and_is_made_again_is_read_from_its_beginning() -> None:
    cluster = FakeCluster(0, 0, is_routed=False)
    stream = stream_of(cluster, fails=False)
    position, _ = one_trigger(stream, BEGIN, available_now=False)
    cluster.end, cluster.is_routed = 10, True
    assert one_trigger(stream, position, available_now=False) == (10, [(0, 10)])


def test_a_topic_that_is_not_subscribed_any_more_is_not_missed() -> None:
    cluster = FakeCluster(0, 75, is_routed=False)
    assert one_trigger(stream_of(cluster, fails=True, subscribe="Other"), BEGIN, available_now=False) == (60, [])


def test_a_limit_of_rows_takes_a_shorter_queue_for_an_empty_one() -> None:
    stream = stream_of(FakeCluster(0, 50), fails=False)
    assert stream.latestOffset({"T": {"b": {"0": 60}}}, ReadMaxRows(10)) == {"T": {"b": {"0": 50}}}


def batch_parts(cluster: FakeCluster, *, fails: bool, **offsets: int) -> list[tuple[int, int]]:
    values = {"nameServer": "h:1", "subscribe": "T", "failOnDataLoss": str(fails).lower()}
    for name, offset in offsets.items():
        values[f"{name}Offsets"] = f'{{"T": {{"b": {{"0": {offset}}}}}}}'
    reader = BatchReader(source_options(values, streaming=False), SCHEMA)
    plan = Plan(reader.options, cluster)  # type: ignore[arg-type]
    return [(part.begin, part.end) for part in reader.planned(plan)]


def test_a_batch_stops_at_an_offset_beyond_the_end() -> None:
    cluster = FakeCluster(0, 50)
    what = "offset 60 of T/b/0 is beyond the end of the queue, which is 50"
    for offsets in ({"starting": 60}, {"starting": 10, "ending": 60}):
        with pytest.raises(DataLost, match=what):
            batch_parts(cluster, fails=True, **offsets)
    assert batch_parts(cluster, fails=False, starting=60) == []
    assert batch_parts(cluster, fails=False, starting=10, ending=60) == [(10, 50)]
    assert batch_parts(cluster, fails=True, starting=50) == []
    assert batch_parts(cluster, fails=True, starting=-2, ending=-1) == [(0, 50)]


def test_a_batch_stops_at_messages_that_were_deleted() -> None:
    cluster = FakeCluster(20, 50)
    with pytest.raises(DataLost, match="offsets 10 to 20 of T/b/0 were deleted before they were read"):
        batch_parts(cluster, fails=True, starting=10)
    assert batch_parts(cluster, fails=False, starting=10) == [(20, 50)]


def test_a_stream_that_begins_beyond_the_end_stops() -> None:
    values = {"nameServer": "h:1", "subscribe": "T", "startingOffsets": '{"T": {"b": {"0": 60}}}'}
    for available_now in (True, False):
        stream = StreamReader(source_options(values, streaming=True), SCHEMA)
        stream._plan = Plan(stream.options, FakeCluster(0, 50))  # type: ignore[arg-type]
        assert stream.initialOffset() == {"T": {"b": {"0": 60}}}
        with pytest.raises(DataLost, match="the queue is shorter now"):
            one_trigger(stream, 60, available_now=available_now)
