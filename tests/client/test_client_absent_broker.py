"""Servers that are away for a while: sends wait for them within their time limit, and the log does not fill."""

from __future__ import annotations

import logging

import pytest
import trio
from client_fakes import NAME_SERVER, ConnectionClosed, FakeBroker, FakeCluster, refuse
from trio.testing import MockClock

from triomq.client.api import ConsumeFromWhere, Message, MessageQueue, NoRoute, Producer, PushConsumer, SendFailed
from triomq.client.core.errors import (
    BrokerUnknown,
    BrokerUnreachable,
    ClientClosed,
    MQClientError,
    NameServersUnreachable,
)
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import new_request
from triomq.protocol.outage import MAX_KEYS, Outages
from triomq.remoting.client import open_client
from triomq.remoting.errors import ConnectFailed

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", queues=2)


def bodies(servers: FakeCluster) -> list[bytes]:
    return [request.body for broker in servers.brokers.values() for request in broker.of(SEND)]


async def return_after(servers: FakeCluster, seconds: float) -> None:
    await trio.sleep(seconds)
    servers.broker.up = True


async def test_a_send_survives_a_broker_that_is_away_for_a_second(
    servers: FakeCluster, autojump_clock: MockClock
) -> None:
    async with Producer("P", name_server=NAME_SERVER, retries=0) as producer, trio.open_nursery() as nursery:
        await producer.queues("T")
        servers.broker.up = False
        nursery.start_soon(return_after, servers, 1.0)
        began = trio.current_time()
        await producer.send(Message("T", b"m"))
        assert 1.0 <= trio.current_time() - began < 1.6
    assert bodies(servers) == [b"m"]


@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_broker_that_stays_away_fails_the_send_within_its_time_limit_and_a_few_attempts(
    servers: FakeCluster, autojump_clock: MockClock, is_listed: bool
) -> None:
    async with Producer("P", name_server=NAME_SERVER) as producer:
        await producer.queues("T")
        servers.broker.up, servers.broker.is_still_listed = False, is_listed
        began = trio.current_time()
        with pytest.raises(SendFailed, match="nobody there") as caught:
            await producer.send(Message("T", b"m"))
        assert 2.5 <= trio.current_time() - began <= 3.0
    counts = [int(text.rpartition("(")[2].partition(" ")[0]) for text in caught.value.attempts]
    assert sum(counts) == 9
    assert len(counts) == (1 if is_listed else 2), "one text for each way to fail"


async def test_a_send_waits_for_a_master_and_for_a_name_server_that_are_away(
    servers: FakeCluster, autojump_clock: MockClock
) -> None:
    servers.broker.up = False
    async with Producer("P", name_server=NAME_SERVER, retries=0) as producer, trio.open_nursery() as nursery:
        nursery.start_soon(return_after, servers, 1.0)
        await producer.send(Message("T", b"m"))
    servers.name_server_up = False

    async def name_server_returns() -> None:
        await trio.sleep(1)
        servers.name_server_up = True

    async with Producer("P", name_server=NAME_SERVER, retries=0) as producer, trio.open_nursery() as nursery:
        nursery.start_soon(name_server_returns)
        await producer.send(Message("T", b"n"))
    servers.name_server_up = False
    async with Producer("P", name_server=NAME_SERVER) as producer:
        began = trio.current_time()
        with pytest.raises(NameServersUnreachable):
            await producer.send(Message("T", b"o"))
        assert 2.5 <= trio.current_time() - began <= 3.0
    assert bodies(servers) == [b"m", b"n"]


async def register_after(servers: FakeCluster, seconds: float) -> None:
    await trio.sleep(seconds)
    servers.are_brokers_registered = True


@pytest.mark.parametrize("topic", ["T", "New"])
async def test_a_send_waits_for_brokers_that_are_not_registered_yet(
    servers: FakeCluster, autojump_clock: MockClock, topic: str
) -> None:
    """A name server that has just started knows nobody: that does not say that the topic does not exist."""
    servers.topic("TBW102")
    servers.are_brokers_registered = False
    async with Producer("P", name_server=NAME_SERVER) as producer, trio.open_nursery() as nursery:
        nursery.start_soon(register_after, servers, 1.0)
        began = trio.current_time()
        await producer.send(Message(topic, b"m"))
        assert 1.0 <= trio.current_time() - began < 1.6
        with pytest.raises(NoRoute, match="Create it: mqadmin updateTopic"):
            del servers.topics["TBW102"]
            await producer.send(Message("Other", b"m"))
        assert trio.current_time() - began < 1.7
    assert bodies(servers) == [b"m"]


async def test_a_send_without_any_broker_says_so_at_its_limit(servers: FakeCluster, autojump_clock: MockClock) -> None:
    servers.are_brokers_registered = False
    async with Producer("P", name_server=NAME_SERVER, send_timeout_seconds=5) as producer:
        began = trio.current_time()
        with pytest.raises(NoRoute, match="no broker is registered at the name servers"):
            await producer.send(Message("T", b"m"))
        assert 4 < trio.current_time() - began <= 5


