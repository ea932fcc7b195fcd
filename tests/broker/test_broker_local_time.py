"""Times that the broker writes as text are those of the zone of its machine, as with RocketMQ."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from broker_whole import whole_broker

from triomq.broker.tasks import next_hour
from triomq.protocol.bodies.consume_stats import QueryConsumeTimeSpanBody, QueueTimeSpan
from triomq.protocol.codes import RequestCode
from triomq.protocol.message_id import month_start_ms

AHEAD = timedelta(hours=5, minutes=45)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def kathmandu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "<+0545>-5:45")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def local_text(ms: int) -> str:
    """Return yyyy-MM-dd#HH:mm:ss:SSS."""
    return f"{EPOCH + AHEAD + timedelta(milliseconds=ms):%Y-%m-%d#%H:%M:%S}:{ms % 1000:03d}"


async def test_the_time_span_of_a_group_has_the_times_of_the_first_the_last_and_the_last_consumed_message(
    tmp_path: Path,
) -> None:
    """A group that has consumed nothing begins with the first message, and one that has all has no delay."""
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=1)
        store = broker.controller.serving.store
        for _ in range(3):
            await broker.send("T")
            last_ms = store.reading.store_time_at("T", 0, store.reading.max_offset("T", 0) - 1)
            while time.time() * 1000 < last_ms + 2:
                pass
        times = [store.reading.store_time_at("T", 0, offset) for offset in range(3)]
        assert len(set(times)) == 3

        async def span() -> QueueTimeSpan:
            answer = await broker.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "T", "group": "G"})
            [found] = QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set
            assert (found.min_time_stamp, found.max_time_stamp) == (times[0], times[2])
            assert (found.min_time_stamp_str, found.max_time_stamp_str) == (local_text(times[0]), local_text(times[2]))
            assert found.consume_time_stamp_str == local_text(found.consume_time_stamp)
            return found

        for offset, consumed, has_delay in ((None, 0, True), (0, 0, True), (1, 0, True), (2, 1, True), (3, 2, False)):
            if offset is not None:
                fields = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": offset}
                assert (await broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0
            found = await span()
            assert found.consume_time_stamp == times[consumed]
            assert (found.delay_time > 0) is has_delay


async def test_a_broker_that_accepts_sends_later_says_when(tmp_path: Path) -> None:
    begin_ms = int(time.time() * 1000) + 3_600_000
    async with whole_broker(tmp_path, startAcceptSendRequestTimeStamp=str(begin_ms)) as broker:
        await broker.create_topic("T")
        text, _, fraction = local_text(begin_ms).replace("#", " ").rpartition(":")
        assert (await broker.send("T")).remark == f"broker unable to service, until {text},{fraction}"


def test_hours_and_months_begin_in_local_time() -> None:
    new_month = datetime(2026, 4, 30, 18, 15, tzinfo=UTC)  # midnight in Kathmandu
    new_month_ms = int(new_month.timestamp() * 1000)
    assert month_start_ms(new_month_ms) == month_start_ms(new_month_ms + 86_400_000) == new_month_ms
    assert month_start_ms(new_month_ms - 1) < new_month_ms - 29 * 86_400_000
    assert next_hour(new_month_ms) == next_hour(new_month_ms + 3_599_999) == new_month_ms + 3_600_000
