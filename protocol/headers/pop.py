"""POP: receives, acknowledgements, invisible times. Field names and types: classes of these names in RocketMQ 5.3.3.
Only TrioMQ has the last ones: what is in flight, for administrators."""

from __future__ import annotations

import msgspec

from triomq.protocol.bounds import (
    AttemptId,
    BrokerName,
    Expression,
    ExpressionType,
    Flags,
    GroupName,
    HoldMillis,
    Int32,
    Int64,
    InvisibleMillis,
    QueueId,
    QueueOffset,
    ReceiptText,
    ReceiveCount,
    Timestamp,
    TopicName,
)
from triomq.protocol.headers.base import Header


class PopMessageRequestHeader(Header, frozen=True, kw_only=True):
    """POP_MESSAGE request."""

    consumer_group: GroupName
    topic: TopicName
    queue_id: QueueId  # -1: all queues
    max_msg_nums: ReceiveCount
    invisible_time: InvisibleMillis
    poll_time: HoldMillis
    born_time: Timestamp
    init_mode: Flags  # where a group without an offset begins: 0 at the first message, 1 at the last
    exp_type: ExpressionType | None = None  # TAG or SQL92; absent means TAG
    exp: Expression | None = None
    order: bool = False
    attempt_id: AttemptId | None = None
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")


class PopMessageResponseHeader(Header, frozen=True, kw_only=True):
    """POP_MESSAGE and PEEK_MESSAGE response. Parts of the texts are separated by `;`.

    start_offset_info: "KIND QUEUE OFFSET". msg_offset_info: "KIND QUEUE OFFSET,OFFSET". order_count_info:
    "KIND QUEUE TIMES" and "KIND qoQUEUE%OFFSET TIMES". KIND as in receipt handles.
    """

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class PeekMessageRequestHeader(Header, frozen=True, kw_only=True):
    """PEEK_MESSAGE request."""

    topic: TopicName
    queue_id: QueueId  # -1: all queues
    max_msg_nums: ReceiveCount
    consumer_group: GroupName
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")


class AckMessageRequestHeader(Header, frozen=True, kw_only=True):
    """ACK_MESSAGE request."""

    consumer_group: GroupName
    topic: TopicName
    queue_id: QueueId
    extra_info: ReceiptText
    offset: QueueOffset
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")


class ChangeInvisibleTimeRequestHeader(Header, frozen=True, kw_only=True):
    """CHANGE_MESSAGE_INVISIBLETIME request."""

    consumer_group: GroupName
    topic: TopicName
    queue_id: QueueId
    extra_info: ReceiptText
    offset: QueueOffset
    invisible_time: InvisibleMillis
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")


class ChangeInvisibleTimeResponseHeader(Header, frozen=True, kw_only=True):
    """CHANGE_MESSAGE_INVISIBLETIME response."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class NotificationRequestHeader(Header, frozen=True, kw_only=True):
    """NOTIFICATION request."""

    consumer_group: GroupName
    topic: TopicName
    queue_id: QueueId  # -1: all queues
    poll_time: HoldMillis
    born_time: Timestamp
    order: bool = False
    attempt_id: AttemptId | None = None
    exp_type: ExpressionType | None = None
    exp: Expression | None = None
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")


class NotificationResponseHeader(Header, frozen=True, kw_only=True):
    """NOTIFICATION response."""

    has_msg: bool
    polling_full: bool = False


class PollingInfoRequestHeader(Header, frozen=True, kw_only=True):
    """POLLING_INFO request."""

    consumer_group: GroupName
    topic: TopicName
    queue_id: QueueId
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")


class PollingInfoResponseHeader(Header, frozen=True, kw_only=True):
    """POLLING_INFO response."""

    polling_num: Int32


class QueryInFlightRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_IN_FLIGHT request."""

    consumer_group: GroupName | None = None  # blank: all groups
    topic: TopicName | None = None  # blank: all topics


class ReleaseInFlightRequestHeader(Header, frozen=True, kw_only=True):
    """RELEASE_IN_FLIGHT request."""

    consumer_group: GroupName
    topic: TopicName | None = None  # blank: all topics of the group
    queue_id: QueueId = -1  # -1: all queues


class ReleaseInFlightResponseHeader(Header, frozen=True, kw_only=True):
    """RELEASE_IN_FLIGHT response: how many messages were in flight, and are ready again."""

    released: Int64
