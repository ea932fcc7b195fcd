"""Spans of OpenTelemetry, by its conventions for messaging (the extra `otel`). protocol/span_names has the attributes.

    send Orders        PRODUCER   one send with all its attempts
    commit Orders      CLIENT     the outcome of a transaction (commit, rollback, unknown)
    process Orders     CONSUMER   one call of the listener, or one message of a loop

A message carries the context of its send in its properties, under the names that the propagators of the process use
(`traceparent` and `tracestate` of W3C unless told otherwise), which is where OpenTelemetry's instrumentation of
RocketMQ's Java client writes and reads it. The process span of one message is a child of its send; that of several
messages has links to their sends, at most MAX_LINKS.

Nothing here may raise or wait: what a sampler, a processor or a propagator raises is logged once, and the message goes
its way without a span. Export, and the bound of what waits for it, is the matter of the SDK's span processor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TypeVar

from opentelemetry import context as contexts
from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_current_span,
    get_tracer,
    set_span_in_context,
)

from triomq.client.core.log import get_logger
from triomq.client.core.namespace import Namespace
from triomq.client.core.results import SendResult
from triomq.client.core.spans import NO_PROCESS_SPAN, NO_SEND_SPAN, NOTHING, ProcessSpan, SendSpan, Spans
from triomq.protocol import property_names as names
from triomq.protocol.message import Message, MessageExt
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.properties import MAX_PROPERTIES_BYTES, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from triomq.protocol.span_names import OPT_IN, SpanNames

log = get_logger("triomq.client.open_telemetry")

SCOPE = "triomq"
MAX_LINKS = 128
MAX_CARRIED_BYTES = 8192
"""Limit of what propagators may add to one message; more is left out. W3C baggage may have 8192 bytes."""
RESERVED_BYTES = 1024
"""The part of MAX_PROPERTIES_BYTES that is left to what the client itself adds: ids and marks of transactions."""
TRACEPARENT_BYTES = 80
"""Room for the context of a span that has not begun yet."""

SEPARATORS = frozenset((NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR))

_inside: ContextVar[bool] = ContextVar("triomq_inside_span", default=False)
"""Its tokens tell whether a span that is left was entered in the same task or thread."""

T = TypeVar("T")
Attributes = dict[str, str | int | Sequence[str]]


class OpenTelemetry(Spans):
    """See the module's docstring. `provider`: None for the one of the process."""

    def __init__(self, provider: TracerProvider | None, namespace: Namespace, client_id: str) -> None:
        self._tracer = get_tracer(SCOPE, tracer_provider=provider)
        self._namespace = namespace
        self._client_id = client_id
        self._names = SpanNames(os.environ.get(OPT_IN, ""))
        self._has_failed = False

    def sending(self, messages: Sequence[Message], *, is_transaction: bool = False) -> SendSpan:
        return self._safely(lambda: self._send_span(messages, is_transaction), NO_SEND_SPAN)

    def settling(self, message: Message, state: str, *, is_check: bool) -> SendSpan:
        return self._safely(lambda: self._settle_span(message, state, is_check), NO_SEND_SPAN)

    def processing(
        self, group: str, queue: MessageQueue, messages: Sequence[MessageExt], *, is_broadcasting: bool
    ) -> ProcessSpan:
        return self._safely(lambda: self._process_span(group, queue, messages, is_broadcasting), NO_PROCESS_SPAN)

    def current(self) -> ProcessSpan:
        return _Inherited(contexts.get_current(), self._safely)

    def carried_bytes(self) -> int:
        carried = self._safely(lambda: _injected(contexts.get_current()), NOTHING)
        return TRACEPARENT_BYTES + sum(len(name) + len(value) for name, value in carried.items())

    # Making spans.

    def _send_span(self, messages: Sequence[Message], is_transaction: bool) -> SendSpan:
        first = messages[0]
        attributes = self._common("send", "send", first.topic)
        links: list[Link] = []
        if len(messages) > 1:
            attributes["messaging.batch.message_count"] = len(messages)
            links = _links(messages)
        else:
            attributes |= _of_one(first)
            attributes["messaging.rocketmq.message.type"] = _message_type(first, is_transaction)
            if first.delay_level > 0:
                attributes["messaging.rocketmq.message.delay_time_level"] = first.delay_level
        span = self._tracer.start_span(
            f"send {first.topic}", kind=SpanKind.PRODUCER, attributes=self._names.named(attributes), links=links
        )
        carried = fitting(_injected(set_span_in_context(span)), messages)
        return _Sending(span, carried, self._safely)

    def _settle_span(self, message: Message, state: str, is_check: bool) -> SendSpan:
        operation = {"COMMIT_MESSAGE": "commit", "ROLLBACK_MESSAGE": "rollback"}.get(state, "unknown")
        attributes = self._common(operation, "settle", message.topic) | _of_one(message)
        attributes["messaging.rocketmq.message.type"] = "transaction"
        # A check has no caller: it belongs to the trace of the half message.
        parent = _extracted(message) if is_check else None
        span = self._tracer.start_span(
            f"{operation} {message.topic}", parent, kind=SpanKind.CLIENT, attributes=self._names.named(attributes)
        )
        return _Sending(span, NOTHING, self._safely)

    def _process_span(
        self, group: str, queue: MessageQueue, messages: Sequence[MessageExt], is_broadcasting: bool
    ) -> ProcessSpan:
        first = messages[0]
        attributes = self._common("process", "process", first.topic)
        attributes["messaging.consumer.group.name"] = self._namespace.unwrap(group)
        attributes["messaging.destination.partition.id"] = f"{queue.broker_name}/{queue.queue_id}"
        attributes["messaging.rocketmq.consumption_model"] = "broadcasting" if is_broadcasting else "clustering"
        # Never the span in which the consumer was opened: that has nothing to do with this message.
        parent = Context()
        links = list[Link]()
        if len(messages) > 1:
            attributes["messaging.batch.message_count"] = len(messages)
            links = _links(messages)
        else:
            attributes |= _of_one(first)
            attributes["messaging.message.id"] = first.msg_id
            parent = _extracted(first)
        span = self._tracer.start_span(
            f"process {first.topic}",
            parent,
            kind=SpanKind.CONSUMER,
            attributes=self._names.named(attributes),
            links=links,
        )
        return _Processing(span, set_span_in_context(span, parent), self._safely)

    def _common(self, operation: str, kind: str, topic: str) -> Attributes:
        return {
            "messaging.system": "rocketmq",
            "messaging.operation.name": operation,
            "messaging.operation.type": kind,
            "messaging.destination.name": self._namespace.unwrap(topic),
            "messaging.client.id": self._client_id,
            "messaging.rocketmq.namespace": self._namespace.name or "",
        }

    def _safely(self, action: Callable[[], T], otherwise: T) -> T:
        try:
            return action()
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                log.exception("span failed; messages continue without it, and later failures are not logged")
            else:
                log.debug("span failed", error=str(error))
            return otherwise


