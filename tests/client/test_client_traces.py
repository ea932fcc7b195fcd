"""Spans of OpenTelemetry: what each operation makes, what messages carry, and what a broken trace costs (nothing)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import trio
from client_cluster import LIMIT_SECONDS, Cluster, fresh, until
from client_fakes import NAME_SERVER, FakeCluster, refuse
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import SpanKind, StatusCode
from trio.testing import MockClock

from triomq.client.api import (
    ConfigurationError,
    ConsumeFromWhere,
    ConsumeRules,
    ConsumeStatus,
    LocalTransactionState,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    RetryLater,
    SendFailed,
    TransactionProducer,
    reply_to,
)
from triomq.client.facades import aio, blocking
from triomq.client.instance.open_telemetry import MAX_CARRIED_BYTES, MAX_LINKS, fitting
from triomq.protocol import properties as property_text
from triomq.protocol import property_names as names
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.headers.send import SendMessageRequestHeaderV2
from triomq.protocol.record import split_batch
from triomq.protocol.span_names import RENAMED

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
SEND = RequestCode.SEND_MESSAGE_V2


class Recorder:
    """A tracer provider of its own, and the spans that ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("application")

    @property
    def ended(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.ended if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans() -> Recorder:
    return Recorder()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", queues=2)


def attributes_of(span: ReadableSpan) -> Mapping[str, Any]:
    assert span.attributes is not None
    return span.attributes


def id_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def traceparent_of(span: ReadableSpan) -> str:
    trace_id, span_id = id_of(span)
    assert span.context is not None
    return f"00-{trace_id:032x}-{span_id:016x}-{span.context.trace_flags:02x}"


def sent_properties(cluster: FakeCluster) -> list[dict[str, str]]:
    """The properties of the messages of each plain send, as they were on the wire."""
    headers = [request.header(SendMessageRequestHeaderV2) for request in cluster.broker.of(SEND)]
    return [property_text.parse(header.properties or "") for header in headers]


# Sending.


async def test_a_send_is_a_producer_span_and_the_message_carries_it(
    cluster: FakeCluster, autojump_clock: MockClock, spans: Recorder
) -> None:
    message = Message("T", b"body", tags="new", keys="k1 k2", properties={"mine": "kept"})
    message.delay_level = 3
    with spans.tracer.start_as_current_span("order") as order:
        async with Producer("P", name_server=NAME_SERVER, client_ip="10.0.0.9", otel=spans.provider) as producer:
            result = await producer.send(message)
            client_id = producer.client.client_id
    span = spans.one("send T")
    assert span.kind is SpanKind.PRODUCER
    assert span.status.status_code is StatusCode.UNSET
    assert parent_of(span) == (order.get_span_context().trace_id, order.get_span_context().span_id)
    assert attributes_of(span) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": f"a/{result.queue.queue_id}",
        "messaging.client.id": client_id,
        "messaging.message.id": result.message_id,
        "messaging.message.body.size": 4,
        "messaging.rocketmq.namespace": "",
        "messaging.rocketmq.message.tag": "new",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "messaging.rocketmq.message.type": "delay",
        "messaging.rocketmq.message.delay_time_level": 3,
        "messaging.rocketmq.send_result": "SEND_OK",
    }
    (carried,) = sent_properties(cluster)
    assert carried["traceparent"] == traceparent_of(span)
    assert carried["mine"] == "kept"
    assert "traceparent" not in message.properties, "the application's message stays as it is"


