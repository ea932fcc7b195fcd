"""Dead letters of POP: a message that a group has received too often goes to the group's dead letter topic.

It stays in flight until the dead letter is stored, and is done then. If it cannot be stored, it comes again at its time
and is tried once more. A crash between the two leaves the message in flight: the group may have two dead letters of it,
never none.
"""

from __future__ import annotations

import structlog

from triomq.broker import redirection
from triomq.broker.message_writer import MessageWriter, PendingPut
from triomq.broker.pop.deliveries import Deliveries
from triomq.broker.pop.looking import DeadLetter
from triomq.broker.tables.topics import TopicTable
from triomq.protocol import permission
from triomq.protocol.errors import RecordError, RequestRefused
from triomq.protocol.record import read_fields
from triomq.protocol.system_topics import dlq_topic
from triomq.store.results import PutStatus

log = structlog.get_logger("triomq.broker.pop")


class _Put(PendingPut):
    """The put of one dead letter."""

    __slots__ = ("_dead", "_deliveries", "_popped_ms")

    def __init__(self, deliveries: Deliveries, dead: DeadLetter, popped_ms: int) -> None:
        super().__init__()
        self._deliveries = deliveries
        self._dead = dead
        self._popped_ms = popped_ms

    def finish(self) -> None:
        if self.result.status is not PutStatus.PUT_OK:
            _tell(self._dead, self.result.reason or self.result.status.name)
            return
        try:
            self._deliveries.acknowledge(self._dead.key, [self._dead.queue_offset], self._popped_ms)
        except OSError as error:
            _tell(self._dead, str(error))


class DeadLetters:
    """See the module's docstring."""

    def __init__(self, deliveries: Deliveries, topics: TopicTable, writer: MessageWriter) -> None:
        self._deliveries = deliveries
        self._topics = topics
        self._writer = writer

    def put(self, dead: DeadLetter, popped_ms: int) -> None:
        """Store a dead letter for a message that was received at this time."""
        data = dead.record
        attempts = self._deliveries.attempts(dead.key, dead.queue_offset)
        try:
            fields = read_fields(data, 0, len(data))
            body = data[fields.body_at : fields.body_at + fields.body_length]
            message = redirection.stored_again(
                fields, body, fields.physical_offset, fields.reconsume_times + attempts - 1
            )
            message.topic = dlq_topic(dead.key.group)
            self._topics.create_on_send_back(message.topic, 1, permission.READ_WRITE, 0)
        except (RecordError, RequestRefused) as error:
            _tell(dead, str(error))
            return
        self._writer.put(message, False, _Put(self._deliveries, dead, popped_ms))


def _tell(dead: DeadLetter, reason: str) -> None:
    log.error("dead letter not stored", **dead.key._asdict(), queue_offset=dead.queue_offset, reason=reason)
