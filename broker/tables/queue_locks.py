"""QueueLockTable: which client of a group may consume which queue in order (RocketMQ: RebalanceLockManager).

A lock belongs to (group, queue) and a client id; it is free again when its holder has not renewed it for `expiry_ms`,
so nothing has to be cleaned up when a client dies. Touched only on the event loop. Limit: `max_locks` locks over all
groups; expired ones are swept before one is refused.

The holders are kept in queueLocks.json, which RocketMQ does not have: a client keeps consuming for up to 30 s while
it cannot renew, so a broker that forgot its locks would give the same queue to a second client. A new holder is in the
file before the response says so (`wait_kept`); renewals are not, but `still_alive` notes every few seconds when the
broker was alive. Locks that are loaded count as renewed at that time, so those of clients that died with it expire.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import Final

import structlog
from msgspec import Struct

from triomq.broker.errors import TableFull
from triomq.broker.tables import entry_costs
from triomq.broker.tables.fragments import Fragments
from triomq.broker.tables.saved_table import SavedTable
from triomq.broker.tables.table_file import NoFile, TableFile
from triomq.broker.tables.write_behind import WriteBehind
from triomq.protocol.clock import NowMs
from triomq.protocol.message_queue import MessageQueue
from triomq.remoting.table_memory import TableAccount, TableMemory

log = structlog.get_logger("triomq.broker.queue_locks")

LOCK_EXPIRY_MS = 60_000
MAX_LOCKS = 200_000
SWEPT_AT_ONCE: Final = 64
"""Expired locks that are removed for a new one."""
LOCKS_IN_A_STEP: Final = 128
"""Locks whose lines of the file are made in half a millisecond."""


class _Lock(Struct):
    client_id: str
    last_update_ms: int


class QueueLockTable(SavedTable):
    """Locks of orderly consumers."""

    def __init__(
        self,
        now_ms: NowMs,
        *,
        file: TableFile | None = None,
        expiry_ms: int = LOCK_EXPIRY_MS,
        max_locks: int = MAX_LOCKS,
        account: TableAccount | None = None,
    ) -> None:
        self._now_ms = now_ms
        self._expiry_ms = expiry_ms
        self._max_locks = max_locks
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}
        self._by_age: OrderedDict[tuple[str, MessageQueue], None] = OrderedDict()  # those renewed longest ago first
        self._lock_count = 0
        self._text_bytes = 0
        self._account = account if account is not None else TableMemory().account("queue locks")
        self._file = file if file is not None else NoFile()
        self._fragments: Fragments[tuple[str, MessageQueue]] = Fragments(self._lock_text, LOCKS_IN_A_STEP)
        self._writer = WriteBehind(self._file, self._pieces, self._fragments.render)

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Lock the free queues; return the queues that the client now holds, each for another 60 s."""
        now_ms = self._now_ms()
        locks = self._locks.setdefault(group, {})
        held: list[MessageQueue] = []
        changed: list[MessageQueue] = []
        try:
            for queue in queues:
                lock = locks.get(queue)
                if lock is None:
                    self._make_room(group)
                    self._account.check(entry_costs.QUEUE_LOCK + _text_bytes(queue), f"locks of group {group}")
                    locks[queue] = _Lock(client_id, now_ms)
                    self._count(1, queue)
                    self._by_age[group, queue] = None
                    changed.append(queue)
                elif lock.client_id == client_id or self._is_expired(lock, now_ms):
                    if lock.client_id != client_id:
                        changed.append(queue)
                    lock.client_id = client_id
                    lock.last_update_ms = now_ms
                    self._by_age.move_to_end((group, queue))
                else:
                    continue
                held.append(queue)
        finally:
            if not locks:
                self._locks.pop(group, None)
            self._changed(group, changed)
        return held

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release those of the queues that the client holds."""
        locks = self._locks.get(group)
        if locks is None:
            return
        changed: list[MessageQueue] = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue], self._by_age[group, queue]
                self._count(-1, queue)
                changed.append(queue)
        if not locks:
            del self._locks[group]
        self._changed(group, changed)

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """Return the client that currently holds the queue."""
        lock = self._locks.get(group, {}).get(queue)
        if lock is None or self._is_expired(lock, self._now_ms()):
            return None
        return lock.client_id

    def still_held(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Return those of the queues that the client holds."""
        locks = self._locks.get(group, {})
        now_ms = self._now_ms()
        found = [(queue, locks.get(queue)) for queue in queues]
        return [
            queue
            for queue, lock in found
            if lock is not None and lock.client_id == client_id and not self._is_expired(lock, now_ms)
        ]

    def _is_expired(self, lock: _Lock, now_ms: int) -> bool:
        """Return whether the holder was silent for too long. A time in the future is of a clock that was set back: the
        lock counts as renewed now."""
        lock.last_update_ms = min(lock.last_update_ms, now_ms)
        return now_ms - lock.last_update_ms > self._expiry_ms

    def time_jumped(self, seconds: float) -> None:
        """Shift the locks' timestamps: the clock jumped ahead, but the holders were not silent during the jump."""
        for locks in self._locks.values():
            for lock in locks.values():
                lock.last_update_ms += int(seconds * 1000)

    def _count(self, locks: int, queue: MessageQueue) -> None:
        self._lock_count += locks
        self._text_bytes += locks * _text_bytes(queue)
        self._account.set(entry_costs.QUEUE_LOCK * self._lock_count + self._text_bytes)

    def _make_room(self, group: str) -> None:
        if self._lock_count < self._max_locks:
            return
        now_ms = self._now_ms()
        for name, queue in list(islice(self._by_age, SWEPT_AT_ONCE)):
            locks = self._locks[name]
            if not self._is_expired(locks[queue], now_ms):
                break
            del locks[queue], self._by_age[name, queue]
            self._count(-1, queue)
            self._changed(name, [queue])
            if not locks and name != group:
                del self._locks[name]
        if self._lock_count >= self._max_locks:
            raise TableFull("queue locks", self._max_locks, f"locks of group {group}")

    # -- the log of a group --------------------------------------------------------------------------------------------

    def logged_names(self) -> list[str]:
        """See LoggedTable. A name is the JSON array of group, topic, broker name and queue id."""
        return [_name_of(group, queue) for group, locks in self._locks.items() for queue in locks]

    def logged_entry(self, name: str) -> bytes | None:
        """See LoggedTable: the holder. Renewals are not logged."""
        group, queue = _key_of(name)
        lock = self._locks.get(group, _NONE).get(queue)
        return json.dumps(lock.client_id).encode() if lock is not None else None

    def take_logged(self, name: str, entry: bytes | None) -> None:
        """See LoggedTable."""
        group, queue = _key_of(name)
        locks = self._locks.setdefault(group, {})
        lock = locks.pop(queue, None)
        if lock is not None:
            del self._by_age[group, queue]
            self._count(-1, queue)
        if entry is not None:
            locks[queue] = _Lock(str(json.loads(entry)), self._now_ms())
            self._by_age[group, queue] = None
            self._count(1, queue)
        elif not locks:
            del self._locks[group]
        self._changed(group, [queue])

    def renew_all(self) -> None:
        """Count all locks as renewed now: this broker becomes the master of a group, and only the last one knew of
        renewals."""
        now_ms = self._now_ms()
        for locks in self._locks.values():
            for lock in locks.values():
                lock.last_update_ms = now_ms

    # -- the file ----------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load the locks; those that have expired since the broker was alive are left out."""
        loaded = self._file.load(_decode)
        if loaded is None:
            return
        alive_ms, holders = loaded
        now_ms = self._now_ms()
        if now_ms - alive_ms > self._expiry_ms:
            return
        for group, client_id, queue in holders[: self._max_locks]:
            locks = self._locks.setdefault(group, {})
            if queue not in locks:
                self._count(1, queue)
            locks[queue] = _Lock(client_id, min(now_ms, alive_ms))
            self._by_age[group, queue] = None
            self._fragments.touch((group, queue))
        log.info("queue locks loaded", locks=self._lock_count)

    def still_alive(self) -> None:
        """Note in the file that the locks are in use at this time."""
        if self._locks:
            self._writer.mark()

    def _changed(self, group: str, queues: list[MessageQueue]) -> None:
        for queue in queues:
            self._fragments.touch((group, queue))
            if self.log is not None:
                self.log.changed(_name_of(group, queue))
        if queues:
            self._writer.mark()

    def _lock_text(self, key: tuple[str, MessageQueue]) -> str | None:
        group, queue = key
        lock = self._locks.get(group, _NONE).get(queue)
        if lock is None:
            return None
        return json.dumps([group, lock.client_id, queue.topic, queue.broker_name, queue.queue_id])

    def _pieces(self) -> list[bytes]:
        head = f'{{\n\t"{_ALIVE}":{self._now_ms()},\n\t"{_HOLDERS}":[\n'
        return [head.encode(), *self._fragments.pieces(), b"\n\t]\n}"]


