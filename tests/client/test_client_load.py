"""Many messages: many sends in flight, members that join and leave under load."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import trio
import trio.lowlevel
from client_cluster import LIMIT_SECONDS, Cluster, fresh, until, until_answer
from client_fakes import NAME_SERVER, FakeCluster, refuse
from trio.testing import MockClock

from triomq.client.administer.admin import Admin
from triomq.client.api import BrokerRefused, ConfigurationError, Message, Producer, PushConsumer
from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.blocking_point import tell_when_blocked
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.results import ConsumeFromWhere
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.message import MessageExt

SEND = RequestCode.SEND_MESSAGE_V2
MESSAGES = 100_000
QUEUES = 8
CONCURRENCY = 10


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", queues=4)


async def test_results_come_in_the_order_of_the_messages(triomq: Cluster) -> None:
    async with Producer("many", name_server=triomq.name_server, send_timeout_seconds=LIMIT_SECONDS) as producer:
        results = await producer.send_many((Message("Many", b"%d" % n) for n in range(500)), in_flight=50)
        assert len({result.message_id for result in results}) == 500
        counters = [int(result.message_id[-4:], 16) for result in results]
        assert [(counter - counters[0]) & 0xFFFF for counter in counters] == list(range(500))


async def test_messages_with_a_key_keep_their_order(triomq: Cluster) -> None:
    messages = [Message("ManyKeys", b"%d" % n, keys=f"k{n % 7}") for n in range(210)]
    async with Producer("many", name_server=triomq.name_server, send_timeout_seconds=LIMIT_SECONDS) as producer:
        results = await producer.send_many(messages, in_flight=40, sharding_key=lambda message: message.keys or "")
    for key in range(7):
        mine = results[key::7]
        assert len({result.queue for result in mine}) == 1
        offsets = [result.queue_offset for result in mine]
        assert offsets == sorted(offsets)


async def test_a_failure_stops_the_rest(fake: FakeCluster, autojump_clock: MockClock) -> None:
    taken = 0

    def messages() -> Iterator[Message]:
        nonlocal taken
        for number in range(1000):
            taken = number
            yield Message("T", b"m")

    async with Producer("P", name_server=NAME_SERVER, retries=0) as producer:
        fake.brokers["a"].will(SEND, refuse(ResponseCode.MESSAGE_ILLEGAL))
        with pytest.raises(BrokerRefused):
            await producer.send_many(messages(), in_flight=10)
        assert taken < 20
        with pytest.raises(ConfigurationError, match="in_flight"):
            await producer.send_many([], in_flight=0)
        assert await producer.send_many([]) == []


async def test_an_iterable_that_fails(fake: FakeCluster, autojump_clock: MockClock) -> None:
    def messages() -> Iterator[Message]:
        yield Message("T", b"m")
        raise ZeroDivisionError

    async with Producer("P", name_server=NAME_SERVER) as producer:
        with pytest.raises(ZeroDivisionError):
            await producer.send_many(messages())
        assert len(fake.brokers["a"].of(SEND)) == 1


async def test_only_calls_that_wait_tell_so(autojump_clock: MockClock) -> None:
    told: list[str] = []

    async def computes() -> int:
        return 1

    async def waits() -> int:
        await trio.sleep(1)
        told.append("woken")
        await trio.sleep(1)
        return 2

    async def fails() -> int:
        await trio.sleep(1)
        raise ZeroDivisionError

    assert await tell_when_blocked(computes(), lambda: told.append("blocked")) == 1
    assert told == []
    assert await tell_when_blocked(waits(), lambda: told.append("blocked")) == 2
    assert told == ["blocked", "woken"]
    with pytest.raises(ZeroDivisionError):
        await tell_when_blocked(fails(), lambda: None)
    with trio.move_on_after(0.5) as scope:
        await tell_when_blocked(waits(), lambda: None)
    assert scope.cancelled_caught


async def test_a_listener_that_waits_has_many_calls_at_once(triomq: Cluster) -> None:
    """A listener that does not wait has one call at a time, in order."""
    async with (
        Producer("p", name_server=triomq.name_server) as producer,
        Admin(name_server=triomq.name_server) as admin,
    ):
        await admin.create_topic("Calls", read_queues=1, write_queues=1)
        await producer.send_batch([Message("Calls", b"%d" % n) for n in range(60)])
    running = highest = 0
    order: list[int] = []
    all_places_taken, done = trio.Event(), trio.Event()

    async def handle(message: MessageExt) -> None:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        number = int(message.body)
        if number >= 30:
            if running == 10:
                all_places_taken.set()
            await all_places_taken.wait()
            await trio.lowlevel.checkpoint()
        else:
            order.append(number)
        running -= 1
        if number == 59:
            done.set()

    rules = ConsumeRules(concurrency=10)
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    async with PushConsumer("calls", consume_from=first, rules=rules, name_server=triomq.name_server) as consumer:
        consumer.subscribe("Calls")
        consumer.listen(handle)
        with trio.fail_after(LIMIT_SECONDS):
            await done.wait()
    assert order == list(range(30))
    assert highest == 10


class Member(PushConsumer):
    """Counts how often it received each queue and each message."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.opened_times: Counter[int] = Counter()
        self.seen: Counter[tuple[int, int]] = Counter()

    def opened(self, assigned: AssignedQueue) -> None:
        self.opened_times[assigned.queue.queue_id] += 1
        super().opened(assigned)


