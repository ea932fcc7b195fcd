"""Locks that ordered consumers hold on queues: LOCK_BATCH_MQ, UNLOCK_BATCH_MQ."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import Bound, ClientId, GroupName
from triomq.protocol.message_queue import MessageQueue

Queues: TypeAlias = Annotated[
    frozenset[MessageQueue],
    Bound(
        "queues to lock or unlock",
        limit="4,096",
        beyond="refused as SYSTEM_BUSY",
        test="tests/broker/test_broker_client_processors.py::test_a_lock_request_beyond_a_limit_locks_nothing",
        clients="far beyond one entry for each queue of a topic on one broker, 4 by default of Java clients",
    ),
]


class LockBatchRequestBody(Body, frozen=True, kw_only=True):
    """The queues that one client wants to lock for its group."""

    client_id: ClientId | None = None
    consumer_group: GroupName | None = None
    mq_set: Queues = frozenset()


class UnlockBatchRequestBody(Body, frozen=True, kw_only=True):
    """The queues that one client unlocks."""

    client_id: ClientId | None = None
    consumer_group: GroupName | None = None
    mq_set: Queues = frozenset()


class LockBatchResponseBody(Body, frozen=True, kw_only=True):
    """The queues on which the client now holds the lock."""

    lock_ok_mq_set: frozenset[MessageQueue] = msgspec.field(default=frozenset(), name="lockOKMQSet")
