"""A message is acknowledged in any task or thread, in any order; an acknowledgement without an effect is an error."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from client_cluster import LIMIT_SECONDS
from client_fakes import NAME_SERVER, FakeCluster
from trio.testing import MockClock

import triomq
from triomq import aio, blocking
from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.delivery import Delivery
from triomq.client.consume.unsettled import MANY, Unsettled
from triomq.client.core.errors import ClientClosed, ConfigurationError, NotSettled
from triomq.client.core.results import ConsumeFromWhere
from triomq.protocol.message import MessageExt
from triomq.protocol.message_queue import MessageQueue

COUNT = 5
OPTIONS: dict[str, Any] = {"name_server": NAME_SERVER, "consume_from": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster.installed(monkeypatch, "T")
    made.brokers["a"].store("T", 0, *[b"%d" % number for number in range(COUNT)])
    return made


def offset(cluster: FakeCluster) -> int | None:
    return cluster.brokers["a"].offsets.get(("G", "T", 0))


async def _wait_for_receive(consumer: Any) -> None:
    await asyncio.wait_for(consumer.receive(), LIMIT_SECONDS)
    consumer.ack()


async def _task_of_receive(consumer: Any) -> None:
    await asyncio.create_task(consumer.receive())
    consumer.ack()


async def _ack_in_another_task(consumer: Any) -> None:
    message = await consumer.receive()

    async def settle() -> None:
        message.ack()

    await asyncio.create_task(settle())


async def _ack_in_a_thread(consumer: Any) -> None:
    await asyncio.to_thread((await consumer.receive()).ack)


async def _wait_for_anext(consumer: Any) -> None:
    await asyncio.wait_for(anext(consumer), LIMIT_SECONDS)


async def _anext_in_a_group(consumer: Any) -> None:
    async def ask() -> None:
        await anext(consumer)

    async with asyncio.TaskGroup() as group:
        group.create_task(ask())


@pytest.mark.parametrize(
    "once",
    [_wait_for_receive, _task_of_receive, _ack_in_another_task, _ack_in_a_thread, _wait_for_anext, _anext_in_a_group],
)
def test_a_message_is_acknowledged_whichever_task_received_it(
    cluster: FakeCluster, once: Callable[[Any], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with aio.PushConsumer("G", **OPTIONS) as consumer:
            consumer.subscribe("T")
            for _ in range(COUNT):
                await once(consumer)
            if "anext" in once.__name__:
                consumer.ack()

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))
    assert offset(cluster) == COUNT


def test_messages_are_gathered_and_acknowledged_in_any_order(cluster: FakeCluster) -> None:
    async def main() -> None:
        async with aio.PushConsumer("G", **OPTIONS) as consumer:
            consumer.subscribe("T")
            messages = await asyncio.gather(*(consumer.receive() for _ in range(COUNT)))
            with pytest.raises(NotSettled, match=r"5 messages .* message.ack"):
                consumer.ack()
            for message in sorted(messages, key=lambda message: -message.queue_offset):
                message.ack()
            with pytest.raises(NotSettled, match="no message"):
                consumer.ack()

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))
    assert offset(cluster) == COUNT


def test_a_loop_that_is_asked_twice_at_once_says_so(cluster: FakeCluster) -> None:
    async def main() -> None:
        async with aio.PushConsumer("G", **OPTIONS) as consumer:
            consumer.subscribe("T")
            asked: list[object] = await asyncio.gather(anext(consumer), anext(consumer), return_exceptions=True)
            assert isinstance(asked[0], MessageExt)
            assert isinstance(asked[1], ConfigurationError)

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))


async def test_each_loop_settles_its_own_messages_alone(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    async with triomq.PushConsumer("G", **OPTIONS) as consumer:
        consumer.subscribe("T")
        left = await anext(aiter(consumer))
        rest = []
        async for message in consumer:
            rest.append(message)
            if len(rest) == COUNT - 1:
                message.ack()
                break
        await trio.sleep(6)
        assert offset(cluster) in (None, 0), "the message that the first loop left is not consumed"
        consumer.ack()
        with pytest.raises(NotSettled, match="settled already"):
            left.ack()
    assert offset(cluster) == COUNT


async def test_a_thread_acknowledges_what_a_trio_task_received(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    async with triomq.PushConsumer("G", **OPTIONS) as consumer:
        consumer.subscribe("T")
        for _ in range(COUNT):
            await trio.to_thread.run_sync((await consumer.receive()).message.ack)
    assert offset(cluster) == COUNT


def test_threads_acknowledge_what_another_received(cluster: FakeCluster) -> None:
    with blocking.PushConsumer("G", **OPTIONS) as consumer:
        consumer.subscribe("T")
        for _ in range(COUNT):
            message = consumer.receive(LIMIT_SECONDS)
            assert message is not None
            settling = threading.Thread(target=message.ack)
            settling.start()
            settling.join()
        with pytest.raises(NotSettled):
            consumer.retry_later()
    assert offset(cluster) == COUNT


def test_what_cannot_be_acknowledged_says_so(cluster: FakeCluster) -> None:
    with blocking.PushConsumer("G", **OPTIONS) as consumer:
        consumer.subscribe("T")
        message = consumer.receive(LIMIT_SECONDS)
        assert message is not None
    with pytest.raises(ClientClosed, match="delivered again"):
        message.ack()
    with pytest.raises(ClientClosed):
        consumer.ack()
    with pytest.raises(RuntimeError, match="not handed out"):
        MessageExt("T", b"made by hand").ack()
    assert offset(cluster) in (None, 0)


def test_a_copy_of_a_message_is_nobodys_to_acknowledge(cluster: FakeCluster) -> None:
    with blocking.PushConsumer("G", **OPTIONS) as consumer:
        consumer.subscribe("T")
        message = consumer.receive(LIMIT_SECONDS)
        assert message is not None
        for other in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
            assert (other.body, other.queue_offset, other.store_host) == (b"0", 0, message.store_host)
            with pytest.raises(RuntimeError, match="not handed out"):
                other.ack()


class Nobody:
    """Receives what becomes of deliveries, and keeps nothing."""

    def begin(self, delivery: Delivery) -> None: ...

    def settled(self, delivery: Delivery, error: triomq.RetryLater | None) -> None: ...

    def returned(self, delivery: Delivery) -> None: ...


def test_messages_of_queues_that_have_moved_are_forgotten_where_there_are_many() -> None:
    held, lost = (AssignedQueue(MessageQueue("T", "a", number), 0, 0) for number in (0, 1))
    table = Unsettled()

    def add(assigned: AssignedQueue) -> Delivery:
        delivery = Delivery(MessageExt("T", b"x"), Nobody(), assigned)
        table.add(delivery)
        return delivery

    kept = add(held)
    for _ in range(MANY):
        add(lost)
    lost.drop()
    assert len(table.held()) == MANY + 1
    new = add(held)
    assert table.held() == [kept, new]
