"""Pulling with assignment, position and commit (RocketMQ: DefaultLitePullConsumer).

    async with LitePullConsumer("report", name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("Orders")                # the queues are shared out among the members of the group
        while True:
            for message in await consumer.poll():
                ...

or, without sharing, `await consumer.assign(await consumer.queues("Orders"))`, and then `seek`, `pause`, `commit` as
needed.

Messages are pulled in the background up to a limit and handed out by `poll`. With `auto_commit` (the default) what
one poll returned is stored as consumed after the next poll, and when the `async with` block ends without an exception;
otherwise `await consumer.commit()` says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Self, Unpack

import trio

from mqclient import calls, running_info
from mqclient.allocation import Averagely, Strategy
from mqclient.assigned import AssignedQueue
from mqclient.client import Client
from mqclient.config import ClientConfig, ClientOptions
from mqclient.consume_rules import ConsumeRules
from mqclient.consumer_stats import ConsumerStats
from mqclient.errors import ClientClosed, ConfigurationError, MQClientError
from mqclient.first_offset import begin_offset
from mqclient.hooks import FilterHook
from mqclient.log import get_logger
from mqclient.offset_store import BrokerOffsets, FileOffsets, OffsetStore
from mqclient.pull_loop import PullLoop
from mqclient.pulling import Puller
from mqclient.rebalance import Rebalancer
from mqclient.results import ConsumeFromWhere, MessageModel
from mqclient.subscribing import subscription
from protocol import system_topics
from protocol.bodies.heartbeat import CONSUME_ACTIVELY, ConsumerData
from protocol.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from protocol.codes import ResponseCode
from protocol.errors import RequestRefused
from protocol.message import MessageExt
from protocol.message_queue import MessageQueue
from protocol.subscription import SQL92, TAG, SubscriptionData

__all__ = ["LitePullConsumer", "MessageExt", "MessageQueue"]

log = get_logger("mqclient.lite_pull")

UNSETTLED_SECONDS = 1.0
MAX_WAITING_PULLS = 1000


class LitePullConsumer:
    """See the module's text. `auto_commit_seconds`: how often a poll stores what earlier polls returned."""

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
        **options: Unpack[ClientOptions],
    ) -> None:
        if not group.strip() or group == system_topics.DEFAULT_CONSUMER_GROUP:
            raise ConfigurationError(f"the consumer group must have a name of its own, not {group!r}")
        if client is not None and options:
            raise ConfigurationError(f"options of the shared client cannot be changed here: {', '.join(options)}")
        if consume_from is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP and consume_from_time is None:
            raise ConfigurationError("CONSUME_FROM_TIMESTAMP needs consume_from_time")
        self._client = client if client is not None else Client(ClientConfig(**options))
        self._owns_client = client is None
        self.group_name = group
        self.group = self._client.namespace.wrap(group)
        self.model = model
        # Brokers need not know the subscription of queues that are assigned by hand, so it goes along with each pull.
        self.rules = replace(rules or ConsumeRules(pull_batch_size=10), send_expression=True)
        self.auto_commit = auto_commit
        self.auto_commit_seconds = auto_commit_seconds
        self.stats = ConsumerStats(self._client.config.now_ms)
        self._consume_from = consume_from
        self._consume_from_time = consume_from_time
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._assigned_by_hand: set[MessageQueue] | None = None
        self._paused: set[MessageQueue] = set()
        self._positions: dict[MessageQueue, int] = {}
        self._uncounted: dict[MessageQueue, int] = {}
        self._next_commit = 0.0
        self._waiting: deque[tuple[AssignedQueue, Sequence[MessageExt]]] = deque()
        self._arrived = trio.Event()
        self._taken = trio.Event()
        self._wake = trio.Event()
        self._tell_brokers = False
        self._started_ms = 0
        self._nursery: trio.Nursery | None = None
        self._stack = AsyncExitStack()
        self._offsets: OffsetStore
        if self.is_broadcasting:
            config = self._client.config
            self._offsets = FileOffsets(config.offset_directory, self._client.client_id, self.group)
        else:
            self._offsets = BrokerOffsets(self._client, self.group)
        self._puller = Puller(self._client, self.group, list(filter_hooks))
        self._rebalancer = Rebalancer(
            self._client, self.group, model, strategy or Averagely(), self._offsets, self, ordered=False
        )
        self._loop = PullLoop(self._client, self, self._puller, self.rules, self._submit, self._skipped)

    # Life.

    async def __aenter__(self) -> Self:
        if self._nursery is not None:
            raise ClientClosed("this consumer is already open")
        async with AsyncExitStack() as stack:
            if self._owns_client:
                await stack.enter_async_context(self._client)
            elif not self._client.is_open:
                raise ClientClosed("the shared client is not open")
            await self._offsets.open()
            self._client.add_consumer(self)
            stack.push_async_callback(self._leave)
            self._nursery = await stack.enter_async_context(trio.open_nursery())
            self._started_ms = self._client.config.now_ms()
            self._next_commit = trio.current_time() + self.auto_commit_seconds
            self.start_soon(self._keep_balanced)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._nursery is not None:
            if error is None and self.auto_commit:
                self._count_polls()
            self._nursery.cancel_scope.cancel()
            try:
                await self._stack.aclose()
            finally:
                self._nursery = None

    async def _leave(self) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
            try:
                await self._offsets.persist()
                await self._rebalancer.close()
            finally:
                await self._client.remove_consumer(self.group)
        self._client.consumers.pop(self.group, None)

    def start_soon(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        self._open_nursery().start_soon(function, *args)

    def _open_nursery(self) -> trio.Nursery:
        if self._nursery is None:
            raise ClientClosed("this consumer is closed: use it inside `async with LitePullConsumer(...) as consumer`")
        return self._nursery

    # What to read.

    def subscribe(self, topic: str, expression: str = "*", *, sql: bool = False) -> None:
        """Read this topic's queues, as far as they are this member's share. Not together with `assign`."""
        if self._assigned_by_hand is not None:
            raise ConfigurationError("queues are assigned by hand; subscribe and assign do not go together")
        wire = self._client.namespace.wrap(topic)
        self._subscriptions[wire] = subscription(self._client, wire, expression, SQL92 if sql else TAG)
        self._tell_brokers = True
        self._wake.set()

    def unsubscribe(self, topic: str) -> None:
        self._subscriptions.pop(self._client.namespace.wrap(topic), None)
        self._tell_brokers = True
        self._wake.set()

    async def assign(self, queues: Iterable[MessageQueue], expression: str = "*") -> None:
        """Read exactly these queues, whoever else does. Raises NoRoute, BrokerRefused and the like when that fails."""
        if self._subscriptions and self._assigned_by_hand is None:
            raise ConfigurationError("topics are subscribed to; subscribe and assign do not go together")
        self._open_nursery()
        wanted = {self._wire(queue) for queue in queues}
        for topic in {queue.topic for queue in wanted}:
            await self._client.route(topic)
            self._subscriptions[topic] = subscription(self._client, topic, expression, TAG)
        self._assigned_by_hand = wanted
        await self._client.heartbeat_all()
        if not await self._rebalancer.hold_exactly(wanted):
            self._wake.set()

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues read now."""
        return sorted(self._bare(queue) for queue in self._rebalancer.assigned)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted. Raises NoRoute."""
        route = await self._client.route(self._client.namespace.wrap(topic))
        return [self._bare(queue) for queue in route.subscribe]

    # Reading.

    async def poll(self, timeout_seconds: float = 5.0) -> list[MessageExt]:
        """The messages of one pull (at most `rules.pull_batch_size`, of one queue), as soon as there are some; an empty
        list when the time is over."""
        self._open_nursery()
        if self.auto_commit:
            self._count_polls()
        if self.auto_commit and trio.current_time() >= self._next_commit:
            self._next_commit = trio.current_time() + self.auto_commit_seconds
            await self._offsets.persist()
        with trio.move_on_after(timeout_seconds):
            while True:
                found = self._take()
                if found is not None:
                    await trio.lowlevel.checkpoint()
                    return found
                await self._arrived.wait()
        return []

    def _take(self) -> list[MessageExt] | None:
        skipped: list[tuple[AssignedQueue, Sequence[MessageExt]]] = []
        found: list[MessageExt] | None = None
        while self._waiting and found is None:
            assigned, messages = self._waiting.popleft()
            if assigned.dropped:
                continue
            if assigned.paused:
                skipped.append((assigned, messages))
                continue
            assigned.window.remove(messages)
            position = messages[-1].queue_offset + 1
            self._positions[assigned.queue] = position
            self._uncounted[assigned.queue] = position
            assigned.notify()
            self.stats.consumed(assigned.queue.topic, 0, len(messages), 0)
            found = list(messages)
        self._waiting.extendleft(reversed(skipped))
        if found is None:
            self._arrived = trio.Event()
        self._taken.set()
        return found

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Hand out nothing of these queues until `resume`."""
        for queue in map(self._wire, queues):
            self._paused.add(queue)
            assigned = self._rebalancer.assigned.get(queue)
            if assigned is not None:
                assigned.paused = True

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        for queue in map(self._wire, queues):
            self._paused.discard(queue)
            assigned = self._rebalancer.assigned.get(queue)
            if assigned is not None:
                assigned.paused = False
                assigned.notify()
        self._arrived.set()

    # Positions and offsets.

    async def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Go on at `queue_offset` (clamped by nobody: ConfigurationError when outside the queue) with a queue read
        now."""
        wire = self._wire(queue)
        if wire not in self._rebalancer.assigned:
            raise ConfigurationError(f"{queue} is not assigned to this consumer now: {self.assignment}")
        address = await self._client.master_of(wire.broker_name, wire.topic)
        low, high = await calls.queue_offset_bounds(self._client, address, wire)
        if not low <= queue_offset <= high:
            raise ConfigurationError(f"offset {queue_offset} is outside {queue}, which has {low} to {high}")
        self._positions[wire] = queue_offset
        self._uncounted[wire] = queue_offset
        self._rebalancer.reopen(wire, queue_offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        wire = self._wire(queue)
        address = await self._client.master_of(wire.broker_name, wire.topic)
        await self.seek(queue, await calls.min_offset(self._client, address, wire))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        wire = self._wire(queue)
        address = await self._client.master_of(wire.broker_name, wire.topic)
        await self.seek(queue, await calls.max_offset(self._client, address, wire))

    async def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Queue offset of the message stored nearest to `timestamp_ms`."""
        wire = self._wire(queue)
        address = await self._client.master_of(wire.broker_name, wire.topic)
        return await calls.search_offset(self._client, address, wire, timestamp_ms)

    async def position(self, queue: MessageQueue) -> int | None:
        """Queue offset of the next message that `poll` returns; the committed one before the first poll."""
        wire = self._wire(queue)
        known = self._positions.get(wire)
        return known if known is not None else await self.committed(queue)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The stored offset of the group; None when there is none."""
        return await self._offsets.read(self._wire(queue))

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store what the polls so far returned as consumed, or the given offsets (of the next messages). Returns when
        stored.

        Raises BrokerRefused and the like when a broker did not store it.
        """
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
        """What was polled since the last time counts as consumed."""
        for queue, position in self._uncounted.items():
            self._offsets.table.update(queue, position)
        self._uncounted.clear()

    # ConsumerMember.

    def topics(self) -> set[str]:
        return set(self._subscriptions)

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=CONSUME_ACTIVELY,
            message_model=self.model.value,
            consume_from_where=self._consume_from.value,
            subscription_data_set=[] if self._assigned_by_hand is not None else self._all_subscriptions(),
            unit_mode=self._client.config.unit_mode,
        )

    def _all_subscriptions(self) -> list[SubscriptionData]:
        return [one for _, one in sorted(self._subscriptions.items())]

    def wake_rebalance(self) -> None:
        self._wake.set()

    async def persist_offsets(self) -> None:
        if self.auto_commit:
            await self._offsets.persist()

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, queue_offset in offsets.items():
            if queue.topic != topic or queue not in self._rebalancer.assigned:
                continue
            self._uncounted.pop(queue, None)
            self._offsets.table.update(queue, queue_offset)
            try:
                await self._offsets.persist_now(queue)
            except MQClientError as error:
                log.warning("offset not stored", queue=str(queue), error=str(error))
            self._positions[queue] = queue_offset
            self._rebalancer.reopen(queue, queue_offset)

    def consume_offsets(self, topic: str) -> dict[MessageQueue, int]:
        return self._offsets.table.snapshot(topic)

    def running_info(self, with_stacks: bool) -> ConsumerRunningInfo:
        return running_info.of_consumer(
            self._client,
            self._rebalancer.assigned.values(),
            self._offsets.table,
            self.stats,
            self._all_subscriptions(),
            properties={"consumerGroup": self.group_name, "messageModel": self.model.value},
            consume_type=CONSUME_ACTIVELY,
            ordered=False,
            concurrency=1,
            started_ms=self._started_ms,
            with_stacks=with_stacks,
        )

    async def consume_directly(self, message: MessageExt, broker_name: str | None) -> ConsumeMessageDirectlyResult:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the group {self.group} polls and has no listener")

    # Holder (rebalance.py).

    async def first_offset(self, queue: MessageQueue) -> int:
        stored = await self._offsets.read(queue)
        if stored is not None:
            return stored
        return await begin_offset(self._client, queue, self._consume_from, self._consume_from_time)

    def opened(self, assigned: AssignedQueue) -> None:
        assigned.paused = assigned.queue in self._paused
        self.start_soon(self._run_queue, assigned)

    async def closed(self, assigned: AssignedQueue) -> None:
        self._puller.forget(assigned.queue)
        self._positions.pop(assigned.queue, None)
        self._uncounted.pop(assigned.queue, None)

    def queues_changed(self, topic: str, every: Collection[MessageQueue], ours: Collection[MessageQueue]) -> None:
        return

    # PullOwner (pull_loop.py).

    @property
    def is_paused(self) -> bool:
        return False

    @property
    def is_ordered(self) -> bool:
        return False

    @property
    def is_broadcasting(self) -> bool:
        return self.model is MessageModel.BROADCASTING

    def subscription_of(self, topic: str) -> SubscriptionData | None:
        return self._subscriptions.get(topic)

    def cached_bytes_total(self) -> int:
        return sum(assigned.window.cached_bytes for assigned in self._rebalancer.assigned.values())

    async def offset_illegal(self, assigned: AssignedQueue, next_offset: int) -> None:
        self._positions[assigned.queue] = next_offset
        self._offsets.table.update(assigned.queue, next_offset)
        self._rebalancer.reopen(assigned.queue, next_offset)

    def pulled(self, topic: str, cost_ms: int, count: int) -> None:
        self.stats.pulled(topic, cost_ms, count)

    # Inside.

    async def _submit(self, assigned: AssignedQueue, messages: Sequence[MessageExt]) -> None:
        while len(self._waiting) >= MAX_WAITING_PULLS and not assigned.dropped:
            self._taken = trio.Event()
            await self._taken.wait()
        if messages and not assigned.dropped:
            self._waiting.append((assigned, messages))
            self._arrived.set()

    def _skipped(self, assigned: AssignedQueue) -> None:
        """Nothing for us up to `next_offset`: the position moves on, as if those messages had been polled."""
        self._uncounted[assigned.queue] = assigned.next_offset

    async def _run_queue(self, assigned: AssignedQueue) -> None:
        with assigned.scope:
            await self._loop.run(assigned)

    async def _keep_balanced(self) -> None:
        while True:
            self._wake = trio.Event()
            try:
                settled = await self._balance()
            except Exception:
                log.exception("rebalancing failed and is tried again", group=self.group)
                settled = False
            with trio.move_on_after(self.rules.rebalance_interval_seconds if settled else UNSETTLED_SECONDS):
                await self._wake.wait()

    async def _balance(self) -> bool:
        if self._assigned_by_hand is not None:
            return await self._rebalancer.hold_exactly(self._assigned_by_hand)
        for topic in self.topics():
            try:
                await self._client.route(topic)
            except MQClientError as error:
                log.info("no route yet", group=self.group, topic=topic, reason=str(error))
        if self._tell_brokers:
            self._tell_brokers = False
            await self._client.heartbeat_all()
        return await self._rebalancer.rebalance(self.topics())

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._client.namespace.wrap(queue.topic), queue.broker_name, queue.queue_id)

    def _bare(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._client.namespace.unwrap(queue.topic), queue.broker_name, queue.queue_id)
