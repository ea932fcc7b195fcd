"""A topic that is deleted and made again under a live consumer: it continues with the first message of the new one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from client_cluster import LIMIT_SECONDS, Cluster, fresh, until

from triomq.client.administer.admin import Admin
from triomq.client.api import (
    ConsumeFromWhere,
    ConsumeRules,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
)

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
OLD = [b"old %d" % number for number in range(5)]
# While the last message waits, no pull does: so the consumer does not see what happens to the topic meanwhile.
ONE_BY_ONE = ConsumeRules(pull_batch_size=1, max_cached_messages=1, concurrency=1)


class Member:
    """A consumer that stops at the last old message until `go_on` is set."""

    def __init__(self, consumer: PushConsumer | LitePullConsumer, topic: str) -> None:
        self.consumer = consumer
        self.topic = topic
        self.bodies: list[bytes] = []
        self.stopped = trio.Event()
        self.go_on = trio.Event()

    async def take(self, message: MessageExt) -> None:
        self.bodies.append(message.body)
        if message.body == OLD[-1]:
            self.stopped.set()
            await self.go_on.wait()

    async def poll(self, consumer: LitePullConsumer) -> None:
        while True:
            if len(self.bodies) == len(OLD) - 1:
                self.stopped.set()  # the next one waits in the consumer
                await self.go_on.wait()
            for message in await consumer.poll():
                self.bodies.append(message.body)

    def positions(self) -> set[int]:
        return set(self.consumer.consume_offsets(self.topic).values())


@asynccontextmanager
async def member(kind: str, cluster: Cluster, topic: str) -> AsyncIterator[Member]:
    group, server = fresh("G"), cluster.name_server
    if kind == "lite pull":
        async with (
            LitePullConsumer(group, name_server=server, rules=ONE_BY_ONE, consume_from=FIRST) as polled,
            trio.open_nursery() as nursery,
        ):
            made = Member(polled, topic)
            polled.subscribe(topic)
            nursery.start_soon(made.poll, polled)
            yield made
            nursery.cancel_scope.cancel()
        return
    is_ordered = kind == "ordered"
    async with PushConsumer(
        group, name_server=server, rules=ONE_BY_ONE, consume_from=FIRST, ordered=is_ordered
    ) as pushed:
        made = Member(pushed, topic)
        pushed.subscribe(topic)
        pushed.listen(made.take)
        yield made


class Topic:
    """One topic of one queue."""

    def __init__(self, admin: Admin, producer: Producer) -> None:
        self.name = fresh()
        self._admin = admin
        self._producer = producer

    async def make(self, *bodies: bytes) -> None:
        await self._admin.create_topic(self.name, read_queues=1, write_queues=1)
        for body in bodies:
            await self._producer.send(Message(self.name, body))

    async def delete(self) -> None:
        await self._admin.delete_topic(self.name)


@asynccontextmanager
async def a_topic(cluster: Cluster) -> AsyncIterator[Topic]:
    with trio.fail_after(LIMIT_SECONDS):
        async with (
            Admin(name_server=cluster.name_server) as admin,
            Producer(fresh("P"), name_server=cluster.name_server) as producer,
        ):
            yield Topic(admin, producer)


KINDS = ["push", "ordered", "lite pull"]


@pytest.mark.parametrize("kind", KINDS)
async def test_all_of_fewer_messages_arrive_where_nobody_saw_the_deletion(triomq: Cluster, kind: str) -> None:
    new = [b"new 0", b"new 1", b"new 2"]
    async with a_topic(triomq) as topic:
        await topic.make(*OLD)
        async with member(kind, triomq, topic.name) as one:
            await one.stopped.wait()
            await topic.delete()
            await topic.make(*new)
            one.go_on.set()
            await until(lambda: set(new) <= set(one.bodies))
            assert one.bodies == [*OLD, *new]


@pytest.mark.parametrize("kind", KINDS)
async def test_all_of_more_messages_arrive_where_the_deletion_was_seen(triomq: Cluster, kind: str) -> None:
    new = [b"new %d" % number for number in range(2 * len(OLD))]
    async with a_topic(triomq) as topic:
        await topic.make(*OLD)
        async with member(kind, triomq, topic.name) as one:
            await one.stopped.wait()
            await topic.delete()
            one.go_on.set()
            await until(lambda: one.positions() <= {0})
            await topic.make(*new)
            await until(lambda: set(new) <= set(one.bodies))
            assert one.bodies == [*OLD, *new]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_pull_that_waits_ends_with_its_topic(triomq: Cluster, kind: str) -> None:
    new = [b"new %d" % number for number in range(2 * len(OLD))]
    async with a_topic(triomq) as topic:
        await topic.make(*OLD)
        async with member(kind, triomq, topic.name) as one:
            one.go_on.set()
            await until(lambda: one.bodies == OLD)
            await until(lambda: one.positions() == {len(OLD)})
            await topic.delete()
            await until(lambda: one.positions() <= {0})
            await topic.make(*new)
            await until(lambda: set(new) <= set(one.bodies))
            assert one.bodies == [*OLD, *new]


async def test_a_pull_by_hand_is_told_the_first_message(triomq: Cluster) -> None:
    async with (
        a_topic(triomq) as topic,
        PullConsumer(fresh("G"), name_server=triomq.name_server) as consumer,
    ):
        await topic.make(*OLD)
        (queue,) = await consumer.queues(topic.name)
        await topic.delete()
        await topic.make(b"new")
        result = await consumer.pull(queue, "*", len(OLD))
        assert (result.status, result.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 0)
        await consumer.commit(queue, len(OLD))
        assert await consumer.committed_offset(queue, from_store=True) in (None, 0)