Safely = Callable[[Callable[[], None], None], None]


class _Sending(SendSpan):
    __slots__ = ("_safely", "_span", "carried")

    def __init__(self, span: Span, carried: Mapping[str, str], safely: Safely) -> None:
        self._span = span
        self.carried = carried
        self._safely = safely

    def stored(self, result: SendResult) -> None:
        self._safely(lambda: self._note(result), None)

    def _note(self, result: SendResult) -> None:
        span, queue = self._span, result.queue
        if "," not in result.message_id:
            span.set_attribute("messaging.message.id", result.message_id)
        span.set_attribute("messaging.destination.partition.id", f"{queue.broker_name}/{queue.queue_id}")
        span.set_attribute("messaging.rocketmq.send_result", result.status.name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._safely(lambda: _end(self._span, None if kind is None else kind.__name__, str(error or "")), None)


class _Processing(ProcessSpan):
    __slots__ = ("_context", "_entered", "_safely", "_span", "_token")

    def __init__(self, span: Span | None, context: Context, safely: Safely) -> None:
        self._span = span
        self._context = context
        self._safely = safely
        self._token: Token[Context] | None = None
        self._entered: Token[bool] | None = None

    def enter(self) -> None:
        self._safely(self._attach, None)

    def _attach(self) -> None:
        self._token = contexts.attach(self._context)
        self._entered = _inside.set(True)

    def leave(self) -> None:
        token, entered = self._token, self._entered
        if token is None or entered is None:
            return
        try:
            _inside.reset(entered)
        except ValueError:
            return  # entered in another task or thread, perhaps one that has ended: nothing is current here
        self._token = self._entered = None
        self._safely(lambda: contexts.detach(token), None)

    def end(self, error_type: str | None = None, reason: str = "") -> None:
        span, self._span = self._span, None
        if span is not None:
            self._safely(lambda: _end(span, error_type, reason), None)


class _Inherited(_Processing):
    """The span of somebody else, to be entered and left only."""

    __slots__ = ()

    def __init__(self, context: Context, safely: Safely) -> None:
        super().__init__(None, context, safely)


def _end(span: Span, error_type: str | None, reason: str) -> None:
    if error_type is not None:
        span.set_attribute("error.type", error_type)
        span.set_status(Status(StatusCode.ERROR, reason or error_type))
    span.end()


def _of_one(message: Message) -> Attributes:
    attributes: Attributes = {"messaging.message.body.size": len(message.body)}
    if message.tags:
        attributes["messaging.rocketmq.message.tag"] = message.tags
    keys = (message.keys or "").split()
    if keys:
        attributes["messaging.rocketmq.message.keys"] = keys
    return attributes


def _message_type(message: Message, is_transaction: bool) -> str:
    if is_transaction:
        return "transaction"
    return "delay" if message.delay_level > 0 else "normal"


# Contexts in the properties of messages.


def _injected(context: Context) -> dict[str, str]:
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    return carrier


def _extracted(message: Message) -> Context:
    context: Context = propagate.extract(message.properties, Context())
    return context


def _links(messages: Iterable[Message]) -> list[Link]:
    """Return links to the sends of these messages, each once."""
    found: dict[tuple[int, int], Link] = {}
    for message in messages:
        if len(found) == MAX_LINKS:
            break
        sent = get_current_span(_extracted(message)).get_span_context()
        if sent.is_valid:
            found.setdefault((sent.trace_id, sent.span_id), Link(sent))
    return list(found.values())


def fitting(carrier: Mapping[str, str], messages: Sequence[Message]) -> Mapping[str, str]:
    """Return what of a carrier each of these messages can take along: all of it, or nothing when it would make one of
    them a message that brokers refuse."""
    size_bytes = 0
    # RocketMQ's clients take an empty value for a broken property.
    carrier = {name: value for name, value in carrier.items() if value != ""}
    for name, value in carrier.items():
        if not isinstance(value, str) or not name or name in names.RESERVED or not SEPARATORS.isdisjoint(name + value):
            return NOTHING
        size_bytes += len(name.encode()) + len(value.encode()) + 2
    if size_bytes > MAX_CARRIED_BYTES:
        return NOTHING
    for message in messages:
        own = sum(len(str(name).encode()) + len(str(value).encode()) + 2 for name, value in message.properties.items())
        if own + size_bytes > MAX_PROPERTIES_BYTES - RESERVED_BYTES:
            return NOTHING
    return carrier
