"""SimpleConsumer in its three facades, at TrioMQ and at Apache RocketMQ 5."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from client_cluster import LIMIT_SECONDS, Cluster, fresh, until_answer
from msgspec.structs import replace

from triomq import (
    Admin,
    ConfigurationError,
    ConsumeFromWhere,
    Message,
    NoRoute,
    Producer,
    ReceivedMessage,
    SimpleConsumer,
    aio,
    blocking,
)
from triomq.protocol import permission

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
SILENCE_SECONDS = 3.0
"""How long nothing must come where nothing is left."""


@pytest.fixture(params=["triomq", pytest.param("apache5", marks=pytest.mark.interop)])
def server(request: pytest.FixtureRequest) -> Cluster:
    """Return each of the two in turn."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


async def with_topic(server: Cluster, *bodies: bytes, queues: int = 1, namespace: str | None = None) -> str:
    """Make a topic with these messages, whose tags are their bodies; return its name."""
    topic = fresh()
    wire = topic if namespace is None else f"{namespace}%{topic}"
    async with Admin(name_server=server.name_server) as admin:
        await admin.create_topic(wire, read_queues=queues, write_queues=queues)

        async def has_route() -> bool:
            return bool((await admin.route(wire)).queue_datas)

        await until_answer(has_route)
        async with Producer(fresh("P"), name_server=server.name_server, namespace=namespace) as producer:
            for body in bodies:
                await producer.send(Message(topic, body, tags=body.decode(), properties={"size": body.decode()}))

        async def are_stored() -> bool:
            stats = await admin.topic_stats(wire)
            return sum(one.max_offset for one in stats.offset_table.values()) == len(bodies)

        await until_answer(are_stored)
    return topic


@asynccontextmanager
async def consuming(server: Cluster, topic: str, **options: object) -> AsyncIterator[SimpleConsumer]:
    async with SimpleConsumer(
        *(fresh("G"),),
        name_server=server.name_server,
        consume_from=FIRST,
        **options,  # type: ignore[arg-type]
    ) as consumer:
        consumer.subscribe(topic)
        yield consumer


async def gather(consumer: SimpleConsumer, count: int, *, invisible_seconds: float = 60.0) -> list[ReceivedMessage]:
    """Receive at least `count` messages."""
    found: list[ReceivedMessage] = []
    with trio.fail_after(LIMIT_SECONDS):
        while len(found) < count:
            found += await consumer.receive(invisible_seconds=invisible_seconds)
    return found


def bodies(messages: list[ReceivedMessage]) -> list[bytes]:
    return sorted(message.body for message in messages)


async def test_what_is_acknowledged_is_done_and_the_rest_comes_again(server: Cluster) -> None:
    topic = await with_topic(server, b"1", b"2", b"3", b"4", queues=2)
    async with consuming(server, topic) as consumer:
        messages = {message.body: message for message in await gather(consumer, 4, invisible_seconds=2)}
        assert {message.delivery_attempt for message in messages.values()} == {1}
        await consumer.ack([messages[b"1"], messages[b"2"]])
        await consumer.ack(messages[b"3"])
        (again,) = await gather(consumer, 1, invisible_seconds=2)
        assert (again.body, again.topic, again.delivery_attempt) == (b"4", topic, 2)
        (third,) = await gather(consumer, 1, invisible_seconds=2)
        assert (third.body, third.topic, third.delivery_attempt) == (b"4", topic, 3)
        await consumer.ack([third])
        assert await consumer.receive(wait_seconds=SILENCE_SECONDS + 2) == []


async def test_an_extended_message_stays_hidden(server: Cluster) -> None:
    topic = await with_topic(server, b"1", b"2")
    async with consuming(server, topic) as consumer:
        extended, other = sorted(await gather(consumer, 2, invisible_seconds=2), key=lambda message: message.body)
        before_ms = extended.invisible_until_ms
        await consumer.extend(extended, 60)
        assert extended.invisible_until_ms > before_ms + 50_000
        assert bodies(await gather(consumer, 1)) == [other.body]
        await consumer.ack(extended)


async def test_retries_are_acknowledged_together_with_new_messages(server: Cluster) -> None:
    topic = await with_topic(server, b"1", b"2", b"3")
    async with consuming(server, topic) as consumer:
        await gather(consumer, 3, invisible_seconds=2)
        again = await gather(consumer, 3, invisible_seconds=10)
        assert {message.delivery_attempt for message in again} == {2}
        await consumer.ack(again)
        assert await consumer.receive(wait_seconds=10 + SILENCE_SECONDS) == []


