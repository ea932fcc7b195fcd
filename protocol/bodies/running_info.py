"""Responses of a consumer to diagnostic requests: GET_CONSUMER_RUNNING_INFO, CONSUME_MESSAGE_DIRECTLY."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import Bound, Int32, Int64, TopicName, in_frame, number
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import SubscriptionData

FailedCount = Annotated[Int64, number("messages that a client failed to consume", beyond="left out of the metrics")]
Rate = Annotated[
    float,
    Bound("a rate of a client", limit="a double", beyond="shown as it is", clients="the format's own: a Java double"),
]

PROP_NAMESERVER_ADDR: Final = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE: Final = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY: Final = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION: Final = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP: Final = "PROP_CONSUMER_START_TIMESTAMP"


class ProcessQueueInfo(Body, frozen=True, kw_only=True, gc=False):
    """The messages of one queue that a client has cached. Timestamps in ms. `droped` is RocketMQ's spelling."""

    cached_msg_count: Int32 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_size_in_mib: Int32 = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    commit_offset: Int64 = 0
    droped: bool = False
    last_consume_timestamp: Int64 = 0
    last_lock_timestamp: Int64 = 0
    last_pull_timestamp: Int64 = 0
    locked: bool = False
    transaction_msg_count: Int32 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_min_offset: Int64 = 0
    try_unlock_times: Int64 = 0


class ConsumeStatus(Body, frozen=True, kw_only=True, gc=False):
    """Rates of one topic at one client: messages per second, mean times in ms, failures of the last hour."""

    consume_failed_msgs: Int64 = 0
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_rt: float = msgspec.field(default=0.0, name="consumeRT")
    pull_rt: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")


class TopicRates(Body, frozen=True, kw_only=True, gc=False):
    """`ConsumeStatus` as a broker reads it, with bounds."""

    consume_failed_msgs: FailedCount = 0
    consume_failed_tps: Rate = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_ok_tps: Rate = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_rt: Rate = msgspec.field(default=0.0, name="consumeRT")
    pull_rt: Rate = msgspec.field(default=0.0, name="pullRT")
    pull_tps: Rate = msgspec.field(default=0.0, name="pullTPS")


class ConsumerRunningInfo(Body, frozen=True, kw_only=True):
    """The state of one consumer. `jstack`: the stacks of its threads, only if the request has jstack_enable."""

    jstack: str | None = None
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    properties: dict[str, str] = {}
    status_table: dict[str, ConsumeStatus] = {}
    subscription_set: list[SubscriptionData] = []


class ClientRates(Body, frozen=True, kw_only=True):
    """The part of `ConsumerRunningInfo` that a broker reads: the rates of each topic."""

    status_table: Annotated[dict[TopicName, TopicRates], in_frame("topics of a consumer")] = {}


class ConsumeMessageDirectlyResult(Body, frozen=True, kw_only=True):
    """The outcome of consuming one message. `consume_result`: CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT,
    CR_THROW_EXCEPTION, CR_RETURN_NULL."""

    auto_commit: bool = True
    consume_result: str | None = None
    order: bool = False
    remark: str | None = None
    spent_time_mills: Int64 = 0
