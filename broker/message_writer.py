"""MessageWriter: the only path of a message into the store, for producers, retries, delays, transactions and replies.

Delayed messages and half messages are redirected before (redirection.py). It appends, and completes the put when the
message is as durable as it requests:

    committed    its bytes are in the operating system's hands      always
    flushed      they are on disk                                   SYNC_FLUSH, unless WAIT=false
    replicated   a slave has them                                   SYNC_MASTER, unless WAIT=false

In a group (enableDLegerCommitLog) a put is complete when a quorum has it, and nothing else is waited for. Each of these
is a watermark, and waiting is a callback on it. A put that waits longer than syncFlushTimeout or slaveTimeout completes
with the status that says so; the message is stored nevertheless. One to a topic that is new waits until the topic is
safe, too (tables/new_names.py). Without a slave that is close enough the put does not
wait for one, and the status says that. If both the slave and the disk fail, the slave's status is reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final, Protocol

import structlog
import trio

from triomq.broker.configuration import Configuration
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.pending_put import AwaitedPut as AwaitedPut
from triomq.broker.pending_put import DependentPut, PutGroup
from triomq.broker.pending_put import NotifyingPut as NotifyingPut
from triomq.broker.pending_put import PendingPut as PendingPut
from triomq.broker.pending_put import WatchedPut as WatchedPut
from triomq.broker.tables.new_names import NewNames
from triomq.protocol import property_names as names
from triomq.protocol import stored_properties
from triomq.protocol.record import BatchUnit
from triomq.protocol.system_topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from triomq.store.config import BrokerRole, FlushDiskType
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import MessageToStore, PutResult, PutStatus
from triomq.store.watermark import Waiter, Watermark
from triomq.store.writing.delivering import Delivery, DueBlock, RealQueues

log = structlog.get_logger("triomq.broker.message_writer")

_PUT_OK: Final = PutStatus.PUT_OK
QUORUM_SECONDS: Final = 2.5
"""A put waits that long for a quorum of its group, as in RocketMQ. Its message may be stored nevertheless."""


class Replicas(Protocol):
    """What puts need of the slaves."""

    @property
    def replicated(self) -> Watermark: ...
    def is_near(self, end_offset: int) -> bool: ...


class MessageWriter:
    """See the module's docstring. `wake` makes a turn end soon, so that messages appended outside of one are
    committed."""

    def __init__(
        self,
        configuration: Configuration,
        store: DefaultMessageStore,
        wake: Callable[[], None],
        replicas: Replicas | None = None,
        stats: BrokerStats | None = None,
        new_topics: NewNames | None = None,
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._wake = wake
        self._new_topics = new_topics if new_topics is not None else NewNames.none()
        self._replicas = replicas
        self._stats = stats
        self._accepted = store.accepted
        self._acknowledged = store.acknowledged
        self._has_quorum = store.contents.log.needs_quorum
        self._accepting = PutGroup(-1)
        self._flushing = PutGroup(-1)
        self._settings = configuration.store
        self._take_settings()
        self._waiting: deque[PutGroup] = deque()
        self._replicating: deque[PendingPut] = deque()
        self._replica_waiter: Waiter | None = None
        self._arrived = trio.Event()
        self._sleeps_until = inf

    @property
    def waiting_for_disk(self) -> int:
        """Return the number of commits whose puts wait for the disk; it may include one that is complete."""
        return len(self._waiting)

    def _take_settings(self) -> None:
        """Copy the settings that every put needs. A change at run time replaces the settings record, so this runs
        again."""
        store = self._settings = self._configuration.store
        # In a group the quorum is both: other members, and with SYNC_FLUSH their disks.
        self._waits_for_slave = self._configuration.role.broker_role is BrokerRole.SYNC_MASTER and not self._has_quorum
        self._waits_for_disk = store.flush_disk_type is FlushDiskType.SYNC_FLUSH and not self._has_quorum

    def put(self, message: MessageToStore, wait: bool, pending: PendingPut) -> None:
        """Store `message`, which is redirected already if it is delayed or a half message (redirection.py), and finish
        `pending` when it is as durable as it requests."""
        if self._new_topics.names and (pending := self._dependent(message, pending)).is_finished:
            return
        pending.begin(self._store.append(message))
        self._complete(pending, wait)

    def put_due(self, block: DueBlock, queues: RealQueues, due_ms: int, room_bytes: int) -> Delivery | None:
        """Store the due messages of a block for a caller that commits next, as far as the store can take them together
        (Delivering.append). Return None if the first has to be put by itself, or is not due."""
        delivery = self._store.delivering.append(block, queues, due_ms, room_bytes)
        if delivery is not None and self._stats is not None:
            self._stats.stored(delivery.result.message_count, delivery.result.size_bytes)
        return delivery

    def put_batch(self, message: MessageToStore, units: list[BatchUnit], wait: bool, pending: PendingPut) -> None:
        """Store the units of a batch consecutively; `message` holds what they share."""
        if self._new_topics.names and (pending := self._dependent(message, pending)).is_finished:
            return
        for unit in units:
            unit.properties = stored_properties.unit_text(unit.properties)
        pending.begin(self._store.append_batch(message, units))
        self._complete(pending, wait)

    def when_durable(self, wait: bool, pending: PendingPut) -> None:
        """Finish `pending` when everything that is appended by now is as durable as a put with `wait` requests."""
        if self._has_quorum and (reason := self._store.role_refusal) is not None:
            # A deposed leader: what a quorum gets from now on may be others' messages at the same places.
            pending.begin(PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason))
            self._complete(pending, wait)
            return
        result = PutResult(_PUT_OK, physical_offset=self._store.appended_offset)
        pending.begin(result)
        if self._configuration.store is not self._settings:
            self._take_settings()
        if wait and self._waits_for_slave:
            self._replicate(pending, self._settings.slave_timeout_ms)
        # A group of its own: puts that joined it would be complete before their bytes are.
        group = PutGroup(self._accepted.value)
        group.puts.append(pending)
        if wait and self._waits_for_disk:
            self._limit(group, self._settings.sync_flush_timeout_ms / 1000)
            self._store.flushed.call_beyond(result.last_offset, group.reached)
        else:
            self._acknowledged.call_beyond(result.last_offset, group.reached)

    def _dependent(self, message: MessageToStore, pending: PendingPut) -> PendingPut:
        """Let a put wait for its topic, or its real topic, too, if that is new. It is finished if nothing may depend on
        the topic now."""
        new_topics = self._new_topics
        topic = message.topic
        if topic in (SCHEDULE_TOPIC, TRANS_HALF_TOPIC):
            topic = message.properties.get(names.REAL_TOPIC) or topic
        if topic not in new_topics.names:
            return pending
        reason = new_topics.refusal(topic)
        if reason:
            pending.begin(PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason))
            pending.is_finished = True
            pending.finish()
            return pending
        return DependentPut(pending, partial(new_topics.when_kept, topic))

    def _complete(self, pending: PendingPut, wait: bool) -> None:
        result = pending.result
        if result.status is not _PUT_OK:
            pending.is_finished = True
            pending.finish()
            return
        stats = self._stats
        if stats is not None:  # as `BrokerStats.stored` counts
            stats.stored_total += result.message_count
            stats.stored_size_total_bytes += result.size_bytes
        if self._configuration.store is not self._settings:
            self._take_settings()
        if self._has_quorum or (wait and (self._waits_for_slave or self._waits_for_disk)):
            self._wait_longer(pending, wait)
            return
        group = self._accepting
        if group.commit_begin == self._accepted.value:
            group.puts.append(pending)
        else:
            self._accepting = self._join(group, pending, self._acknowledged)

    def _wait_longer(self, pending: PendingPut, wait: bool) -> None:
        """Let the put wait for more than the commit."""
        if wait and self._waits_for_slave:
            pending.release_body()
            self._replicate(pending, self._settings.slave_timeout_ms)
        if wait and self._waits_for_disk:
            pending.release_body()
            group = self._join(self._flushing, pending, self._store.flushed)
            if group is not self._flushing:
                self._flushing = group
                self._limit(group, self._settings.sync_flush_timeout_ms / 1000)
        elif self._has_quorum:
            pending.release_body()
            pending.late_status = PutStatus.OS_PAGECACHE_BUSY
            group = self._join(self._accepting, pending, self._acknowledged)
            if group is not self._accepting:
                self._accepting = group
                self._limit(group, QUORUM_SECONDS)
        else:
            self._accepting = self._join(self._accepting, pending, self._acknowledged)

    def _join(self, group: PutGroup, pending: PendingPut, watermark: Watermark) -> PutGroup:
        """Add the put to `group`, or to a new group if that one is complete; return the group. The first put of a
        commit arranges the commit."""
        commit_begin = self._accepted.value
        if group.commit_begin == commit_begin:
            group.puts.append(pending)
            return group
        self._wake()
        group = PutGroup(commit_begin, watermark)
        group.puts.append(pending)
        watermark.call_beyond(pending.result.last_offset, group.reached)
        return group

    def _limit(self, group: PutGroup, seconds: float) -> None:
        """Set the deadline of a new group. Groups whose wait is over are dropped here, so only waiting groups are
        held, and the task that checks deadlines sleeps while no put is late."""
        waiting = self._waiting
        while waiting and waiting[0].commit_begin < 0:
            waiting.popleft()
        group.deadline = trio.current_time() + seconds
        waiting.append(group)
        if group.deadline < self._sleeps_until:
            self._arrived.set()

    def _replicate(self, pending: PendingPut, timeout_ms: int) -> None:
        """Let the put wait for a slave, if there is one close enough."""
        replicas = self._replicas
        if replicas is None or not replicas.is_near(pending.result.end_offset):
            pending.replica_status = PutStatus.SLAVE_NOT_AVAILABLE
            return
        pending.replica_status = None
        pending.replica_deadline = trio.current_time() + timeout_ms / 1000
        self._replicating.append(pending)
        if len(self._replicating) == 1:
            self._arrived.set()
            self._watch_replicas(replicas.replicated)

    def _watch_replicas(self, replicated: Watermark) -> None:
        """Register one callback for all puts that wait for slaves: they complete in order, many at a time."""
        if self._replica_waiter is None:
            self._replica_waiter = replicated.call_beyond(self._replicating[0].result.last_offset, self._replicated)

    def _replicated(self, error: Exception | None) -> None:
        """Complete waiting puts: a slave has the oldest, and maybe more (called by the watermark)."""
        self._replica_waiter = None
        if self._replicas is None:
            return
        replicated = self._replicas.replicated
        replicating = self._replicating
        while replicating:
            put = replicating[0]
            if not put.is_replica_known:
                if put.result.last_offset >= replicated.value:
                    self._watch_replicas(replicated)
                    return
                put.set_replica_status(_PUT_OK)
            replicating.popleft()

    async def run(self) -> None:
        """Finish puts that wait too long; runs until cancelled."""
        waiting, replicating = self._waiting, self._replicating
        while True:
            now = trio.current_time()
            while waiting and (waiting[0].commit_begin < 0 or waiting[0].deadline <= now):
                waiting.popleft().too_late()
            while replicating and (replicating[0].is_replica_known or replicating[0].replica_deadline <= now):
                replicating.popleft().set_replica_status(PutStatus.FLUSH_SLAVE_TIMEOUT)
            if not replicating and self._replica_waiter is not None:
                self._replica_waiter.cancel()
                self._replica_waiter = None
            flush_due = waiting[0].deadline if waiting else inf
            replica_due = replicating[0].replica_deadline if replicating else inf
            self._arrived = trio.Event()
            self._sleeps_until = min(flush_due, replica_due)
            with trio.move_on_at(self._sleeps_until):
                await self._arrived.wait()
