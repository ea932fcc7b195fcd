"""The broker's own spans: of puts with their phases, in virtual time, and of whole brokers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trio
from broker_store_lab import START_MS, Lab, open_lab
from broker_whole import WholeBroker, whole_broker
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind, StatusCode
from stored_records import encoded
from structlog.testing import capture_logs
from trio.testing import MockClock

from triomq.broker import redirection
from triomq.broker.configuration import Configuration
from triomq.broker.extensions import Extensions
from triomq.broker.lifecycle.configuration_check import configuration_problems
from triomq.broker.message_writer import AwaitedPut
from triomq.broker.spans.export import Watched, check_traces
from triomq.broker.spans.puts import TracingWriter
from triomq.broker.spans.recorder import MAX_LINKS, Recorder
from triomq.daemon.errors import StartError
from triomq.protocol import properties as property_text
from triomq.protocol import sys_flag
from triomq.protocol.record import BatchUnit
from triomq.store.config import BrokerRole, FlushDiskType
from triomq.store.results import PutStatus
from triomq.store.watermark import Watermark

TRACE, SEND = 0xABC, 0xDEF
MS = 1_000_000


def traceparent(trace: int = TRACE, span: int = SEND, flags: str = "01") -> str:
    return f"00-{trace:032x}-{span:016x}-{flags}"


class Ended:
    """A tracer provider, and the spans that ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=ALWAYS_ON)  # the broker itself looks at what is sampled
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def names(self) -> list[str]:
        return [span.name for span in self._exporter.get_finished_spans()]

    def one(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self._exporter.get_finished_spans() if span.name == name]
        return span

    def times(self) -> dict[str, tuple[int, int]]:
        """Return name -> begin and end in ms of virtual time."""
        return {
            span.name: (since_start(span.start_time), since_start(span.end_time))
            for span in self._exporter.get_finished_spans()
        }


def since_start(time_ns: int | None) -> int:
    assert time_ns is not None
    ms, rest = divmod(time_ns - START_MS * MS, MS)
    assert rest == 0
    return ms


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    return context.trace_id, context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


class Slaves:
    """Slaves whose progress the test decides."""

    def __init__(self) -> None:
        self.replicated = Watermark()
        self.near = True

    def is_near(self, end_offset: int) -> bool:
        return self.near


class Tracing:
    """A lab whose writer makes spans. A turn ends when the test commits, the disk has what `sync` says."""

    def __init__(self, lab: Lab, ended: Ended) -> None:
        self.lab, self.ended, self.slaves = lab, ended, Slaves()
        spans = Recorder(ended.provider, lab.now_ms, "broker-a")
        self.writer = TracingWriter(lab.configuration, lab.store, lambda: None, self.slaves, spans=spans)

    def put(self, *, wait: bool = True, **properties: str) -> AwaitedPut:
        pending = AwaitedPut()
        message = self.lab.message("Orders", b"hello", 3, properties)
        if "DELAY" in properties:
            redirection.delay(message, properties["DELAY"], self.lab.store.delay_levels)
        self.writer.put(message, wait, pending)
        return pending


@asynccontextmanager
async def tracing(tmp_path: Path, **store: Any) -> AsyncIterator[Tracing]:
    async with open_lab(tmp_path, store=store) as lab, trio.open_nursery() as nursery:
        it = Tracing(lab, Ended())
        nursery.start_soon(it.writer.run)
        yield it
        nursery.cancel_scope.cancel()


