"""The sink's parts without Spark and broker: markers, rows, choice of queues, sending again."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from triomq.protocol import properties, record
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from triomq.protocol.message_queue import MessageQueue
from triomq.spark import markers
from triomq.spark.errors import OptionError, SendAborted
from triomq.spark.outgoing import OutgoingMessage, RowReader, sink_columns
from triomq.spark.sending import Sender


def schema(**kinds: str) -> Any:
    def field(name: str, kind: str) -> Any:
        return SimpleNamespace(name=name, dataType=SimpleNamespace(simpleString=lambda: kind))

    return SimpleNamespace(fields=[field(name, kind) for name, kind in kinds.items()])


def test_columns_of_the_sink() -> None:
    assert sink_columns(schema(queueOffset="bigint", value="string", key="string"), "T") == {"body": 1, "keys": 2}
    with pytest.raises(OptionError, match="sink: column 'boddy' is none of body,"):
        sink_columns(schema(boddy="binary"), "T")
    with pytest.raises(OptionError, match="sink: column 'body' is int, not binary or string"):
        sink_columns(schema(body="int"), "T")
    with pytest.raises(OptionError, match="neither a column topic nor the option topic"):
        sink_columns(schema(body="binary"), None)
    with pytest.raises(OptionError, match="body is given twice"):
        sink_columns(schema(body="binary", value="binary"), "T")


class Table:
    """As much of a RecordBatch as the reader needs."""

    def __init__(self, **columns: list[Any]) -> None:
        self.columns = list(columns.values())
        self.num_rows = len(self.columns[0])

    def column(self, at: int) -> Any:
        return SimpleNamespace(to_pylist=lambda: self.columns[at])


def test_a_row_becomes_a_message() -> None:
    names = ("body", "tags", "keys", "delayLevel", "properties")
    rows = RowReader({name: at for at, name in enumerate(names)}, "T", "k:7:0:", lambda: "ID")
    table = Table(
        body=["text", b"b"], tags=["a", None], keys=["k1 k2", None], delayLevel=[None, 3],
        properties=[[("color", "red"), ("CLUSTER", "c"), ("SPARK_BATCH", "old"), ("UNIQ_KEY", "U")], None],
    )  # fmt: skip
    first, second = rows.messages(table)
    stored = properties.parse_bytes(first.properties)
    assert stored.pop("SPARK_BATCH") == "k:7:0:" + first.digest
    assert stored == {"color": "red", "TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "U"}
    assert (first.body, second.delay_level, properties.parse_bytes(second.properties)["DELAY"]) == (b"text", 3, "3")


def test_equal_rows_have_equal_digests_and_others_do_not() -> None:
    def digests(*bodies: bytes) -> list[str]:
        rows = RowReader({"body": 0, "tags": 1}, "T", "p:", iter(map(str, range(9))).__next__)
        return [message.digest for message in rows.messages(Table(body=list(bodies), tags=["x"] * len(bodies)))]

    a, b, c = digests(b"a", b"b", b"a")
    assert a == c != b
    assert digests(b"a") == [a]


@pytest.mark.parametrize(
    ("topic", "message"), [("SCHEDULE_TOPIC_XXXX", "is forbidden"), ("a b", "illegal characters"), (None, "no topic")]
)
def test_topics_that_cannot_be_written(topic: str | None, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        RowReader({"body": 0, "topic": 1}, None, None, lambda: "ID").messages(Table(body=[b"x"], topic=[topic]))


def test_markers_are_counted_in_raw_records() -> None:
    found: Counter[str] = Counter()
    digest = markers.digest([b"row"])
    data = b"..SPARK_BATCH\x01k:1:0:" + digest.encode() + b"\x02.." * 2
    markers.count(data + data + b"SPARK_BATCH\x01k:1:1:" + digest.encode(), b"SPARK_BATCH\x01k:1:0:", found)
    assert found == {digest: 2}
    assert markers.digest([b"a", b"bc"]) != markers.digest([b"ab", b"c"])


class FakeBroker:
    """One topic with `queue_count` queues; `script` says for each request what happens: an answer code, "lost" (stored,
    no answer) or "down" (neither). Then all is well."""

    def __init__(self, queue_count: int, script: list[Any]) -> None:
        self.queues = [MessageQueue("T", "b", number) for number in range(queue_count)]
        self.script = script
        self.stored: dict[int, list[bytes]] = {number: [] for number in range(queue_count)}
        self.requests = 0
        self.options = SimpleNamespace(retry_timeout_ms=60_000)
        self.paused: list[float] = []

    def find_route(self, topic: str) -> Any:
        return SimpleNamespace(writable=self.queues, readable=self.queues, addresses={"b": "b:1"})

    settled_route = find_route

    def address(self, topic: str, broker_name: str) -> str:
        return "b:1"

    def connection(self, address: str) -> Any:
        return SimpleNamespace(call=self.call)

    def drop(self, address: str) -> None:
        pass

    def pause(self, seconds: float = 0) -> None:
        self.paused.append(seconds)

    def max_offsets(self, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
        return {queue: len(self.stored[queue.queue_id]) for queue in queues}

    def call(self, request: RemotingCommand) -> RemotingCommand:
        self.requests += 1
        what = self.script.pop(0) if self.script else ResponseCode.SUCCESS
        if what == "down":
            raise ConnectionError("down")
        if isinstance(what, ResponseCode) and what != ResponseCode.SUCCESS:
            return new_response(request, what, "no")
        header = request.header(SendMessageRequestHeaderV2)
        queue = self.stored[header.queue_id]
        offset = len(queue)
        queue += [unit.body for unit in record.split_batch(request.body)] if header.batch else [request.body]
        if what == "lost":
            raise ConnectionError("lost")
        answer = SendMessageResponseHeader(msg_id="x", queue_id=header.queue_id, queue_offset=offset)
        return new_response(request, 0, header=answer)


class FakeStored:
    """StoredRows over a FakeBroker: what lies behind the accounted offsets, its digests being its bodies."""

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

    def of_lost_answer(self, queues: list[MessageQueue]) -> Counter[str]:
        found: Counter[str] = Counter()
        for queue in queues:
            new = self.broker.stored[queue.queue_id][self.accounted[queue] :]
            found += Counter(body.decode() for body in new)
            self.accounted[queue] += len(new)
        return found


def message(text: str, *, queue_id: int | None = 0, sharding: int | None = None) -> OutgoingMessage:
    return OutgoingMessage("T", text.encode(), b"", queue_id, None, sharding, 0, text)


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


def test_rows_of_an_earlier_attempt_are_left_out_as_often_as_they_were_stored() -> None:
    broker = FakeBroker(1, [])
    sender = send(broker, [message(text) for text in "abac"], FakeStored(broker, Counter(a=1, c=1)))
    assert [body.decode() for body in broker.stored[0]] == ["b", "a"]
    assert (sender.sent, sender.skipped) == (2, 2)


def test_other_writes_store_at_least_once() -> None:
    broker = FakeBroker(1, ["lost"])
    send(broker, [message("a")], None)
    assert broker.stored[0] == [b"a", b"a"]


def test_refusals_end_after_the_retries() -> None:
    broker = FakeBroker(1, [ResponseCode.SYSTEM_BUSY] * 3)
    with pytest.raises(SendAborted, match="SYSTEM_BUSY"):
        send(broker, [message("a")], None)
    assert broker.requests == 3
    broker = FakeBroker(1, [ResponseCode.MESSAGE_ILLEGAL])
    with pytest.raises(SendAborted, match="MESSAGE_ILLEGAL"):
        send(broker, [message("a")], None)


def test_queues_by_id_by_key_and_in_turn() -> None:
    broker = FakeBroker(3, [])
    rows = [message("by id", queue_id=2)]
    rows += [message(f"key {number}", queue_id=None, sharding=-4) for number in range(2)]
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
    assert broker.paused[-1] == pytest.approx(0.2, abs=0.1)
