"""One trace through both languages: OpenTelemetry's own instrumentation of the Java client, and the Python client.

    Java producer -> TrioMQ -> Python consumer, which sends -> TrioMQ -> Java consumer

The agent prints its spans as OTLP in JSON to the log of the driver.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from interop_builds import ToolMissing, java_agent
from interop_cluster import Cluster
from interop_driver_set import DriverSet
from interop_drivers import Driver
from interop_processes import wait_until
from interop_texts import numbered
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from triomq.client.api import ConsumeFromWhere, Message
from triomq.client.facades.blocking import Producer, PushConsumer

SPAN_SECONDS = 20
PRODUCER, CONSUMER = 4, 5  # kinds of spans in OTLP
SAME_IN_BOTH = {
    "messaging.system",
    "messaging.destination.name",
    "messaging.message.id",
    "messaging.rocketmq.message.tag",
}
"""Attributes that both sides give. Others of the agent have names of earlier versions of the conventions."""


@pytest.fixture(scope="module")
def traced_java(drivers: DriverSet) -> Driver:
    try:
        agent = java_agent()
    except ToolMissing as e:
        pytest.skip(f"OpenTelemetry's agent for Java: {e}")
    options = {
        "otel.traces.exporter": "logging-otlp",
        "otel.metrics.exporter": "none",
        "otel.logs.exporter": "none",
        "otel.bsp.schedule.delay": "50",
        "otel.instrumentation.common.default-enabled": "false",
        "otel.instrumentation.rocketmq-client.enabled": "true",
        "otel.instrumentation.rocketmq-client.experimental-span-attributes": "true",
    }
    return drivers.start("java4", f"-javaagent:{agent}", *(f"-D{name}={value}" for name, value in options.items()))


def java_spans(driver: Driver) -> list[dict[str, Any]]:
    """Return the spans that the agent has printed so far, with their attributes as a dictionary."""
    found = []
    for line in Path(driver.child.log_path).read_text(errors="replace").splitlines():
        _, marker, rest = line.partition('{"resource":')
        if marker:
            scopes = json.loads(marker + rest)["scopeSpans"]
            found += [span for scope in scopes for span in scope["spans"]]
    for span in found:
        span["attributes"] = {each["key"]: value_of(each["value"]) for each in span["attributes"]}
    return found


def value_of(typed: dict[str, Any]) -> str | int:
    """Return a text or number of OTLP's JSON, which has numbers as texts."""
    return int(typed["intValue"]) if "intValue" in typed else str(typed["stringValue"])


def java_span(driver: Driver, kind: int, topic: str) -> dict[str, Any]:
    def found() -> list[dict[str, Any]]:
        return [
            span
            for span in java_spans(driver)
            if span["kind"] == kind and span["attributes"].get("messaging.destination.name") == topic
        ]

    wait_until(found, SPAN_SECONDS, f"a span of kind {kind} for {topic} in the log of the driver")
    (span,) = found()
    return span


def test_one_trace_leads_from_a_java_producer_through_python_to_a_java_consumer(
    cluster: Cluster, traced_java: Driver, tmp_path: Path
) -> None:
    first, second = cluster.create_topic("Traced"), cluster.create_topic("TracedBack")
    common = {"namesrv": cluster.namesrv_address}
    received = traced_java.receive(**common, topic=second, group=f"{second}_group", expect=1)
    traced_java.run("send-lines", **common, topic=first, file=numbered(tmp_path, 1), tags="red")

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    options: dict[str, Any] = {"name_server": cluster.namesrv_address, "otel": provider}
    with (
        Producer(f"{first}_python", **options) as producer,
        PushConsumer(f"{first}_group", consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **options) as consumer,
    ):
        consumer.subscribe(first)
        for _ in consumer:
            producer.send(Message(second, b"back", tags="blue"))
            break
        consumer.ack()
    received.wait_done()

    python = {span.name: span for span in exporter.get_finished_spans()}
    process, send = python[f"process {first}"], python[f"send {second}"]
    java_send = java_span(traced_java, PRODUCER, first)
    java_process = java_span(traced_java, CONSUMER, second)
    ids = {trace.format_trace_id(span.get_span_context().trace_id) for span in (process, send)}
    assert ids == {java_send["traceId"]} == {java_process["traceId"]}
    assert java_send.get("parentSpanId", "") == "", "nothing was current where the Java producer sent"
    assert process.parent is not None
    assert trace.format_span_id(process.parent.span_id) == java_send["spanId"]
    assert java_process["parentSpanId"] == trace.format_span_id(send.get_span_context().span_id)
    for ours, theirs, same in (
        (process, java_send, SAME_IN_BOTH),
        (send, java_process, SAME_IN_BOTH | {"messaging.message.body.size"}),
    ):
        mine, others = dict(ours.attributes or {}), theirs["attributes"]
        assert mine.keys() & others.keys() == same
        assert {name: mine[name] for name in same} == {name: others[name] for name in same}
