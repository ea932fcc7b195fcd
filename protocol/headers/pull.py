"""PULL_MESSAGE. Field names and types: RocketMQ 4.9.7, classes of the same names."""

from __future__ import annotations

import msgspec

from triomq.protocol.bounds import (
    BrokerName,
    Expression,
    ExpressionType,
    Flags,
    GroupName,
    HoldMillis,
    Int64,
    PullCount,
    QueueId,
    QueueOffset,
    SubscriptionVersion,
    TopicName,
)
from triomq.protocol.headers.base import Header


class PullMessageRequestHeader(Header, frozen=True, kw_only=True):
    """PULL_MESSAGE request. The binary codec writes the fields in this order."""

    consumer_group: GroupName
    topic: TopicName
    queue_id: QueueId
    queue_offset: QueueOffset
    max_msg_nums: PullCount
    sys_flag: Flags  # PullSysFlag bits
    commit_offset: QueueOffset  # queue offset to store for the group if sys_flag has PULL_COMMIT_OFFSET
    suspend_timeout_millis: HoldMillis
    subscription: Expression | None = None
    sub_version: SubscriptionVersion
    expression_type: ExpressionType | None = None  # TAG or SQL92; absent means TAG
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")


class PullMessageResponseHeader(Header, frozen=True, kw_only=True):
    """PULL_MESSAGE response."""

    suggest_which_broker_id: Int64  # 0: the master; else the slave to pull from next
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
