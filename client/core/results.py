"""The values that calls of this client return, named as in Java."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

from triomq.client.core.rebuilding import Rebuilt
from triomq.protocol.message import MessageExt
from triomq.protocol.message_queue import MessageQueue


class SendStatus(Enum):
    """How safely a sent message is stored. In all four cases it is stored (RocketMQ: SendStatus)."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Stored, but the flush to disk was not confirmed in time."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Stored, but no replica confirmed it in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """Stored, but there is no replica."""


class LocalTransactionState(IntEnum):
    """The outcome of a local transaction; the values are what END_TRANSACTION carries."""

    UNKNOW = 0
    """Not known yet: the broker asks again."""
    COMMIT_MESSAGE = 8
    ROLLBACK_MESSAGE = 12


@dataclass(frozen=True, slots=True)
class SendResult:
    """The result of a send. `message_id`: the id that this client made (UNIQ_KEY; of a batch: comma-joined).
    `offset_message_id`: the broker's own id. `queue_offset`: that of the (first) message."""

    status: SendStatus
    message_id: str
    queue: MessageQueue
    queue_offset: int
    offset_message_id: str
    transaction_id: str | None = None
    region_id: str | None = None
    trace_on: bool = True


@dataclass(frozen=True, slots=True)
class TransactionSendResult:
    """The result of a transactional send: that of the half message, and the outcome of the local transaction."""

    send: SendResult
    state: LocalTransactionState
    error: BaseException | None = None
    """What the local transaction raised (its state is then UNKNOW)."""


class PullStatus(Enum):
    """What a pull found (RocketMQ: PullStatus)."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


@dataclass(frozen=True, slots=True)
class PullResult:
    """The result of a pull. `next_begin_offset`: where to continue. `min_offset`, `max_offset`: bounds of the queue."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: Sequence[MessageExt]
    suggested_broker_id: int = 0


class ConsumeStatus(Enum):
    """What a listener may return. Anything else counts as CONSUME_SUCCESS, but False, like an exception, as
    RECONSUME_LATER."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"
    """Concurrent: the broker delivers the message again after a delay that grows. Ordered: it is retried here after a
    pause."""
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
    """The ordered consumer's term for RECONSUME_LATER; both kinds of consumers accept both."""


class MessageModel(Enum):
    """CLUSTERING: one member of the group consumes each message. BROADCASTING: every member does, and offsets stay
    local."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(Enum):
    """Where a group begins in a queue for which it has no offset."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class RetryLater(Rebuilt):
    """Raised by a listener: deliver this message (these messages) again later, without it being an error.

    `delay_level`: 0 lets the broker choose a delay that grows with each delivery, 1 to 18 fix it, -1 sends the message
    to the dead letter topic at once. An ordered consumer pauses the queue instead.
    """

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(f"deliver again later (delay level {delay_level})")
        self.delay_level = delay_level


class DeadLetter(RetryLater):
    """Raised by a listener: store this message (these messages) in the dead letter topic at once, with the reason as
    its property DEAD_LETTER_REASON."""

    def __init__(self, reason: str) -> None:
        super().__init__(-1)
        self.reason = reason