_NONE: Final[dict[MessageQueue, _Lock]] = {}
_ALIVE = "aliveAt"
_HOLDERS = "holders"


def _name_of(group: str, queue: MessageQueue) -> str:
    return json.dumps([group, queue.topic, queue.broker_name, queue.queue_id])


def _key_of(name: str) -> tuple[str, MessageQueue]:
    """Raises ValueError."""
    group, topic, broker_name, queue_id = json.loads(name)
    return str(group), MessageQueue(str(topic), str(broker_name), int(queue_id))


def _text_bytes(queue: MessageQueue) -> int:
    return entry_costs.TEXT * (len(queue.topic) + len(queue.broker_name))


def _decode(text: str) -> tuple[int, list[tuple[str, str, MessageQueue]]]:
    """Return when the broker was alive (ms), and group, client id and queue of each lock. Raises ValueError."""
    try:
        table = json.loads(text)
        if _HOLDERS in table:
            rows = table[_HOLDERS]
        else:  # as earlier versions wrote it: the locks of each group
            rows = [(group, *lock) for group, locks in table["locks"].items() for lock in locks]
        holders = [
            (str(group), str(client_id), MessageQueue(str(topic), str(broker_name), int(queue_id)))
            for group, client_id, topic, broker_name, queue_id in rows
        ]
        return int(table[_ALIVE]), holders
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"this is no table of queue locks: {error!r}") from None
