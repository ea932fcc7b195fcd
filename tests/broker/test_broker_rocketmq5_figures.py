"""The families of RocketMQ 5 that are measured on the path of messages: their sizes, and what groups have
pulled."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from broker_scrape import Scrape, WatchedBroker, traffic, watched
from broker_whole import ack_fields, pop_fields
from fake_clock import FakeClock

from triomq.broker.metrics.sampling import SIZE_EDGES_BYTES
from triomq.broker.metrics.stats import BrokerStats
from triomq.monitoring.answers import Answers
from triomq.protocol.codes import RequestCode
from triomq.protocol.record import BatchUnit, decode_records, encode_batch_units

SIZE = "rocketmq_message_size"
LATENCY = "rocketmq_rpc_latency_milliseconds"
QUEUEING = "rocketmq_consumer_queueing_latency_milliseconds"


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


def test_messages_that_are_counted_together_are_counted_as_each_by_itself() -> None:
    sizes = [edge + more for edge in (100, *SIZE_EDGES_BYTES) for more in (0, 1)]
    found: list[object] = []
    for together in (True, False):
        clock = FakeClock()
        stats = BrokerStats("C", now_ms=clock)
        stats.sample_minute()
        if together:
            stats.topic_puts("T", 3, sizes)
        else:
            for size_bytes in sizes:
                stats.topic_put("T", 3, 1, size_bytes)
        clock.advance(10_000)
        stats.sample_minute()
        flows = [stats.snapshot(name, "T") for name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE")]
        found.append((stats.message_sizes("T"), stats.put_total, flows))
    assert found[0] == found[1]
    assert stats.message_sizes("T") == [3, 2, 2, 2, 2, 2, 1]


async def positions(it: WatchedBroker, topic: str = "T", group: str = "G") -> tuple[int, int, int, bool]:
    """Return what a group lacks, has in flight, and has not pulled, and whether some of that has an age."""
    scrape = await it.scrape()
    lag, inflight, ready = (
        int(scrape.value(f"rocketmq_consumer_{what}_messages", topic=topic, consumer_group=group))
        for what in ("lag", "inflight", "ready")
    )
    age_ms = scrape.value(QUEUEING, topic=topic, consumer_group=group, is_retry="false", is_system="false")
    assert 0 <= age_ms < 60_000
    return lag, inflight, ready, age_ms > 0


async def commit(it: WatchedBroker, queue_id: int, offset: int) -> None:
    fields = {"consumerGroup": "G", "topic": "T", "queueId": queue_id, "commitOffset": offset}
    assert (await it.broker.ask(15, fields)).code == 0


async def test_what_is_pulled_and_not_committed_is_in_flight_and_the_rest_is_ready(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        await traffic(it.broker)  # 5 of 5 are pulled, 3 committed; 0 of 2
        assert await positions(it) == (4, 2, 2, True)
        await commit(it, 0, 5)
        await commit(it, 1, 0)
        assert await positions(it) == (2, 0, 2, True)
        assert (await it.broker.pull("T", queueId=1, maxMsgNums=1)).code == 0
        assert await positions(it) == (2, 1, 1, True)
        assert (await it.broker.pull("T", queueId=1, queueOffset=1)).code == 0
        assert await positions(it) == (2, 2, 0, False)
        await commit(it, 1, 2)
        assert await positions(it) == (0, 0, 0, False)


async def test_a_group_that_has_not_pulled_since_the_start_has_pulled_what_it_has_committed(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        await traffic(it.broker)
    async with watched(tmp_path) as it:
        assert await positions(it) == (4, 0, 4, True)


async def test_of_what_a_group_receives_by_pop_only_what_is_not_acknowledged_counts(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        await it.broker.create_topic("T")
        for queue_id in (0, 0, 0, 0, 1):
            assert (await it.broker.send("T", queueId=queue_id)).code == 0
        wanted = pop_fields(queueId=0, maxMsgNums=3, invisibleTime=60_000)
        received = await it.broker.ask(RequestCode.POP_MESSAGE, wanted)
        messages = decode_records(received.body)
        assert await positions(it) == (5, 3, 2, True)
        for message in messages[1:]:
            fields = ack_fields(received, message)
            assert (await it.broker.ask(RequestCode.ACK_MESSAGE, fields)).code == 0
        assert await positions(it) == (3, 1, 2, True), "what is done behind the committed offset is no backlog"
        fields = {**ack_fields(received, messages[0]), "invisibleTime": 1000}
        assert (await it.broker.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)).code == 0
        with trio.fail_after(10):
            while await positions(it) != (3, 0, 3, True):
                pass  # until the first message is to be received again
        await commit(it, 0, 4)  # as an administrator does, until the next receive
        assert await positions(it) == (1, 0, 1, True)


async def test_what_a_filter_skips_is_pulled(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        await traffic(it.broker)
        for _ in range(3):
            assert (await it.broker.send("T", queueId=0)).code == 0
        assert await positions(it) == (7, 2, 5, True)
        skipped = await it.broker.pull("T", queueOffset=5, subscription="NoSuchTag", sysFlag=4)
        assert skipped.code == 20
        assert await positions(it) == (7, 5, 2, True)


async def test_offsets_beyond_the_end_or_before_the_last_pull_are_never_below_0_and_hide_nothing(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path) as it:
        await traffic(it.broker)
        await commit(it, 1, 5000)
        assert await positions(it) == (2, 2, 0, False)
        await commit(it, 0, 5000)
        await commit(it, 1, 0)
        assert await positions(it) == (2, 0, 2, True)
        await commit(it, 0, 1)  # as a reset does
        assert await positions(it) == (6, 4, 2, True)
        assert (await it.broker.pull("T", queueOffset=1, maxMsgNums=1)).code == 0
        assert await positions(it) == (6, 1, 5, True)


async def test_a_topic_that_is_made_again_knows_nothing_of_earlier_pulls(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        await traffic(it.broker)
        assert (await it.broker.ask(215, {"topic": "T"})).code == 0
        assert not (await it.scrape()).labels["rocketmq_consumer_ready_messages"]
        await it.broker.create_topic("T")
        for _ in range(3):
            assert (await it.broker.send("T", queueId=0)).code == 0
        assert await positions(it) == (3, 0, 3, True)


@pytest.mark.parametrize("removes_offsets", ["true", "false"])
async def test_a_group_that_is_deleted_has_no_earlier_pulls(tmp_path: Path, removes_offsets: str) -> None:
    async with watched(tmp_path) as it:
        await traffic(it.broker)
        fields = {"groupName": "G", "removeOffset": removes_offsets}
        assert (await it.broker.ask(207, fields)).code == 0
        lag = 7 if removes_offsets == "true" else 4  # its members are still connected
        assert await positions(it) == (lag, 0, lag, True)


@pytest.mark.parametrize("detail", [True, False])
def test_the_next_offset_of_a_queue_is_that_of_the_last_pull(detail: bool) -> None:
    stats = BrokerStats("C", now_ms=FakeClock(), detail=detail)
    stats.get_missed("G", "T", 0, 7)
    assert stats.next_offset("G", "T", 0) == -1, "nothing was counted so far"
    for queue_id, next_offset in ((0, 10), (1, 20), (0, 5)):
        stats.group_get("G", "T", queue_id, 1, 1, next_offset)
    stats.get_missed("G", "T", 1, 21)
    stats.group_get("G", "Other", 0, 1, 1, 3)
    stats.group_get("H", "T", 0, 1, 1, 4)
    assert [stats.next_offset("G", "T", queue_id) for queue_id in (0, 1, 2)] == [5, 21, -1]
    stats.forget_next_offsets(topic="T")
    assert stats.next_offset("G", "T", 0) == stats.next_offset("H", "T", 0) == -1
    assert stats.next_offset("G", "Other", 0) == 3
    stats.forget_next_offsets(group="G")
    assert stats.next_offset("G", "Other", 0) == -1
    assert stats.total("GROUP_GET_NUMS", "T@G") == 3


def latencies(scrape: Scrape) -> dict[tuple[str, str, str], float]:
    """Return how many responses were timed, by request, response and whether a pull was held."""
    found = {}
    for (name, labels), value in scrape.samples.items():
        if name == f"{LATENCY}_count":
            of = dict(labels)
            assert (of["protocol_type"], of["result"]) == ("remoting", "success")
            found[of["request_code"], of["response_code"], of["is_long_polling"]] = value
    return found


async def test_each_response_is_timed_by_its_codes(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        assert not latencies(await it.scrape())
        await it.broker.create_topic("T")
        for _ in range(3):
            assert (await it.broker.send("T")).code == 0
        assert (await it.broker.send("T", queueId=99)).code != 0
        assert (await it.broker.pull("T")).code == 0
        assert (await it.broker.ask(77_777)).code == 3
        assert (await it.broker.ask(88_888)).code == 3
        counted = latencies(await it.scrape())
        assert counted["send_message", "success", "false"] == 3
        assert counted["send_message", "system_error", "false"] == 1
        assert counted["pull_message", "success", "false"] == 1
        assert counted["other", "request_code_not_supported", "false"] == 2
        assert counted["update_and_create_topic", "success", "false"] == 1


async def test_a_pull_that_was_held_is_timed_from_its_arrival(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        await it.broker.create_topic("T")
        assert (await it.broker.pull("T", sysFlag=2 | 4, suspendTimeoutMillis=150)).code == 19
        scrape = await it.scrape()
        assert latencies(scrape)["pull_message", "pull_not_found", "true"] == 1
        assert scrape.value(f"{LATENCY}_sum", request_code="pull_message", is_long_polling="true") >= 140
        assert scrape.value(f"{LATENCY}_bucket", request_code="pull_message", le="100.0") == 0


def test_what_one_turn_answers_takes_as_long_as_the_turn() -> None:
    answers = Answers()
    for _ in range(3):
        answers.at_once(10, 0)
    answers.at_once(11, 0)
    answers.late(10, 0, 2.0)  # it waited for the disk, or a slave
    answers.turn_ended(0.002)
    answers.turn_ended(0.5)
    (sends, pulls) = answers.times[10, 0, False], answers.times[11, 0, False]
    assert (sends.count, pulls.count) == (4, 1)
    assert sends.total == pytest.approx(3 * 2 + 2000)
    assert pulls.total == pytest.approx(2)
