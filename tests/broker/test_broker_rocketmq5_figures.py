"""The families of RocketMQ 5 that are measured on the path of messages: sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_fakes import FakeClock
from broker_scrape import Scrape, watched

from triomq.broker.metrics.sampling import SIZE_EDGES_BYTES
from triomq.broker.metrics.stats import BrokerStats
from triomq.protocol.record import BatchUnit, encode_batch_units

SIZE = "rocketmq_message_size"


def sizes(scrape: Scrape, topic: str) -> list[float]:
    """Return the counts of the cumulative buckets of a topic, by their edges."""
    edges = [*(f"{edge}.0" for edge in SIZE_EDGES_BYTES), "+Inf"]
    return [scrape.value(f"{SIZE}_bucket", topic=topic, le=edge) for edge in edges]


async def test_messages_are_counted_by_the_size_of_their_record(tmp_path: Path) -> None:
    async with watched(tmp_path, maxMessageSize=str(8 << 20), mappedFileSizeCommitLog=str(32 << 20)) as it:
        assert not [name for name, _ in (await it.scrape()).samples if name.startswith(SIZE)], "there are no topics"
        for topic in ("T", "%RETRY%G"):
            await it.broker.create_topic(topic)
        for topic, body_bytes in (("T", 1), ("T", 1024), ("T", 600_000), ("T", 5 << 20), ("%RETRY%G", 1)):
            assert (await it.broker.send(topic, b"x" * body_bytes)).code == 0
        scrape = await it.scrape()
        assert sizes(scrape, "T") == [1, 2, 2, 3, 3, 3, 4]
        for part, counter in (("count", "rocketmq_messages_in_total"), ("sum", "rocketmq_throughput_in_total")):
            assert scrape.value(f"{SIZE}_{part}", topic="T") == scrape.value(counter, topic="T")
        of_topics = {dict(labels)["topic"] for name, labels in scrape.samples if name == f"{SIZE}_count"}
        assert of_topics == {"T"}
        assert scrape.value(f"{SIZE}_count", topic="T", message_type="normal", is_system="false") == 4


async def test_the_messages_of_a_batch_count_with_their_average_size(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        await it.broker.create_topic("T")
        for bodies in ([1, 2, 3], [1, 1, 2000, 2000]):  # three small ones, and four of a kilobyte on average
            batch = encode_batch_units([BatchUnit(0, b"x" * length, b"") for length in bodies])
            assert (await it.broker.send("T", batch, batch="true")).code == 0
        scrape = await it.scrape()
        assert sizes(scrape, "T") == [3, 7, 7, 7, 7, 7, 7]
        assert scrape.value(f"{SIZE}_count", topic="T") == scrape.value("rocketmq_messages_in_total", topic="T") == 7


async def test_sizes_of_a_deleted_topic_are_gone_with_its_statistics(tmp_path: Path) -> None:
    async with watched(tmp_path, autoDeleteUnusedStats="true") as it:
        await it.broker.create_topic("T")
        assert (await it.broker.send("T", b"x" * 2000)).code == 0
        assert sizes(await it.scrape(), "T") == [0, 1, 1, 1, 1, 1, 1]
        assert (await it.broker.ask(215, {"topic": "T"})).code == 0
        assert not [name for name, _ in (await it.scrape()).samples if name.startswith(SIZE)]


async def test_topics_beyond_the_limit_have_no_sizes_and_are_counted(tmp_path: Path) -> None:
    async with watched(tmp_path, metricsMaxSeries="2") as it:
        for topic in ("A", "B", "C"):
            await it.broker.create_topic(topic)
            assert (await it.broker.send(topic)).code == 0
        scrape = await it.scrape()
        assert len([name for name, _ in scrape.samples if name == f"{SIZE}_count"]) == 2
        assert scrape.value("triomq_series_dropped_total", family=SIZE) == 1


@pytest.mark.parametrize("detail", [True, False])
def test_the_sizes_of_a_topic_are_those_of_all_its_queues(detail: bool) -> None:
    stats = BrokerStats("C", now_ms=FakeClock(), detail=detail)
    assert stats.message_sizes("T") == [0] * 7
    edges = list(SIZE_EDGES_BYTES)
    for queue_id, size_bytes in enumerate([edge + more for edge in edges for more in (0, 1)]):
        stats.topic_put("T", queue_id, 1, size_bytes)
        stats.topic_put("Other", queue_id, 1, size_bytes)
    stats.topic_put("T", 0, 10, 10 * 4096)
    assert stats.message_sizes("T") == [1, 12, 2, 2, 2, 2, 1], "a size at an edge belongs to the bucket below"
    stats.forget_topic("T")
    assert stats.message_sizes("T") == [0] * 7
