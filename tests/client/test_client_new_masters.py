"""Clients that were connected find the new master of a group, also if the old one hangs or follows by now."""

from __future__ import annotations

import logging

import pytest
import trio
from client_fakes import NAME_SERVER, FakeBroker, FakeCluster, refuse
from trio.testing import MockClock

from triomq.client.api import (
    BrokerUnknown,
    ConsumeFromWhere,
    Message,
    MessageExt,
    MessageQueue,
    MQClientError,
    OperationTimeout,
    Producer,
    PullConsumer,
    PushConsumer,
)
from triomq.protocol.codes import RequestCode, ResponseCode

LEADS_AFTER_SECONDS = 7.0
SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster.installed(monkeypatch, "T", queues=2)
    made.replica("a").offsets = {}
    return made


async def hang(servers: FakeCluster) -> FakeBroker:
    """Let the master hang; its slave leads seven seconds later."""
    servers.broker.slow_seconds = 1e6
    await trio.sleep(LEADS_AFTER_SECONDS)
    return servers.fail_over("a")


async def test_a_producer_finds_the_new_master_within_two_seconds_if_the_old_one_hangs(
    servers: FakeCluster, autojump_clock: MockClock
) -> None:
    async with Producer("P", name_server=NAME_SERVER) as producer, trio.open_nursery() as nursery:
        await producer.send(Message("T", b"first"))
        began = trio.current_time()
        servers.broker.slow_seconds = 1e6
        nursery.start_soon(hang, servers)
        while True:
            sent_at = trio.current_time()
            try:
                await producer.send(Message("T", b"next"))
                break
            except MQClientError:
                assert trio.current_time() - sent_at <= 3.0
        assert LEADS_AFTER_SECONDS <= trio.current_time() - began <= LEADS_AFTER_SECONDS + 2


@pytest.mark.parametrize("is_busy", [True, False])
async def test_a_consumer_finds_the_new_master_within_two_seconds_if_the_old_one_hangs(
    servers: FakeCluster, autojump_clock: MockClock, is_busy: bool
) -> None:
    got: list[tuple[float, bytes]] = []

    async def listen(message: MessageExt) -> None:
        got.append((trio.current_time(), message.body))

    options = {"name_server": NAME_SERVER, "consume_from": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}
    async with PushConsumer("G", **options) as consumer:  # type: ignore[arg-type]
        consumer.subscribe("T")
        consumer.listen(listen)
        await trio.sleep(60)
        if is_busy:
            servers.broker.store("T", 0, b"first")
            await trio.sleep(0.5)
        new = await hang(servers)
        new.store("T", 0, b"next")
        leads_at = trio.current_time()
        await trio.sleep(20)
        assert got[-1][1] == b"next" and got[-1][0] <= leads_at + 2
        assert new.members["G"] and new.offsets[("G", "T", 0)] == len(got)


async def consumed(_: object) -> None:
    """Consume a message, in the event loop: a mock clock does not wait for a thread."""


async def test_a_master_that_follows_by_now_makes_clients_look_and_is_one_line_in_the_log(
    servers: FakeCluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    old = servers.broker
    async with PushConsumer("G", name_server=NAME_SERVER) as consumer:
        consumer.subscribe("T")
        consumer.listen(consumed)
        await trio.sleep(11)  # between two rounds that store offsets
        for queue_id in range(2):
            old.store("T", queue_id, b"m")
        await trio.sleep(0.1)
        caplog.clear()
        for code in (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET):
            old.will(code, *[refuse(ResponseCode.SLAVE_NOT_AVAILABLE, "n0 leads the group")] * 99)
        await trio.sleep(8)  # a round is refused
        new = servers.fail_over("a")
        await trio.sleep(2)
        assert {queue_id: new.offsets[("G", "T", queue_id)] for queue_id in range(2)} == {0: 1, 1: 1}
    warnings = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(warnings) == 1 and "n0 leads the group" in warnings[0]


async def test_an_ordered_consumer_locks_its_queues_at_the_new_master_at_once(
    servers: FakeCluster, autojump_clock: MockClock
) -> None:
    async with PushConsumer("G", name_server=NAME_SERVER, ordered=True) as consumer:
        consumer.subscribe("T")
        consumer.listen(consumed)
        await trio.sleep(10)
        new = await hang(servers)
        await trio.sleep(2)
        assert {key[2] for key in new.lockers} == {0, 1}


async def test_a_call_that_needs_a_master_waits_while_a_slave_may_take_over(
    servers: FakeCluster, autojump_clock: MockClock
) -> None:
    servers.broker.store("T", 0, b"m")
    async with PullConsumer("G", name_server=NAME_SERVER) as consumer, trio.open_nursery() as nursery:
        [queue, _] = await consumer.queues("T")
        servers.broker.up = False
        await consumer._client.refresh_route("T")

        async def take_over() -> None:
            await trio.sleep(1.5)
            servers.fail_over("a")

        nursery.start_soon(take_over)
        began = trio.current_time()
        assert await consumer.max_offset(queue) == 1
        assert 1.5 <= trio.current_time() - began <= 2.6
        servers.replica("a")
        servers.broker.up = False
        await consumer._client.refresh_route("T")
        began = trio.current_time()
        with pytest.raises(BrokerUnknown, match="no name server knows a master of broker 'a'"):
            await consumer.max_offset(queue)
        assert trio.current_time() - began == pytest.approx(3)


async def test_a_commit_that_waits_behind_others_at_a_hung_broker_ends_within_its_limit(
    servers: FakeCluster, autojump_clock: MockClock
) -> None:
    async with PullConsumer("G", name_server=NAME_SERVER) as consumer, trio.open_nursery() as nursery:
        await consumer.queues("T")
        servers.broker.slow_seconds = 1e6

        async def commit(queue_id: int) -> None:
            began = trio.current_time()
            with pytest.raises(OperationTimeout):
                await consumer.commit(MessageQueue("T", "a", queue_id), 5)
            assert trio.current_time() - began <= 3.0

        for queue_id in range(2):
            nursery.start_soon(commit, queue_id)