async def test_a_send_that_ends_while_it_asks_again_says_why_it_had_to(
    servers: FakeCluster, autojump_clock: MockClock
) -> None:
    servers.name_server_up = False

    async def name_server_hangs() -> None:
        await trio.sleep(1)
        servers.name_server_up, servers.name_server_seconds = True, 60.0

    async with Producer("P", name_server=NAME_SERVER) as producer, trio.open_nursery() as nursery:
        nursery.start_soon(name_server_hangs)
        with pytest.raises(NameServersUnreachable, match="nobody there"):
            await producer.send(Message("T", b"m"))
        nursery.cancel_scope.cancel()


async def test_a_lost_connection_counts_as_an_attempt_and_pauses(
    servers: FakeCluster, autojump_clock: MockClock
) -> None:
    servers.broker.will(SEND, *[ConnectionClosed("gone")] * 9)
    async with Producer("P", name_server=NAME_SERVER, retries=3) as producer:
        began = trio.current_time()
        with pytest.raises(SendFailed):
            await producer.send(Message("T", b"m"))
    assert [at - began for at in servers.broker.times_of(SEND)] == pytest.approx([0, 0.05, 0.15, 0.35])


async def test_other_brokers_are_tried_first_and_without_a_pause(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    cluster = FakeCluster("a", "b", "c")
    cluster.topic("T", 4)
    cluster.install(monkeypatch)
    for name in ("a", "b"):
        cluster.brokers[name].will(SEND, *[ConnectFailed("refused")] * 9)
    async with Producer("P", name_server=NAME_SERVER, retries=0) as producer:
        began = trio.current_time()
        result = await producer.send(Message("T", b"m"))
        assert trio.current_time() == began
    assert result.queue.broker_name == "c"
    assert [len(cluster.brokers[name].of(SEND)) for name in "abc"] == [1, 1, 1]


async def test_brokers_that_are_all_away_are_not_asked_without_a_pause(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    cluster = FakeCluster("a", "b")
    cluster.topic("T", 4)
    cluster.install(monkeypatch)
    for broker in cluster.brokers.values():
        broker.will(SEND, *[ConnectFailed("refused")] * 100)
    async with Producer("P", name_server=NAME_SERVER) as producer:
        with pytest.raises(SendFailed):
            await producer.send(Message("T", b"m"))
    assert sum(len(broker.of(SEND)) for broker in cluster.brokers.values()) <= 2 * 9


async def test_a_refusal_is_not_slowed_down(servers: FakeCluster, autojump_clock: MockClock) -> None:
    servers.broker.will(SEND, refuse(ResponseCode.SYSTEM_ERROR), refuse(ResponseCode.SYSTEM_ERROR))
    async with Producer("P", name_server=NAME_SERVER) as producer:
        began = trio.current_time()
        await producer.send(Message("T", b"m"))
        assert trio.current_time() == began


async def test_ordered_sends_wait_for_their_broker_and_stay_in_order(
    servers: FakeCluster, autojump_clock: MockClock
) -> None:
    expected = [b"%d" % number for number in range(20)]
    async with Producer("P", name_server=NAME_SERVER) as producer, trio.open_nursery() as nursery:
        await producer.queues("T")
        servers.broker.up = False
        nursery.start_soon(return_after, servers, 1.0)
        await producer.send_many([Message("T", body) for body in expected], sharding_key=lambda message: "k")
    assert bodies(servers) == expected


async def test_an_ordered_send_that_may_be_stored_is_not_repeated(
    servers: FakeCluster, autojump_clock: MockClock
) -> None:
    servers.broker.will(SEND, ConnectionClosed("gone"))
    async with Producer("P", name_server=NAME_SERVER) as producer:
        with pytest.raises(BrokerUnreachable):
            await producer.send(Message("T", b"m"), sharding_key="k")
        servers.broker.up = False
        began = trio.current_time()
        with pytest.raises(BrokerUnknown):
            await producer.send(Message("T", b"m"), queue=MessageQueue("T", "a", 0), timeout_seconds=1)
        assert trio.current_time() - began <= 1
    assert len(bodies(servers)) == 1


async def test_a_name_server_that_is_silent_does_not_extend_a_send(
    servers: FakeCluster, autojump_clock: MockClock
) -> None:
    async with Producer("P", name_server=[NAME_SERVER, "ns:2", "ns:3"]) as producer:
        await producer.queues("T")
        servers.broker.up, servers.name_server_seconds = False, 60
        began = trio.current_time()
        with pytest.raises(SendFailed):
            await producer.send(Message("T", b"m"))
        assert trio.current_time() - began <= 3.0


async def test_a_send_that_waits_for_its_broker_ends_when_the_producer_closes(
    servers: FakeCluster, autojump_clock: MockClock
) -> None:
    errors: list[Exception] = []

    async def send(producer: Producer) -> None:
        try:
            await producer.send(Message("T", b"m"), timeout_seconds=100)
        except ClientClosed as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:
        async with Producer("P", name_server=NAME_SERVER) as producer:
            await producer.queues("T")
            servers.broker.up = False
            nursery.start_soon(send, producer)
            await trio.sleep(1)
        began = trio.current_time()
    assert len(errors) == 1
    assert trio.current_time() - began <= 0.5


@pytest.mark.parametrize("is_listed", [True, False])
async def test_absent_servers_are_one_warning_and_then_one_a_minute(
    servers: FakeCluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, is_listed: bool
) -> None:
    async with PushConsumer(
        "G", name_server=NAME_SERVER, consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        consumer.subscribe("T")
        consumer.listen(lambda message: None)
        await consumer.wait_assigned("T")
        async with Producer("P", client=consumer.client) as producer:
            await producer.queues("T")
            servers.broker.up, servers.broker.is_still_listed = False, is_listed
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                began = trio.current_time()
                while trio.current_time() - began < 150:
                    with pytest.raises((SendFailed, NoRoute)):
                        await producer.send(Message("T", b"m"))
            warnings = [record.getMessage() for record in caplog.records]
            servers.broker.up = True
    assert all("server not reached" in text for text in warnings)
    assert sum("server='a:10911'" in text for text in warnings) == (3 if is_listed else 1)
    assert sum("server='a'" in text for text in warnings) == (0 if is_listed else 3)


async def test_an_absent_name_server_is_one_warning_and_then_one_a_minute(
    servers: FakeCluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    servers.name_server_up = False
    async with PushConsumer("G", name_server=NAME_SERVER) as consumer:
        consumer.subscribe("T")
        consumer.listen(lambda message: None)
        with caplog.at_level(logging.WARNING):
            await trio.sleep(150)
    assert len([record for record in caplog.records if "server='ns:9876'" in record.getMessage()]) == 3
    assert len(caplog.records) == 3


def test_a_server_that_responded_between_is_absent_anew() -> None:
    absences = Outages()
    assert absences.failed("a:1", 0)
    assert not absences.failed("a:1", 59)
    assert absences.failed("a:1", 60)
    assert absences.worked("a:1")
    assert not absences.worked("a:1")
    assert absences.failed("a:1", 61)


def test_absences_are_bounded() -> None:
    absences = Outages()
    for number in range(MAX_KEYS + 10):
        absences.failed(f"a:{number}", 0)
    assert len(absences) == MAX_KEYS


async def test_calls_that_wait_for_the_same_connection_share_its_failure(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    opened = 0

    async def refuse_slowly(host: str, port: int) -> None:
        nonlocal opened
        opened += 1
        await trio.sleep(1)
        raise ConnectionRefusedError("nobody there")

    monkeypatch.setattr("triomq.remoting.network.connect", refuse_slowly)
    failed = 0

    async with open_client() as client:

        async def connect(seconds: float) -> None:
            nonlocal failed
            with pytest.raises(ConnectFailed):
                await client.invoke("h:1", new_request(RequestCode.HEART_BEAT), seconds)
            failed += 1

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(connect, 3.0)
            nursery.start_soon(connect, 0.5)
            began = trio.current_time()
        assert (failed, opened) == (51, 1)
        assert trio.current_time() - began == pytest.approx(1)


async def test_a_send_with_a_short_limit_at_busy_brokers_ends_at_its_limit(
    servers: FakeCluster, autojump_clock: MockClock
) -> None:
    """Pauses included: the one after a broker shed load is longer than this limit."""
    servers.broker.will(SEND, *[refuse(ResponseCode.SYSTEM_BUSY)] * 9)
    async with Producer("P", name_server=NAME_SERVER, retries=9) as producer:
        await producer.queues("T")
        for limit_seconds, attempts in ((0.1, 1), (0.2, 2)):
            before, began = len(bodies(servers)), trio.current_time()
            with pytest.raises(MQClientError):
                await producer.send(Message("T", b"m"), timeout_seconds=limit_seconds)
            assert trio.current_time() - began < limit_seconds
            assert len(bodies(servers)) - before == attempts


async def test_the_attempt_after_a_failure_uses_the_route_that_was_fetched_because_of_it(
    servers: FakeCluster, autojump_clock: MockClock
) -> None:
    servers.broker.will(SEND, ConnectionClosed("gone"))
    async with Producer("P", name_server=NAME_SERVER, retries=1) as producer:
        await producer.queues("T")
        servers.brokers["b"] = FakeBroker(servers, "b")
        began = trio.current_time()
        result = await producer.send(Message("T", b"m"))
        assert trio.current_time() == began, "a broker that has not failed needs no pause"
    assert result.queue.broker_name == "b"
    assert [len(broker.of(SEND)) for broker in servers.brokers.values()] == [1, 1]
