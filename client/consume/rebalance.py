"""Dividing a topic's queues among the members of a group, and holding the share of this member (RocketMQ:
RebalanceImpl).

Every member asks a broker for the ids of all members and computes its own share (allocation.py). Held queues that have
left the share are given up after their offset was stored; new ones are opened at the stored offset, or where the
consumer chooses. Ordered consumers also hold a lock at the broker on each queue.

Owned by one consumer, which decides through `Holder` how a queue is opened and what runs for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

import trio

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.clock import now_ms
from triomq.client.consume.offset_store import OffsetStore
from triomq.client.core import requests
from triomq.client.core.allocation import Strategy
from triomq.client.core.errors import MQClientError, NoRoute
from triomq.client.core.log import get_logger, report
from triomq.client.core.results import MessageModel
from triomq.client.instance.client import Client
from triomq.protocol.message_queue import MessageQueue

log = get_logger("triomq.client.rebalance")

PULL_EXPIRED_MS = 120_000
"""A queue whose pull loop was silent for longer is given up and opened again."""


class Holder(Protocol):
    """The consumer, as rebalancing sees it."""

    async def first_offset(self, queue: MessageQueue) -> int:
        """Return where the first pull of a new queue begins. Raises MQClientError."""

    def opened(self, assigned: AssignedQueue) -> None:
        """Start what runs for a queue that was opened."""

    async def closed(self, assigned: AssignedQueue) -> None:
        """Clean up after a queue that was given up; nothing runs for it any more."""

    def queues_changed(self, topic: str, every: Collection[MessageQueue], ours: Collection[MessageQueue]) -> None:
        """Note that the share of this member changed."""


class Rebalancer:
    """The queues this member holds."""

    def __init__(
        self,
        client: Client,
        group: str,
        model: MessageModel,
        strategy: Strategy,
        offsets: OffsetStore,
        holder: Holder,
        *,
        ordered: bool,
    ) -> None:
        self._client = client
        self._group = group
        self._model = model
        self._strategy = strategy
        self._offsets = offsets
        self._holder = holder
        self._in_order = ordered
        self._ordered = ordered and model is MessageModel.CLUSTERING
        self._turn = 0
        # One round at a time: a broker's notification and the application's `assign` may coincide.
        self.round = trio.Lock()
        """Held while queues are opened and given up, and by a reset of offsets, which must not come in between."""
        self.assigned: dict[MessageQueue, AssignedQueue] = {}
        self.last_shares: dict[str, list[MessageQueue]] = {}

    def of_topic(self, topic: str) -> list[AssignedQueue]:
        return [one for queue, one in self.assigned.items() if queue.topic == topic]

    async def rebalance(self, topics: Iterable[str]) -> bool:
        """Run one round over all topics, and give up the queues of other topics. Return False when some topic needs
        another look soon (no route, no response, a lock not granted)."""
        async with self.round:
            return await self._rebalance(sorted(set(topics)))

    async def _rebalance(self, wanted: list[str]) -> bool:
        settled = True
        for topic in wanted:
            try:
                settled &= await self._rebalance_topic(topic)
            except NoRoute as error:
                settled = False
                log.debug("route of a topic not found", group=self._group, topic=topic, reason=str(error))
            except MQClientError as error:
                settled = False
                report(log, "rebalance failed", error, group=self._group, topic=topic)
        for queue in [queue for queue in self.assigned if queue.topic not in wanted]:
            settled &= await self.give_up(queue)
        for topic in [topic for topic in self.last_shares if topic not in wanted]:
            del self.last_shares[topic]
        return settled

    async def hold_exactly(self, queues: Collection[MessageQueue]) -> bool:
        """Hold exactly these queues, whatever other members read; for consumers that assign by hand. Return False when
        one could not be opened (try again)."""
        keep = set(queues)
        settled = True
        async with self.round:
            for queue in [queue for queue in self.assigned if queue not in keep]:
                settled &= await self.give_up(queue)
            for queue in sorted(keep):
                held = self.assigned.get(queue)
                if held is not None:
                    held.stay()
                else:
                    settled &= await self._open(queue)
        return settled

    def reopen(self, queue: MessageQueue, next_offset: int) -> None:
        """Continue with a held queue at another offset, forgetting what was pulled of it."""
        old = self.assigned.pop(queue, None)
        if old is not None:
            old.drop()
        assigned = AssignedQueue(queue, next_offset, now_ms())
        if old is not None:
            assigned.paused = old.paused
            assigned.window.locked = old.window.locked
            assigned.window.last_lock_ms = old.window.last_lock_ms
        self.assigned[queue] = assigned
        self._holder.opened(assigned)

    def is_ours(self, queue: MessageQueue) -> bool:
        """Return whether this member holds the queue, or is about to open it: it was closed to be opened at another
        offset."""
        return queue in self.assigned or queue in self.last_shares.get(queue.topic, ())

    async def _rebalance_topic(self, topic: str) -> bool:
        route = await self._client.route(topic)
        every = route.subscribe
        if self._model is MessageModel.BROADCASTING:
            share = list(every)
        else:
            members = await self._members(topic)
            if self._client.client_id not in members:
                log.debug("member not listed by the broker yet", group=self._group, topic=topic)
                return False
            share = self._strategy(self._group, self._client.client_id, sorted(every), members)
        settled, changed = await self._apply(topic, share)
        if changed or self.last_shares.get(topic) != share:
            self.last_shares[topic] = share
            log.info("queues assigned to this member", group=self._group, topic=topic, ours=len(share), of=len(every))
            self._holder.queues_changed(topic, every, share)
        return settled

    async def _members(self, topic: str) -> list[str]:
        """Return the ids of all members, from one broker of the topic, a different one each time."""
        self._turn += 1
        broker = self._client.routes.any_broker_of(topic, self._turn)
        if broker is None:
            raise NoRoute(topic, self._client.name_servers.addresses, "none of the topic's brokers is known")
        try:
            return await self._client.call(broker.address, requests.consumer_ids(self._group))
        except MQClientError:
            await self._client.refresh_route(topic)
            raise

    async def _apply(self, topic: str, share: Collection[MessageQueue]) -> tuple[bool, bool]:
        """Give up and open queues so that this member holds `share`. Return (settled, changed)."""
        settled, changed = True, False
        began_ms = now_ms()
        keep = set(share)
        for assigned in self.of_topic(topic):
            expired = began_ms - assigned.window.last_pull_ms > PULL_EXPIRED_MS and not assigned.paused
            # After a lost lock another member may have consumed on: the window and the offset here are worthless.
            lost = self._ordered and not assigned.window.locked
            if assigned.queue not in keep or expired or lost or assigned.dropped:
                gone = await self.give_up(assigned.queue, store_offset=not lost)
                settled &= gone
                changed |= gone
            else:
                assigned.stay()
        if self._model is MessageModel.CLUSTERING:
            for queue in self._offsets.table.snapshot(topic).keys() - keep - self.assigned.keys():
                # A reset closed it, and before it was opened again it became another member's.
                self._offsets.table.remove(queue)
        for queue in sorted(keep - self.assigned.keys()):
            opened = await self._open(queue)
            settled &= opened
            changed |= opened
        return settled, changed

    async def _open(self, queue: MessageQueue) -> bool:
        if self._ordered and queue not in await self.lock([queue]):
            log.info("queue still locked by another member", group=self._group, queue=str(queue))
            return False
        try:
            next_offset = await self._holder.first_offset(queue)
        except MQClientError as error:
            report(log, "first offset not known", error, group=self._group, queue=str(queue))
            return False
        if queue in self.assigned:
            return True
        assigned = AssignedQueue(queue, next_offset, now_ms())
        assigned.window.locked = self._ordered
        self.assigned[queue] = assigned
        self._holder.opened(assigned)
        return True

    async def give_up(self, queue: MessageQueue, *, store_offset: bool = True) -> bool:
        """Store the queue's offset and give it up. Return False when an ordered listener is still busy with it: the
        queue is LEAVING then, and the next round tries again or keeps it."""
        assigned = self.assigned.get(queue)
        if assigned is None:
            return True
        if self._in_order and assigned.busy:
            assigned.leave()
            with trio.move_on_after(1):
                while assigned.busy:
                    await assigned.wait_change(1)
            # Its offset may have been reset meanwhile, which closes or reopens it: then the next round decides.
            if assigned.busy or self.assigned.get(queue) is not assigned:
                return False
        assigned.drop()
        del self.assigned[queue]
        if store_offset:
            await self._offsets.persist((queue,))
        if self._model is MessageModel.CLUSTERING:
            self._offsets.table.remove(queue)
        if self._ordered:
            await self.unlock([queue])
        await self._holder.closed(assigned)
        return True

    # Locks of ordered consumers.

    async def lock(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Ask for the locks of these queues; return those that this member holds. Brokers that do not respond grant
        nothing."""
        granted: set[MessageQueue] = set()
        for broker_name, of_broker in _by_broker(queues).items():
            try:
                address = await self._client.master_of(broker_name, of_broker[0].topic)
                call = requests.lock_queues(self._group, self._client.client_id, of_broker)
                locked = await self._client.call(address, call)
                granted |= locked
            except MQClientError as error:
                report(log, "queues not locked", error, group=self._group, broker=broker_name)
        return granted & set(queues)

    async def lock_held(self) -> None:
        """Confirm the locks of all held queues; the periodic task of ordered consumers."""
        held = list(self.assigned)
        granted = await self.lock(held) if held else set()
        began_ms = now_ms()
        for queue in held:
            assigned = self.assigned.get(queue)
            if assigned is None:
                continue
            if queue in granted:
                assigned.window.locked = True
                assigned.window.last_lock_ms = began_ms
            elif not assigned.holds_lock(began_ms):
                assigned.window.locked = False
            assigned.notify()

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        for broker_name, of_broker in _by_broker(queues).items():
            address = self._client.routes.master(broker_name)
            if address is None:
                continue
            try:
                await self._client.tell(
                    address, requests.unlock_queues(self._group, self._client.client_id, of_broker), vip=True
                )
            except MQClientError as error:
                report(log, "queues not unlocked", error, group=self._group, broker=broker_name)

    async def close(self) -> None:
        """Give up everything; offsets must have been stored before."""
        held = list(self.assigned.values())
        for assigned in held:
            assigned.drop()
        self.assigned.clear()
        if self._ordered and held:
            await self.unlock([assigned.queue for assigned in held])


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    grouped: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        grouped.setdefault(queue.broker_name, []).append(queue)
    return grouped
