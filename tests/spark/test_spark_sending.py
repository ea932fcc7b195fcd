"""Sending rows: queues, requests, what is sent again, and what is stored twice or once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from triomq.protocol import record
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.properties import encode
from triomq.spark import sending
from triomq.spark.errors import BrokerError, OptionError, SendAborted, Unreachable
from triomq.spark.outgoing import OutgoingMessage
from triomq.spark.sending import Sender

STORED_STATUSES = [
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
]


class FakeBroker:
    """One topic with `queue_count` queues; `script` says for each request what happens: a response code, "lost"
    (stored, no response), "down" (neither), or an exception that the address raises. After that all requests succeed.
    Time passes in pauses.
    """

    def __init__(self, queue_count: int, script: list[Any]) -> None:
        self.queues = [MessageQueue("T", "b", number) for number in range(queue_count)]
        self.script = script
        self.stored: dict[int, list[bytes]] = {number: [] for number in range(queue_count)}
        self.sent: list[RemotingCommand] = []
        self.options = SimpleNamespace(retry_timeout_ms=60_000)
        self.paused: list[float] = []
        self.dropped: list[str] = []

    @property
    def requests(self) -> int:
        return len(self.sent)

    def clock(self) -> float:
        return sum(self.paused)

    def publish_route(self, topic: str) -> Any:
        return SimpleNamespace(publish=self.queues)

    def address(self, topic: str, broker_name: str) -> str:
        if self.script and isinstance(self.script[0], Exception):
            raise self.script.pop(0)
        return "b:1"

    def connection(self, address: str) -> Any:
        return SimpleNamespace(call=self.call)

    def drop(self, address: str) -> None:
        self.dropped.append(address)

    def pause(self, seconds: float = 0.5) -> None:
        self.paused.append(max(seconds, 0.0))

    def max_offsets(self, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
        return {queue: len(self.stored[queue.queue_id]) for queue in queues}

    def call(self, request: RemotingCommand) -> RemotingCommand:
        self.sent.append(request)
        what = self.script.pop(0) if self.script else ResponseCode.SUCCESS
        if what == "down":
            raise ConnectionError("down")
        if isinstance(what, ResponseCode) and what not in STORED_STATUSES:
            return new_response(request, what, "no")
        header = request.header(SendMessageRequestHeaderV2)
        queue = self.stored[header.queue_id]
        offset = len(queue)
        queue += [unit.body for unit in record.split_batch(request.body)] if header.batch else [request.body]
        if what == "lost":
            raise ConnectionError("lost")
        answer = SendMessageResponseHeader(msg_id="x", queue_id=header.queue_id, queue_offset=offset)
        return new_response(request, what, header=answer)


class FakeStored:
    """StoredRows over a FakeBroker: it finds messages after the accounted offsets, and their bodies are the digests."""

    def __init__(self, broker: FakeBroker, earlier: Counter[str]) -> None:
        self.broker = broker
        self.present = earlier
        self.accounted: dict[MessageQueue, int] = {}

    def look_into(self, queues: list[MessageQueue]) -> None:
        self.accounted.update(self.broker.max_offsets(queues))

    def take(self, digest: str) -> bool:
        if self.present[digest] <= 0:
            return False
        self.present[digest] -= 1
        return True

    def confirm(self, queue: MessageQueue, end: int) -> None:
        self.accounted[queue] = end

    def of_lost_response(self, queues: list[MessageQueue]) -> Counter[str]:
        found: Counter[str] = Counter()
        for queue in queues:
            new = self.broker.stored[queue.queue_id][self.accounted[queue] :]
            found += Counter(body.decode() for body in new)
            self.accounted[queue] += len(new)
        return found


def message(
    text: str,
    *,
    queue_id: int | None = 0,
    broker_name: str | None = None,
    sharding: str | None = None,
    delay_level: int = 0,
    topic: str = "T",
) -> OutgoingMessage:
    return OutgoingMessage(topic, text.encode(), b"", queue_id, broker_name, sharding, delay_level, text)


def send(broker: FakeBroker, messages: list[OutgoingMessage], stored: FakeStored | None, **options: Any) -> Sender:
    options = {"batch_bytes": 100, "retries": 2, "now_ms": lambda: 1, **options}
    sender = Sender(broker, "g", stored=stored, **options)  # type: ignore[arg-type]
    for item in messages:
        sender.add(item)
    sender.flush()
    return sender


@pytest.mark.parametrize(
    "script", [[], ["lost"], ["down"], ["lost", "down", "lost"], [ResponseCode.SYSTEM_BUSY, "lost"]]
)
def test_an_idempotent_write_stores_each_row_once_in_order(script: list[Any]) -> None:
    broker = FakeBroker(1, script)
    texts = [f"m{number}" for number in range(20)]
    sender = send(broker, [message(text) for text in texts], FakeStored(broker, Counter()))
    assert [body.decode() for body in broker.stored[0]] == texts
    assert (sender.sent, sender.skipped) == (20, 0)


def test_an_equal_row_in_an_earlier_request_is_not_taken_for_the_lost_one() -> None:
    broker = FakeBroker(1, [ResponseCode.SUCCESS, "down"])
    sender = send(broker, [message("a"), message("a")], FakeStored(broker, Counter()), batch_bytes=1)
    assert broker.stored[0] == [b"a", b"a"]
    assert sender.sent == 2


def test_a_broken_connection_is_dropped_before_the_next_attempt() -> None:
    broker = FakeBroker(1, ["down"])
    send(broker, [message("a")], None)
    assert broker.dropped == ["b:1"]


def test_rows_of_an_earlier_attempt_are_left_out_as_often_as_they_were_stored() -> None:
    broker = FakeBroker(1, [])
    sender = send(broker, [message(text) for text in "abac"], FakeStored(broker, Counter(a=1, c=1)))
    assert [body.decode() for body in broker.stored[0]] == ["b", "a"]
    assert (sender.sent, sender.skipped) == (2, 2)


def test_other_writes_store_at_least_once() -> None:
    broker = FakeBroker(1, ["lost"])
    send(broker, [message("a")], None)
    assert broker.stored[0] == [b"a", b"a"]


AGAIN = [
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.TOPIC_NOT_EXIST,
]


@pytest.mark.parametrize("code", AGAIN)
def test_refusals_that_may_pass_are_tried_again_as_often_as_the_option_says(code: ResponseCode) -> None:
    broker = FakeBroker(1, [code] * 2)
    assert send(broker, [message("a")], None).sent == 1
    assert broker.requests == 3
    broker = FakeBroker(1, [code] * 3)
    with pytest.raises(SendAborted, match=code.name) as caught:
        send(broker, [message("a")], None)
    assert (broker.requests, caught.value.code) == (3, code)


def test_refusals_that_cannot_pass_are_final() -> None:
    broker = FakeBroker(1, [ResponseCode.MESSAGE_ILLEGAL])
    with pytest.raises(SendAborted, match=r"MESSAGE_ILLEGAL.*\(the row has 1 bytes of body and 0 of properties\)"):
        send(broker, [message("a")], None)
    assert broker.requests == 1


def test_a_refusal_names_the_largest_row_of_its_request() -> None:
    rows = [replace(message("a" * size), properties=encode({"KEYS": f"k{size}"})) for size in (3, 20, 5)]
    with pytest.raises(SendAborted, match="the largest of 3 rows with keys 'k20' has 20 bytes of body and 8 of prop"):
        send(FakeBroker(1, [ResponseCode.MESSAGE_ILLEGAL]), rows, None, batch_bytes=1000)


@pytest.mark.parametrize("code", STORED_STATUSES)
def test_a_message_that_is_not_flushed_or_replicated_in_time_is_stored(code: ResponseCode) -> None:
    broker = FakeBroker(1, [code])
    assert send(broker, [message("a")], None).sent == 1
    assert broker.stored[0] == [b"a"]


def test_a_broker_that_is_away_is_waited_for_until_the_time_is_over() -> None:
    away = Unreachable("broker 'b' of topic 'T' is not registered")
    broker = FakeBroker(1, ["down", away, "down"])
    assert send(broker, [message("a")], None, retries=0).sent == 1
    broker = FakeBroker(1, ["down"] * 1000)
    with pytest.raises(SendAborted, match="sending to T/b failed: down"):
        send(broker, [message("a")], None)
    assert broker.clock() == pytest.approx(60, abs=1)
    broker = FakeBroker(1, [BrokerError("refused")])
    with pytest.raises(BrokerError, match="refused"):
        send(broker, [message("a")], None)
    assert broker.paused == []


def test_a_single_message_and_a_batch_are_different_requests() -> None:
    broker = FakeBroker(1, [])
    send(broker, [message("alone")], None)
    send(broker, [message("one"), message("two")], None)
    single, batch = broker.sent
    assert (single.code, batch.code) == (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    header = batch.header(SendMessageRequestHeaderV2)
    assert (header.producer_group, header.default_topic, header.default_topic_queue_nums) == ("g", "TBW102", 4)
    assert header.batch and not single.header(SendMessageRequestHeaderV2).batch
    assert [unit.body for unit in record.split_batch(batch.body)] == [b"one", b"two"]


def test_a_batch_ends_before_it_is_too_large_and_after_so_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    size = message("x" * 10).size_bytes
    broker = FakeBroker(1, [])
    send(broker, [message("x" * 10) for _ in range(7)], None, batch_bytes=3 * size)
    assert [len(record.split_batch(request.body)) for request in broker.sent[:2]] == [3, 3]
    assert broker.requests == 3
    monkeypatch.setattr(sending, "MESSAGES_PER_BATCH", 2)
    broker = FakeBroker(1, [])
    send(broker, [message("x") for _ in range(5)], None, batch_bytes=10_000)
    assert broker.requests == 3


def test_a_delayed_message_goes_alone_behind_those_before_it() -> None:
    broker = FakeBroker(1, [])
    rows = [message("a"), message("b"), message("late", delay_level=2), message("c")]
    send(broker, rows, None, batch_bytes=10_000)
    assert broker.stored[0] == [b"a", b"b", b"late", b"c"]
    assert [request.code for request in broker.sent] == [
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_MESSAGE_V2,
    ]


class FakeRoutes(FakeBroker):
    """Topics and their writable queues at several brokers."""

    def __init__(self, **topics: list[tuple[str, int]]) -> None:
        super().__init__(9, [])
        self.topics = topics

    def publish_route(self, topic: str) -> Any:
        if topic not in self.topics:
            return None
        return SimpleNamespace(publish=[MessageQueue(topic, name, number) for name, number in self.topics[topic]])


def queues_of(routes: FakeRoutes, topic: str) -> list[tuple[str, int]]:
    sender = Sender(routes, "g", batch_bytes=100, retries=0, now_ms=lambda: 1, stored=None)  # type: ignore[arg-type]
    return [(queue.broker_name, queue.queue_id) for queue in sender.queues(topic)]


def test_a_topic_needs_a_queue_that_can_be_written() -> None:
    assert queues_of(FakeRoutes(T=[("b", 1), ("a", 0), ("b", 0)]), "T") == [("a", 0), ("b", 0), ("b", 1)]
    with pytest.raises(OptionError, match="topic 'T' does not exist, and no broker creates topics by itself"):
        queues_of(FakeRoutes(), "T")
    with pytest.raises(OptionError, match="topic 'T' has no queue that can be written"):
        queues_of(FakeRoutes(T=[]), "T")


def test_a_queue_id_that_several_brokers_have_needs_the_brokers_name() -> None:
    routes = FakeRoutes(T=[("b", 0), ("a", 0), ("a", 1)])
    send(routes, [message("x", queue_id=0, broker_name="b"), message("y", queue_id=1)], None)
    assert [request.header(SendMessageRequestHeaderV2).queue_id for request in routes.sent] == [0, 1]
    with pytest.raises(OptionError, match=r"queueId 0: several brokers have it \(a, b\); name one"):
        send(routes, [message("x", queue_id=0)], None)
    with pytest.raises(OptionError, match="queueId 1: there is no such queue"):
        send(routes, [message("x", queue_id=1, broker_name="b")], None)


def test_queues_by_id_by_key_and_in_turn() -> None:
    broker = FakeBroker(3, [])
    rows = [message("by id", queue_id=2)]
    rows += [message(f"key {number}", queue_id=None, sharding="customer") for number in range(2)]
    send(broker, rows, None)
    assert broker.stored == {0: [], 1: [b"key 0", b"key 1"], 2: [b"by id"]}
    broker = FakeBroker(3, [])
    send(broker, [message("x" * 60, queue_id=None) for _ in range(6)], None)
    assert [len(queue) for queue in broker.stored.values()] == [2, 2, 2]
    with pytest.raises(OptionError, match="topic 'T', queueId 9: there is no such queue"):
        send(broker, [message("a", queue_id=9)], None)


def test_a_rate_limit_pauses_between_requests() -> None:
    broker = FakeBroker(1, [])
    send(broker, [message(str(number)) for number in range(30)], None, max_rate=100, batch_bytes=10_000)
    assert broker.requests == 3
    assert broker.paused == pytest.approx([0, 0.1, 0.1])
