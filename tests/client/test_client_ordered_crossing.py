"""Messages of ordered queues on their way to the application's threads: the next ones of several queues cross together,
and each queue keeps its order."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from client_cluster import LIMIT_SECONDS
from client_fakes import NAME_SERVER, FakeCluster

import triomq
from triomq import blocking
from triomq.client.core.results import ConsumeFromWhere

COUNT = 6
OPTIONS: dict[str, Any] = {"name_server": NAME_SERVER, "consume_from": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}
QUEUES = 3


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster.installed(monkeypatch, "T", queues=QUEUES)
    for queue_id in range(QUEUES):
        made.brokers["a"].store("T", queue_id, *[b"%d.%d" % (queue_id, number) for number in range(COUNT)])
    return made


def wait_for_more(consumer: blocking.PushConsumer[Any], count: int) -> None:
    """Wait until the queues offer this number of messages that nobody has received."""

    async def waiting() -> None:
        while consumer._core._receiver._deliveries_out.statistics().tasks_waiting_send < count:
            await trio.lowlevel.checkpoint()

    consumer._opened().run(waiting)


def started(consumer: blocking.PushConsumer[Any], count: int = QUEUES) -> None:
    consumer.subscribe("T")
    consumer._call(consumer._core._hand_out_messages)
    wait_for_more(consumer, count)


def test_the_next_messages_of_several_ordered_queues_cross_together(queues: FakeCluster) -> None:
    """One of each queue, since its next one waits for that."""
    with blocking.PushConsumer("G", ordered=True, **OPTIONS) as consumer:
        started(consumer)
        for number in range(COUNT):
            messages = [consumer.receive(LIMIT_SECONDS) for _ in range(QUEUES)]
            assert not consumer._ahead._waiting
            bodies = sorted(message.body for message in messages if message)
            assert bodies == [b"%d.%d" % (queue_id, number) for queue_id in range(QUEUES)]
            assert consumer.receive(0) is None, "nothing is settled"
            for message in messages:
                assert message is not None
                message.ack()
            if number < COUNT - 1:
                wait_for_more(consumer, QUEUES)


def test_an_ordered_queue_whose_message_failed_delivers_that_one_again_first(queues: FakeCluster) -> None:
    rules = triomq.ConsumeRules(suspend_seconds=0.01)
    with blocking.PushConsumer("G", ordered=True, rules=rules, **OPTIONS) as consumer:
        started(consumer)
        seen: dict[int, list[bytes]] = {queue_id: [] for queue_id in range(QUEUES)}
        while sum(map(len, seen.values())) < QUEUES * (COUNT + 1):
            message = consumer.receive(LIMIT_SECONDS)
            assert message is not None
            bodies = seen[message.queue_id]
            bodies.append(message.body)
            if message.body.endswith(b".3") and bodies.count(message.body) == 1:
                message.retry_later()
            else:
                message.ack()
    numbers = [0, 1, 2, 3, *range(3, COUNT)]
    assert seen == {queue_id: [b"%d.%d" % (queue_id, n) for n in numbers] for queue_id in range(QUEUES)}


def test_an_ordered_message_that_crossed_is_not_handed_out_when_its_queue_is_gone(queues: FakeCluster) -> None:
    with blocking.PushConsumer("G", ordered=True, **OPTIONS) as consumer:
        started(consumer)
        first = consumer.receive(LIMIT_SECONDS)
        assert first is not None
        crossed = [delivery.message for delivery in consumer._ahead._waiting]
        assert {message.queue_id for message in crossed} == set(range(QUEUES)) - {first.queue_id}

        async def drop() -> None:
            for queue, assigned in list(consumer._core._rebalancer.assigned.items()):
                if queue.queue_id != first.queue_id:
                    assigned.drop()
            await trio.testing.wait_all_tasks_blocked()

        consumer._opened().run(drop)
        received = consumer.receive(0)  # if the queues were assigned again by now, one of another pull
        assert all(received is not message for message in crossed)
