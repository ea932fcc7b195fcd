"""PULL_MESSAGE. Field names and types: RocketMQ 4.9.7, classes of the same names."""

from __future__ import annotations

import msgspec

from triomq.protocol.headers.base import Header, Int32, Int64


class PullMessageRequestHeader(Header, frozen=True, kw_only=True):
    """PULL_MESSAGE request. The binary codec writes the fields in this order."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32  # PullSysFlag bits
    commit_offset: Int64  # queue offset to store for the group if sys_flag has PULL_COMMIT_OFFSET
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None  # TAG or SQL92; absent means TAG
    broker_name: str | None = msgspec.field(default=None, name="bname")


class PullMessageResponseHeader(Header, frozen=True, kw_only=True):
    """PULL_MESSAGE response."""

    suggest_which_broker_id: Int64  # 0: the master; else the slave to pull from next
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
