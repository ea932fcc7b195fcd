"""Undeliverable: dead letters of the broker itself.

A delayed message, or a half message that is committed or checked, was accepted once. What the store refuses because of
the message (`UNSTORABLE`: the length of a name, a size above a limit that was lowered since) it refuses each time, and
whatever comes behind it would wait without an end. Such a message becomes a dead letter in UNDELIVERABLE_TOPIC:

    whole       as it is, with UNDELIVERABLE_REASON, and UNDELIVERABLE_MESSAGE_ID, the id of its record
    facts only  if the store refuses that, too: without body, with the properties that say what and where it is. The
                record stays in the log until its file expires, and can be viewed by its id

Holds two counters. Only the event loop touches it.
"""

from __future__ import annotations

from typing import Final

import structlog

from triomq.broker.message_writer import MessageWriter, PendingPut
from triomq.broker.put_responses import UNSTORABLE
from triomq.broker.tables.topics import TopicTable
from triomq.protocol import property_names as names
from triomq.protocol import stored_properties, sys_flag
from triomq.protocol.message_id import offset_message_id
from triomq.store.results import MessageToStore, PutStatus

log = structlog.get_logger("triomq.broker.undeliverable")

DELAY: Final = "delay"
TRANSACTION: Final = "transaction"
MAX_FACT_CHARACTERS: Final = 255
LOG_EVERY: Final = 100
_FACTS: Final = (names.REAL_TOPIC, names.REAL_QUEUE_ID, names.UNIQ_KEY, names.PRODUCER_GROUP)


class Undeliverable:
    """See the module's docstring."""

    def __init__(self, writer: MessageWriter, topics: TopicTable) -> None:
        self._writer = writer
        self._topics = topics
        self.counts = {DELAY: 0, TRANSACTION: 0}
        """Source -> messages that could not be delivered since the start."""

    def put(
        self, source: str, message: MessageToStore, physical_offset: int, reason: str, *, replaces: bool = False
    ) -> PendingPut | None:
        """Store a dead letter for the message of the record at `physical_offset`, which could not be stored for this
        reason. `replaces`: it stands in the place of that half message.

        Return the put, which the store may refuse because of its state; None if it refuses every dead letter.
        """
        own = message.properties.table()
        facts = {names.REAL_TOPIC: message.topic, names.REAL_QUEUE_ID: str(message.queue_id)}
        facts.update({name: own[name] for name in _FACTS if name in own})
        facts[names.UNDELIVERABLE_REASON] = reason
        facts[names.UNDELIVERABLE_MESSAGE_ID] = offset_message_id(message.store_host, physical_offset)
        if replaces:
            facts[names.TRANSACTION_REPLACES] = str(physical_offset)
        facts = {name: value[:MAX_FACT_CHARACTERS] for name, value in facts.items()}
        topic = self._topics.undeliverable_topic().topic_name
        for body, properties in ((message.body, {**facts, **own, **_added(facts)}), (b"", facts)):
            pending = PendingPut()
            self._writer.put(_dead_letter(topic, message, body, properties), False, pending)
            status = pending.result.status
            if status not in UNSTORABLE:
                if status is PutStatus.PUT_OK:
                    self.count(source, physical_offset, reason)
                return pending
        self.count(source, physical_offset, f"{reason}; the dead letter: {pending.result.reason}")
        return None

    def count(self, source: str, physical_offset: int, reason: str) -> None:
        """Count a message that could not be delivered, and log the first and each hundredth."""
        self.counts[source] += 1
        if self.counts[source] % LOG_EVERY == 1:
            log.warning(
                "message not delivered",
                source=source,
                physical_offset=physical_offset,
                reason=reason,
                so_far=self.counts[source],
            )


def _added(facts: dict[str, str]) -> dict[str, str]:
    """Return the facts that replace what the message itself may have under these names."""
    return {name: value for name, value in facts.items() if name not in _FACTS}


def _dead_letter(topic: str, message: MessageToStore, body: bytes, properties: dict[str, str]) -> MessageToStore:
    flags = sys_flag.with_transaction_type(message.sys_flag, sys_flag.TRANSACTION_NOT)
    if not body:
        flags &= ~(sys_flag.COMPRESSED | sys_flag.COMPRESSION_MASK)
    return MessageToStore(
        topic,
        0,
        body,
        stored_properties.of(properties),
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_host=message.store_host,
        flag=message.flag,
        sys_flag=flags,
        reconsume_times=message.reconsume_times,
    )