async def test_an_ordered_group_gets_the_rest_of_its_batch_before_anything_else(server: Cluster) -> None:
    topic = await with_topic(server, b"1", b"2", b"3")
    async with consuming(server, topic, ordered=True) as consumer:
        batch = await consumer.receive(2, invisible_seconds=2)
        assert [message.body for message in batch] == [b"1", b"2"]
        await consumer.ack(batch[0])
        got: list[ReceivedMessage] = []
        while len(got) < 2:  # together, or one after the other
            messages = await gather(consumer, 1)
            await consumer.ack(messages)
            got += messages
        assert [(message.body, message.delivery_attempt) for message in got] == [(b"2", 2), (b"3", 1)]
        assert await consumer.receive(wait_seconds=SILENCE_SECONDS) == []


async def test_tags_and_conditions_choose_at_the_broker(server: Cluster) -> None:
    topic = await with_topic(server, b"1", b"2", b"3", b"4")
    async with consuming(server, topic) as consumer:
        consumer.subscribe(topic, "1 || 3")
        assert bodies(await gather(consumer, 2)) == [b"1", b"3"]
    async with consuming(server, topic) as consumer:
        consumer.subscribe(topic, "size > 2", sql=True)
        assert bodies(await gather(consumer, 2)) == [b"3", b"4"]
        consumer.subscribe(topic, "size >> 2", sql=True)
        with pytest.raises(ConfigurationError, match="cannot work"):
            await consumer.receive()


async def test_a_namespace_is_invisible(server: Cluster) -> None:
    topic = await with_topic(server, b"1", namespace="INST_1")
    async with consuming(server, topic, namespace="INST_1") as consumer:
        for attempt in (1, 2):
            (message,) = await gather(consumer, 1, invisible_seconds=2)
            assert (message.topic, message.delivery_attempt) == (topic, attempt)
        await consumer.ack(message)
        assert await consumer.receive(wait_seconds=SILENCE_SECONDS) == []


async def test_a_topic_without_queues_to_read_is_an_error(triomq: Cluster) -> None:
    topic = await with_topic(triomq, b"1")
    async with Admin(name_server=triomq.name_server) as admin, consuming(triomq, topic) as consumer:
        config = await admin.topic_config(triomq.broker, topic)
        assert config is not None
        await admin.put_topic_config(triomq.broker, replace(config, perm=permission.WRITE))

        async def is_known() -> bool:
            return (await admin.route(topic)).queue_datas[0].perm == permission.WRITE

        await until_answer(is_known)
        with pytest.raises(NoRoute, match="none of its brokers has queues to read"):
            await consumer.receive()


def in_asyncio(server: Cluster, topic: str) -> None:
    async def main() -> None:
        group = fresh("G")
        async with aio.SimpleConsumer(group, name_server=server.name_server, consume_from=FIRST) as consumer:
            consumer.subscribe(topic)
            first, second = sorted(await consumer.receive(2), key=lambda message: message.body)
            assert isinstance(first, ReceivedMessage)
            await consumer.extend(first, 60)
            await consumer.ack([first, second])
            (third,) = await consumer.receive(invisible_seconds=1)
            if not server.is_apache:  # which takes 20 s
                (again,) = await consumer.receive()
                assert (again.body, again.delivery_attempt) == (third.body, 2)
                third = again
            await consumer.ack(third)
            assert await consumer.receive(wait_seconds=0) == []

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))


def in_threads(server: Cluster, topic: str) -> None:
    with blocking.SimpleConsumer(fresh("G"), name_server=server.name_server, consume_from=FIRST) as consumer:
        consumer.subscribe(topic)
        first, second = sorted(consumer.receive(2), key=lambda message: message.body)
        assert isinstance(first, ReceivedMessage)
        consumer.extend(first, 60)
        consumer.ack([first, second])
        (third,) = consumer.receive(invisible_seconds=1)
        if not server.is_apache:  # which takes 20 s
            (again,) = consumer.receive()
            assert (again.body, again.delivery_attempt) == (third.body, 2)
            third = again
        consumer.ack(third)
        assert consumer.receive(wait_seconds=0) == []


@pytest.mark.parametrize("facade", [in_asyncio, in_threads])
def test_the_other_facades(facade: Callable[[Cluster, str], None], server: Cluster) -> None:
    facade(server, trio.run(with_topic, server, b"1", b"2", b"3"))
