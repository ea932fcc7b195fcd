"""Sends: SEND_MESSAGE and its shorter forms, CONSUMER_SEND_MSG_BACK, replies.

Field names and types: RocketMQ 4.9.7, classes of the same names.
"""

from __future__ import annotations

import msgspec

from triomq.protocol.bounds import (
    Address,
    BrokerName,
    DelayLevel,
    Flags,
    GroupName,
    Int32,
    Int64,
    MessageId,
    PhysicalOffset,
    PropertiesText,
    QueueId,
    ReconsumeTimes,
    Timestamp,
    TopicName,
    WantedQueueCount,
)
from triomq.protocol.headers.base import Header


class SendMessageRequestHeader(Header, frozen=True, kw_only=True):
    """SEND_MESSAGE, SEND_REPLY_MESSAGE request."""

    producer_group: GroupName
    topic: TopicName
    default_topic: TopicName
    default_topic_queue_nums: WantedQueueCount
    queue_id: QueueId
    sys_flag: Flags
    born_timestamp: Timestamp
    flag: Flags
    properties: PropertiesText | None = None  # stored text, see protocol.properties
    reconsume_times: ReconsumeTimes | None = None
    unit_mode: bool = False
    batch: bool = False  # the body holds batch units
    max_reconsume_times: ReconsumeTimes | None = None
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")  # 4.9.x clients send it, nobody reads it


class SendMessageResponseHeader(Header, frozen=True, kw_only=True):
    """SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE, SEND_REPLY_MESSAGE_V2 response."""

    msg_id: str  # the offset message id; comma-joined for a batch
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None


class SendMessageRequestHeaderV2(Header, frozen=True, kw_only=True):
    """SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE_V2 request; names on the wire are single letters."""

    producer_group: GroupName = msgspec.field(name="a")
    topic: TopicName = msgspec.field(name="b")
    default_topic: TopicName = msgspec.field(name="c")
    default_topic_queue_nums: WantedQueueCount = msgspec.field(name="d")
    queue_id: QueueId = msgspec.field(name="e")
    sys_flag: Flags = msgspec.field(name="f")
    born_timestamp: Timestamp = msgspec.field(name="g")
    flag: Flags = msgspec.field(name="h")
    properties: PropertiesText | None = msgspec.field(default=None, name="i")  # stored text, see protocol.properties
    reconsume_times: ReconsumeTimes | None = msgspec.field(default=None, name="j")
    unit_mode: bool = msgspec.field(default=False, name="k")
    max_reconsume_times: ReconsumeTimes | None = msgspec.field(default=None, name="l")
    batch: bool = msgspec.field(default=False, name="m")  # the body holds batch units
    broker_name: BrokerName | None = msgspec.field(default=None, name="n")  # 4.9.x clients send it, nobody reads it


class ReplyMessageRequestHeader(Header, frozen=True, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT request."""

    producer_group: GroupName
    topic: TopicName
    default_topic: TopicName
    default_topic_queue_nums: WantedQueueCount
    queue_id: QueueId
    sys_flag: Flags
    born_timestamp: Timestamp
    flag: Flags
    properties: PropertiesText | None = None  # stored property text
    reconsume_times: ReconsumeTimes | None = None
    unit_mode: bool = False
    born_host: Address  # "ip:port"
    store_host: Address  # "ip:port"
    store_timestamp: Timestamp = 0


class ConsumerSendMsgBackRequestHeader(Header, frozen=True, kw_only=True):
    """CONSUMER_SEND_MSG_BACK request."""

    offset: PhysicalOffset  # physical offset of the message in the commit log
    group: GroupName
    delay_level: DelayLevel  # 0: the broker chooses; negative: directly to the dead letter topic
    origin_msg_id: MessageId | None = None
    origin_topic: TopicName | None = None
    unit_mode: bool = False
    max_reconsume_times: ReconsumeTimes | None = None
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")
