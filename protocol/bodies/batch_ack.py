"""Acknowledgements of many messages: BATCH_ACK_MESSAGE (RocketMQ 5.3.3)."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import (
    AckBits,
    Bound,
    BrokerName,
    GroupName,
    InvisibleMillis,
    QueueId,
    QueueOffset,
    Timestamp,
    TopicName,
)


class BatchAck(Body, frozen=True, kw_only=True):
    """The acknowledgement of messages that one receive took from one queue. `bits` is the base64 text of a java.util
    BitSet: bit n of it stands for the queue offset `start_offset` + n."""

    bits: AckBits | None = msgspec.field(default=None, name="b")
    consumer_group: GroupName | None = msgspec.field(default=None, name="c")
    invisible_time: InvisibleMillis = msgspec.field(default=0, name="it")
    pop_time: Timestamp = msgspec.field(default=0, name="pt")
    queue_id: QueueId = msgspec.field(default=0, name="q")
    retry: TopicName | None = msgspec.field(default=None, name="r")  # the kind in receipt handles
    revive_queue_id: QueueId = msgspec.field(default=0, name="rq")
    start_offset: QueueOffset = msgspec.field(default=0, name="so")
    topic: TopicName | None = msgspec.field(default=None, name="t")


Acks: TypeAlias = Annotated[
    list[BatchAck],
    Bound(
        "acknowledgements of one request",
        limit="4,096",
        beyond="refused as INVALID_PARAMETER",
        test="tests/broker/test_broker_pop.py::test_a_batch_acknowledges_what_its_bits_say",
        clients="far beyond one for each queue of the receives that a client acknowledges together",
    ),
]


class BatchAckMessageRequestBody(Body, frozen=True, kw_only=True):
    """BATCH_ACK_MESSAGE request."""

    acks: Acks = []
    broker_name: BrokerName | None = None
