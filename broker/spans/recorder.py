"""The broker's spans, made with OpenTelemetry's API. They belong to the trace of the message.

    store Orders       SERVER     one message, or batch, from its arrival at the log to its response
      append           INTERNAL   its phases (puts.py)
      flush
      replicate
    deliver Orders     SERVER     the pull that hands a message out

Only messages with a sampled `traceparent` have spans. Nothing here raises or waits: what fails is logged once, and the
message goes its way. Export is the matter of the provider's span processors, in threads of their own.

Times come from the broker's wall clock, and between its milliseconds from trio's clock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TypeVar

import structlog
import trio
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from triomq.broker.put_responses import STORED
from triomq.broker.spans.puts import APPEND, StoreSpan
from triomq.protocol import properties as property_text
from triomq.protocol import property_names as names
from triomq.protocol.clock import NowMs
from triomq.protocol.message import MessageExt
from triomq.protocol.record import BatchUnit, iterate_records
from triomq.protocol.span_names import OPT_IN, SpanNames
from triomq.store.results import MessageToStore, PutResult, PutStatus

log = structlog.get_logger("triomq.broker.spans")

MAX_LINKS = 128
CARRIED = b"traceparent\x01"
FIELDS = ("traceparent", "tracestate")
CLOCK_SET_NS = 2_000_000
"""A wall clock that is further from the expected time was set."""

T = TypeVar("T")
Attributes = dict[str, str | int]


class Recorder:
    """Makes the spans of one broker; see the module's docstring."""

    def __init__(self, provider: TracerProvider, now_ms: NowMs, broker_name: str) -> None:
        self._tracer = provider.get_tracer("triomq.broker")
        self._propagator = TraceContextTextMapPropagator()
        self._now_ms = now_ms
        self._broker_name = broker_name
        self._names = SpanNames(os.environ.get(OPT_IN, ""))
        self._ahead_ns = 0
        self._has_failed = False

    def now_ns(self) -> int:
        """Return nanoseconds since 1970, which do not go back unless the wall clock is set."""
        elapsed_ns = round(trio.current_time() * 1_000_000_000)
        wall_ns = self._now_ms() * 1_000_000
        if not -CLOCK_SET_NS < wall_ns - elapsed_ns - self._ahead_ns < CLOCK_SET_NS:
            self._ahead_ns = wall_ns - elapsed_ns
        return elapsed_ns + self._ahead_ns

    def storing(self, message: MessageToStore, units: list[BatchUnit] | None) -> StoreSpan | None:
        carries = CARRIED in message.properties.text
        if not carries and (units is None or not any(CARRIED in unit.properties for unit in units)):
            return None
        return self.safely(lambda: self._store_span(message, units), None)

    def delivered(self, began_ns: int, records: bytes, group: str) -> None:
        if CARRIED in records:
            self.safely(lambda: self._deliver_spans(began_ns, records, group), None)

    def start(self, name: str, context: Context, kind: SpanKind, begin_ns: int) -> Span:
        return self._tracer.start_span(name, context, kind=kind, start_time=begin_ns)

    def safely(self, action: Callable[[], T], otherwise: T) -> T:
        try:
            return action()
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                log.exception("span failed; messages continue without it, and later failures are not logged")
            else:
                log.debug("span failed", error=str(error))
            return otherwise

    def _store_span(self, message: MessageToStore, units: list[BatchUnit] | None) -> StoreSpan | None:
        found: dict[tuple[int, int], Context] = {}
        for text in [message.properties.text] if units is None else [unit.properties for unit in units]:
            if CARRIED in text and len(found) <= MAX_LINKS:
                context = self._sampled(property_text.parse_bytes(text))
                if context is not None:
                    sent = _sent(context)
                    found.setdefault((sent.trace_id, sent.span_id), context)
        if not found:
            return None
        parent, *others = found.values()
        attributes = self._common("store", message.topic, message.queue_id)
        if units is None:
            attributes |= _of_one(len(message.body), message.properties.uniq_key)
        else:
            attributes["messaging.batch.message_count"] = len(units)
        span = self._tracer.start_span(
            f"store {message.topic}",
            parent,
            kind=SpanKind.SERVER,
            attributes=self._names.named(attributes),
            links=[Link(_sent(context)) for context in others],
            start_time=self.now_ns(),
        )
        return _Storing(self, span, set_span_in_context(span, parent))

    def _deliver_spans(self, began_ns: int, records: bytes, group: str) -> None:
        end_ns = self.now_ns()
        for message in iterate_records(records, decompress=False):
            parent = self._sampled(message.properties)
            if parent is None:
                continue
            attributes = self._common("deliver", message.topic, message.queue_id)
            attributes |= _of_one(len(message.body), _id_of(message))
            attributes["messaging.consumer.group.name"] = group
            span = self._tracer.start_span(
                f"deliver {message.topic}",
                parent,
                kind=SpanKind.SERVER,
                attributes=self._names.named(attributes),
                start_time=began_ns,
            )
            span.end(end_ns)

    def _sampled(self, properties: Mapping[str, str]) -> Context | None:
        """Return the context that a message carries, if it can be read and is sampled."""
        carrier = {name: properties[name] for name in FIELDS if name in properties}
        context: Context = self._propagator.extract(carrier, Context())
        sent = _sent(context)
        return context if sent.is_valid and sent.trace_flags.sampled else None

    def _common(self, operation: str, topic: str, queue_id: int) -> Attributes:
        return {
            "messaging.system": "rocketmq",
            "messaging.operation.name": operation,
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": f"{self._broker_name}/{queue_id}",
        }


class _Storing:
    """The span of one put and its open phases."""

    __slots__ = ("_context", "_open", "_recorder", "_span")

    def __init__(self, recorder: Recorder, span: Span, context: Context) -> None:
        self._recorder = recorder
        self._span = span
        self._context = context
        self._open: dict[str, Span] = {}
        self.begin(APPEND)

    def begin(self, phase: str) -> None:
        self._recorder.safely(lambda: self._begin(phase), None)

    def _begin(self, phase: str) -> None:
        self._open[phase] = self._recorder.start(phase, self._context, SpanKind.INTERNAL, self._recorder.now_ns())

    def end(self, phase: str) -> None:
        span = self._open.pop(phase, None)
        if span is not None:
            self._recorder.safely(lambda: span.end(self._recorder.now_ns()), None)

    def finish(self, result: PutResult) -> None:
        self._recorder.safely(lambda: self._finish(result), None)

    def _finish(self, result: PutResult) -> None:
        status = result.status
        now_ns = self._recorder.now_ns()
        for phase in self._open.values():  # what did not happen in time
            _fail(phase, status.name, result.reason)
            phase.end(now_ns)
        self._open.clear()
        self._span.set_attribute(
            "messaging.rocketmq.send_result", "SEND_OK" if status is PutStatus.PUT_OK else status.name
        )
        if status not in STORED:
            _fail(self._span, status.name, result.reason)
        self._span.end(now_ns)


def _fail(span: Span, error_type: str, reason: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(Status(StatusCode.ERROR, reason or error_type))


def _sent(context: Context) -> SpanContext:
    return get_current_span(context).get_span_context()


def _id_of(message: MessageExt) -> str | None:
    return message.properties.get(names.UNIQ_KEY)


def _of_one(body_size_bytes: int, unique_key: str | None) -> Attributes:
    attributes: Attributes = {"messaging.message.body.size": body_size_bytes}
    if unique_key:
        attributes["messaging.message.id"] = unique_key
    return attributes
