"""Response codes and remarks for the result of a put, in RocketMQ's wording, and remarks that processors share. A put
that the state of the broker refuses has the reason behind it."""

from __future__ import annotations

from typing import Final

from triomq.protocol.codes import ResponseCode
from triomq.store.results import PutResult, PutStatus

FAQ: Final = "See http://rocketmq.apache.org/docs/faq/ for further details."
NOT_SET: Final = "not set any response code"
"""The remark that some of RocketMQ's handlers leave in their successful responses."""

STORED: Final = frozenset(
    {
        PutStatus.PUT_OK,
        PutStatus.FLUSH_DISK_TIMEOUT,
        PutStatus.FLUSH_SLAVE_TIMEOUT,
        PutStatus.SLAVE_NOT_AVAILABLE,
    }
)
"""Statuses of messages that are in the log, however durable they are."""

UNSTORABLE: Final = frozenset(
    {PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED, PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED}
)
"""Refusals because of the message itself: the store repeats them each time. All others speak of its present state."""

_ILLEGAL: Final = (
    "he message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit {max_message_bytes}B, msg properties length limit 32KB."
)

SEND_CODES: Final[dict[PutStatus, int]] = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}
"""Response codes of sends (SendMessageProcessor.handlePutMessageResult); any other status is SYSTEM_ERROR."""
SEND_REMARKS: Final[dict[PutStatus, str]] = {
    PutStatus.MESSAGE_ILLEGAL: "t" + _ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: "t" + _ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: "service not available now",
    PutStatus.CREATE_MAPEDFILE_FAILED: "create mapped file failed, server is busy or broken.",
    PutStatus.OS_PAGECACHE_BUSY: "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: (
        "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq consumeQueue num exceed "
        "maxLmqConsumeQueueNum config num, default limit 2w."
    ),
}

COMMIT_CODES: Final[dict[PutStatus, int]] = {
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}
"""Response codes of commits that were not stored (EndTransactionProcessor.sendFinalMessage)."""
COMMIT_REMARKS: Final[dict[PutStatus, str]] = {
    PutStatus.CREATE_MAPEDFILE_FAILED: "Create mapped file failed.",
    PutStatus.MESSAGE_ILLEGAL: "T" + _ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: "T" + _ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: "Service not available now.",
    PutStatus.OS_PAGECACHE_BUSY: "OS page cache busy, please try another machine",
    PutStatus.UNKNOWN_ERROR: "UNKNOWN_ERROR",
}


def send_remark(result: PutResult, max_message_bytes: int) -> str:
    """Return the remark of a send that was not stored."""
    return _with_reason(SEND_REMARKS.get(result.status, "UNKNOWN_ERROR"), result, max_message_bytes)


def commit_remark(result: PutResult, max_message_bytes: int) -> str:
    """Return the remark of a commit that was not stored."""
    return _with_reason(COMMIT_REMARKS.get(result.status, "UNKNOWN_ERROR DEFAULT"), result, max_message_bytes)


def with_reason(remark: str, result: PutResult) -> str:
    """Return a remark with the store's own reason. RocketMQ's text about a message that is at fault itself stays as it
    is: it has the limits. For the state of the broker RocketMQ only lists what it may be."""
    if result.status in UNSTORABLE or not result.reason:
        return remark
    return f"{remark.removesuffix('.')}: {result.reason}"


def _with_reason(remark: str, result: PutResult, max_message_bytes: int) -> str:
    return with_reason(remark.format(max_message_bytes=max_message_bytes), result)
