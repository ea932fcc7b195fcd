"""Which refusals of a broker are worth another attempt. Pure tables of response codes."""

from __future__ import annotations

from triomq.protocol.codes import ResponseCode

RETRIED_SENDS: frozenset[int] = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
"""A refused send may succeed at another broker, or later (RocketMQ: DefaultMQProducer.retryResponseCodes)."""

NOT_REGISTERED: frozenset[int] = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)
"""The broker has not seen this client's last heartbeat: it was restarted, or the subscription is new. A pull succeeds
after the next heartbeat."""

NOT_READY: frozenset[int] = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
"""The broker sheds load, or is still starting: a request that may be repeated succeeds later at the same broker."""
