"""QueueLockTable: which client of a group may consume which queue in order (RocketMQ: RebalanceLockManager).

A lock belongs to (group, queue) and a client id; it is free again when its holder has not renewed it for `expiry_ms`,
so nothing has to be cleaned up when a client dies. It lives in memory only: after a restart every client locks again.
Touched only on the event loop. Limit: `max_locks` locks over all groups; expired ones are swept before one is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from triomq.broker.errors import TableFull
from triomq.protocol.clock import NowMs
from triomq.protocol.message_queue import MessageQueue

LOCK_EXPIRY_MS = 60_000
MAX_LOCKS = 1_000_000


@dataclass(slots=True)
class _Lock:
    client_id: str
    last_update_ms: int


class QueueLockTable:
    """Locks of orderly consumers."""

    def __init__(self, now_ms: NowMs, *, expiry_ms: int = LOCK_EXPIRY_MS, max_locks: int = MAX_LOCKS) -> None:
        self._now_ms = now_ms
        self._expiry_ms = expiry_ms
        self._max_locks = max_locks
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}
        self._lock_count = 0

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Lock the free queues; return the queues that the client now holds, each for another 60 s."""
        now_ms = self._now_ms()
        locks = self._locks.setdefault(group, {})
        held: list[MessageQueue] = []
        try:
            for queue in queues:
                lock = locks.get(queue)
                if lock is None:
                    self._make_room(group)
                    locks[queue] = _Lock(client_id, now_ms)
                    self._lock_count += 1
                elif lock.client_id == client_id or now_ms - lock.last_update_ms > self._expiry_ms:
                    lock.client_id = client_id
                    lock.last_update_ms = now_ms
                else:
                    continue
                held.append(queue)
        finally:
            if not locks:
                self._locks.pop(group, None)
        return held

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release those of the queues that the client holds."""
        locks = self._locks.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._lock_count -= 1
        if not locks:
            del self._locks[group]

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """Return the client that currently holds the queue."""
        lock = self._locks.get(group, {}).get(queue)
        if lock is None or self._now_ms() - lock.last_update_ms > self._expiry_ms:
            return None
        return lock.client_id

    def time_jumped(self, seconds: float) -> None:
        """Shift the locks' timestamps: the clock jumped ahead, but the holders were not silent during the jump."""
        for locks in self._locks.values():
            for lock in locks.values():
                lock.last_update_ms += int(seconds * 1000)

    def _make_room(self, group: str) -> None:
        if self._lock_count < self._max_locks:
            return
        oldest_ms = self._now_ms() - self._expiry_ms
        for locks in self._locks.values():
            for queue in [queue for queue, lock in locks.items() if lock.last_update_ms < oldest_ms]:
                del locks[queue]
                self._lock_count -= 1
        for name in [name for name, locks in self._locks.items() if not locks and name != group]:
            del self._locks[name]
        if self._lock_count >= self._max_locks:
            raise TableFull("queue locks", self._max_locks, f"locks of group {group}")