@pytest.mark.parametrize("opt_in", ["", "http,databases/dup", "messaging", "messaging/dup"])
async def test_the_environment_chooses_the_names_of_attributes(
    opt_in: str, cluster: FakeCluster, autojump_clock: MockClock, spans: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", opt_in)
    message = Message("T", b"body", tags="new", keys="k1 k2")
    message.delay_level = 3
    async with Producer("P", name_server=NAME_SERVER, otel=spans.provider) as producer:
        await producer.send(message)
    attributes = attributes_of(spans.one("send T"))
    old = {
        "messaging.system": "rocketmq",
        "messaging.rocketmq.namespace": "",
        "messaging.rocketmq.message.tag": "new",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "messaging.rocketmq.message.type": "delay",
        "messaging.rocketmq.message.delay_time_level": 3,
    }
    new = {RENAMED[name]: value for name, value in old.items()}
    wanted = {"messaging": new, "messaging/dup": old | new}.get(opt_in, old)
    assert {name: attributes.get(name) for name in old | new if name in attributes} == wanted
    assert attributes["messaging.operation.type"] == "send"


async def test_all_attempts_of_a_send_are_one_span(
    cluster: FakeCluster, autojump_clock: MockClock, spans: Recorder
) -> None:
    cluster.broker.will(SEND, refuse(ResponseCode.SYSTEM_ERROR))
    async with Producer("P", name_server=NAME_SERVER, otel=spans.provider) as producer:
        await producer.send(Message("T", b"m"))
    span = spans.one("send T")
    assert span.status.status_code is StatusCode.UNSET
    assert {one["traceparent"] for one in sent_properties(cluster)} == {traceparent_of(span)}
    assert len(sent_properties(cluster)) == 2


async def test_a_failed_send_is_a_failed_span(cluster: FakeCluster, autojump_clock: MockClock, spans: Recorder) -> None:
    cluster.broker.will(SEND, *[refuse(ResponseCode.SYSTEM_ERROR, "ill")] * 2)
    async with Producer("P", name_server=NAME_SERVER, retries=1, otel=spans.provider) as producer:
        with pytest.raises(SendFailed):
            await producer.send(Message("T", b"m"))
    span = spans.one("send T")
    assert span.status.status_code is StatusCode.ERROR
    assert "ill" in (span.status.description or "")
    assert attributes_of(span)["error.type"] == "SendFailed"


async def test_two_sends_at_once_carry_their_own_spans(
    cluster: FakeCluster, autojump_clock: MockClock, spans: Recorder
) -> None:
    cluster.broker.slow_seconds = 1
    parents: dict[str, int] = {}

    async def send(producer: Producer, name: str) -> None:
        with spans.tracer.start_as_current_span(name) as span:
            parents[name] = span.get_span_context().span_id
            await producer.send(Message("T", b"m", keys=name))

    async with Producer("P", name_server=NAME_SERVER, otel=spans.provider) as producer, trio.open_nursery() as nursery:
        nursery.start_soon(send, producer, "one")
        nursery.start_soon(send, producer, "other")
    sends = {attributes_of(span)["messaging.rocketmq.message.keys"][0]: span for span in spans.named("send T")}
    assert {name: span.parent.span_id for name, span in sends.items() if span.parent} == parents
    carried = {one[names.KEYS]: one["traceparent"] for one in sent_properties(cluster)}
    assert carried == {name: traceparent_of(span) for name, span in sends.items()}


async def test_a_batch_is_one_span_and_messages_keep_what_they_carry(
    cluster: FakeCluster, autojump_clock: MockClock, spans: Recorder
) -> None:
    earlier = f"00-{7:032x}-{8:016x}-01"
    messages = [Message("T", b"1"), Message("T", b"2", properties={"traceparent": earlier}), Message("T", b"3")]
    async with Producer("P", name_server=NAME_SERVER, otel=spans.provider) as producer:
        await producer.send_batch(messages)
    span = spans.one("send T")
    assert attributes_of(span)["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in attributes_of(span)
    assert [(link.context.trace_id, link.context.span_id) for link in span.links] == [(7, 8)]
    (request,) = cluster.broker.of(RequestCode.SEND_BATCH_MESSAGE)
    carried = [property_text.parse(unit.properties.decode())["traceparent"] for unit in split_batch(request.body)]
    assert carried == [traceparent_of(span), earlier, traceparent_of(span)]


async def test_what_messages_carry_counts_in_the_size_of_a_batch(
    cluster: FakeCluster, autojump_clock: MockClock, spans: Recorder
) -> None:
    async with Producer("P", name_server=NAME_SERVER, otel=spans.provider) as producer:
        await producer.send_batch([Message("T", b"x" * 10) for _ in range(100)], max_batch_bytes=2000)
    requests = cluster.broker.of(RequestCode.SEND_BATCH_MESSAGE)
    assert len(requests) == len(spans.named("send T")) > 1
    assert all(len(request.body) <= 2000 for request in requests)


async def test_a_send_without_a_response_is_a_span(
    cluster: FakeCluster, autojump_clock: MockClock, spans: Recorder
) -> None:
    async with Producer("P", name_server=NAME_SERVER, otel=spans.provider) as producer:
        await producer.send_oneway(Message("T", b"m"))
    assert sent_properties(cluster)[0]["traceparent"] == traceparent_of(spans.one("send T"))


async def test_names_of_spans_are_without_the_namespace(
    cluster: FakeCluster, autojump_clock: MockClock, spans: Recorder
) -> None:
    cluster.topic("INST%T")
    async with Producer("P", name_server=NAME_SERVER, namespace="INST", otel=spans.provider) as producer:
        await producer.send(Message("T", b"m"))
    attributes = attributes_of(spans.one("send T"))
    assert attributes["messaging.destination.name"] == "T"
    assert attributes["messaging.rocketmq.namespace"] == "INST"


# Consuming.


async def sent(cluster: Cluster, spans: Recorder, topic: str, *bodies: bytes) -> list[ReadableSpan]:
    """Send messages, each in a trace of its own; return the spans of the sends."""
    async with Producer(fresh("P"), name_server=cluster.name_server, otel=spans.provider) as producer:
        for body in bodies:
            await producer.send(Message(topic, body), sharding_key="same")
    return spans.named(f"send {topic}")


async def test_a_listener_call_is_a_child_of_the_send_and_the_current_span(triomq: Cluster, spans: Recorder) -> None:
    topic, group = fresh(), fresh("G")
    (send,) = await sent(triomq, spans, topic, b"m")
    seen: list[MessageExt] = []

    async def handle(message: MessageExt) -> None:
        with spans.tracer.start_as_current_span("inside"):
            seen.append(message)

    options: dict[str, Any] = {"name_server": triomq.name_server, "consume_from": FIRST, "otel": spans.provider}
    with spans.tracer.start_as_current_span("opening"):
        async with PushConsumer(group, **options) as consumer:
            consumer.subscribe(topic)
            consumer.listen(handle)
            await until(lambda: bool(spans.named(f"process {topic}")))
    process = spans.one(f"process {topic}")
    assert process.kind is SpanKind.CONSUMER
    assert parent_of(process) == id_of(send), "not of the span in which the consumer was opened"
    assert parent_of(spans.one("inside")) == id_of(process)
    (message,) = seen
    assert attributes_of(process) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": f"{message.broker_name}/{message.queue_id}",
        "messaging.client.id": attributes_of(process)["messaging.client.id"],
        "messaging.consumer.group.name": group,
        "messaging.message.id": message.msg_id,
        "messaging.message.body.size": 1,
        "messaging.rocketmq.namespace": "",
        "messaging.rocketmq.consumption_model": "clustering",
    }
    # What Java's instrumentation reads: the properties under the propagator's own names.
    assert message.properties["traceparent"] == traceparent_of(send)


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (RuntimeError("broken"), "RuntimeError"),
        (RetryLater(), "RetryLater"),
        (ConsumeStatus.RECONSUME_LATER, "RECONSUME_LATER"),
    ],
)
async def test_a_failed_listener_call_is_a_failed_span(
    triomq: Cluster, spans: Recorder, outcome: Exception | ConsumeStatus, kind: str
) -> None:
    topic = fresh()
    await sent(triomq, spans, topic, b"m")

    async def handle(_: MessageExt) -> ConsumeStatus:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async with PushConsumer(
        fresh("G"), name_server=triomq.name_server, consume_from=FIRST, otel=spans.provider
    ) as consumer:
        consumer.subscribe(topic)
        consumer.listen(handle)
        await until(lambda: bool(spans.named(f"process {topic}")))
    span = spans.named(f"process {topic}")[0]
    assert span.status.status_code is StatusCode.ERROR
    assert attributes_of(span)["error.type"] == kind


