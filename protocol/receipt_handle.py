"""Receipt handles: the text by which a client names one delivery of a message (RocketMQ 5.3.3: ExtraInfoUtil).

    "<start offset> <pop time> <invisible time> <revive queue> <kind> <broker name> <queue id>[ <queue offset>]"

Clients make it themselves, from the response to POP_MESSAGE, and proxies parse it, so all of it is RocketMQ's. Here the
start offset and the revive queue mean nothing. The kind tells where RocketMQ has the message: 0 the topic, 1 and 2 the
retry topic of either naming.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from triomq.protocol.system_topics import is_retry_topic

NORMAL: Final = "0"
RETRY: Final = "1"
_FIELDS: Final = 7
_LONGEST: Final = 2048
_MAX: Final = 2**63 - 1
_LONGEST_NUMBER: Final = len(str(_MAX))


class ReceiptHandleError(ValueError):
    """The text is no handle. It says what is wrong."""


class ReceiptHandle(NamedTuple):
    """`popped_ms` is when the message was received, or its invisible time last changed (Unix ms); `queue_offset` is
    None if the text does not have it."""

    popped_ms: int
    invisible_ms: int
    kind: str
    broker_name: str
    queue_id: int
    queue_offset: int | None
    start_offset: int = 0
    revive_queue_id: int = 0

    def text(self) -> str:
        """Return the handle as clients send it."""
        begin = f"{self.start_offset} {self.popped_ms} {self.invisible_ms} {self.revive_queue_id}"
        queue = f"{self.kind} {self.broker_name} {self.queue_id}"
        return f"{begin} {queue}" if self.queue_offset is None else f"{begin} {queue} {self.queue_offset}"


def parse_handle(text: str) -> ReceiptHandle:
    """Raises ReceiptHandleError."""
    if len(text) > _LONGEST:
        raise ReceiptHandleError(f"a receipt handle of {len(text)} characters")
    parts = text.split(" ")
    if len(parts) < _FIELDS:
        raise ReceiptHandleError(f"the receipt handle {text[:64]!r} has {len(parts)} parts, not {_FIELDS} or more")
    start, popped, invisible, revive = _number(parts[0]), _number(parts[1]), _number(parts[2]), _number(parts[3])
    queue_offset = _number(parts[7]) if len(parts) > _FIELDS else None
    return ReceiptHandle(popped, invisible, parts[4], parts[5], _number(parts[6]), queue_offset, start, revive)


def kind_of(topic: str) -> str:
    """Return the kind in handles of messages that are received from this topic."""
    return RETRY if is_retry_topic(topic) else NORMAL


def _number(text: str) -> int:
    number = int(text) if len(text) <= _LONGEST_NUMBER and text.isascii() and text.isdigit() else -1
    if not 0 <= number <= _MAX:
        raise ReceiptHandleError(f"{text[:64]!r} in a receipt handle must be a number from 0 to 2^63 - 1")
    return number
