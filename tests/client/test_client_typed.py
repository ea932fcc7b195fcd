"""Typed messages: values in, values out, and messages with wrong bodies in the dead letter topic, with the reason."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
import trio.testing
from client_cluster import LIMIT_SECONDS, Cluster, fresh, send_all, until
from client_fakes import NAME_SERVER, FakeCluster, refuse
from trio.testing import MockClock

from triomq import (
    ConsumeFromWhere,
    ConsumeRules,
    DeadLetter,
    InvalidMessage,
    LitePullConsumer,
    MessageExt,
    MessageModel,
    Producer,
    PushConsumer,
    WrongPayload,
    aio,
    blocking,
)
from triomq.client.consume.failed_messages import DEAD_LETTER_REASON, MAX_REASON_LENGTH, printable
from triomq.protocol import properties as property_text
from triomq.protocol.address import HostPort
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.headers.send import SendMessageRequestHeaderV2
from triomq.protocol.record import encode_record
from triomq.serializers import Json, Serializer, Text

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
SEND = RequestCode.SEND_MESSAGE_V2


@dataclass
class Order:
    number: int


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", "%RETRY%G")


def consumer(serializer: Serializer[int], **options: object) -> PushConsumer[int]:
    made = PushConsumer("G", name_server=NAME_SERVER, serializer=serializer, consume_from=FIRST, **options)  # type: ignore[arg-type]
    made.subscribe("T")
    return made


def collect_into(seen: list[int]) -> Callable[[MessageExt[int]], Awaitable[None]]:
    async def handle(message: MessageExt[int]) -> None:
        seen.append(message.value)

    return handle


def letters(fakes: FakeCluster) -> list[tuple[bytes, int | None, int | None, str | None]]:
    """Return what was sent to the retry topic: body, times, limit of times (more: a dead letter), reason."""
    found = []
    for request in fakes.broker.of(SEND):
        header = request.header(SendMessageRequestHeaderV2)
        assert header.topic == "%RETRY%G"
        properties = property_text.parse(header.properties or "")
        assert "DELAY" not in properties
        reason = properties.get(DEAD_LETTER_REASON)
        found.append((request.body, header.reconsume_times, header.max_reconsume_times, reason))
    return found


async def test_wrong_bodies_are_dead_letters_with_a_reason(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    fakes.broker.store("T", 0, b"1", b'"two"', b"3")
    seen: list[int] = []
    async with consumer(Json(int)) as one:
        one.listen(collect_into(seen))
        await trio.sleep(2)
        counted = one.stats
    assert sorted(seen) == [1, 3]
    assert letters(fakes) == [(b'"two"', 17, 16, "Json: Expected `int`, got `str`")]
    assert not fakes.broker.sent_back
    assert fakes.broker.offsets["G", "T", 0] == 3
    assert counted


async def test_letters_of_a_new_group_go_to_the_one_queue_that_its_retry_topic_will_have(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """No name server knows the topic yet, so they go by the route of the default topic, which has more queues."""
    fakes = FakeCluster.installed(monkeypatch, "T", "TBW102", queues=4)
    fakes.broker.store("T", 0, b"a", b"b", b"c", b"d")
    async with consumer(Json(int)) as one:
        one.listen(collect_into([]))
        await trio.sleep(2)
    sent = [request.header(SendMessageRequestHeaderV2) for request in fakes.broker.of(SEND)]
    assert [(header.topic, header.queue_id) for header in sent] == [("%RETRY%G", 0)] * 4
    assert not fakes.broker.sent_back


async def test_only_the_wrong_messages_of_a_batch_are_dead_letters(
    fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    fakes.broker.store("T", 0, b"1", b"{", b"3", b"{{")
    batches: list[list[int]] = []

    async def handle(messages: Sequence[MessageExt[int]]) -> None:
        batches.append([message.value for message in messages])
        if len(batches) == 1:
            raise RuntimeError("the right ones are delivered again")

    async with consumer(Json(int), rules=ConsumeRules(batch_max_size=4)) as one:
        one.listen_batch(handle)
        await trio.sleep(2)
    assert batches == [[1, 3]]
    assert [letter[0] for letter in letters(fakes)] == [b"{", b"{{"]
    assert [header.offset for header in fakes.broker.sent_back] == [0, 2000]
    assert fakes.broker.offsets["G", "T", 0] == 4


async def test_a_loop_skips_wrong_bodies(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    fakes.broker.store("T", 0, b"x", b"1", b"y", b"2")
    values = []
    async with consumer(Json(int)) as one:
        async for message in one:
            values.append(message.value)
            if message.value == 2:
                one.ack()
                break
        await trio.sleep(1)
    assert values == [1, 2]
    assert sorted(letter[0] for letter in letters(fakes)) == [b"x", b"y"]
    assert fakes.broker.offsets["G", "T", 0] == 4


async def test_an_ordered_queue_goes_on_behind_a_wrong_body(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    fakes.broker.store("T", 0, b"1", b"x", b"3")
    seen: list[int] = []
    async with consumer(Json(int), ordered=True) as one:
        one.listen(collect_into(seen))
        await trio.sleep(2)
    assert seen == [1, 3]
    assert [letter[:3] for letter in letters(fakes)] == [(b"x", 1, 0)]
    assert fakes.broker.offsets["G", "T", 0] == 3


async def test_an_ordered_batch_fails_without_its_wrong_bodies(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    fakes.broker.store("T", 0, b"1", b"x", b"3")
    batches: list[list[int]] = []

    async def handle(messages: Sequence[MessageExt[int]]) -> None:
        batches.append([message.value for message in messages])
        if len(batches) == 1:
            raise RuntimeError("again")

    async with consumer(Json(int), ordered=True, rules=ConsumeRules(batch_max_size=3)) as one:
        one.listen_batch(handle)
        await trio.sleep(5)
    assert batches == [[1, 3], [1, 3]]
    assert len(letters(fakes)) == 1
    assert fakes.broker.offsets["G", "T", 0] == 3


async def test_an_ordered_loop_skips_wrong_bodies(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    fakes.broker.store("T", 0, b"x", b"1")
    async with consumer(Json(int), ordered=True) as one:
        delivery = await one.receive()
        assert delivery.message.value == 1
        delivery.ack()
        await trio.sleep(1)
    assert [letter[0] for letter in letters(fakes)] == [b"x"]


async def test_a_broadcast_message_with_a_wrong_body_is_dropped(
    fakes: FakeCluster, autojump_clock: MockClock, tmp_path: Path
) -> None:
    fakes.broker.store("T", 0, b"x", b"1")
    for ordered in (False, True):
        seen: list[int] = []
        options = {"model": MessageModel.BROADCASTING, "offset_directory": tmp_path, "client_ip": f"{ordered}"}
        async with consumer(Json(int), ordered=ordered, **options) as one:
            one.listen(collect_into(seen))
            await trio.sleep(2)
        assert seen == [1]
    assert letters(fakes) == []
    assert not fakes.broker.sent_back


async def test_without_a_way_to_store_the_reason_the_letter_goes_without(
    fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    fakes.broker.store("T", 0, b"x")
    fakes.broker.will(SEND, *[refuse(ResponseCode.NO_PERMISSION)] * 3)
    async with consumer(Json(int)) as one:
        one.listen(collect_into([]))
        await trio.sleep(5)
    assert [header.delay_level for header in fakes.broker.sent_back] == [-1]
    assert fakes.broker.offsets["G", "T", 0] == 1


async def test_polls_return_values_and_wrong_bodies_are_dead_letters(
    fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    fakes.broker.store("T", 0, b"x", b"1", b"y", b"2", b"z")
    async with LitePullConsumer("G", name_server=NAME_SERVER, serializer=Json(int), consume_from=FIRST) as poller:
        poller.subscribe("T")
        assert [message.value for message in await poller.poll()] == [1, 2]
        await trio.sleep(60)
        assert await poller.poll(0.1) == []
    assert [letter[0] for letter in letters(fakes)] == [b"x", b"y", b"z"]
    assert fakes.broker.offsets["G", "T", 0] == 5


async def test_a_poll_waits_until_a_wrong_body_is_a_dead_letter(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    fakes.broker.store("T", 0, b"x", b"1")
    fakes.broker.will(SEND, *[refuse(ResponseCode.NO_PERMISSION)] * 6)
    fakes.broker.will(RequestCode.CONSUMER_SEND_MSG_BACK, refuse(ResponseCode.NO_PERMISSION))
    async with LitePullConsumer("G", name_server=NAME_SERVER, serializer=Json(int), consume_from=FIRST) as poller:
        poller.subscribe("T")
        assert await poller.poll(1) == []
        assert [message.value for message in await poller.poll(60)] == [1]
    assert fakes.broker.offsets["G", "T", 0] == 2


async def test_a_poll_waits_for_a_serializer_that_cannot_work_for_now(fakes: FakeCluster) -> None:
    fakes.broker.store("T", 0, b"1")
    serializer = Slow()
    serializer.fails = 1
    with trio.fail_after(LIMIT_SECONDS):
        async with LitePullConsumer("G", name_server=NAME_SERVER, serializer=serializer, consume_from=FIRST) as poller:
            poller.subscribe("T")
            assert [message.value for message in await poller.poll(LIMIT_SECONDS)] == [1]
    assert letters(fakes) == []


async def test_a_broadcast_poll_drops_wrong_bodies(
    fakes: FakeCluster, autojump_clock: MockClock, tmp_path: Path
) -> None:
    fakes.broker.store("T", 0, b"x", b"1")
    async with LitePullConsumer(
        "G",
        name_server=NAME_SERVER,
        serializer=Json(int),
        consume_from=FIRST,
        model=MessageModel.BROADCASTING,
        offset_directory=tmp_path,
    ) as poller:
        poller.subscribe("T")
        assert [message.value for message in await poller.poll()] == [1]
    assert letters(fakes) == []


async def test_a_letter_that_comes_back_goes_to_its_broker(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    fakes.broker.records["T", 0] = []
    letter = MessageExt("T", b"x", properties={DEAD_LETTER_REASON: "Json: wrong"})
    letter.store_host = HostPort("10.0.0.1", 10911)
    fakes.broker.records["T", 0].append(encode_record(letter))
    async with consumer(Json(int)) as one:
        one.listen(collect_into([]))
        await trio.sleep(5)
    assert letters(fakes) == []
    assert [header.delay_level for header in fakes.broker.sent_back] == [-1]


class Slow(Serializer[int]):
    """Needs something for each body before it can read it, which takes a thread."""

    def __init__(self) -> None:
        self.fetched: list[bytes] = []
        self.threads: set[int] = set()
        self.fails = 0

    def encode(self, value: int) -> bytes:
        return str(value).encode()

    def decode(self, body: bytes) -> int:
        return int(body)

    def is_ready_for(self, body: bytes) -> bool:
        return bool(self.fetched)

    def fetch(self, body: bytes) -> None:
        self.threads.add(threading.get_ident())
        if self.fails:
            self.fails -= 1
            raise OSError("the registry is away")
        self.fetched.append(body)


async def test_two_messages_that_need_the_same_fetch_share_it(fakes: FakeCluster) -> None:
    fakes.broker.store("T", 0, b"1", b"2", b"3")
    serializer, seen = Slow(), []
    with trio.fail_after(LIMIT_SECONDS):
        async with consumer(serializer) as one:
            one.listen(collect_into(seen))
            await until(lambda: len(seen) == 3)
    assert sorted(seen) == [1, 2, 3]
    assert len(serializer.fetched) == 1
    assert serializer.threads.isdisjoint({threading.get_ident()})


async def test_a_message_whose_receiver_gives_up_goes_to_the_next(fakes: FakeCluster) -> None:
    """The first task fetches, the second waits for the same schema and is cancelled."""
    fakes.broker.store("T", 0, b"1", b"2")
    began, may_go = threading.Event(), threading.Event()

    class Held(Slow):
        def fetch(self, body: bytes) -> None:
            began.set()
            may_go.wait(LIMIT_SECONDS)
            super().fetch(body)

    values: list[int] = []
    with trio.fail_after(LIMIT_SECONDS):
        async with consumer(Held()) as one, trio.open_nursery() as nursery:

            async def receive(scope: trio.CancelScope) -> None:
                with scope:
                    delivery = await one.receive()
                    values.append(delivery.message.value)
                    delivery.ack()

            nursery.start_soon(receive, trio.CancelScope())
            await until(began.is_set)
            gives_up = trio.CancelScope()
            nursery.start_soon(receive, gives_up)
            await trio.testing.wait_all_tasks_blocked()
            gives_up.cancel()
            await trio.testing.wait_all_tasks_blocked()
            may_go.set()
            await receive(trio.CancelScope())
            await until(lambda: len(values) == 2)
    assert sorted(values) == [1, 2]


@pytest.mark.parametrize("loops", [False, True])
async def test_a_serializer_that_cannot_work_for_now_makes_no_dead_letters(fakes: FakeCluster, loops: bool) -> None:
    fakes.broker.store("T", 0, b"1")
    serializer = Slow()
    serializer.fails = 1
    with trio.fail_after(LIMIT_SECONDS):
        async with consumer(serializer) as one, trio.open_nursery() as nursery:
            if loops:
                nursery.start_soon(one.receive)
            else:
                one.listen(collect_into([]))
            await until(lambda: bool(fakes.broker.sent_back))
            nursery.cancel_scope.cancel()
    assert [header.delay_level for header in fakes.broker.sent_back] == [0]
    assert letters(fakes) == []


async def test_a_listener_may_reject_a_message_with_a_reason(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    fakes.broker.store("T", 0, b"1")

    async def reject(message: MessageExt[int]) -> None:
        raise DeadLetter("there is no customer 1")

    async with consumer(Json(int)) as one:
        one.listen(reject)
        await trio.sleep(2)
    assert [letter[3] for letter in letters(fakes)] == ["there is no customer 1"]
    assert not fakes.broker.sent_back


def test_reasons_fit_into_a_property() -> None:
    assert printable("a\x01b\x02\nc") == "a b c"
    assert len(printable("x" * 10_000)) == MAX_REASON_LENGTH


async def test_a_value_that_the_serializer_cannot_write_is_not_sent(fakes: FakeCluster) -> None:
    async with Producer("p", name_server=NAME_SERVER, serializer=Json(Order)) as producer:
        with pytest.raises(InvalidMessage, match="Json cannot write this object"):
            await producer.send_value("T", object())  # type: ignore[arg-type]
        with pytest.raises(InvalidMessage, match="Bytes cannot write this Order: expected bytes, got Order"):
            Producer("q", name_server=NAME_SERVER).message("T", Order(1))  # type: ignore[arg-type]
    assert fakes.broker.of(SEND) == []


async def test_a_producer_connects_its_serializer_in_a_thread(fakes: FakeCluster) -> None:
    threads = []

    class Connecting(Slow):
        def connect(self) -> None:
            threads.append(threading.get_ident())

    async with Producer("p", name_server=NAME_SERVER, serializer=Connecting()) as producer:
        await producer.send_value("T", 17)
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
    assert fakes.broker.of(SEND)[0].body == b"17"


# With a broker, in each kind of program.


async def test_dead_letters_can_be_read_with_their_reason(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    await send_all(cluster, topic, [b"no number"], keys="k-1")
    with trio.fail_after(LIMIT_SECONDS):
        async with (
            PushConsumer(group, name_server=cluster.name_server, serializer=Json(int), consume_from=FIRST) as one,
            PushConsumer(fresh("G"), name_server=cluster.name_server, consume_from=FIRST) as dead,
        ):
            one.subscribe(topic)
            one.listen(collect_into([]))
            dead.subscribe(f"%DLQ%{group}")
            letter = (await dead.receive()).message
    assert (letter.body, letter.value, letter.keys) == (b"no number", b"no number", "k-1")
    assert letter.properties[DEAD_LETTER_REASON].startswith("Json: JSON is malformed")
    assert letter.properties["RETRY_TOPIC"] == topic


async def test_requests_and_replies_are_typed(triomq: Cluster) -> None:
    topic = fresh()
    with trio.fail_after(LIMIT_SECONDS):
        async with (
            Producer(fresh("P"), name_server=triomq.name_server, serializer=Json(Order)) as asking,
            Producer(fresh("P"), name_server=triomq.name_server, serializer=Text()) as answering,
            PushConsumer(fresh("G"), name_server=triomq.name_server, serializer=Json(Order), consume_from=FIRST) as one,
        ):
            await asking.send_value(topic, Order(0))
            one.subscribe(topic)

            async def answer(message: MessageExt[Order]) -> None:
                if message.value.number:
                    await answering.reply_value(message, f"order {message.value.number}")

            one.listen(answer)
            reply = await asking.request_value(topic, Order(17), Text(), timeout_seconds=LIMIT_SECONDS)
            assert reply.value == "order 17"
            with pytest.raises(WrongPayload, match="Json: "):
                await asking.request_value(topic, Order(18), Json(int), timeout_seconds=LIMIT_SECONDS)


def test_blocking_programs_have_typed_messages(triomq: Cluster) -> None:
    topic = fresh()
    with blocking.Producer(fresh("P"), name_server=triomq.name_server, serializer=Json(Order)) as producer:
        producer.send_value(topic, Order(1))
        producer.send_batch([producer.message(topic, Order(2)), producer.message(topic, Order(3), tags="new")])
    with blocking.PushConsumer(
        fresh("G"), name_server=triomq.name_server, serializer=Json(Order), consume_from=FIRST
    ) as consumer:
        consumer.subscribe(topic)
        received = [message.value for _, message in zip(range(3), consumer, strict=False)]
        assert sorted(order.number for order in received) == [1, 2, 3]


def test_asyncio_programs_have_typed_messages(triomq: Cluster) -> None:
    topic = fresh()

    async def main() -> None:
        got: asyncio.Queue[Order] = asyncio.Queue(10)

        async def handle(message: MessageExt[Order]) -> None:
            await got.put(message.value)

        async with (
            aio.Producer(fresh("P"), name_server=triomq.name_server, serializer=Json(Order)) as producer,
            aio.PushConsumer(
                fresh("G"), name_server=triomq.name_server, serializer=Json(Order), consume_from=FIRST
            ) as consumer,
        ):
            await producer.send_value(topic, Order(1))
            consumer.subscribe(topic)
            consumer.listen(handle)
            assert await got.get() == Order(1)

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))