async def test_a_put_is_a_child_of_the_send_and_has_the_phase_append(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with tracing(tmp_path) as it:
        put = it.put(traceparent=traceparent(), UNIQ_KEY="U1")
        await trio.sleep(0.003)
        it.lab.store.commit()
        assert (await put.wait()).status is PutStatus.PUT_OK
    store, append = it.ended.one("store Orders"), it.ended.one("append")
    assert it.ended.times() == {"append": (0, 3), "store Orders": (0, 3)}
    assert (parent(store), parent(append)) == ((TRACE, SEND), ids(store))
    assert (store.kind, append.kind) == (SpanKind.SERVER, SpanKind.INTERNAL)
    assert dict(store.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "store",
        "messaging.destination.name": "Orders",
        "messaging.destination.partition.id": "broker-a/3",
        "messaging.message.body.size": 5,
        "messaging.message.id": "U1",
        "messaging.rocketmq.send_result": "SEND_OK",
    }


@pytest.mark.parametrize(
    ("opt_in", "names"),
    [
        ("", {"messaging.system"}),
        ("messaging", {"messaging.system.name"}),
        ("messaging/dup", {"messaging.system", "messaging.system.name"}),
    ],
)
async def test_the_environment_chooses_the_names_of_attributes(
    opt_in: str, names: set[str], tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", opt_in)
    async with tracing(tmp_path) as it:
        put = it.put(traceparent=traceparent(), UNIQ_KEY="U1")
        it.lab.store.commit()
        await put.wait()
        attributes = dict(it.ended.one("store Orders").attributes or {})
    assert dict.fromkeys(names, "rocketmq") == {
        name: value for name, value in attributes.items() if name.startswith("messaging.system")
    }
    assert attributes["messaging.destination.name"] == "Orders"


async def test_with_a_synchronous_disk_and_slave_each_has_a_phase(tmp_path: Path, autojump_clock: MockClock) -> None:
    settings = {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "broker_role": BrokerRole.SYNC_MASTER}
    async with tracing(tmp_path, **settings) as it:
        put = it.put(traceparent=traceparent())
        await trio.sleep(0.001)
        it.lab.store.commit()
        await trio.sleep(0.004)
        it.lab.store.flushed.advance(put.result.end_offset)
        await trio.sleep(0.007)
        it.slaves.replicated.advance(put.result.end_offset)
        await put.wait()
    assert it.ended.times() == {"append": (0, 1), "flush": (1, 5), "replicate": (1, 12), "store Orders": (0, 12)}


async def test_a_send_that_does_not_wait_has_no_further_phase(tmp_path: Path, autojump_clock: MockClock) -> None:
    settings = {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "broker_role": BrokerRole.SYNC_MASTER}
    async with tracing(tmp_path, **settings) as it:
        put = it.put(wait=False, traceparent=traceparent())
        it.lab.store.commit()
        await put.wait()
    assert it.ended.times() == {"append": (0, 0), "store Orders": (0, 0)}


async def test_a_slave_that_is_away_has_no_phase_and_a_slow_one_a_failed_one(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with tracing(tmp_path, broker_role=BrokerRole.SYNC_MASTER, slave_timeout_ms=100) as it:
        it.slaves.near = False
        away = it.put(traceparent=traceparent())
        it.lab.store.commit()
        assert (await away.wait()).status is PutStatus.SLAVE_NOT_AVAILABLE
        assert it.ended.names == ["append", "store Orders"]
        it.slaves.near = True
        slow = it.put(traceparent=traceparent(span=7))
        it.lab.store.commit()
        assert (await slow.wait()).status is PutStatus.FLUSH_SLAVE_TIMEOUT
    replicate = it.ended.one("replicate")
    assert it.ended.times()["replicate"] == (0, 100)
    assert replicate.status.status_code is StatusCode.ERROR
    assert dict(replicate.attributes or {}) == {"error.type": "FLUSH_SLAVE_TIMEOUT"}


async def test_a_disk_that_fails_ends_the_phase_with_the_error(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with tracing(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH, sync_flush_timeout_ms=50) as it:
        put = it.put(traceparent=traceparent())
        it.lab.store.commit()
        assert (await put.wait()).status is PutStatus.FLUSH_DISK_TIMEOUT
    assert it.ended.times() == {"append": (0, 0), "flush": (0, 50), "store Orders": (0, 50)}
    assert it.ended.one("flush").status.status_code is StatusCode.ERROR
    assert it.ended.one("store Orders").status.status_code is StatusCode.UNSET, "the message is stored"


async def test_a_refused_put_is_an_error(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with tracing(tmp_path) as it:
        put = it.put(traceparent=traceparent(), large="x" * 40_000)
        assert (await put.wait()).status is PutStatus.MESSAGE_ILLEGAL
    store = it.ended.one("store Orders")
    assert store.status.status_code is StatusCode.ERROR
    assert (store.attributes or {})["error.type"] == "MESSAGE_ILLEGAL"


@pytest.mark.parametrize(
    "text", [traceparent(flags="00"), "", "00-", traceparent(trace=0), "ff" * 400, traceparent() + "0", "00-é"]
)
async def test_what_is_not_sampled_or_broken_makes_no_span(
    tmp_path: Path, autojump_clock: MockClock, text: str
) -> None:
    async with tracing(tmp_path) as it:
        put = it.put(traceparent=text)
        without = it.put()
        it.lab.store.commit()
        assert {(await put.wait()).status, (await without.wait()).status} == {PutStatus.PUT_OK}
    assert it.ended.names == []


async def test_a_delivery_has_a_span_whose_body_cannot_be_inflated() -> None:
    """The broker hands bodies out as they are; what they hold is the consumer's."""
    ended = Ended()
    text = property_text.encode({"traceparent": traceparent()})
    flags = sys_flag.COMPRESSED | sys_flag.COMPRESSION_ZLIB
    records = bytes(encoded(b"Orders", b"not compressed", text, sys_flag=flags))
    Recorder(ended.provider, lambda: START_MS, "broker-a").delivered(START_MS * MS, records, "G")
    assert ended.names == ["deliver Orders"]


async def test_a_batch_is_one_span_that_links_to_further_sends(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with tracing(tmp_path) as it:
        texts = [traceparent(), traceparent(), traceparent(flags="00"), traceparent(span=1)]
        texts += [traceparent(span=100 + number) for number in range(MAX_LINKS + 50)]
        units = [BatchUnit(0, b"m", property_text.encode({"traceparent": text})) for text in texts]
        pending = AwaitedPut()
        it.writer.put_batch(it.lab.message("Orders", b"", 0, {}), units, False, pending)
        it.lab.store.commit()
        await pending.wait()
    store = it.ended.one("store Orders")
    assert parent(store) == (TRACE, SEND)
    assert len(store.links) == MAX_LINKS
    assert store.links[0].context.span_id == 1
    assert (store.attributes or {})["messaging.batch.message_count"] == len(units)


# Whole brokers.


@asynccontextmanager
async def traced_broker(folder: Path, provider: TracerProvider) -> AsyncIterator[WholeBroker]:
    async with whole_broker(folder, extensions_given=Extensions(tracer_provider=provider)) as broker:
        yield broker


async def test_each_pull_that_hands_a_message_out_is_a_child_of_the_send(tmp_path: Path) -> None:
    ended = Ended()
    async with traced_broker(tmp_path, ended.provider) as broker:
        await broker.create_topic("Orders")
        text = property_text.encode({"traceparent": traceparent(), "UNIQ_KEY": "U1"}).decode()
        assert (await broker.send("Orders", b"traced", properties=text)).code == 0
        assert (await broker.send("Orders", b"plain")).code == 0
        assert ended.names == ["append", "store Orders"]
        pulled = await broker.pull("Orders")
        assert pulled.code == 0
    assert ended.names == ["append", "store Orders", "deliver Orders"]
    deliver = ended.one("deliver Orders")
    assert parent(deliver) == (TRACE, SEND)
    assert deliver.kind is SpanKind.SERVER
    assert dict(deliver.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "deliver",
        "messaging.destination.name": "Orders",
        "messaging.destination.partition.id": "broker-a/0",
        "messaging.message.body.size": 6,
        "messaging.message.id": "U1",
        "messaging.consumer.group.name": "G",
    }


# The setting.


def checked(endpoint: str) -> None:
    check_traces(Configuration.from_values({"tracesEndpoint": endpoint}, source="test"))


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://collector/", "http://", "http://c:99999/", "http://[/"])
def test_an_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(StartError, match=r"tracesEndpoint=.* must be the address of an OTLP/HTTP collector"):
        checked(endpoint)


def test_the_check_of_a_configuration_looks_at_the_endpoint(tmp_path: Path) -> None:
    values = {
        "tracesEndpoint": "collector",
        "brokerIP1": "127.0.0.1",
        "listenPort": "0",
        "storePathRootDir": str(tmp_path),
    }
    problems = list(configuration_problems(Configuration.from_values(values, source="test")))
    assert [problem.partition(":")[0] for problem in problems] == ["tracesEndpoint=collector"]


def test_without_the_extra_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    checked("")
    with pytest.raises(
        StartError, match=r"tracesEndpoint needs OpenTelemetry's packages, .*pip install '\.\[otel\]' in the clone"
    ):
        checked("http://127.0.0.1:4318/v1/traces")


BROKER_WITHOUT = """
import sys, trio
from triomq.broker.configuration import Configuration
from triomq.broker.controller import BrokerController
from triomq.daemon.clock import system_now_ms
values = {"listenPort": "0", "brokerIP1": "127.0.0.1", "storePathRootDir": sys.argv[1]}
controller = BrokerController(Configuration.from_values(values, source="test"), now_ms=system_now_ms)
async def main():
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.serve)
        nursery.cancel_scope.cancel()
trio.run(main)
print(sorted(name for name in sys.modules if "opentelemetry" in name or "broker.spans" in name))
"""


def test_a_broker_without_the_setting_imports_nothing_of_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BROKER_WITHOUT, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


# Export.


class Collector(ThreadingHTTPServer):
    """An OTLP/HTTP collector that keeps the bodies of its requests."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        bodies = self.bodies

        class Taking(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                bodies.append((self.path, body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        super().__init__(("127.0.0.1", 0), Taking)


@contextmanager
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=partial(server.serve_forever, 0.01))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_the_last_spans_reach_the_collector_before_the_broker_has_stopped(tmp_path: Path) -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="the exporter of the extra otel is not installed"
    )
    with collector() as server:
        endpoint = f"http://127.0.0.1:{server.server_port}/v1/traces"
        async with whole_broker(tmp_path, tracesEndpoint=endpoint) as broker:
            await broker.create_topic("Orders")
            text = property_text.encode({"traceparent": traceparent()}).decode()
            assert (await broker.send("Orders", properties=text)).code == 0
    ((path, body),) = server.bodies
    assert path == "/v1/traces"
    for part in (b"store Orders", b"append", b"triomq-broker", b"broker-a/0", TRACE.to_bytes(16, "big")):
        assert part in body


class Failing:
    """An exporter that succeeds as the test says."""

    def __init__(self) -> None:
        self.result = SpanExportResult.FAILURE

    def export(self, spans: object) -> SpanExportResult:
        return self.result


def test_a_collector_that_is_away_is_logged_once() -> None:
    exporter = Failing()
    watched = Watched(exporter, "http://collector/v1/traces")
    with capture_logs() as logs:
        for _ in range(20):
            assert watched.export([]) is SpanExportResult.FAILURE
        exporter.result = SpanExportResult.SUCCESS
        assert watched.export([]) is SpanExportResult.SUCCESS
    assert [(line["event"], line["endpoint"]) for line in logs] == [
        ("spans not exported; they are lost", "http://collector/v1/traces")
    ]
