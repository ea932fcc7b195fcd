"""Transactional messages. Field names and types: RocketMQ 4.9.7, classes of the same names."""

from __future__ import annotations

import msgspec

from triomq.protocol.bounds import BrokerName, Decision, GroupName, MessageId, PhysicalOffset, QueueOffset
from triomq.protocol.headers.base import Header


class EndTransactionRequestHeader(Header, frozen=True, kw_only=True):
    """END_TRANSACTION request."""

    producer_group: GroupName
    tran_state_table_offset: QueueOffset  # queue offset of the half message
    commit_log_offset: PhysicalOffset  # physical offset of the half message
    commit_or_rollback: Decision  # 8 commit, 12 rollback, 0 unknown
    from_transaction_check: bool = False
    msg_id: MessageId  # the client's UNIQ_KEY
    transaction_id: MessageId | None = None
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")


class EndTransactionResponseHeader(Header, frozen=True, kw_only=True):
    """END_TRANSACTION response. RocketMQ declares it but never sends it."""


class CheckTransactionStateRequestHeader(Header, frozen=True, kw_only=True):
    """CHECK_TRANSACTION_STATE request."""

    tran_state_table_offset: QueueOffset  # queue offset of the half message
    commit_log_offset: PhysicalOffset  # physical offset of the half message
    msg_id: MessageId | None = None
    transaction_id: MessageId | None = None
    offset_msg_id: MessageId | None = None
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")


class CheckTransactionStateResponseHeader(Header, frozen=True, kw_only=True):
    """CHECK_TRANSACTION_STATE response. RocketMQ declares it but never sends it: clients send END_TRANSACTION."""


class ResumeCheckHalfMessageRequestHeader(Header, frozen=True, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE request."""

    msg_id: MessageId | None = None  # the offset message id
