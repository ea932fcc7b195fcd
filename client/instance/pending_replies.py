"""Requests of the request-reply pattern that wait for their reply (RocketMQ: RequestFutureHolder).

Bounded: more than `MAX_PENDING` open requests are refused. Owned by a client, since a reply arrives at the client, not
at a producer; the waiting task removes its own entry.
"""

from __future__ import annotations

import trio

from triomq.client.core.errors import MQClientError
from triomq.protocol.message import MessageExt

MAX_PENDING = 10_000


class PendingReply:
    """One request that waits."""

    __slots__ = ("arrived", "reply")

    def __init__(self) -> None:
        self.arrived = trio.Event()
        self.reply: MessageExt | None = None


class PendingReplies:
    """Correlation id -> waiting request."""

    def __init__(self) -> None:
        self._waiting: dict[str, PendingReply] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self, correlation_id: str) -> PendingReply:
        """Register a request. Raises MQClientError when too many wait."""
        if len(self._waiting) >= MAX_PENDING:
            raise MQClientError(f"{MAX_PENDING} requests wait for a reply; send fewer at a time")
        pending = self._waiting[correlation_id] = PendingReply()
        return pending

    def close(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    def resolve(self, correlation_id: str, reply: MessageExt) -> bool:
        """Deliver a reply to the task that waits for it. Return False when none does, because the reply came too
        late."""
        pending = self._waiting.get(correlation_id)
        if pending is None:
            return False
        pending.reply = reply
        pending.arrived.set()
        return True
