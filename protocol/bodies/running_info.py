"""Responses of a consumer to diagnostic requests: GET_CONSUMER_RUNNING_INFO, CONSUME_MESSAGE_DIRECTLY."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import Bound, Int32, Int64, TopicName, in_frame, number
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import SubscriptionData

FailedCount = Annotated[Int64, number("messages that a client failed to consume", beyond="left out of the metrics")]
_UNREAD: Final = "the page of the member says that the response cannot be read"
QueueFigure = Annotated[Int64, number("a figure of a queue at a client", beyond=_UNREAD)]
SmallQueueFigure = Annotated[Int32, number("a count of a queue at a client", beyond=_UNREAD)]
SpentTime = Annotated[Int64, number("the time that a listener took", beyond="the action says that it cannot be read")]
Rate = Annotated[
    float,
    Bound("a rate of a client", limit="a double", beyond="shown as it is", clients="the format's own: a Java double"),
]

PropertyText = Annotated[str, in_frame("a name or value of a consumer's properties")]

PROP_NAMESERVER_ADDR: Final = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE: Final = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY: Final = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION: Final = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP: Final = "PROP_CONSUMER_START_TIMESTAMP"


class ProcessQueueInfo(Body, frozen=True, kw_only=True, gc=False):
    """The messages of one queue that a client has cached. Timestamps in ms. `droped` is RocketMQ's spelling."""

    cached_msg_count: SmallQueueFigure = 0
    cached_msg_max_offset: QueueFigure = 0
    cached_msg_min_offset: QueueFigure = 0
    cached_msg_size_in_mib: SmallQueueFigure = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    commit_offset: QueueFigure = 0
    droped: bool = False
    last_consume_timestamp: QueueFigure = 0
    last_lock_timestamp: QueueFigure = 0
    last_pull_timestamp: QueueFigure = 0
    locked: bool = False
    transaction_msg_count: SmallQueueFigure = 0
    transaction_msg_max_offset: QueueFigure = 0
    transaction_msg_min_offset: QueueFigure = 0
    try_unlock_times: QueueFigure = 0


class ConsumeStatus(Body, frozen=True, kw_only=True, gc=False):
    """Rates of one topic at one client: messages per second, mean times in ms, failures of the last hour."""

    consume_failed_msgs: FailedCount = 0
    consume_failed_tps: Rate = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_ok_tps: Rate = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_rt: Rate = msgspec.field(default=0.0, name="consumeRT")
    pull_rt: Rate = msgspec.field(default=0.0, name="pullRT")
    pull_tps: Rate = msgspec.field(default=0.0, name="pullTPS")


class ConsumerRunningInfo(Body, frozen=True, kw_only=True):
    """The state of one consumer. `jstack`: the stacks of its threads, only if the request has jstack_enable."""

    jstack: Annotated[str | None, in_frame("the stacks of a client")] = None
    mq_table: Annotated[dict[MessageQueue, ProcessQueueInfo], in_frame("queues of a consumer")] = {}
    properties: Annotated[dict[PropertyText, PropertyText], in_frame("properties of a consumer")] = {}
    status_table: Annotated[dict[TopicName, ConsumeStatus], in_frame("topics of a consumer")] = {}
    subscription_set: Annotated[list[SubscriptionData], in_frame("subscriptions of a consumer")] = []


class ClientRates(Body, frozen=True, kw_only=True):
    """The part of `ConsumerRunningInfo` that metrics need: the rates of each topic."""

    status_table: Annotated[dict[TopicName, ConsumeStatus], in_frame("topics of a consumer")] = {}


class ConsumeMessageDirectlyResult(Body, frozen=True, kw_only=True):
    """The outcome of consuming one message. `consume_result`: CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT,
    CR_THROW_EXCEPTION, CR_RETURN_NULL."""

    auto_commit: bool = True
    consume_result: Annotated[str | None, in_frame("the outcome at a listener")] = None
    order: bool = False
    remark: Annotated[str | None, in_frame("the remark of a listener")] = None
    spent_time_mills: SpentTime = 0
