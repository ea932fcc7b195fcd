"""Rules of single functions of the Spark source and sink that a session would only show by chance."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType
from stored_records import encoded
from test_spark_data_loss import FakeCluster
from test_spark_sending import FakeBroker, message

from triomq.protocol import record, sys_flag
from triomq.protocol.codes import ResponseCode
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.errors import BrokerError, OptionError
from triomq.spark.jobs.session import one_line
from triomq.spark.options import source_options
from triomq.spark.reading import Plan
from triomq.spark.record_columns import why_not
from triomq.spark.sending import Sender
from triomq.spark.source import StreamReader
from triomq.spark.store_files import is_blank, next_record
from triomq.spark.time_search import first_at_or_after

SCHEMA = StructType([StructField("keys", StringType())])
SQL92 = {"nameServer": "h:1", "subscribe": "T", "filter": "a >", "filterType": "SQL92"}


class Compiling(FakeCluster):
    """Brokers that compile expressions; `error` is what they say."""

    def __init__(self, error: BrokerError | None = None) -> None:
        super().__init__(0, 10)
        self.error = error
        self.asked: list[str] = []

    def ask(self, topic: str, broker_name: str, question: Any) -> None:
        self.asked.append(broker_name)
        if self.error is not None:
            raise self.error


def test_an_expression_that_a_broker_refuses_is_an_option_and_a_broker_that_is_away_is_not() -> None:
    options = source_options(SQL92, streaming=False)
    queues = [MessageQueue("T", name, number) for name in ("a", "b") for number in range(2)]
    cluster = Compiling()
    Plan(options, cluster).check_filter(queues)  # type: ignore[arg-type]
    assert cluster.asked == ["a", "b"], "each broker once"
    with pytest.raises(OptionError, match="option filter: no such column"):
        plan = Plan(options, Compiling(BrokerError("no such column", ResponseCode.SYSTEM_ERROR)))  # type: ignore[arg-type]
        plan.check_filter(queues)
    with pytest.raises(BrokerError, match="no response"):
        Plan(options, Compiling(BrokerError("no response"))).check_filter(queues)  # type: ignore[arg-type]


def test_a_stream_has_its_expression_compiled_before_its_first_batch_and_not_again() -> None:
    stream = StreamReader(source_options(SQL92, streaming=True), SCHEMA)
    cluster = Compiling()
    stream._plan = Plan(stream.options, cluster)  # type: ignore[arg-type]
    for batches in range(3):
        stream.latestOffset({"T": {"b": {"0": batches}}}, ReadAllAvailable())
        assert cluster.asked == ["b"]


@pytest.mark.parametrize("hint", [0, 499_950, 500_000, 500_050, 999_999])
def test_the_search_for_a_time_reads_few_messages_from_a_hint_that_is_near(hint: int) -> None:
    looked_at = []

    def store_time_at(offset: int) -> int:
        looked_at.append(offset)
        return offset

    assert first_at_or_after(500_000, 0, 1_000_000, hint, store_time_at) == 500_000
    assert len(looked_at) <= (12 if abs(hint - 500_000) < 100 else 32)
    assert all(0 <= offset < 1_000_000 for offset in looked_at)


@pytest.mark.parametrize("left_bytes", range(8))
def test_less_than_a_head_at_the_end_of_a_segment_is_neither_a_record_nor_a_blank(left_bytes: int) -> None:
    data = bytes(encoded(b"T", b"body"))
    assert next_record(data, 0, len(data)) == len(data)
    assert next_record(data, len(data) - left_bytes, len(data)) == 0
    assert not is_blank(data, len(data) - left_bytes, len(data))
    blank = (left_bytes + 8).to_bytes(4) + record.BLANK_MAGIC.to_bytes(4, signed=True) + bytes(left_bytes)
    assert is_blank(data + blank, len(data), len(data + blank))
    assert not is_blank(data + blank, len(data), len(data) + 7)


@pytest.mark.parametrize("host_bytes", [8, 20])
def test_a_body_that_cannot_be_inflated_is_named_wherever_the_record_is(host_bytes: int) -> None:
    flags = sys_flag.COMPRESSED | (sys_flag.BORN_HOST_V6 | sys_flag.STORE_HOST_V6 if host_bytes == 20 else 0)
    hosts = {"born_host": bytes(host_bytes), "store_host": bytes(host_bytes)}
    first = encoded(b"T", b"another one")
    at = len(first)
    data = encoded(b"T", b"not compressed", tail=first, sys_flag=flags, **hosts)
    reason = why_not(data, at, len(data))
    assert "zlib" in reason or "inflate" in reason or "decompress" in reason, reason
    assert why_not(data, 0, at) == "the record was not taken", "it is good"
    data[-20] ^= 1
    assert "CRC" in why_not(data, at, len(data)) or "not a record" in why_not(data, at, len(data))


class Looked:
    """StoredRows that knows nothing, and notes the queues that it is to look into."""

    def __init__(self) -> None:
        self.queues: list[str] = []

    def look_into(self, queues: list[MessageQueue]) -> None:
        self.queues += [queue.topic for queue in queues]

    def take(self, digest: str) -> bool:
        self.queues.append(f"take {digest}")
        return False

    def confirm(self, queue: MessageQueue, end: int) -> None:
        pass

    def of_lost_response(self, queues: list[MessageQueue]) -> Counter[str]:
        return Counter()


class Delaying(FakeBroker):
    def route(self, topic: str) -> Any:
        return type("Route", (), {"subscribe": [MessageQueue(topic, "b", 1), MessageQueue(topic, "other", 1)]})


def test_a_task_that_runs_again_looks_for_its_delayed_messages_where_the_broker_keeps_them() -> None:
    """Before it asks whether the first of them is stored, and once."""
    looked = Looked()
    sender = Sender(Delaying(1, []), "g", batch_bytes=100, retries=0, now_ms=lambda: 1, stored=looked)  # type: ignore[arg-type]
    for body in ("now", "late", "later"):
        sender.add(message(body, delay_level=0 if body == "now" else 2))
    sender.flush()
    assert looked.queues == ["T", "take now", "SCHEDULE_TOPIC_XXXX", "take late", "take later"]


def test_messages_of_a_batch_have_the_flag_that_single_ones_have() -> None:
    broker = FakeBroker(1, [])
    sender = Sender(broker, "g", batch_bytes=10_000, retries=0, now_ms=lambda: 1, stored=None)  # type: ignore[arg-type]
    for body in ("a", "b"):
        sender.add(message(body))
    sender.flush()
    [request] = broker.sent
    assert [(unit.flag, unit.body) for unit in record.split_batch(request.body)] == [(0, b"a"), (0, b"b")]


def test_the_line_that_explains_an_error_is_ours_or_the_first() -> None:
    ours = "java.lang.X: wrapped\n  Traceback\n triomq.spark.errors.OptionError: option filter: no: really\n  at y"
    assert one_line(ValueError(ours)) == "option filter: no: really"
    assert one_line(ValueError("\n  first line\nsecond")) == "first line"
    assert one_line(ValueError("")) == "ValueError"
    assert len(one_line(ValueError("x" * 1000))) == 500
