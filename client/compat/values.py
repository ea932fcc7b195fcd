"""Errors, statuses and names of properties, as the C++ client numbers and names them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, IntEnum
from typing import NamedTuple

from triomq.client.core.errors import MQClientError
from triomq.client.core.results import LocalTransactionState
from triomq.client.core.results import SendResult as CoreSendResult
from triomq.client.core.results import SendStatus as CoreSendStatus
from triomq.protocol import property_names as names

RocketMQException = MQClientError


class ProducerException(RocketMQException):
    """A producer failed; the reason is the `__cause__`."""


class ProducerStartFailed(ProducerException):
    pass


class ProducerSendSyncFailed(ProducerException):
    pass


class ProducerSendOnewayFailed(ProducerException):
    pass


class ProducerSendOrderlyFailed(ProducerException):
    pass


class ConsumerException(RocketMQException):
    """A consumer failed; the reason is the `__cause__`."""


class PushConsumerStartFailed(ConsumerException):
    pass


@contextmanager
def failing_as(kind: type[RocketMQException]) -> Iterator[None]:
    try:
        yield
    except MQClientError as error:
        raise kind(str(error)) from error


class SendStatus(IntEnum):
    """How safely a sent message is stored; in all four cases it is stored."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3


STATUSES = {
    CoreSendStatus.SEND_OK: SendStatus.OK,
    CoreSendStatus.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    CoreSendStatus.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    CoreSendStatus.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class MessageProperty(Enum):
    """Names of properties that RocketMQ sets itself, for `get_property`."""

    TRACE_SWITCH = names.TRACE_ON
    MSG_REGION = names.MSG_REGION
    KEYS = names.KEYS
    TAGS = names.TAGS
    WAIT_STORE_MSG_OK = names.WAIT
    DELAY_TIME_LEVEL = names.DELAY
    RETRY_TOPIC = names.RETRY_TOPIC
    REAL_TOPIC = names.REAL_TOPIC
    REAL_QUEUE_ID = names.REAL_QUEUE_ID
    TRANSACTION_PREPARED = names.TRANSACTION_PREPARED
    PRODUCER_GROUP = names.PRODUCER_GROUP
    MIN_OFFSET = names.MIN_OFFSET
    MAX_OFFSET = names.MAX_OFFSET
    BUYER_ID = names.BUYER_ID
    ORIGIN_MESSAGE_ID = names.ORIGIN_MESSAGE_ID
    TRANSFER_FLAG = names.TRANSFER_FLAG
    CORRECTION_FLAG = names.CORRECTION_FLAG
    MQ2_FLAG = names.MQ2_FLAG
    RECONSUME_TIME = names.RECONSUME_TIME
    UNIQ_CLIENT_MESSAGE_ID_KEYIDX = names.UNIQ_KEY
    MAX_RECONSUME_TIMES = names.MAX_RECONSUME_TIMES
    CONSUME_START_TIMESTAMP = names.CONSUME_START_TIME


class ConsumeStatus(IntEnum):
    """What a listener returns. True and None count as success, an exception or False as "later"."""

    CONSUME_SUCCESS = 0
    RECONSUME_LATER = 1


class MessageModel(IntEnum):
    BROADCASTING = 0
    CLUSTERING = 1


class TransactionStatus(IntEnum):
    COMMIT = 0
    ROLLBACK = 1
    UNKNOWN = 2


class SendResult(NamedTuple):
    """The result of a send. `status`: the SendStatus. `offset`: the queue offset."""

    status: SendStatus
    msg_id: str
    offset: int


STATES = {
    TransactionStatus.COMMIT: LocalTransactionState.COMMIT_MESSAGE,
    TransactionStatus.ROLLBACK: LocalTransactionState.ROLLBACK_MESSAGE,
    TransactionStatus.UNKNOWN: LocalTransactionState.UNKNOW,
}


def result_of(result: CoreSendResult) -> SendResult:
    return SendResult(STATUSES[result.status], result.message_id, result.queue_offset)
