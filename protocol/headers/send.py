"""Sends: SEND_MESSAGE and its shorter forms, CONSUMER_SEND_MSG_BACK, replies.

Field names and types: RocketMQ 4.9.7, classes of the same names.
"""

from __future__ import annotations

import msgspec

from triomq.protocol.headers.base import Header, Int32, Int64


class SendMessageRequestHeader(Header, frozen=True, kw_only=True):
    """SEND_MESSAGE, SEND_REPLY_MESSAGE request."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None  # stored property text, see protocol.properties
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    batch: bool = False  # the body holds batch units
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")  # sent by 4.9.x clients, not used by the broker


class SendMessageResponseHeader(Header, frozen=True, kw_only=True):
    """SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE, SEND_REPLY_MESSAGE_V2 response."""

    msg_id: str  # the offset message id; comma-joined for a batch
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None


class SendMessageRequestHeaderV2(Header, frozen=True, kw_only=True):
    """SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE_V2 request; names on the wire are single letters."""

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: Int32 = msgspec.field(name="d")
    queue_id: Int32 = msgspec.field(name="e")
    sys_flag: Int32 = msgspec.field(name="f")
    born_timestamp: Int64 = msgspec.field(name="g")
    flag: Int32 = msgspec.field(name="h")
    properties: str | None = msgspec.field(default=None, name="i")  # stored property text, see protocol.properties
    reconsume_times: Int32 | None = msgspec.field(default=None, name="j")
    unit_mode: bool = msgspec.field(default=False, name="k")
    max_reconsume_times: Int32 | None = msgspec.field(default=None, name="l")
    batch: bool = msgspec.field(default=False, name="m")  # the body holds batch units
    broker_name: str | None = msgspec.field(default=None, name="n")  # sent by 4.9.x clients, not used by the broker


class ReplyMessageRequestHeader(Header, frozen=True, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT request."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None  # stored property text
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str  # "ip:port"
    store_host: str  # "ip:port"
    store_timestamp: Int64 = 0


class ConsumerSendMsgBackRequestHeader(Header, frozen=True, kw_only=True):
    """CONSUMER_SEND_MSG_BACK request."""

    offset: Int64  # physical offset of the message in the commit log
    group: str
    delay_level: Int32  # 0: the broker chooses; negative: directly to the dead letter topic
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")