async def test_a_call_with_several_messages_links_to_their_sends(triomq: Cluster, spans: Recorder) -> None:
    topic = fresh()
    sends = await sent(triomq, spans, topic, b"1", b"2", b"3")
    rules = ConsumeRules(batch_max_size=8)

    async def handle(messages: object) -> None: ...

    async with PushConsumer(
        fresh("G"), name_server=triomq.name_server, consume_from=FIRST, rules=rules, otel=spans.provider
    ) as consumer:
        consumer.subscribe(topic)
        consumer.listen_batch(handle)
        await until(lambda: bool(spans.named(f"process {topic}")))
    span = spans.one(f"process {topic}")
    assert attributes_of(span)["messaging.batch.message_count"] == 3
    assert span.parent is None
    assert [(link.context.trace_id, link.context.span_id) for link in span.links] == [id_of(send) for send in sends]


async def test_ordered_consumers_make_their_spans_in_order(triomq: Cluster, spans: Recorder) -> None:
    topic = fresh()
    sends = await sent(triomq, spans, topic, b"1", b"2", b"3")
    inside: list[int] = []

    async def handle(_: MessageExt) -> None:
        inside.append(trace.get_current_span().get_span_context().trace_id)

    async with PushConsumer(
        fresh("G"), name_server=triomq.name_server, consume_from=FIRST, ordered=True, otel=spans.provider
    ) as consumer:
        consumer.subscribe(topic)
        consumer.listen(handle)
        await until(lambda: len(spans.named(f"process {topic}")) == 3)
    assert [parent_of(span) for span in spans.named(f"process {topic}")] == [id_of(send) for send in sends]
    assert inside == [id_of(send)[0] for send in sends]


