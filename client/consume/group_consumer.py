"""What push and lite pull consumers have in common: a member of a group that holds its share of the queues, with a pull
loop for each.

It owns the client (unless that is shared), the subscriptions, the offsets and the rebalancing, and closes in this
order: pull loops, offsets, locks, group. May not live here: what happens to the pulled messages.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from math import inf
from types import TracebackType
from typing import Self

import trio

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.filter_checks import FilterChecks
from triomq.client.consume.first_offset import begin_offset
from triomq.client.consume.offset_store import BrokerOffsets, FileOffsets, OffsetStore
from triomq.client.consume.pull_loop import PullLoop, PullOwner
from triomq.client.consume.pulling import Puller
from triomq.client.consume.rebalance import Holder, Rebalancer
from triomq.client.consume.running_info import ConsumerFacts, describe
from triomq.client.core import requests
from triomq.client.core.allocation import Averagely, Strategy
from triomq.client.core.config import ClientOptions
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.consumer_stats import ConsumerStats
from triomq.client.core.errors import ClientClosed, ConfigurationError, MQClientError, NoRoute
from triomq.client.core.group_names import check_group
from triomq.client.core.hooks import FilterHook
from triomq.client.core.log import get_logger, report
from triomq.client.core.results import ConsumeFromWhere, MessageModel
from triomq.client.instance.client import Client
from triomq.client.instance.event_loop import check_in_trio
from triomq.client.instance.members import ConsumerMember
from triomq.client.instance.opening import ThreadWaits
from triomq.client.instance.own_client import OpenedWithClient
from triomq.client.instance.subscribing import subscription
from triomq.protocol import system_topics
from triomq.protocol.bodies.heartbeat import ConsumerData
from triomq.protocol.bodies.running_info import ConsumerRunningInfo
from triomq.protocol.message import MessageExt
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import SQL92, TAG, SubscriptionData
from triomq.remoting import virtual_time

log = get_logger("triomq.client.consumer")

UNSETTLED_SECONDS = 1.0
"""Pause before the next round when a topic has no route, a member is not listed yet, or a lock was not granted."""
MISSING_SECONDS = 10.0
LEAVE_SECONDS = 5.0
SUBSCRIBE_SECONDS = 20.0
"""How long an application may take to subscribe before a warning says that nothing will come."""
HAND_OVER_SECONDS = 1.0
"""How long a round may first store offsets, because a new member begins at the stored ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSettings:
    """How a member of a group consumes, whatever it does with the messages. Raises ConfigurationError."""

    rules: ConsumeRules
    model: MessageModel
    ordered: bool
    consume_from: ConsumeFromWhere
    consume_from_time: datetime | None
    strategy: Strategy | None
    filter_hooks: Iterable[FilterHook]

    def __post_init__(self) -> None:
        if self.consume_from is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP and self.consume_from_time is None:
            raise ConfigurationError("CONSUME_FROM_TIMESTAMP needs consume_from_time")


