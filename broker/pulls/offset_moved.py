"""OFFSET_MOVED_EVENT: a message for each pull outside of its queue (RocketMQ:
PullMessageProcessor.generateOffsetMovedEvent)."""

from __future__ import annotations

import structlog

from triomq.broker.message_writer import MessageWriter, PendingPut
from triomq.protocol import property_names as names
from triomq.protocol import stored_properties
from triomq.protocol.bodies.event import OffsetMovedEvent
from triomq.protocol.clock import NowMs
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.system_topics import OFFSET_MOVED_EVENT
from triomq.store.results import MessageToStore

log = structlog.get_logger("triomq.broker.pulls.offset_moved")


class OffsetMovedEvents:
    """Writes the events. Losing one is harmless, so nothing waits for them."""

    def __init__(self, writer: MessageWriter, broker_name: str, store_host: bytes, now_ms: NowMs) -> None:
        self._writer = writer
        self._broker_name = broker_name
        self._store_host = store_host
        self._now_ms = now_ms

    def __call__(self, header: PullMessageRequestHeader, new_offset: int) -> None:
        """Write an event: the pull of `header` was outside its queue and is redirected to `new_offset`."""
        log.info(
            "offset of a pull moved: it was outside its queue",
            group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            asked=header.queue_offset,
            answered=new_offset,
        )
        event = OffsetMovedEvent(
            consumer_group=header.consumer_group,
            message_queue=MessageQueue(header.topic, self._broker_name, header.queue_id),
            offset_new=new_offset,
            offset_request=header.queue_offset,
        )
        properties = {names.TAGS: header.consumer_group, names.KEYS: header.consumer_group, names.DELAY: "0"}
        message = MessageToStore(
            OFFSET_MOVED_EVENT,
            0,
            event.encode(),
            stored_properties.of(properties),
            born_timestamp=self._now_ms(),
            born_host=self._store_host,
            store_host=self._store_host,
        )
        self._writer.put(message, False, PendingPut())
