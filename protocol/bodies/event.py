"""Bodies of messages that a broker writes itself."""

from __future__ import annotations

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import Int64
from triomq.protocol.message_queue import MessageQueue


class OffsetMovedEvent(Body, frozen=True, kw_only=True):
    """Body of a message in OFFSET_MOVED_EVENT: a group pulled at one queue offset and was redirected to another."""

    consumer_group: str | None = None
    message_queue: MessageQueue | None = None
    offset_new: Int64 = 0
    offset_request: Int64 = 0