class GroupConsumer(OpenedWithClient, ConsumerMember, Holder, PullOwner):
    """A member of a consumer group; see the module's docstring."""

    consume_type: str
    """How messages reach this consumer, in the terms of heartbeats."""

    def __init__(self, group: str, client: Client | None, options: ClientOptions, settings: GroupSettings) -> None:
        check_group(group, "consumer")
        super().__init__(client, options)
        self.group_name = group
        self._group = self._client.namespace.wrap(group)
        self.model = settings.model
        self.rules = settings.rules
        self._settings = settings
        self.stats = ConsumerStats(self._client.config.now_ms)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._started_ms = 0
        self._nursery: trio.Nursery | None = None
        self._wake = trio.Event()
        self._hands_over = False
        self._tell_brokers = False
        self._missing: dict[str, float] = {}
        self._filters = FilterChecks(self._client, self._group)
        self._warn_at = 0.0
        self._is_closing = False
        self._was_open = False
        self._filter_hooks = list(settings.filter_hooks)
        self._strategy = settings.strategy or Averagely()
        self.thread_waits = ThreadWaits()
        self._make_parts()

    def _make_parts(self) -> None:
        """Make what holds the state of one opening."""
        self._offsets: OffsetStore
        if self.is_broadcasting:
            config = self._client.config
            self._offsets = FileOffsets(config.offset_directory, self._client.client_id, self.group)
        else:
            self._offsets = BrokerOffsets(self._client, self.group)
        self._puller = Puller(self._client, self.group, self._filter_hooks)
        self._rebalancer = Rebalancer(
            self._client,
            self.group,
            self.model,
            self._strategy,
            self._offsets,
            self,
            ordered=self._settings.ordered,
        )
        self._loop = PullLoop(self._client, self, self._puller, self.rules, self._submit, self._skipped)

    # What the kinds of consumers do with their messages.

    @abstractmethod
    def _start(self) -> None:
        """Start the tasks of this kind of consumer; the consumer is open."""

    @abstractmethod
    async def _run_queue(self, assigned: AssignedQueue) -> None:
        """Run everything that a held queue needs, until its scope is cancelled."""

    @abstractmethod
    async def _submit(self, assigned: AssignedQueue, messages: Sequence[MessageExt]) -> None:
        """Take over new messages; wait while there are too many."""

    @abstractmethod
    def _skipped(self, assigned: AssignedQueue) -> None:
        """Note that no wanted message lies before the queue's `next_offset`."""

    # Life.

    @property
    def group(self) -> str:
        """The group's name on the wire."""
        return self._group

    async def __aenter__(self) -> Self:
        check_in_trio(type(self).__name__)
        if self._nursery is not None:
            raise ClientClosed("this consumer is already open")
        if self._was_open:
            self._open_again()
        self._was_open = True
        self._is_closing = False
        self.thread_waits.open()
        async with AsyncExitStack() as stack:
            await self._enter_client(stack)
            await self._enter(stack)
            await self._offsets.open()
            await self._check_filters()
            self._client.add_consumer(self)
            stack.push_async_callback(self._leave)
            self._nursery = await stack.enter_async_context(trio.open_nursery())
            self._opening_task = trio.lowlevel.current_task()
            self._started_ms = self._client.config.now_ms()
            self._start()
            self.start_soon(self._keep_balanced)
            watched = virtual_time.watched_at(self._client.config.name_servers)
            if watched is not None:
                watched.join(self)
                stack.callback(watched.leave, self)
            self._stack = stack.pop_all()
        return self

    def _open_again(self) -> None:
        """Forget the state of the opening before: other members may have gone on from there."""
        self._make_parts()
        for made in self._subscriptions.values():
            self._filters.subscribed(made)
        self._tell_brokers = True  # a route that has not changed has no broker told

    async def _enter(self, stack: AsyncExitStack) -> None:
        """Open what must be closed after this member has left its group."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._nursery is None or self._is_closing:
            return
        self._is_closing = True
        self._end_waits()
        try:
            await self._finish(failed=error is not None)
        finally:
            self._nursery.cancel_scope.cancel()
            self._leave_threads_behind()
            try:
                await self._stack.aclose()
            finally:
                self._nursery = self._opening_task = None
                self._closed()

    def _closed(self) -> None:
        """Called when everything has ended."""

    def _end_waits(self) -> None:
        """Have calls of the application that wait for something raise ClientClosed."""

    async def _finish(self, *, failed: bool) -> None:
        """Finish what the application began, before everything is cancelled."""

    def _leave_threads_behind(self) -> None:
        count = self.thread_waits.give_up()
        if count:
            log.warning(
                "listeners left behind in their threads; their messages are delivered again",
                group=self.group,
                count=count,
                close_seconds=self.rules.close_seconds,
            )

    async def _leave(self) -> None:
        """Store the offsets, release the locks, unregister; also when the block was cancelled."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + LEAVE_SECONDS):
            try:
                await self._offsets.persist()
                await self._rebalancer.close()
            finally:
                await self._client.remove_consumer(self.group)
        self._client.consumers.pop(self.group, None)

    async def _check_filters(self) -> None:
        """Raise ConfigurationError for a subscription that a broker does not accept, as far as brokers answer."""
        for topic in self._filters.unchecked():
            with suppress(MQClientError):
                await self._client.route(topic)
                await self._filters.check(topic)
        self._filters.raise_refusal()

    def start_soon(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a task for as long as this consumer is open."""
        self._open_nursery().start_soon(function, *args)

    def _open_nursery(self) -> trio.Nursery:
        if self._nursery is None:
            name = type(self).__name__
            raise ClientClosed(f"this consumer is closed: use it inside `async with {name}(...) as consumer`")
        return self._nursery

    def _check_not_closing(self) -> None:
        """Raise ClientClosed if this consumer closes: before a wait, since it may have ended all waits by now, and
        behind one."""
        if self._is_closing:
            raise ClientClosed(f"this {type(self).__name__} was closed while a call waited")

    # Subscriptions, by wire names.

    def _subscribe(self, topic: str, expression: str, *, sql: bool) -> None:
        wire = self._client.namespace.wrap(topic)
        made = self._subscriptions[wire] = subscription(self._client, wire, expression, SQL92 if sql else TAG)
        self._filters.subscribed(made)
        self._tell_brokers = True
        self.wake_rebalance()

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming this topic."""
        self._subscriptions.pop(self._client.namespace.wrap(topic), None)
        self._filters.unsubscribed(self._client.namespace.wrap(topic))
        self._tell_brokers = True
        self.wake_rebalance()

    def _check_subscribed(self) -> None:
        """Raise ConfigurationError instead of waiting for messages that cannot come."""
        if not self._is_subscribed():
            raise ConfigurationError(f"nothing is subscribed: call {type(self).__name__}.subscribe(topic) first")

    def _is_subscribed(self) -> bool:
        """Return whether the application has subscribed; the retry topic is subscribed to without it."""
        return any(not system_topics.is_retry_topic(topic) for topic in self._subscriptions)

    def topics(self) -> set[str]:
        return set(self._subscriptions)

    def topics_without_queues(self) -> list[str]:
        """Return the topics, by wire names, of which this member does not hold its share yet. Any thread may ask."""
        shares, held = self._rebalancer.last_shares, self._rebalancer.assigned
        return [each for each in sorted(self.topics()) if each not in shares or not held.keys() >= {*shares[each]}]

    def subscription_of(self, topic: str) -> SubscriptionData | None:
        return self._subscriptions.get(topic)

    def subscriptions(self) -> list[SubscriptionData]:
        """Return all subscriptions, by topic."""
        return [one for topic in sorted(self.topics()) if (one := self.subscription_of(topic)) is not None]

    # ConsumerMember, Holder and PullOwner, as far as it is the same for all.

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=self.consume_type,
            message_model=self.model.value,
            consume_from_where=self._settings.consume_from.value,
            subscription_data_set=self._announced_subscriptions(),
            unit_mode=self._client.config.unit_mode,
        )

    def _announced_subscriptions(self) -> list[SubscriptionData]:
        """Return the subscriptions that heartbeats announce."""
        return self.subscriptions()

    def running_info(self, with_stacks: bool) -> ConsumerRunningInfo:
        facts = ConsumerFacts(
            group=self.group_name,
            model=self.model,
            consume_from=self._settings.consume_from,
            consume_type=self.consume_type,
            ordered=self._settings.ordered,
            concurrency=self.rules.concurrency,
            started_ms=self._started_ms,
            subscriptions=self.subscriptions(),
        )
        return describe(
            self._client,
            facts,
            self._rebalancer.assigned.values(),
            self._offsets.table,
            self.stats,
            with_stacks=with_stacks,
        )

    def wake_rebalance(self) -> None:
        self._wake.set()

    def members_changed(self) -> None:
        self._hands_over = True
        self._wake.set()

    def consume_offsets(self, topic: str) -> dict[MessageQueue, int]:
        return self._offsets.table.snapshot(topic)

    async def first_offset(self, queue: MessageQueue) -> int:
        stored = await self._offsets.read(queue)
        if stored is not None:
            return stored
        return await begin_offset(self._client, queue, self._settings.consume_from, self._settings.consume_from_time)

    async def begin_anew(self, assigned: AssignedQueue) -> None:
        """Continue at the group's stored offset, which ended with the topic; in memory there must be none that a later
        round would store for a topic of the same name."""
        queue = assigned.queue
        assigned.window.begin_anew()
        if self.is_broadcasting:
            address = await self._client.master_of(queue.broker_name, queue.topic)
            if await self._client.call(address, requests.max_offset(queue)) == 0:
                self._offsets.table.update(queue, 0)
                assigned.next_offset = 0
            return
        self._offsets.table.remove(queue)
        assigned.next_offset = await self._offsets.read(queue) or 0
        log.info("topic deleted; its queue starts again", queue=str(queue), next=assigned.next_offset)

    def opened(self, assigned: AssignedQueue) -> None:
        self.start_soon(self._run_queue, assigned)

    async def closed(self, assigned: AssignedQueue) -> None:
        self._puller.forget(assigned.queue)

    def queues_changed(self, topic: str, every: Collection[MessageQueue], ours: Collection[MessageQueue]) -> None:
        return

    @property
    def is_paused(self) -> bool:
        return False

    @property
    def is_ordered(self) -> bool:
        return False

    @property
    def is_broadcasting(self) -> bool:
        """Whether every member consumes every message."""
        return self.model is MessageModel.BROADCASTING

    def cached_bytes_total(self) -> int:
        return sum(assigned.window.cached_bytes for assigned in self._rebalancer.assigned.values())

    def pulled(self, topic: str, cost_ms: int, count: int) -> None:
        self.stats.pulled(topic, cost_ms, count)

    # Keeping the share of the queues.

    async def _keep_balanced(self) -> None:
        self._warn_at = trio.current_time() + SUBSCRIBE_SECONDS
        while True:
            self._warn_without_subscription()
            if self._hands_over:
                self._hands_over = False
                with trio.move_on_after(HAND_OVER_SECONDS):
                    await self.persist_offsets()
            self._wake = trio.Event()
            try:
                settled = await self._balance()
            except Exception:
                log.exception("rebalancing failed; the next round tries again", group=self.group)
                settled = False
            with trio.move_on_after(self.rules.rebalance_interval_seconds if settled else UNSETTLED_SECONDS):
                await self._wake.wait()

    def _warn_without_subscription(self) -> None:
        """Say once that no message can come: a listener would wait forever without a word."""
        if trio.current_time() >= self._warn_at:
            self._warn_at = inf
            if not self._is_subscribed():
                log.warning("topics not subscribed, so no message comes; call subscribe(topic)", group=self.group)

    def _note_missing(self, topic: str, error: NoRoute) -> None:
        """Say that a topic does not exist: at first start it does not, so that a warning comes only some time later."""
        now = trio.current_time()
        if topic not in self._missing:
            self._missing[topic] = now + MISSING_SECONDS
            log.info("topic not found yet; waiting for it", group=self.group, topic=topic)
        elif now >= self._missing[topic]:
            self._missing[topic] = inf
            log.warning("topic not found; waiting for it", group=self.group, topic=topic, reason=str(error))

    async def _balance(self) -> bool:
        """Run one round. Return False when the next one must follow soon."""
        for topic in self.topics():
            try:
                await self._client.route(topic)
            except NoRoute as error:
                if not system_topics.is_retry_topic(topic):
                    self._note_missing(topic, error)
            except MQClientError as error:
                report(log, "routes not known", error, group=self.group)
                return False
            else:
                self._missing.pop(topic, None)
                await self._filters.check(topic)
        if self._tell_brokers:
            self._tell_brokers = False
            await self._client.heartbeat_all()
        return await self._rebalancer.rebalance(self.topics())

    # Names of queues: on the wire, and as the application knows them.

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._client.namespace.wrap(queue.topic), queue.broker_name, queue.queue_id)

    def _bare(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._client.namespace.unwrap(queue.topic), queue.broker_name, queue.queue_id)
