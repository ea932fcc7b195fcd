"""Concurrent consuming alone, under a mock clock: what waits, what is delivered, and how deliveries end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from client_fakes import NAME_SERVER, FakeCluster, refuse
from trio.testing import MockClock, wait_all_tasks_blocked

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.concurrent import RESUBMIT_SECONDS, ConcurrentConsuming
from triomq.client.consume.offset_store import BrokerOffsets
from triomq.client.core.config import ClientConfig
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.results import ConsumeStatus
from triomq.client.instance.client import Client
from triomq.protocol import properties as property_text
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.headers.send import SendMessageRequestHeaderV2
from triomq.protocol.message import MessageExt
from triomq.protocol.message_queue import MessageQueue

QUEUE = MessageQueue("T", "a", 0)
Listener = Callable[[Sequence[MessageExt]], Awaitable[ConsumeStatus | None]]


class Owner:
    """The consumer, as consuming sees it."""

    group = "G"
    is_paused = False
    is_broadcasting = False
    payloads = None

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.counted = [0, 0]

    def start_soon(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        self.nursery.start_soon(function, *args)

    def consumed(self, topic: str, cost_ms: int, ok: int, failed: int) -> None:
        self.counted[0] += ok
        self.counted[1] += failed


class Fixture:
    """One queue of the group G with its messages, its offsets and the object that consumes it."""

    def __init__(self, cluster: FakeCluster, client: Client, nursery: trio.Nursery, rules: ConsumeRules) -> None:
        self.cluster = cluster
        self.owner = Owner(nursery)
        self.offsets = BrokerOffsets(client, "G")
        self.assigned = AssignedQueue(QUEUE, 0, 0)
        self.heard: list[bytes] = []
        self.listener: Listener = self.collect
        self.consuming = ConcurrentConsuming(
            client, self.owner, self.offsets, rules, self.listen, [], lambda: [self.assigned]
        )
        self.consuming.start()

    async def listen(self, messages: Sequence[MessageExt]) -> ConsumeStatus | None:
        return await self.listener(messages)

    async def collect(self, messages: Sequence[MessageExt]) -> None:
        self.heard.extend(message.body for message in messages)

    async def pulled(self, *bodies: bytes, first: int = 0) -> None:
        messages: list[MessageExt] = []
        for at, body in enumerate(bodies, first):
            message = MessageExt("T", body)
            message.queue_offset = at
            messages.append(message)
        await self.consuming.submit(self.assigned, self.assigned.window.put(messages))

    @property
    def offset(self) -> int | None:
        return self.offsets.table.get(QUEUE)


@asynccontextmanager
async def consuming(cluster: FakeCluster, rules: ConsumeRules | None = None) -> AsyncIterator[Fixture]:
    async with (
        Client(ClientConfig(name_server=NAME_SERVER)) as client,
        trio.open_nursery() as nursery,
    ):
        await client.update_route("T")
        yield Fixture(cluster, client, nursery, rules or ConsumeRules())
        nursery.cancel_scope.cancel()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T")


async def test_a_message_that_settles_late_does_not_take_the_offset_back(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with consuming(cluster) as one:
        await one.pulled(b"1", b"2")
        first, second = await one.consuming.take(), await one.consuming.take()
        first.ack()
        assert one.offset == 1
        one.offsets.table.update(QUEUE, 40, increase_only=True)
        second.ack()
        assert one.offset == 40


async def test_the_oldest_message_in_progress_holds_the_offset(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    async with consuming(cluster) as one:
        await one.pulled(b"1", b"2", b"3")
        deliveries = [await one.consuming.take() for _ in range(3)]
        deliveries[2].ack()
        deliveries[1].ack()
        assert one.offset == 0
        deliveries[0].ack()
        assert one.offset == 3
        assert one.owner.counted == [3, 0]


async def test_what_was_given_back_is_handed_out_next(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    async with consuming(cluster) as one:
        await one.pulled(b"1", b"2")
        (await one.consuming.take()).give_back()
        assert one.assigned.busy == 0
        assert [(await one.consuming.take()).message.body for _ in range(2)] == [b"1", b"2"]
        assert one.consuming.take_nowait() is None


async def test_messages_of_a_dropped_queue_are_neither_handed_out_nor_counted(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with consuming(cluster) as one:
        await one.pulled(b"1", b"2")
        taken = await one.consuming.take()
        one.assigned.drop()
        assert one.consuming.take_nowait() is None
        taken.ack()
        assert one.offset is None
        assert one.assigned.busy == 0


async def test_nothing_is_handed_out_while_the_consumer_is_suspended(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with consuming(cluster) as one:
        one.owner.is_paused = True
        await one.pulled(b"1")
        one.consuming.listen()
        await wait_all_tasks_blocked()
        assert one.heard == []
        one.owner.is_paused = False
        one.consuming.wake()
        await wait_all_tasks_blocked()
        assert one.heard == [b"1"]


async def test_submit_waits_while_too_much_is_waiting(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    async with consuming(cluster, ConsumeRules(max_cached_messages=2)) as one:
        submitted: list[int] = []

        async def pull() -> None:
            await one.pulled(b"1", b"2")
            submitted.append(2)
            await one.pulled(b"3", first=2)
            submitted.append(3)

        one.owner.start_soon(pull)
        await wait_all_tasks_blocked()
        assert submitted == [2]
        (await one.consuming.take()).ack()
        await wait_all_tasks_blocked()
        assert submitted == [2, 3]


async def test_a_listener_that_waits_has_as_many_calls_at_once_as_allowed(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with consuming(cluster, ConsumeRules(concurrency=3)) as one:
        running = [0, 0]

        async def slow(messages: Sequence[MessageExt]) -> None:
            running[0] += 1
            running[1] = max(running)
            await trio.sleep(1)
            running[0] -= 1

        one.listener = slow
        one.consuming.listen()
        await one.pulled(*[b"m"] * 9)
        began = trio.current_time()
        while one.offset != 9:
            await one.assigned.wait_change(60)
        assert running == [0, 3]
        assert trio.current_time() - began == pytest.approx(3)


async def test_a_batch_listener_gets_messages_of_one_pull_up_to_the_batch_size(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with consuming(cluster, ConsumeRules(batch_max_size=2)) as one:
        batches: list[list[bytes]] = []

        async def listen(messages: Sequence[MessageExt]) -> None:
            batches.append([message.body for message in messages])

        one.listener = listen
        one.consuming.listen()
        await one.pulled(b"1", b"2", b"3")
        await one.pulled(b"4", first=3)
        await wait_all_tasks_blocked()
        assert batches == [[b"1", b"2"], [b"3"], [b"4"]]
        assert one.offset == 4


async def test_what_cannot_be_sent_back_stays_in_the_window_and_comes_again(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    cluster.broker.will(RequestCode.CONSUMER_SEND_MSG_BACK, refuse(ResponseCode.SYSTEM_ERROR))
    cluster.broker.will(RequestCode.SEND_MESSAGE_V2, *[refuse(ResponseCode.MESSAGE_ILLEGAL)] * 3)
    cluster.topic("%RETRY%G")
    async with consuming(cluster) as one:
        times: list[int] = []

        async def fail_once(messages: Sequence[MessageExt]) -> ConsumeStatus:
            times.append(messages[0].reconsume_times)
            return ConsumeStatus.CONSUME_SUCCESS if len(times) > 1 else ConsumeStatus.RECONSUME_LATER

        one.listener = fail_once
        one.consuming.listen()
        await one.pulled(b"1")
        await trio.sleep(RESUBMIT_SECONDS - 1)
        assert times == [0]
        assert one.offset == 0
        await trio.sleep(2)
        assert times == [0, 1]
        assert one.offset == 1


async def test_a_message_that_failed_often_still_finds_its_way_past_a_broker_that_refuses_it(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    cluster.broker.will(RequestCode.CONSUMER_SEND_MSG_BACK, refuse(ResponseCode.SYSTEM_ERROR))
    cluster.topic("%RETRY%G")
    async with consuming(cluster, ConsumeRules(max_reconsume_times=100)) as one:

        async def fail(messages: Sequence[MessageExt]) -> ConsumeStatus:
            messages[0].reconsume_times = 30
            return ConsumeStatus.RECONSUME_LATER

        one.listener = fail
        one.consuming.listen()
        await one.pulled(b"1")
        await trio.sleep(1)
        assert one.offset == 1
        (sent,) = cluster.broker.of(RequestCode.SEND_MESSAGE_V2)
        header = sent.header(SendMessageRequestHeaderV2)
        assert header.topic == "%RETRY%G"
        assert property_text.parse(header.properties or "")["DELAY"] == "33"


async def test_a_broadcast_message_that_fails_is_dropped(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    async with consuming(cluster) as one:
        one.owner.is_broadcasting = True

        async def fail(messages: Sequence[MessageExt]) -> ConsumeStatus:
            return ConsumeStatus.RECONSUME_LATER

        one.listener = fail
        one.consuming.listen()
        await one.pulled(b"1")
        await wait_all_tasks_blocked()
        assert one.offset == 1
        assert cluster.broker.sent_back == []
        assert one.owner.counted == [0, 1]


async def test_messages_wait_until_there_is_a_listener(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    async with consuming(cluster) as one:
        await one.pulled(b"1")
        await trio.sleep(60)
        assert one.heard == []
        one.consuming.listen()
        await wait_all_tasks_blocked()
        assert one.heard == [b"1"]
