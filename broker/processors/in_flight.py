"""What is in flight (POP), for administrators: QUERY_IN_FLIGHT, RELEASE_IN_FLIGHT. Only TrioMQ has these requests."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from triomq.broker.audit import Audit
from triomq.broker.configuration import Configuration
from triomq.broker.pop.deliveries import Deliveries
from triomq.broker.pop.group_queues import Key
from triomq.broker.processors.topic_admin import refuse_on_slave
from triomq.protocol.bodies.in_flight import QueryInFlightResponseBody, QueueInFlight
from triomq.protocol.clock import NowMs
from triomq.protocol.codes import INVALID_PARAMETER, RequestCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.pop import (
    QueryInFlightRequestHeader,
    ReleaseInFlightRequestHeader,
    ReleaseInFlightResponseHeader,
)
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor
from triomq.store.reading.reading import Reading

MAX_QUEUES: Final = 10_000
"""Upper bound on the queues in one QUERY_IN_FLIGHT response."""
MESSAGES_IN_A_STEP: Final = 1000
ALL_QUEUES: Final = -1


class InFlightProcessor:
    """Reports and releases what is in flight. Where nobody receives, there is nothing."""

    def __init__(
        self,
        configuration: Configuration,
        deliveries: Callable[[], Deliveries | None],
        reading: Reading,
        *,
        now_ms: NowMs,
        audit: Audit,
    ) -> None:
        """`deliveries` returns None while nobody has received anything."""
        self._configuration = configuration
        self._deliveries = deliveries
        self._reading = reading
        self._now_ms = now_ms
        self._audit = audit

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {RequestCode.QUERY_IN_FLIGHT: self.query, RequestCode.RELEASE_IN_FLIGHT: self.release}

    async def query(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle QUERY_IN_FLIGHT. The numbers of two queues may be of two moments."""
        header = request.header(QueryInFlightRequestHeader)
        deliveries = self._deliveries()
        if deliveries is None:
            return new_response(request, body=QueryInFlightResponseBody().encode())
        keys = deliveries.keys(header.topic or None, header.consumer_group or None)
        keys.sort(key=lambda key: (key.group, key.topic, key.queue_id))
        found = []
        for key in keys[:MAX_QUEUES]:
            queue = queue_in_flight(deliveries, self._reading, key, self._now_ms())
            if queue is not None:
                found.append(queue)
            await connection.steps.next()
        body = QueryInFlightResponseBody(queues=found, left_out=max(0, len(keys) - MAX_QUEUES))
        return new_response(request, body=body.encode())

    def release(self, connection: Connection, request: RemotingCommand) -> Coroutine[Any, Any, RemotingCommand]:
        """Handle RELEASE_IN_FLIGHT: let what is in flight be ready again now. What is received meanwhile may stay."""
        header = request.header(ReleaseInFlightRequestHeader)
        refuse_on_slave(self._configuration)
        if header.queue_id != ALL_QUEUES and not header.topic:
            raise RequestRefused(INVALID_PARAMETER, "the request names a queue, but no topic")
        if not header.consumer_group:
            raise RequestRefused(INVALID_PARAMETER, "the request needs consumerGroup")
        return self._release(connection, request, header)

    async def _release(
        self, connection: Connection, request: RemotingCommand, header: ReleaseInFlightRequestHeader
    ) -> RemotingCommand:
        released = 0
        deliveries = self._deliveries()
        for key in deliveries.keys(header.topic or None, header.consumer_group) if deliveries is not None else []:
            if deliveries is None or header.queue_id not in (ALL_QUEUES, key.queue_id):
                continue
            begin = 0
            while offsets := deliveries.release(key, begin, MESSAGES_IN_A_STEP):
                released += len(offsets)
                begin = offsets[-1] + 1
                self._audit.done(
                    connection,
                    request,
                    "messages in flight released",
                    **key._asdict(),
                    messages=len(offsets),
                    first=offsets[0],
                    last=offsets[-1],
                )
                await connection.steps.next()
        return new_response(request, header=ReleaseInFlightResponseHeader(released=released))


def queue_in_flight(deliveries: Deliveries, reading: Reading, key: Key, now_ms: int) -> QueueInFlight | None:
    """Return what is in flight in a queue; None if the group does not receive of it any more."""
    figures = deliveries.figures(key)
    if figures is None:
        return None
    new = max(0, reading.max_offset(key.topic, key.queue_id) - figures.next_offset)
    stored_ms = reading.store_time_at(key.topic, key.queue_id, figures.oldest) if figures.count else -1
    return QueueInFlight(
        consumer_group=key.group,
        topic=key.topic,
        queue_id=key.queue_id,
        in_flight=figures.count - figures.ready_again,
        ready=figures.ready_again + new,
        oldest_offset=figures.oldest,
        oldest_age_ms=max(0, now_ms - stored_ms) if stored_ms >= 0 else 0,
        next_offset=figures.next_offset,
        most_attempts=figures.most_attempts,
    )