class Members:
    """Members of one group that join and leave."""

    def __init__(self, cluster: Cluster, topic: str, seed: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._random = random.Random(seed)
        self.seen: Counter[bytes] = Counter()
        self.every: list[Member] = []
        self.settle = trio.Event()
        """The first one stays, the others leave."""
        self.over = trio.Event()

    async def handle(self, member: Member, message: MessageExt) -> None:
        member.seen[message.queue_id, message.queue_offset] += 1
        if self._random.random() < 0.01:
            await trio.sleep(self._random.random() * 0.01)
        self.seen[message.body] += 1

    async def come_and_go(self, number: int) -> None:
        """Run one member slot of the group: join, leave, and let another member take its place."""
        rules = ConsumeRules(concurrency=CONCURRENCY, rebalance_interval_seconds=1)
        generation = 0
        end = self.settle if number else self.over
        while not end.is_set():
            generation += 1
            async with Member(
                f"{self._topic}_group",
                consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                rules=rules,
                name_server=self._cluster.name_server,
                instance_name=f"{number}_{generation}",
                persist_interval_seconds=0.5,
            ) as consumer:
                consumer.subscribe(self._topic)
                self.every.append(consumer)
                consumer.listen(partial(self.handle, consumer))
                with trio.move_on_after(float("inf") if number == 0 else 0.3 + self._random.random()):
                    await end.wait()
            if not end.is_set():
                await trio.sleep(self._random.random() * 0.3)


@pytest.mark.slow
async def test_nothing_is_lost_while_members_come_and_go(cluster: Cluster) -> None:
    topic = fresh("Moving")
    members = Members(cluster, topic, seed=1)
    async with Admin(name_server=cluster.name_server, timeout_seconds=LIMIT_SECONDS) as admin:
        await admin.create_topic(topic, read_queues=QUEUES, write_queues=QUEUES)
        async with (
            Producer(fresh("P"), name_server=cluster.name_server, send_timeout_seconds=LIMIT_SECONDS) as producer,
            trio.open_nursery() as nursery,
        ):
            for number in range(3):
                nursery.start_soon(members.come_and_go, number)
            pause = 3.0 / (MESSAGES / 100)
            for begin in range(0, MESSAGES, 100):
                await producer.send_batch([Message(topic, b"%d" % n) for n in range(begin, begin + 100)])
                await trio.sleep(pause)
            await until(lambda: len(members.seen) == MESSAGES)
            # Messages that a member held when it lost a queue are delivered again, and only then is everything settled.
            members.settle.set()

            async def all_stored() -> bool:
                return (await admin.consume_stats(f"{topic}_group", topic)).total_diff() == 0

            await until_answer(all_stored)
            members.over.set()
    assert len(members.every) >= 5
    # A queue that moves starts again at its last stored offset. While one member keeps it, no message comes twice.
    for member in members.every:
        for (queue_id, _), times in member.seen.items():
            assert times <= member.opened_times[queue_id]
