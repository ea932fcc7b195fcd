"""Pulling with assignment, position and commit (RocketMQ: DefaultLitePullConsumer).

    async with LitePullConsumer("report", name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("Orders")                # the members of the group share the queues
        while True:
            for message in await consumer.poll():
                ...

or, without sharing, `await consumer.assign(await consumer.queues("Orders"))`, and then `seek`, `pause`, `commit` as
needed.

Messages are pulled in the background up to a limit, and `poll` returns them. With `auto_commit` (the default) what one
poll returned is stored as consumed after the next poll, and when the `async with` block ends without an exception;
otherwise call `commit`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Generic, Unpack

import trio

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.failed_messages import DEFAULT_MAX_RECONSUME_TIMES, FailedMessages
from triomq.client.consume.group_consumer import GroupConsumer, GroupSettings
from triomq.client.consume.payloads import Payloads
from triomq.client.consume.polled import Polled
from triomq.client.core import requests
from triomq.client.core.allocation import Strategy
from triomq.client.core.config import ClientOptions
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.errors import ConfigurationError, MQClientError
from triomq.client.core.hooks import FilterHook
from triomq.client.core.log import get_logger, report
from triomq.client.core.results import ConsumeFromWhere, MessageModel
from triomq.client.core.type_variables import T
from triomq.client.instance.client import Client
from triomq.client.instance.subscribing import subscription
from triomq.client.payloads.serializer import Serializer
from triomq.protocol.bodies.heartbeat import CONSUME_ACTIVELY
from triomq.protocol.bodies.running_info import ConsumeMessageDirectlyResult
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused
from triomq.protocol.message import MessageExt
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import TAG, SubscriptionData

__all__ = ["LitePullConsumer", "MessageExt", "MessageQueue"]

log = get_logger("triomq.client.lite_pull")

MAX_WAITING_PULLS = 1000


class LitePullConsumer(GroupConsumer, Generic[T]):
    """Polls messages of its share of the queues, or of queues assigned by hand (RocketMQ: DefaultLitePullConsumer).

    Messages are pulled in the background up to a limit, and `poll` returns them. With `auto_commit` (the default), what
    one poll returned is stored as consumed by the next poll (at most every `auto_commit_seconds`), and when the `async
    with` block ends without an exception. Without it, call `commit`.

    The other parameters are those of `PushConsumer`.
    """

    def __init__(
        self,
        group: str,
        *,
        client: Client | None = None,
        model: MessageModel = MessageModel.CLUSTERING,
        consume_from: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        consume_from_time: datetime | None = None,
        strategy: Strategy | None = None,
        rules: ConsumeRules | None = None,
        auto_commit: bool = True,
        auto_commit_seconds: float = 5.0,
        filter_hooks: Iterable[FilterHook] = (),
        serializer: Serializer[T] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(
            group,
            client,
            options,
            # Brokers need not know the subscription of queues assigned by hand, so each pull carries it.
            GroupSettings(
                rules=replace(rules or ConsumeRules(pull_batch_size=10), send_expression=True, concurrency=1),
                model=model,
                ordered=False,
                consume_from=consume_from,
                consume_from_time=consume_from_time,
                strategy=strategy,
                filter_hooks=filter_hooks,
            ),
        )
        self._payloads = None if serializer is None else Payloads(serializer)
        self._failed = FailedMessages(self._client, self.group)
        self.auto_commit = auto_commit
        self.auto_commit_seconds = auto_commit_seconds
        self._assigned_by_hand: set[MessageQueue] | None = None
        self._paused: set[MessageQueue] = set()
        self._next_commit = 0.0

    def _make_parts(self) -> None:
        super()._make_parts()
        self._positions: dict[MessageQueue, int] = {}
        self._uncounted: dict[MessageQueue, int] = {}
        self._waiting: deque[tuple[AssignedQueue, Sequence[MessageExt]]] = deque()
        self._arrived = trio.Event()
        self._taken = trio.Event()

    def _end_waits(self) -> None:
        self._arrived.set()

    def _start(self) -> None:
        self._next_commit = trio.current_time() + self.auto_commit_seconds

    async def _finish(self, *, failed: bool) -> None:
        if self.auto_commit and not failed:
            self._count_polls()

    # What to read.

    def subscribe(self, topic: str, expression: str = "*", *, sql: bool = False) -> None:
        """Read this topic's queues, as far as they are this member's share. Not together with `assign`."""
        if self._assigned_by_hand is not None:
            raise ConfigurationError("queues are assigned by hand; subscribe and assign do not go together")
        self._subscribe(topic, expression, sql=sql)

    async def assign(self, queues: Iterable[MessageQueue], expression: str = "*") -> None:
        """Read exactly these queues, whatever other members read. Raises NoRoute, BrokerRefused and the like when that
        fails."""
        if self._subscriptions and self._assigned_by_hand is None:
            raise ConfigurationError("topics are subscribed to; subscribe and assign do not go together")
        self._open_nursery()
        wanted = {self._wire(queue) for queue in queues}
        topics = {queue.topic for queue in wanted}
        for topic in topics:
            await self._client.route(topic)
        # All at once: a cancelled call leaves nothing behind.
        for topic in topics:
            self._subscriptions[topic] = subscription(self._client, topic, expression, TAG)
        self._assigned_by_hand = wanted
        await self._client.heartbeat_all()
        if not await self._rebalancer.hold_exactly(wanted):
            self._wake.set()

    def topics_without_queues(self) -> list[str]:
        wanted = self._assigned_by_hand
        if wanted is None:
            return super().topics_without_queues()
        return sorted({queue.topic for queue in wanted - self._rebalancer.assigned.keys()})

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are read now."""
        return sorted(self._bare(queue) for queue in self._rebalancer.assigned)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, sorted. Raises NoRoute."""
        await trio.lowlevel.checkpoint()
        route = await self._client.route(self._client.namespace.wrap(topic))
        return [self._bare(queue) for queue in route.subscribe]

    # Reading.

    async def poll(self, timeout_seconds: float = 5.0) -> list[MessageExt[T]]:
        """Return the messages of one pull (at most `rules.pull_batch_size`, of one queue) as soon as there are some; an
        empty list when the time has passed. With a time of 0 it returns what is there. A poll that is cancelled has
        taken nothing."""
        polled = await self.take(timeout_seconds)
        return [] if polled is None else polled.messages

    async def take(self, timeout_seconds: float) -> Polled | None:
        """Take messages for callers that can give back what they could not pass on; otherwise like `poll`. All waiting
        is done before messages are taken, so that a cancelled call has taken none."""
        self._open_nursery()
        self._check_subscribed()
        if self.auto_commit:
            self._count_polls()
        if self.auto_commit and trio.current_time() >= self._next_commit:
            self._next_commit = trio.current_time() + self.auto_commit_seconds
            await self._offsets.persist()
        await trio.lowlevel.checkpoint()
        self._check_not_closing()
        return self._take() or await self._filters.guard(self._take_within, timeout_seconds)

    async def _take_within(self, timeout_seconds: float) -> Polled | None:
        found: Polled | None = None
        with trio.move_on_after(timeout_seconds):
            while found is None:
                self._check_not_closing()
                await self._arrived.wait()
                self._check_not_closing()
                found = self._take()
        return found

    def _take(self) -> Polled | None:
        skipped: list[tuple[AssignedQueue, Sequence[MessageExt]]] = []
        found: Polled | None = None
        while self._waiting and found is None:
            assigned, messages = self._waiting.popleft()
            if assigned.dropped:
                continue
            if assigned.paused:
                skipped.append((assigned, messages))
                continue
            self._moved(assigned, assigned.window.remove(messages))
            assigned.notify()
            self.stats.consumed(assigned.queue.topic, 0, len(messages), 0)
            found = Polled(self._returned, assigned, list(messages))
        self._waiting.extendleft(reversed(skipped))
        if found is None:
            self._arrived = trio.Event()
        self._taken.set()
        return found

    def _returned(self, assigned: AssignedQueue, messages: Sequence[MessageExt]) -> None:
        """Have the next poll return these messages, which nobody got."""
        if not assigned.dropped:
            self._moved(assigned, assigned.window.put_again(messages))
            self.stats.consumed(assigned.queue.topic, 0, -len(messages), 0)
            self._waiting.appendleft((assigned, messages))
            self._arrived.set()

    def _moved(self, assigned: AssignedQueue, position: int | None) -> None:
        """Note the oldest message of a queue that no poll has returned."""
        if position is not None:
            self._positions[assigned.queue] = self._uncounted[assigned.queue] = position

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Return nothing of these queues from `poll` until `resume`."""
        for queue in map(self._wire, queues):
            self._paused.add(queue)
            assigned = self._rebalancer.assigned.get(queue)
            if assigned is not None:
                assigned.paused = True

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Return messages of these queues from `poll` again."""
        for queue in map(self._wire, queues):
            self._paused.discard(queue)
            assigned = self._rebalancer.assigned.get(queue)
            if assigned is not None:
                assigned.paused = False
                assigned.notify()
        self._arrived.set()

    # Positions and offsets.

    async def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Continue at `queue_offset` with a queue that is read now. Raises ConfigurationError for an offset outside the
        queue."""
        wire = self._wire(queue)
        if wire not in self._rebalancer.assigned:
            raise ConfigurationError(f"{queue} is not assigned to this consumer now: {self.assignment}")
        address = await self._client.master_soon(wire.broker_name, wire.topic)
        low, high = (
            await self._client.call(address, requests.min_offset(wire)),
            await self._client.call(address, requests.max_offset(wire)),
        )
        if not low <= queue_offset <= high:
            raise ConfigurationError(f"offset {queue_offset} is outside {queue}, which has {low} to {high}")
        self._positions[wire] = queue_offset
        self._uncounted[wire] = queue_offset
        self._rebalancer.reopen(wire, queue_offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the oldest message of a queue."""
        wire = self._wire(queue)
        address = await self._client.master_soon(wire.broker_name, wire.topic)
        await self.seek(queue, await self._client.call(address, requests.min_offset(wire)))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue behind the newest message of a queue."""
        wire = self._wire(queue)
        address = await self._client.master_soon(wire.broker_name, wire.topic)
        await self.seek(queue, await self._client.call(address, requests.max_offset(wire)))

    async def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored at `timestamp_ms` or later, or the end of the queue
        (an Apache broker 4.9: of the message stored nearest to it)."""
        wire = self._wire(queue)
        address = await self._client.master_soon(wire.broker_name, wire.topic)
        return await self._client.call(address, requests.search_offset(wire, timestamp_ms))

    async def position(self, queue: MessageQueue) -> int | None:
        """Return the queue offset of the next message that `poll` returns; the committed one before the first poll."""
        await trio.lowlevel.checkpoint()
        wire = self._wire(queue)
        known = self._positions.get(wire)
        return known if known is not None else await self.committed(queue)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the stored offset of the group; None when there is none."""
        return await self._offsets.read(self._wire(queue))

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store what the polls so far returned as consumed, or the given offsets (of the next messages). Returns when
        they are stored. Raises BrokerRefused and the like when a broker did not store them."""
        await trio.lowlevel.checkpoint()
        if offsets is None:
            self._count_polls()
            due = [queue for queue, _ in self._offsets.table.changed()]
        else:
            due = [self._wire(queue) for queue in offsets]
            for queue, queue_offset in zip(due, offsets.values(), strict=True):
                self._offsets.table.update(queue, queue_offset)
        for queue in due:
            await self._offsets.persist_now(queue)

    def _count_polls(self) -> None:
        """Count what was polled since the last call as consumed."""
        for queue, position in self._uncounted.items():
            self._offsets.table.update(queue, position)
        self._uncounted.clear()

    # ConsumerMember.

    consume_type = CONSUME_ACTIVELY

    def _announced_subscriptions(self) -> list[SubscriptionData]:
        return [] if self._assigned_by_hand is not None else self.subscriptions()

    async def persist_offsets(self) -> None:
        if self.auto_commit:
            await self._offsets.persist()

    async def store_offsets_again(self, broker_name: str) -> None:
        if self.auto_commit:
            await self._offsets.store_again(broker_name)

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        async with self._rebalancer.round:
            for queue, queue_offset in offsets.items():
                if queue.topic != topic or queue not in self._rebalancer.assigned:
                    continue
                self._uncounted.pop(queue, None)
                self._offsets.table.update(queue, queue_offset)
                try:
                    await self._offsets.persist_now(queue)
                except MQClientError as error:
                    report(log, "offset not stored", error, queue=str(queue))
                self._positions[queue] = queue_offset
                self._rebalancer.reopen(queue, queue_offset)

    async def consume_directly(self, message: MessageExt, broker_name: str | None) -> ConsumeMessageDirectlyResult:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the group {self.group} polls and has no listener")

    # Holder (rebalance.py).

    def opened(self, assigned: AssignedQueue) -> None:
        assigned.paused = assigned.queue in self._paused
        super().opened(assigned)

    async def closed(self, assigned: AssignedQueue) -> None:
        await super().closed(assigned)
        self._positions.pop(assigned.queue, None)
        self._uncounted.pop(assigned.queue, None)

    async def offset_illegal(self, assigned: AssignedQueue, next_offset: int) -> None:
        self._positions[assigned.queue] = next_offset
        self._uncounted.pop(assigned.queue, None)
        self._offsets.table.update(assigned.queue, next_offset)
        self._rebalancer.reopen(assigned.queue, next_offset)

    async def begin_anew(self, assigned: AssignedQueue) -> None:
        self._positions.pop(assigned.queue, None)
        self._uncounted.pop(assigned.queue, None)
        await super().begin_anew(assigned)

    # Inside.

    async def _submit(self, assigned: AssignedQueue, messages: Sequence[MessageExt]) -> None:
        if self._payloads is not None:
            messages = await self._payloads.keep_right(assigned, messages, self._bury)
        while len(self._waiting) >= MAX_WAITING_PULLS and not assigned.dropped:
            self._taken = trio.Event()
            await self._taken.wait()
        if messages and not assigned.dropped:
            self._waiting.append((assigned, messages))
            self._arrived.set()

    async def _bury(self, assigned: AssignedQueue, message: MessageExt, reason: str) -> bool:
        if self.is_broadcasting:
            log.warning("broadcast message rejected; it is dropped", group=self.group, reason=reason)
            return True
        broker_name = assigned.queue.broker_name
        return await self._failed.deliver_again(message, broker_name, -1, DEFAULT_MAX_RECONSUME_TIMES, reason)

    def _skipped(self, assigned: AssignedQueue) -> None:
        """Advance the position to `next_offset`, as if the messages before it had been polled."""
        self._uncounted[assigned.queue] = assigned.next_offset

    async def _run_queue(self, assigned: AssignedQueue) -> None:
        with assigned.scope:
            await self._loop.run(assigned)

    async def _balance(self) -> bool:
        if self._assigned_by_hand is not None:
            return await self._rebalancer.hold_exactly(self._assigned_by_hand)
        return await super()._balance()
