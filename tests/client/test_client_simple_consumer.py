"""SimpleConsumer: against an embedded cluster whose hours pass in milliseconds, and against brokers that fail."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from client_cluster import LIMIT_SECONDS
from client_fakes import NAME_SERVER, FakeBroker, FakeCluster, refuse
from trio.testing import MockClock

from triomq import (
    AcksFailed,
    Admin,
    BrokerRefused,
    BrokerUnreachable,
    Client,
    ClientClosed,
    ClientConfig,
    ConfigurationError,
    ConsumeFromWhere,
    InvisibleTimeOver,
    Message,
    MessageExt,
    MQClientError,
    NoRoute,
    NotSettled,
    OperationTimeout,
    Producer,
    ReceivedMessage,
    SimpleConsumer,
)
from triomq.broker.embedded import LocalCluster, VirtualClock
from triomq.protocol.codes import POLLING_FULL, RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.headers.pop import (
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from triomq.protocol.receipt_handle import parse_handle
from triomq.protocol.record import encode_record
from triomq.remoting.client import open_client
from triomq.remoting.errors import ConnectionClosed, RemotingTimeout

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
HOUR = 3600.0


class Lab:
    """An embedded cluster with its clock, and one consumer."""

    def __init__(self, broker: str, clock: VirtualClock, producer: Producer, consumer: SimpleConsumer) -> None:
        self.broker = broker  # host:port
        self.clock = clock
        self.producer = producer
        self.consumer = consumer

    async def send(self, *bodies: bytes) -> None:
        for body in bodies:
            await self.producer.send(Message("T", body, tags=body.decode()))

    async def now(self, max_messages: int = 32, *, invisible_seconds: float = 60.0) -> list[ReceivedMessage]:
        """Return what can be received at once."""
        return await self.consumer.receive(max_messages, invisible_seconds=invisible_seconds, wait_seconds=0)

    async def wait_for_held_receives(self, count: int) -> None:
        """Wait until the broker holds `count` receives of the group."""
        header = PollingInfoRequestHeader(consumer_group="g", topic="T", queue_id=-1)
        async with open_client() as client:
            with trio.fail_after(LIMIT_SECONDS):
                while True:
                    request = new_request(RequestCode.POLLING_INFO, header=header)
                    response = await client.invoke(self.broker, request, LIMIT_SECONDS)
                    if response.header(PollingInfoResponseHeader).polling_num == count:
                        return
                    await trio.sleep(0.01)


@asynccontextmanager
async def lab(*, queues: int = 1, **options: Any) -> AsyncIterator[Lab]:
    clock = VirtualClock()
    async with LocalCluster(clock=clock) as cluster:
        server = cluster.name_server
        async with (
            Admin(name_server=server, timeout_seconds=LIMIT_SECONDS) as admin,
            Producer("p", name_server=server, send_timeout_seconds=LIMIT_SECONDS) as producer,
            SimpleConsumer(
                *("g",),
                consume_from=FIRST,
                name_server=server,
                now_ms=clock.now_ms,
                request_timeout_seconds=LIMIT_SECONDS,
                **options,
            ) as consumer,
        ):
            await admin.create_topic("T", read_queues=queues, write_queues=queues)
            consumer.subscribe("T")
            yield Lab(cluster.brokers["broker-a"], clock, producer, consumer)


def bodies(messages: list[ReceivedMessage]) -> list[bytes]:
    return sorted(message.body for message in messages)


async def test_what_is_not_acknowledged_comes_again_after_twelve_hours() -> None:
    async with lab() as it:
        await it.send(b"a", b"b")
        first, second = await it.now(invisible_seconds=12 * HOUR)
        assert (first.body, first.delivery_attempt, first.topic) == (b"a", 1, "T")
        assert abs(first.invisible_until_ms - it.clock.now_ms() - 12 * HOUR * 1000) < LIMIT_SECONDS * 1000
        await it.consumer.ack(second)
        await it.clock.advance_async(12 * HOUR - 2 * LIMIT_SECONDS)
        assert await it.now() == []
        await it.clock.advance_async(2 * LIMIT_SECONDS)
        (again,) = await it.now()
        assert (again.body, again.delivery_attempt) == (b"a", 2)
        with pytest.raises(InvisibleTimeOver, match="T, queue 0 offset 0: its time is over, it is delivered again"):
            await it.consumer.ack(first)
        with pytest.raises(InvisibleTimeOver):
            await it.consumer.extend(first, 60)
        await it.consumer.ack(again)
        await it.consumer.ack(again)  # a repetition does no harm
        await it.clock.advance_async(13 * HOUR)
        assert await it.now() == []


async def test_a_receive_waits_for_a_message() -> None:
    async with lab(queues=3) as it, trio.open_nursery() as nursery:
        nursery.start_soon(it.send, b"a")
        with trio.fail_after(LIMIT_SECONDS):
            assert bodies(await it.consumer.receive(wait_seconds=LIMIT_SECONDS)) == [b"a"]


async def test_a_receive_that_waits_gets_what_comes_again() -> None:
    async with lab() as it:
        await it.send(b"a")
        await it.now(invisible_seconds=12 * HOUR)
        again: list[ReceivedMessage] = []

        async def wait() -> None:
            again.extend(await it.consumer.receive(wait_seconds=LIMIT_SECONDS))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(0.05)
            assert not again
            await it.clock.advance_async(12 * HOUR)
        assert [(message.body, message.delivery_attempt) for message in again] == [(b"a", 2)]


async def test_several_are_acknowledged_together_and_those_that_failed_are_named() -> None:
    async with lab(queues=2) as it:
        await it.send(b"a", b"b", b"c", b"d")
        (late,) = await it.now(1, invisible_seconds=1)
        others = await it.now(invisible_seconds=HOUR)
        assert len(others) == 3
        await it.clock.advance_async(2)
        (again,) = await it.now(invisible_seconds=HOUR)
        assert (again.body, again.delivery_attempt) == (late.body, 2)
        with pytest.raises(AcksFailed, match="1 of 4 messages not acknowledged: InvisibleTimeOver") as failed:
            await it.consumer.ack([late, *others])
        ((message, error),) = failed.value.failures
        assert message is late
        assert isinstance(error, InvisibleTimeOver)
        await it.consumer.ack([again])
        await it.consumer.ack([])
        await it.clock.advance_async(2 * HOUR)
        assert await it.now() == []


async def test_an_extended_message_has_a_new_handle() -> None:
    async with lab() as it:
        await it.send(b"a")
        (message,) = await it.now(invisible_seconds=60)
        before = copy.copy(message)
        await it.clock.advance_async(30)
        await it.consumer.extend(message, HOUR)
        assert message.invisible_until_ms > before.invisible_until_ms + 1800 * 1000
        with pytest.raises(InvisibleTimeOver):
            await it.consumer.ack(before)
        await it.clock.advance_async(HOUR / 2)
        assert await it.now() == []
        await it.consumer.ack(message)
        await it.clock.advance_async(HOUR)
        assert await it.now() == []


async def test_an_ordered_consumer_gets_nothing_behind_a_batch_that_is_not_acknowledged() -> None:
    async with lab(ordered=True) as it:
        await it.send(b"a", b"b", b"c")
        batch = await it.now(2)
        assert [message.body for message in batch] == [b"a", b"b"]
        await it.consumer.ack(batch[0])
        assert await it.now() == []
        await it.clock.advance_async(61)
        again = await it.now()
        assert [(message.body, message.delivery_attempt) for message in again] == [(b"b", 2), (b"c", 1)]


async def test_an_administrator_moves_a_group_that_receives() -> None:
    async with lab() as it:
        await it.send(b"a", b"b")
        held = await it.now()
        await it.consumer.ack(held[0])
        async with Admin(name_server=it.producer.client.config.name_server) as admin:
            await admin.reset_offset("g", "T", 0)
        again: list[ReceivedMessage] = []
        with trio.fail_after(LIMIT_SECONDS):
            while len(again) < 2:
                again += await it.now()
        assert bodies(again) == [b"a", b"b"]
        with pytest.raises(InvisibleTimeOver):
            await it.consumer.ack(held[1])


async def test_tags_and_conditions_choose() -> None:
    async with lab() as it:
        await it.send(b"a", b"b", b"c")
        it.consumer.subscribe("T", "a || c")
        assert bodies(await it.now()) == [b"a", b"c"]
        with pytest.raises(ConfigurationError, match="not a tag"):
            it.consumer.subscribe("T", "price > 10")
        it.consumer.unsubscribe("T")
        with pytest.raises(ConfigurationError, match="nothing is subscribed"):
            await it.now()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"max_messages": 0}, "max_messages must be from 1 to 32, not 0"),
        ({"max_messages": 33}, "not 33"),
        ({"invisible_seconds": 0.9}, "from 1 s to 12 h"),
        ({"invisible_seconds": 12 * HOUR + 1}, "from 1 s to 12 h"),
        ({"invisible_seconds": float("nan")}, "from 1 s to 12 h"),
        ({"wait_seconds": -1}, "wait_seconds must be 0 or more"),
        ({"wait_seconds": float("nan")}, "wait_seconds must be 0 or more"),
    ],
)
async def test_what_a_broker_would_refuse_is_refused_at_once(
    arguments: dict[str, Any], text: str, fakes: FakeCluster
) -> None:
    async with simple() as consumer:
        with pytest.raises(ConfigurationError, match=text):
            await consumer.receive(**arguments)
    assert not fakes.broker.of(RequestCode.POP_MESSAGE)


def test_a_group_can_begin_only_where_brokers_let_it() -> None:
    with pytest.raises(ConfigurationError, match="CONSUME_FROM_TIMESTAMP"):
        SimpleConsumer("G", name_server=NAME_SERVER, consume_from=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)


# Brokers that fail, and several of them.


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T")


@asynccontextmanager
async def simple(**options: Any) -> AsyncIterator[SimpleConsumer]:
    async with SimpleConsumer("G", name_server=NAME_SERVER, consume_from=FIRST, **options) as consumer:
        consumer.subscribe("T")
        yield consumer


def popped(*bodies: bytes, first_offset: int = 0, tags: str = "a", **properties: str) -> Any:
    """Return a response with these messages of queue 0."""
    records = []
    for queue_offset, body in enumerate(bodies, first_offset):
        message = MessageExt("T", body, properties={"TAGS": tags, **properties})
        message.queue_offset = queue_offset
        records.append(encode_record(message))

    def answer(request: RemotingCommand) -> RemotingCommand:
        header = request.header(PopMessageRequestHeader)
        info = PopMessageResponseHeader(
            pop_time=1_700_000_000_000,
            invisible_time=header.invisible_time,
            revive_qid=0,
            rest_num=0,
            start_offset_info=f"0 0 {first_offset}",
        )
        return new_response(request, header=info, body=b"".join(records))

    return answer


def holds(broker: FakeBroker, at_seconds: float) -> None:
    """Let a broker hold receives, and have a message from `at_seconds` on."""

    async def pop_message(request: RemotingCommand) -> RemotingCommand:
        header = request.header(PopMessageRequestHeader)
        with trio.move_on_after(header.poll_time / 1000):
            await trio.sleep_until(at_seconds)
        if trio.current_time() < at_seconds:
            response: RemotingCommand = refuse(ResponseCode.PULL_NOT_FOUND)(request)  # type: ignore[operator]
            return response
        found: RemotingCommand = popped(broker.name.encode())(request)
        return found

    broker.pop_message = pop_message  # type: ignore[attr-defined]


async def test_an_idle_broker_hides_no_message_of_another(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    cluster = FakeCluster("a", "b", "c")
    cluster.topic("T")
    cluster.install(monkeypatch)
    for broker in cluster.brokers.values():
        holds(broker, 1e9)
    async with simple() as consumer:
        for name in ("a", "b", "c"):
            arrives_at = trio.current_time() + 10.1
            holds(cluster.brokers[name], arrives_at)
            (message,) = await consumer.receive(wait_seconds=60)
            assert (message.body, message.broker_name) == (name.encode(), name)
            assert arrives_at <= trio.current_time() < arrives_at + 1.1
            holds(cluster.brokers[name], 1e9)
        began = trio.current_time()
        assert await consumer.receive(wait_seconds=60) == []
        assert 59.9 < trio.current_time() - began < 61


async def test_brokers_have_their_turns(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    cluster = FakeCluster("a", "b")
    cluster.topic("T")
    cluster.install(monkeypatch)
    for broker in cluster.brokers.values():
        holds(broker, 0)
    async with simple() as consumer:
        got = [(await consumer.receive())[0].body for _ in range(4)]
    assert sorted(got[:2]) == [b"a", b"b"]
    assert got[2:] == got[:2]


async def test_a_broker_that_is_away_is_left_out(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    cluster = FakeCluster("a", "b")
    cluster.topic("T")
    cluster.install(monkeypatch)
    cluster.brokers["a"].up, cluster.brokers["a"].is_still_listed = False, True
    holds(cluster.brokers["b"], 5)
    async with simple() as consumer:
        assert bodies(await consumer.receive(wait_seconds=60)) == [b"b"]
        cluster.brokers["b"].up, cluster.brokers["b"].is_still_listed = False, True
        with pytest.raises(BrokerUnreachable):
            await consumer.receive(wait_seconds=60)


async def test_a_broker_that_comes_back_is_asked_again_in_the_same_receive(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    cluster = FakeCluster("a", "b")
    cluster.topic("T")
    cluster.install(monkeypatch)
    a, b = cluster.brokers.values()
    a.up, a.is_still_listed = False, True
    holds(a, 0)
    holds(b, 1e9)

    async def start_again() -> None:
        await trio.sleep(30)
        a.up = True

    async with simple() as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(start_again)
        began = trio.current_time()
        assert bodies(await consumer.receive(wait_seconds=600)) == [b"a"]
        assert 30 <= trio.current_time() - began <= 60


async def test_a_broker_that_failed_is_asked_after_the_others(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    cluster = FakeCluster("a", "b")
    cluster.topic("T")
    cluster.install(monkeypatch)
    a, b = cluster.brokers.values()
    a.will(RequestCode.POP_MESSAGE, *[refuse(ResponseCode.SYSTEM_ERROR)] * 100)
    holds(b, 0)
    async with simple() as consumer:
        for _ in range(6):
            assert bodies(await consumer.receive()) == [b"b"]
        assert len(a.of(RequestCode.POP_MESSAGE)) == 1
        await trio.sleep(11)
        for _ in range(2):
            await consumer.receive()
        assert len(a.of(RequestCode.POP_MESSAGE)) == 2


async def test_a_broker_that_holds_nothing_is_not_asked_without_a_pause(
    fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    fakes.broker.will(RequestCode.POP_MESSAGE, *[refuse(ResponseCode.PULL_NOT_FOUND)] * 100)
    async with simple() as consumer:
        assert await consumer.receive(wait_seconds=10) == []
    assert 15 <= len(fakes.broker.of(RequestCode.POP_MESSAGE)) <= 25


@pytest.mark.parametrize(
    ("lost", "error"),
    [
        (RemotingTimeout("no response"), OperationTimeout),
        (ConnectionClosed("closed"), BrokerUnreachable),
        (new_response, MQClientError),
    ],
)
async def test_an_ordered_receive_without_an_answer_is_repeated_as_the_same_attempt(
    lost: Any, error: type[Exception], fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    fakes.broker.will(RequestCode.POP_MESSAGE, popped(b"0"), lost, popped(b"1"), popped(b"2"))
    async with simple(ordered=True) as consumer:
        await consumer.receive()
        with pytest.raises(error):
            await consumer.receive()
        assert [(await consumer.receive())[0].body for _ in range(2)] == [b"1", b"2"]
    first, unanswered, repeated, last = attempts(fakes)
    assert unanswered == repeated
    assert len({first, unanswered, last}) == 3


async def test_two_ordered_receives_at_once_are_two_attempts(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    holds(fakes.broker, 1e9)
    async with simple(ordered=True) as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.receive)
        nursery.start_soon(consumer.receive)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    one, other = attempts(fakes)
    assert one != other


async def test_what_a_cancelled_ordered_receive_takes_comes_with_the_next_one(
    fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    holds(fakes.broker, trio.current_time() + 10)
    async with simple(ordered=True) as consumer:
        with trio.move_on_after(5):
            await consumer.receive()
        await trio.sleep(6)
        await consumer.receive()
        await consumer.receive()
    cancelled, repeated, another = attempts(fakes)
    assert cancelled == repeated != another
    assert not fakes.broker.of(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)


async def test_the_next_receive_takes_the_place_of_a_cancelled_one(
    fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    began = trio.current_time()
    holds(fakes.broker, began + 30.5)
    got: list[ReceivedMessage] = []
    async with simple() as consumer:
        while not got:
            with trio.move_on_after(1):
                got = await consumer.receive()
        assert bodies(got) == [b"a"]
        assert trio.current_time() - began < 31
        assert await consumer.receive(wait_seconds=0)  # asks the broker
    assert len(fakes.broker.of(RequestCode.POP_MESSAGE)) == 3
    assert not fakes.broker.of(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)


@pytest.mark.parametrize("next_arguments", [None, {"max_messages": 1}, {"wait_seconds": 0}])
async def test_what_a_cancelled_receive_takes_is_given_back(
    next_arguments: dict[str, Any] | None, fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    holds(fakes.broker, trio.current_time() + 10)
    async with simple() as consumer:
        with trio.move_on_after(5):
            await consumer.receive()
        if next_arguments is not None:
            with trio.move_on_after(3):
                await consumer.receive(**next_arguments)
        await trio.sleep(10)
        given_back = fakes.broker.of(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        times = [request.header(ChangeInvisibleTimeRequestHeader).invisible_time for request in given_back]
        assert times == [1000] * (2 if next_arguments == {"max_messages": 1} else 1)


async def test_what_a_cancelled_receive_takes_comes_again_soon() -> None:
    async with lab() as it:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(it.consumer.receive, invisible_seconds=12 * HOUR))
            await it.wait_for_held_receives(1)
            nursery.cancel_scope.cancel()
        await it.send(b"a")
        await it.wait_for_held_receives(0)  # the message is on its way to nobody, and back
        seconds = 0
        while not (received := await it.now()):
            seconds += 2
            await it.clock.advance_async(2)
        assert [(again.body, again.delivery_attempt) for again in received] == [(b"a", 2)]
        assert seconds < HOUR


def attempts(fakes: FakeCluster) -> list[str | None]:
    return [request.header(PopMessageRequestHeader).attempt_id for request in fakes.broker.of(RequestCode.POP_MESSAGE)]


async def test_what_is_not_ordered_has_no_attempts(fakes: FakeCluster) -> None:
    fakes.broker.will(RequestCode.POP_MESSAGE, popped(b"0"))
    async with simple() as consumer:
        await consumer.receive()
    assert attempts(fakes) == [None]


async def test_a_refusal_says_why(fakes: FakeCluster) -> None:
    fakes.broker.will(RequestCode.POP_MESSAGE, refuse(POLLING_FULL, "too much in flight (popMaxInFlight)"))
    async with simple() as consumer:
        with pytest.raises(BrokerRefused, match=r"receiving from T at a:10911 was refused: .*popMaxInFlight"):
            await consumer.receive()


async def test_a_topic_that_does_not_exist_is_an_error(fakes: FakeCluster) -> None:
    async with simple() as consumer:
        consumer.subscribe("Absent")
        with pytest.raises(NoRoute, match="Absent"):
            await consumer.receive()


async def test_a_message_whose_tag_has_the_same_hash_is_acknowledged(fakes: FakeCluster) -> None:
    fakes.broker.will(RequestCode.POP_MESSAGE, popped(b"0", tags="BB"), popped(b"1", first_offset=1, tags="Aa"))
    async with simple() as consumer:
        consumer.subscribe("T", "Aa")
        assert bodies(await consumer.receive()) == [b"1"]
    assert len(fakes.broker.of(RequestCode.ACK_MESSAGE)) == 1


async def test_a_committed_message_has_its_transaction_id(fakes: FakeCluster) -> None:
    fakes.broker.will(RequestCode.POP_MESSAGE, popped(b"0", TRAN_MSG="true", UNIQ_KEY="AC11"))
    async with simple() as consumer:
        (message,) = await consumer.receive()
        assert message.transaction_id == "AC11"


async def test_acknowledgements_of_a_broker_that_fails_are_named(fakes: FakeCluster) -> None:
    fakes.broker.will(RequestCode.POP_MESSAGE, popped(b"0", b"1"))
    fakes.broker.will(RequestCode.BATCH_ACK_MESSAGE, ConnectionClosed("closed"))
    async with simple() as consumer:
        messages = await consumer.receive()
        with pytest.raises(AcksFailed, match="2 of 2 messages not acknowledged: BrokerUnreachable") as failed:
            await consumer.ack(messages)
        assert [message for message, _ in failed.value.failures] == messages
        await consumer.ack(messages)
    assert len(fakes.broker.of(RequestCode.BATCH_ACK_MESSAGE)) == 2


def changes_slowly(broker: FakeBroker) -> None:
    """Let a broker take a second to change an invisible time."""

    async def change_message_invisibletime(request: RemotingCommand) -> RemotingCommand:
        await trio.sleep(1)
        invisible_ms = request.header(ChangeInvisibleTimeRequestHeader).invisible_time
        header = ChangeInvisibleTimeResponseHeader(
            pop_time=1_700_000_000_000 + invisible_ms, revive_qid=0, invisible_time=invisible_ms
        )
        return new_response(request, header=header)

    broker.change_message_invisibletime = change_message_invisibletime  # type: ignore[attr-defined]


def handle_times(requests: list[RemotingCommand]) -> list[int]:
    return [parse_handle((request.ext_fields or {})["extraInfo"]).popped_ms - 1_700_000_000_000 for request in requests]


async def test_an_acknowledgement_waits_for_the_new_handle(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    fakes.broker.will(RequestCode.POP_MESSAGE, popped(b"0"))
    changes_slowly(fakes.broker)
    async with simple() as consumer:
        (message,) = await consumer.receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.extend, message, 10)
            nursery.start_soon(consumer.extend, message, 10)
            await trio.sleep(0.5)
            nursery.start_soon(consumer.ack, message)
            nursery.start_soon(consumer.ack, [message])
    assert handle_times(fakes.broker.of(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)) == [0, 10_000]
    assert handle_times(fakes.broker.of(RequestCode.ACK_MESSAGE)) == [10_000, 10_000]


async def test_a_cancelled_extension_keeps_the_new_handle(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    fakes.broker.will(RequestCode.POP_MESSAGE, popped(b"0"))
    changes_slowly(fakes.broker)
    async with simple() as consumer:
        (message,) = await consumer.receive()
        with trio.move_on_after(0.5) as scope:
            await consumer.extend(message, 10)
            await trio.sleep_forever()
        assert scope.cancelled_caught
        await consumer.ack(message)
    assert handle_times(fakes.broker.of(RequestCode.ACK_MESSAGE)) == [10_000]


async def test_a_message_of_somebody_else_is_not_acknowledged(fakes: FakeCluster) -> None:
    fakes.broker.will(RequestCode.POP_MESSAGE, popped(b"0"))
    async with simple() as consumer:
        messages = await consumer.receive()
        with pytest.raises(NotSettled, match="not received by a SimpleConsumer"):
            await consumer.ack([*messages, MessageExt("T", b"x")])  # type: ignore[list-item]
    async with SimpleConsumer("H", name_server=NAME_SERVER) as other:
        with pytest.raises(NotSettled, match="received by the group G, not by H"):
            await other.ack(messages[0])
    assert not fakes.broker.of(RequestCode.ACK_MESSAGE)
    assert not fakes.broker.of(RequestCode.BATCH_ACK_MESSAGE)


async def test_a_receive_that_waits_ends_when_the_consumer_closes(
    fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    holds(fakes.broker, 1e9)
    consumer = SimpleConsumer("G", name_server=NAME_SERVER)
    consumer.subscribe("T")
    await consumer.start()
    async with trio.open_nursery() as nursery:

        async def close() -> None:
            await trio.sleep(5)
            await consumer.close()

        nursery.start_soon(close)
        with pytest.raises(ClientClosed, match="closed while a call waited"):
            await consumer.receive(wait_seconds=60)
    for call in (consumer.receive, lambda: consumer.ack([])):
        with pytest.raises(ClientClosed, match="use it inside"):
            await call()


async def test_a_receive_that_waits_ends_when_the_shared_client_closes(
    fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    holds(fakes.broker, 1e9)
    ended = trio.Event()

    async def receive(consumer: SimpleConsumer) -> None:
        with pytest.raises(ClientClosed):
            await consumer.receive()
        ended.set()

    async with trio.open_nursery() as nursery:
        async with Client(ClientConfig(name_server=NAME_SERVER)) as client:
            consumer = SimpleConsumer("G", client=client)
            consumer.subscribe("T")
            await consumer.start()
            with trio.move_on_after(1):
                await consumer.receive()
            nursery.start_soon(receive, consumer)
            await trio.sleep(5)
        with trio.fail_after(1):
            await ended.wait()
    await consumer.close()


async def test_a_consumer_may_be_opened_again(fakes: FakeCluster) -> None:
    fakes.broker.will(RequestCode.POP_MESSAGE, popped(b"0"), popped(b"1"))
    consumer = SimpleConsumer("G", name_server=NAME_SERVER)
    consumer.subscribe("T")
    for body in (b"0", b"1"):
        async with consumer:
            assert bodies(await consumer.receive()) == [body]
