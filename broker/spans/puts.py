"""TracingWriter: a MessageWriter whose puts have spans. It takes the place of the other with tracesEndpoint.

    append       until the bytes of the message are in the log
    flush        then, until the disk has them                  SYNC_FLUSH
    replicate    then, until a slave or the quorum has them     SYNC_MASTER, DLedger

Nothing here imports OpenTelemetry: recorder.py has what makes the spans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from triomq.broker.configuration import Configuration
from triomq.broker.message_writer import MessageWriter, Replicas
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.pending_put import PendingPut
from triomq.broker.tables.new_names import NewNames
from triomq.protocol.record import BatchUnit
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import MessageToStore, PutResult, PutStatus
from triomq.store.writing.delivering import Delivery, DueBlock, RealQueues

APPEND: Final = "append"
FLUSH: Final = "flush"
REPLICATE: Final = "replicate"


class StoreSpan(Protocol):
    """The span of one put. A phase that is not open is not ended again."""

    def begin(self, phase: str) -> None: ...
    def end(self, phase: str) -> None: ...
    def finish(self, result: PutResult) -> None: ...


class Spans(Protocol):
    """What makes spans. None of these methods raises."""

    def storing(self, message: MessageToStore, units: list[BatchUnit] | None) -> StoreSpan | None:
        """Return the span of a put whose append begins; None if no message of it is sampled."""

    def now_ns(self) -> int: ...

    def delivered(self, began_ns: int, records: bytes, group: str) -> None:
        """Make a span for each sampled message of these records, from `began_ns` to the present."""


class TracedPut(PendingPut):
    """Stands in for a put, whose response it leaves to it."""

    __slots__ = ("_put", "_span", "own_phase")

    def __init__(self, put: PendingPut, span: StoreSpan, own_phase: str) -> None:
        """`own_phase` is what ends when the watermark passes that the put waits for."""
        super().__init__()
        self._put = put
        self._span = span
        self.own_phase = own_phase

    def appended(self, error: Exception | None) -> None:
        """Note that the log has the message (called by the watermark)."""
        if error is not None or self.is_finished:
            return
        self._span.end(APPEND)
        if self.own_phase != APPEND:
            self._span.begin(self.own_phase)
        if self.replica_status is None:
            self._span.begin(REPLICATE)

    def reached(self, error: Exception | None) -> None:
        if error is None and not self.is_finished:
            if self.own_phase == APPEND:
                self.appended(None)
            else:
                self._span.end(self.own_phase)
        super().reached(error)

    def set_replica_status(self, status: PutStatus) -> None:
        if status is PutStatus.PUT_OK:
            self._span.end(REPLICATE)
        super().set_replica_status(status)

    def begin(self, result: PutResult) -> None:
        self.result = result
        self._put.begin(result)  # the same object: the owner of the put looks at it

    def release_body(self) -> None:
        self._put.release_body()

    def finish(self) -> None:
        self._put.is_finished = True
        self._span.finish(self.result)
        self._put.finish()


class TracingWriter(MessageWriter):
    """See the module's docstring."""

    def __init__(
        self,
        configuration: Configuration,
        store: DefaultMessageStore,
        wake: Callable[[], None],
        replicas: Replicas | None = None,
        stats: BrokerStats | None = None,
        new_topics: NewNames | None = None,
        *,
        spans: Spans,
    ) -> None:
        super().__init__(configuration, store, wake, replicas, stats, new_topics)
        self._spans = spans

    def put(self, message: MessageToStore, wait: bool, pending: PendingPut) -> None:
        traced = self._traced(message, None, wait, pending)
        super().put(message, wait, pending if traced is None else traced)
        self._watch(traced)

    def put_due(self, block: DueBlock, queues: RealQueues, due_ms: int, room_bytes: int) -> Delivery | None:
        return None  # each message has a span

    def put_batch(self, message: MessageToStore, units: list[BatchUnit], wait: bool, pending: PendingPut) -> None:
        traced = self._traced(message, units, wait, pending)
        super().put_batch(message, units, wait, pending if traced is None else traced)
        self._watch(traced)

    def _traced(
        self, message: MessageToStore, units: list[BatchUnit] | None, wait: bool, pending: PendingPut
    ) -> TracedPut | None:
        span = self._spans.storing(message, units)
        if span is None:
            return None
        if self._configuration.store is not self._settings:
            self._take_settings()
        own_phase = APPEND
        if wait and self._waits_for_disk:
            own_phase = FLUSH
        elif self._has_quorum:
            own_phase = REPLICATE
        return TracedPut(pending, span, own_phase)

    def _watch(self, traced: TracedPut | None) -> None:
        """Let a traced put learn when the log has it, unless that is all it waits for."""
        if traced is None:
            return
        if not traced.is_finished and traced.own_phase != APPEND:
            self._accepted.call_beyond(traced.result.last_offset, traced.appended)
