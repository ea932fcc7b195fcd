"""Locks that ordered consumers hold on queues: LOCK_BATCH_MQ, UNLOCK_BATCH_MQ."""

from __future__ import annotations

import msgspec

from triomq.protocol.bodies.base import Body
from triomq.protocol.message_queue import MessageQueue


class LockBatchRequestBody(Body, frozen=True, kw_only=True):
    """The queues that one client wants to lock for its group."""

    client_id: str | None = None
    consumer_group: str | None = None
    mq_set: frozenset[MessageQueue] = frozenset()


class UnlockBatchRequestBody(Body, frozen=True, kw_only=True):
    """The queues that one client unlocks."""

    client_id: str | None = None
    consumer_group: str | None = None
    mq_set: frozenset[MessageQueue] = frozenset()


class LockBatchResponseBody(Body, frozen=True, kw_only=True):
    """The queues on which the client now holds the lock."""

    lock_ok_mq_set: frozenset[MessageQueue] = msgspec.field(default=frozenset(), name="lockOKMQSet")