@pytest.mark.parametrize("ordered", [False, True])
async def test_the_body_of_a_loop_is_inside_the_span_of_its_message(
    triomq: Cluster, spans: Recorder, ordered: bool
) -> None:
    topic = fresh()
    sends = await sent(triomq, spans, topic, b"1", b"2")
    async with PushConsumer(
        fresh("G"), name_server=triomq.name_server, consume_from=FIRST, ordered=ordered, otel=spans.provider
    ) as consumer:
        consumer.subscribe(topic)
        count = 0
        with trio.fail_after(LIMIT_SECONDS):
            async for message in consumer:
                count += 1
                with spans.tracer.start_as_current_span(f"inside {message.body.decode()}"):
                    pass
                if count == 2:
                    break
            consumer.ack()
            assert not trace.get_current_span().get_span_context().is_valid
        await until(lambda: len(spans.named(f"process {topic}")) == 2)
    for number, send in enumerate(sends, 1):
        (process,) = (span for span in spans.named(f"process {topic}") if parent_of(span) == id_of(send))
        assert parent_of(spans.one(f"inside {number}")) == id_of(process)


async def test_a_message_that_nobody_settles_ends_its_span(triomq: Cluster, spans: Recorder) -> None:
    topic = fresh()
    await sent(triomq, spans, topic, b"1")
    async with PushConsumer(
        fresh("G"), name_server=triomq.name_server, consume_from=FIRST, otel=spans.provider
    ) as consumer:
        consumer.subscribe(topic)
        with trio.fail_after(LIMIT_SECONDS):
            async for _ in consumer:
                break
        assert not spans.named(f"process {topic}")
    assert attributes_of(spans.one(f"process {topic}"))["error.type"] == "unsettled"
    assert not trace.get_current_span().get_span_context().is_valid


async def test_a_task_may_settle_what_another_received(triomq: Cluster, spans: Recorder) -> None:
    topic = fresh()
    (send,) = await sent(triomq, spans, topic, b"1")
    async with PushConsumer(
        fresh("G"), name_server=triomq.name_server, consume_from=FIRST, otel=spans.provider
    ) as consumer:
        consumer.subscribe(topic)
        with trio.fail_after(LIMIT_SECONDS):
            delivery = await consumer.receive()
        assert not trace.get_current_span().get_span_context().is_valid
        async with trio.open_nursery() as nursery:

            async def settle() -> None:
                delivery.ack()

            nursery.start_soon(settle)
    assert parent_of(spans.one(f"process {topic}")) == id_of(send)


# Transactions, request and reply.


@pytest.mark.parametrize(
    ("state", "operation"),
    [
        (LocalTransactionState.COMMIT_MESSAGE, "commit"),
        (LocalTransactionState.ROLLBACK_MESSAGE, "rollback"),
        (LocalTransactionState.UNKNOW, "unknown"),
    ],
)
async def test_a_transaction_is_a_send_and_its_outcome(
    triomq: Cluster, spans: Recorder, state: LocalTransactionState, operation: str
) -> None:
    topic = fresh()

    async def execute(_: Message, __: object) -> LocalTransactionState:
        return state

    async def check(_: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    options: dict[str, Any] = {"name_server": triomq.name_server, "otel": spans.provider}
    async with TransactionProducer(fresh("P"), execute, check, **options) as producer:
        with spans.tracer.start_as_current_span("order"):
            await producer.send_in_transaction(Message(topic, b"m"))
        if operation == "unknown":
            await until(lambda: bool(spans.named(f"commit {topic}")))
    send, settle, order = spans.one(f"send {topic}"), spans.one(f"{operation} {topic}"), spans.one("order")
    assert attributes_of(send)["messaging.rocketmq.message.type"] == "transaction"
    assert attributes_of(settle)["messaging.operation.type"] == "settle"
    assert (parent_of(send), parent_of(settle)) == (id_of(order), id_of(order))
    if operation == "unknown":
        assert parent_of(spans.one(f"commit {topic}")) == id_of(send), "a check belongs to the trace of the message"


async def test_request_and_reply_are_one_trace(triomq: Cluster, spans: Recorder) -> None:
    topic = fresh()
    options: dict[str, Any] = {"name_server": triomq.name_server, "otel": spans.provider}
    async with (
        Producer(fresh("Q"), **options) as asking,
        Producer(fresh("R"), **options) as answering,
        PushConsumer(fresh("G"), consume_from=FIRST, **options) as consumer,
    ):
        consumer.subscribe(topic)

        async def handle(message: MessageExt) -> None:
            await answering.send(reply_to(message, b"pong"))

        consumer.listen(handle)
        reply = await asking.request(Message(topic, b"ping"), timeout_seconds=LIMIT_SECONDS)
        await until(lambda: bool(spans.named(f"process {topic}")))
    send, process = spans.one(f"send {topic}"), spans.one(f"process {topic}")
    (answer,) = (span for span in spans.ended if span.name.startswith("send ") and span is not send)
    assert parent_of(process) == id_of(send)
    assert parent_of(answer) == id_of(process)
    assert reply.properties["traceparent"] == traceparent_of(answer)


# The other facades of the client.


async def test_asyncio_programs_keep_their_current_span(triomq: Cluster, spans: Recorder) -> None:
    topic = fresh()
    options: dict[str, Any] = {"name_server": triomq.name_server, "otel": spans.provider}

    async def program() -> None:
        async with aio.Producer(fresh("P"), **options) as producer:
            with spans.tracer.start_as_current_span("order"):
                await producer.send(Message(topic, b"m"))
        async with aio.PushConsumer(fresh("G"), consume_from=FIRST, **options) as consumer:
            consumer.subscribe(topic)
            async for _ in consumer:
                with spans.tracer.start_as_current_span("inside"):
                    break
            consumer.ack()
            assert not trace.get_current_span().get_span_context().is_valid

    await trio.to_thread.run_sync(lambda: asyncio.run(program()))
    send, process = spans.one(f"send {topic}"), spans.one(f"process {topic}")
    assert parent_of(send) == id_of(spans.one("order"))
    assert parent_of(process) == id_of(send)
    assert parent_of(spans.one("inside")) == id_of(process)


async def test_blocking_programs_keep_their_current_span(triomq: Cluster, spans: Recorder) -> None:
    topic = fresh()
    options: dict[str, Any] = {"name_server": triomq.name_server, "otel": spans.provider}

    def program() -> None:
        with blocking.Producer(fresh("P"), **options) as producer, spans.tracer.start_as_current_span("order"):
            producer.send(Message(topic, b"m"))
        with blocking.PushConsumer(fresh("G"), consume_from=FIRST, **options) as consumer:
            consumer.subscribe(topic)
            for _ in consumer:
                with spans.tracer.start_as_current_span("inside"):
                    break
        assert not trace.get_current_span().get_span_context().is_valid

    await trio.to_thread.run_sync(program)
    send, process = spans.one(f"send {topic}"), spans.one(f"process {topic}")
    assert parent_of(send) == id_of(spans.one("order"))
    assert parent_of(process) == id_of(send)
    assert parent_of(spans.one("inside")) == id_of(process)
    assert attributes_of(process)["error.type"] == "unsettled"


# What breaks in a trace costs no message.


class Broken(Sampler):
    def should_sample(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("the sampler is broken")

    def get_description(self) -> str:
        return "broken"


async def test_a_broken_sampler_costs_no_send_and_no_message(triomq: Cluster) -> None:
    provider, topic, heard = TracerProvider(sampler=Broken()), fresh(), trio.Event()

    async def handle(_: MessageExt) -> None:
        heard.set()

    options: dict[str, Any] = {"name_server": triomq.name_server, "otel": provider}
    async with Producer(fresh("P"), **options) as producer:
        await producer.send(Message(topic, b"m"))
    async with PushConsumer(fresh("G"), consume_from=FIRST, **options) as consumer:
        consumer.subscribe(topic)
        consumer.listen(handle)
        with trio.fail_after(LIMIT_SECONDS):
            await heard.wait()


class Stuck(SpanExporter):
    """An exporter whose collector does not answer until it is let go."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()
        self.exported = 0

    def export(self, spans: Any) -> SpanExportResult:
        self.entered.set()
        self.go.wait(LIMIT_SECONDS)
        self.exported += len(spans)
        return SpanExportResult.FAILURE

    def shutdown(self) -> None: ...


async def test_an_exporter_that_hangs_delays_no_send_and_holds_a_bounded_number_of_spans(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    stuck, provider = Stuck(), TracerProvider()
    provider.add_span_processor(
        BatchSpanProcessor(stuck, max_queue_size=8, max_export_batch_size=4, schedule_delay_millis=1)
    )
    try:
        async with Producer("P", name_server=NAME_SERVER, otel=provider) as producer:
            for _ in range(50):
                await producer.send(Message("T", b"m"))
        assert len(sent_properties(cluster)) == 50
    finally:
        stuck.go.set()
        provider.shutdown()
    assert 0 < stuck.exported <= 4 + 8


@pytest.fixture
def carrying() -> Iterator[Callable[[dict[str, str]], None]]:
    """Let the propagators of the process carry something else."""
    before = propagate.get_global_textmap()
    yield lambda carrier: propagate.set_global_textmap(Carries(carrier))
    propagate.set_global_textmap(before)


class Carries(propagate.textmap.TextMapPropagator):
    def __init__(self, carrier: dict[str, str]) -> None:
        self._carrier = carrier

    def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Any:
        raise RuntimeError("unreadable")

    def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
        carrier.update(self._carrier)

    @property
    def fields(self) -> set[str]:
        return set(self._carrier)


@pytest.mark.parametrize(
    "carrier",
    [{"a": "x" * MAX_CARRIED_BYTES}, {"a\x01b": "x"}, {"a": "x\x02"}, {names.TAGS: "theirs"}, {"": "x"}, {"a": 17}],
)
async def test_what_no_message_can_carry_is_left_out(
    cluster: FakeCluster,
    autojump_clock: MockClock,
    spans: Recorder,
    carrying: Callable[[dict[str, str]], None],
    carrier: dict[str, str],
) -> None:
    carrying(carrier)
    async with Producer("P", name_server=NAME_SERVER, otel=spans.provider) as producer:
        await producer.send(Message("T", b"m", tags="mine"))
    (carried,) = sent_properties(cluster)
    assert carried.keys() == {names.TAGS, names.UNIQ_KEY}
    assert carried[names.TAGS] == "mine"
    assert spans.one("send T")


async def test_a_message_with_many_properties_is_sent_without_its_trace(
    cluster: FakeCluster, autojump_clock: MockClock, spans: Recorder
) -> None:
    async with Producer("P", name_server=NAME_SERVER, otel=spans.provider) as producer:
        await producer.send(Message("T", b"m", properties={"large": "x" * 32_500}))
    (carried,) = sent_properties(cluster)
    assert carried.keys() == {"large", names.UNIQ_KEY}


def test_an_unreadable_context_begins_a_trace(spans: Recorder) -> None:
    for text in ("", "00-", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ff" * 400, "\x00", "00-é"):
        message = MessageExt("T", b"m", properties={"traceparent": text, "tracestate": "=,="})
        assert not trace.get_current_span(propagate.extract(message.properties, context.Context())).is_recording()


# The format.

WORDS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters=',;=\\"'), min_size=1)


@given(
    st.integers(1, (1 << 128) - 1),
    st.integers(1, (1 << 64) - 1),
    st.booleans(),
    st.dictionaries(st.from_regex(r"[a-z][a-z0-9_*/-]{0,30}", fullmatch=True), WORDS.map(lambda w: w[:40]), max_size=8),
    st.dictionaries(WORDS.map(lambda w: w[:20]), st.text(max_size=20), max_size=4),
)
def test_a_context_comes_back_from_the_bytes_of_the_properties(
    trace_id: int, span_id: int, sampled: bool, state: dict[str, str], bag: dict[str, str]
) -> None:
    given_context = trace.SpanContext(
        trace_id, span_id, False, trace.TraceFlags(int(sampled)), trace.TraceState(list(state.items()))
    )
    here = trace.set_span_in_context(trace.NonRecordingSpan(given_context), context.Context())
    for name, value in bag.items():
        here = baggage.set_baggage(name, value, here)
    carrier: dict[str, str] = {}
    propagate.inject(carrier, here)
    kept = fitting(carrier, [Message("T", b"m")])
    assert kept == {name: value for name, value in carrier.items() if value}
    on_the_wire = property_text.parse(property_text.encode(dict(kept)).decode())
    back = propagate.extract(on_the_wire, context.Context())
    found = trace.get_current_span(back).get_span_context()
    assert (found.trace_id, found.span_id, found.trace_flags) == (trace_id, span_id, int(sampled))
    assert list(found.trace_state.items()) == list(given_context.trace_state.items())


@given(
    st.dictionaries(st.text(max_size=20), st.text(max_size=6000), max_size=4),
    st.dictionaries(st.text(min_size=1, max_size=10), st.text(max_size=9000), max_size=4),
)
def test_whatever_is_carried_a_broker_can_read(carrier: dict[str, str], own: dict[str, str]) -> None:
    kept = fitting(carrier, [Message("T", b"m", properties=own)])
    assert kept in ({name: value for name, value in carrier.items() if value}, {})
    if kept:
        text = property_text.encode(dict(kept))
        assert property_text.parse(text.decode()) == dict(kept)
        assert len(text) + len(property_text.encode(own)) <= property_text.MAX_PROPERTIES_BYTES


async def test_links_are_bounded(cluster: FakeCluster, autojump_clock: MockClock, spans: Recorder) -> None:
    messages = [
        Message("T", b"m", properties={"traceparent": f"00-{1:032x}-{number + 1:016x}-01"})
        for number in range(MAX_LINKS + 50)
    ]
    async with Producer("P", name_server=NAME_SERVER, otel=spans.provider) as producer:
        await producer.send_batch(messages)
    assert len(spans.one("send T").links) == MAX_LINKS


# The extra.


def run(program: str) -> str:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return result.stdout.strip()


def test_nothing_of_it_is_imported_unless_asked_for() -> None:
    program = "import sys, triomq; triomq.Producer('P', name_server='x:1'); print({}({!r} in n for n in sys.modules))"
    assert run(program.format("any", "opentelemetry")) == "False"


async def test_without_the_extra_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "triomq.client.instance.open_telemetry", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigurationError, match=r"otel needs .*pip install '\.\[otel\]' in the clone"):
        Producer("P", name_server=NAME_SERVER, otel=True)
