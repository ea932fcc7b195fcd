"""Consuming with a listener or in a loop; the members of the group share the queues.

    async with PushConsumer("billing", name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("Orders", "new || paid")
        async for message in consumer:
            ...

A message counts as consumed when the loop asks for the next one, or after `consumer.ack()`. A message whose loop body
ends with an exception, a `break` or a cancellation is not consumed: it is delivered again after a restart. Several
tasks may loop over one consumer; `message.ack()` settles a message from any of them, in any order.

    async with PushConsumer("billing", name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("Orders")
        consumer.listen(handle)             # async def handle(message), or a plain function, run in a thread
        await trio.sleep_forever()

A message counts as consumed when the listener returns. When it raises (or returns RECONSUME_LATER), the broker
delivers the message again, later each time, and after 16 times stores it in the dead letter topic %DLQ%<group>.
Delivery is at least once.

With `ordered=True` one member of the group at a time consumes the messages of a queue, one after the other in the order
in which they were sent; a failed message blocks its queue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any, Generic, Unpack, overload

import trio

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.concurrent import ConcurrentConsuming, Elsewhere
from triomq.client.consume.consuming import Listener
from triomq.client.consume.delivery import Delivery
from triomq.client.consume.group_consumer import GroupConsumer, GroupSettings
from triomq.client.consume.ordered import OrderedConsuming
from triomq.client.consume.payloads import Payloads
from triomq.client.consume.receiving import Loop, Received, Receiver
from triomq.client.consume.unsettled import Unsettled
from triomq.client.core.allocation import Strategy
from triomq.client.core.config import ClientOptions
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.errors import ConfigurationError, MQClientError
from triomq.client.core.hooks import ConsumeHook, FilterHook
from triomq.client.core.log import get_logger, report
from triomq.client.core.results import ConsumeFromWhere, ConsumeStatus, MessageModel
from triomq.client.core.type_variables import T
from triomq.client.instance.client import Client
from triomq.client.instance.handlers import Handler, check_takes
from triomq.client.instance.subscribing import subscription
from triomq.client.payloads.serializer import Serializer
from triomq.client.produce.trace import TraceSender
from triomq.protocol import system_topics
from triomq.protocol.bodies.heartbeat import CONSUME_PASSIVELY
from triomq.protocol.bodies.running_info import ConsumeMessageDirectlyResult
from triomq.protocol.message import MessageExt
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import TAG, SubscriptionData

log = get_logger("triomq.client.push")


class PushConsumer(GroupConsumer, Generic[T]):
    """Consumes with a listener or in a loop; the members of the group share the queues (RocketMQ:
    DefaultMQPushConsumer). All members of a group must subscribe to the same topics with the same expressions.

    `model`: CLUSTERING shares the messages out, BROADCASTING gives every member all of them. `ordered`: one message at
    a time for each queue, in order. `consume_from`: where a group begins in a queue without an offset, with
    `consume_from_time` (local time when it has no zone) for CONSUME_FROM_TIMESTAMP. `strategy`: how queues are shared
    out. `rules`: limits. `serializer`: makes each message's `value` of its body; a message whose body is wrong goes to
    the dead letter topic. `client`: share this open client. `consume_hooks` see every call of the listener,
    `filter_hooks` every pull. `trace`: send message trace to the usual topic, or to the one named.
    """

    def __init__(
        self,
        group: str,
        *,
        client: Client | None = None,
        model: MessageModel = MessageModel.CLUSTERING,
        ordered: bool = False,
        consume_from: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        consume_from_time: datetime | None = None,
        strategy: Strategy | None = None,
        rules: ConsumeRules | None = None,
        consume_hooks: Iterable[ConsumeHook] = (),
        filter_hooks: Iterable[FilterHook] = (),
        trace: bool | str = False,
        serializer: Serializer[T] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(
            group,
            client,
            options,
            GroupSettings(
                rules=rules or ConsumeRules(),
                model=model,
                ordered=ordered,
                consume_from=consume_from,
                consume_from_time=consume_from_time,
                strategy=strategy,
                filter_hooks=filter_hooks,
            ),
        )
        self.ordered = ordered
        self.payloads: Payloads[T] | None = None if serializer is None else Payloads(serializer)
        self.consume_hooks: list[ConsumeHook] = list(consume_hooks)
        self._trace_topic = system_topics.TRACE_TOPIC if trace is True else trace or None
        self._listener: Listener | None = None
        self._iterating = False
        self._paused = False
        self._is_stopping = False
        self._shared = trio.Event()
        self._listener_set = trio.Event()
        self._unsettled = Unsettled()
        self._receiver: Receiver[T] = Receiver(self.payloads, self._client.spans, self._unsettled)
        self._loop_here = Loop(self, ends=False)
        self._elsewhere: Elsewhere | None = None
        self._consuming = self._make_consuming()

    # Life.

    def _open_again(self) -> None:
        super()._open_again()
        self._shared = trio.Event()
        self._loop_here = Loop(self, ends=False)
        self._receiver = Receiver(self.payloads, self._client.spans, self._unsettled)
        self._consuming = self._make_consuming()
        if self._listener is not None and isinstance(self._consuming, ConcurrentConsuming):
            self._consuming.listen(self._elsewhere)

    async def _enter(self, stack: AsyncExitStack) -> None:
        if self._trace_topic is not None:
            trace = await stack.enter_async_context(TraceSender(self._client, self._trace_topic))
            self.consume_hooks.append(trace)
            stack.callback(self.consume_hooks.remove, trace)

    def _start(self) -> None:
        self._unsettled.open()
        self._consuming.start()
        if self.ordered and not self.is_broadcasting:
            self.start_soon(self._keep_locks)

    async def _finish(self, *, failed: bool) -> None:
        """Wait for listener calls in progress; nothing is pulled any more."""
        self._unsettled.close()
        if self._iterating:
            # Let the tasks that handed out messages note those acknowledged a moment ago.
            for _ in range(3):
                await trio.lowlevel.checkpoint()
        if self._iterating or self._listener is None or (failed and not self._calls_threads):
            return
        with trio.move_on_after(self.rules.close_seconds):
            for assigned in list(self._rebalancer.assigned.values()):
                while assigned.busy:
                    await assigned.wait_change(1)

    @property
    def _calls_threads(self) -> bool:
        """Whether the listener runs in threads, which cannot be cancelled: an error waits for them, too."""
        return (self._elsewhere is not None and self._elsewhere.is_in_threads) or self.thread_waits.count > 0

    def _closed(self) -> None:
        self._is_stopping = False
        if self._iterating:  # opened again, it may have a listener
            self._iterating, self._listener, self._listener_set = False, None, trio.Event()

    def _begin_to_close(self) -> None:
        """Take no further messages: this closes in a moment."""
        self._is_stopping = True

    def _end_waits(self) -> None:
        self._receiver.end()
        if isinstance(self._consuming, ConcurrentConsuming):
            self._consuming.end()
        self._shared.set()

    # What the application calls.

    def subscribe(self, topic: str, expression: str = "*", *, sql: bool = False) -> None:
        """Consume this topic as well, or change its expression, before and while the consumer is open.

        `expression`: "*", tags separated by "||", or with `sql` a SQL92 condition on properties (the broker needs
        enablePropertyFilter=true). One that a broker refuses raises ConfigurationError, with the broker's words, as the
        consumer opens, and from `receive`, loops and `wait_assigned`; with a listener, once it is open, it is an error
        in the log. A topic that does not exist yet is consumed as soon as it does.
        """
        self._subscribe(topic, expression, sql=sql)

    def listen(self, handler: Callable[[MessageExt[T]], Any]) -> None:
        """Have `handler(message)` called for every message. An `async def` is awaited; a plain function runs in a
        thread, so it may block. The message is consumed when it returns, whatever that is, except for
        `ConsumeStatus.RECONSUME_LATER` and False, with which it is delivered again later, as when the handler raises
        (also `RetryLater`). Raises ConfigurationError for what cannot be called with one message."""
        self._listen(handler)

    def _listen(self, handler: Callable[[MessageExt[T]], Any], elsewhere: Elsewhere | None = None) -> None:
        """`elsewhere` calls the same function, for a facade, where messages come from a queue and need no order."""
        check_takes(handler, "message")
        call = Handler(handler, self.thread_waits, self.rules.concurrency)
        size = self.rules.batch_max_size
        if size != 1:
            raise ConfigurationError(f"batch_max_size is {size}: use listen_batch, which gets lists of messages")

        async def one(messages: Sequence[MessageExt]) -> ConsumeStatus | None:
            status: ConsumeStatus | None = await call(messages[0])
            return status

        self._set_listener(one, elsewhere)

    def listen_batch(self, handler: Callable[[Sequence[MessageExt[T]]], Any]) -> None:
        """Have `handler` called with up to `rules.batch_max_size` messages of one queue, which succeed or fail
        together; otherwise like `listen`."""
        check_takes(handler, "messages")
        call = Handler(handler, self.thread_waits, self.rules.concurrency)

        async def several(messages: Sequence[MessageExt]) -> ConsumeStatus | None:
            status: ConsumeStatus | None = await call(messages)
            return status

        self._set_listener(several)

    def _set_listener(self, listener: Listener, elsewhere: Elsewhere | None = None) -> None:
        if self._listener is not None:
            raise ConfigurationError("this consumer already has a listener, or is being looped over")
        self._listener = listener
        self._elsewhere = elsewhere
        self._listener_set.set()
        if isinstance(self._consuming, ConcurrentConsuming) and not self._iterating:
            self._consuming.listen(elsewhere)

    @overload
    async def receive(self) -> Delivery[T]: ...

    @overload
    async def receive(self, timeout_seconds: float | None) -> Delivery[T] | None: ...

    async def receive(self, timeout_seconds: float | None = None) -> Delivery[T] | None:
        """Return the next message, to be settled with its `ack` or `retry_later`; None when the time is over, with a
        time of 0 what is there. Not together with a listener. A call that is cancelled has taken nothing. Raises
        ClientClosed, also when the consumer is closed meanwhile."""
        if timeout_seconds is not None:
            return await self.receive_within(timeout_seconds)
        self._hand_out_messages()
        if not self._filters.are_settled:
            return await self._filters.guard(self._receiver.receive, self._consuming)
        return await self._receiver.receive(self._consuming)

    _receive = receive

    async def receive_within(self, timeout_seconds: float) -> Delivery[T] | None:
        """Return the next message, or None when the time has passed; with a time of 0 what is there. Otherwise like
        `receive`."""
        self._hand_out_messages()
        if not self._filters.are_settled:
            return await self._filters.guard(self._receiver.receive_within, self._consuming, timeout_seconds)
        return await self._receiver.receive_within(self._consuming, timeout_seconds)

    async def _receive_with_more(self, timeout_seconds: float | None, others: Callable[[], int]) -> Received[T] | None:
        """Return the next message together with further ones that wait, for a facade; None when the time has passed."""
        self._hand_out_messages()
        if not self._filters.are_settled:
            return await self._filters.guard(self._receiver.take_with_more, self._consuming, timeout_seconds, others)
        return await self._receiver.take_with_more(self._consuming, timeout_seconds, others)

    def _hand_out_messages(self) -> None:
        """Have messages wait for `receive`. Raises ConfigurationError if they go to a listener."""
        self._open_nursery()
        if self._listener is None:
            self._check_subscribed()
            self._iterating = True
            self._set_listener(self._hand_out)
        elif not self._iterating:
            raise ConfigurationError("this consumer has a listener: messages go there")

    def _check_open(self) -> None:
        """Raise ClientClosed unless this consumer is open."""
        self._open_nursery()

    def _ack_unless_settled(self, delivery: Delivery[T]) -> None:
        delivery.settle_unless_settled()

    def __aiter__(self) -> Loop[T]:
        return Loop(self)

    async def __anext__(self) -> MessageExt[T]:
        return await self._loop_here.__anext__()

    def ack(self) -> None:
        """Settle the one message that was received and is not settled as consumed. A loop that asks for the next one
        does so with its last. Raises NotSettled when there is no such message, or more than one: then `message.ack()`
        says which."""
        self._unsettled.at_home(self._unsettled.only).ack()

    def retry_later(self, delay_level: int = 0) -> None:
        """Have the one message that was received and is not settled delivered again later; see `RetryLater`. Raises
        what `ack` raises."""
        self._unsettled.at_home(self._unsettled.only).retry_later(delay_level)

    def suspend(self) -> None:
        """Pull and consume nothing until `resume`; the queues stay with this member."""
        self._paused = True

    def resume(self) -> None:
        """Continue after `suspend`."""
        self._paused = False
        for assigned in self._rebalancer.assigned.values():
            assigned.notify()
        if isinstance(self._consuming, ConcurrentConsuming):
            self._consuming.wake()

    @property
    def assigned_queues(self) -> list[MessageQueue]:
        """The queues this member holds now, retry topics included."""
        return sorted(self._bare(queue) for queue in self._rebalancer.assigned)

    async def wait_assigned(self, topic: str) -> list[MessageQueue]:
        """Wait until this member holds its share of the topic's queues, at least one; return the share."""
        await trio.lowlevel.checkpoint()
        self._open_nursery()
        self._check_subscribed()
        return await self._filters.guard(self._wait_assigned, topic)

    async def _wait_assigned(self, topic: str) -> list[MessageQueue]:
        wire = self._client.namespace.wrap(topic)
        while not (self._rebalancer.last_shares.get(wire) and self._rebalancer.of_topic(wire)):
            self._check_not_closing()
            await self._shared.wait()
            self._check_not_closing()
        return [queue for queue in self.assigned_queues if queue.topic == topic]

    # ConsumerMember.

    consume_type = CONSUME_PASSIVELY

    def topics(self) -> set[str]:
        topics = set(self._subscriptions)
        if not self.is_broadcasting:
            topics.add(system_topics.retry_topic(self.group))
        return topics

    async def persist_offsets(self) -> None:
        await self._offsets.persist()

    async def store_offsets_again(self, broker_name: str) -> None:
        await self._offsets.store_again(broker_name)

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        async with self._rebalancer.round:
            for queue, queue_offset in offsets.items():
                if queue.topic != topic or not self._rebalancer.is_ours(queue):
                    continue
                assigned = self._rebalancer.assigned.get(queue)
                if assigned is not None:
                    await self._restart_at(assigned, queue_offset)
                else:
                    await self._store_offset(queue, queue_offset)
        self.wake_rebalance()

    async def consume_directly(self, message: MessageExt, broker_name: str | None) -> ConsumeMessageDirectlyResult:
        message.topic = self._client.namespace.unwrap(message.topic)
        queue = MessageQueue(message.topic, broker_name or "", message.queue_id)
        began = trio.current_time()
        verdict = await self._consuming.call(queue, [message], is_single=True)
        return verdict.directly(ordered=self.ordered, cost_ms=int((trio.current_time() - began) * 1000))

    # Holder (rebalance.py).

    async def first_offset(self, queue: MessageQueue) -> int:
        begin = await super().first_offset(queue)
        # Stored from now on: a group that leaves before its first message continues here, not at a later end.
        self._offsets.table.update(queue, begin)
        return begin

    def queues_changed(self, topic: str, every: Collection[MessageQueue], ours: Collection[MessageQueue]) -> None:
        self._shared.set()
        self._shared = trio.Event()

    # PullOwner and ConsumeOwner.

    @property
    def is_paused(self) -> bool:
        return self._paused or self._is_stopping or self._is_closing

    @property
    def is_ordered(self) -> bool:
        return self.ordered

    def subscription_of(self, topic: str) -> SubscriptionData | None:
        known = super().subscription_of(topic)
        if known is None and topic == system_topics.retry_topic(self.group):
            known = self._subscriptions[topic] = subscription(self._client, topic, "*", TAG)
        return known

    async def offset_illegal(self, assigned: AssignedQueue, next_offset: int) -> None:
        """Continue where the broker says, but lose no message that waits here: RocketMQ's client skips those."""
        if (oldest := assigned.window.oldest_offset) is not None and next_offset > assigned.next_offset:
            assigned.next_offset = next_offset  # messages between expired; what was pulled before is consumed first
            return
        await self._restart_at(assigned, next_offset if oldest is None else min(oldest, next_offset))
        self.wake_rebalance()

    def consumed(self, topic: str, cost_ms: int, ok: int, failed: int) -> None:
        self.stats.consumed(topic, cost_ms, ok, failed)

    # Inside.

    def _make_consuming(self) -> ConcurrentConsuming | OrderedConsuming:
        listener = self._listen_call
        if self.ordered:
            return OrderedConsuming(self._client, self, self._offsets, self.rules, listener, self.consume_hooks)
        held = self._rebalancer.assigned
        return ConcurrentConsuming(
            self._client, self, self._offsets, self.rules, listener, self.consume_hooks, lambda: list(held.values())
        )

    async def _listen_call(self, messages: Sequence[MessageExt]) -> ConsumeStatus | None:
        if self._listener is None:
            await self._listener_set.wait()
        assert self._listener is not None
        return await self._listener(messages)

    async def _hand_out(self, messages: Sequence[MessageExt]) -> None:
        """The listener behind `receive` and `async for`."""
        await self._receiver.hand_out(self._consuming, messages)

    async def _submit(self, assigned: AssignedQueue, messages: Sequence[MessageExt]) -> None:
        await self._consuming.submit(assigned, messages)

    def _skipped(self, assigned: AssignedQueue) -> None:
        self._offsets.table.update(assigned.queue, assigned.next_offset, increase_only=True)

    async def _run_queue(self, assigned: AssignedQueue) -> None:
        """Run the pull loop of a held queue, and beside it the task that consumes it in order."""
        with assigned.scope:
            async with trio.open_nursery() as nursery:
                beside = self._consuming.opened(assigned)
                if beside is not None:
                    nursery.start_soon(beside, assigned)
                nursery.start_soon(self._loop.run, assigned)

    async def _keep_locks(self) -> None:
        while True:
            await self._client.pause(self.rules.lock_interval_seconds)  # a new master knows no locks
            await self._rebalancer.lock_held()

    async def _restart_at(self, assigned: AssignedQueue, queue_offset: int) -> None:
        """Forget what was pulled of a queue; the next rebalance opens it at `queue_offset`, an ordered one as soon as
        the call in progress has ended."""
        assigned.window.drop()
        await self._store_offset(assigned.queue, queue_offset)
        assigned.notify()
        if self.ordered and assigned.busy:
            return
        self._rebalancer.assigned.pop(assigned.queue, None)
        assigned.drop()

    async def _store_offset(self, queue: MessageQueue, queue_offset: int) -> None:
        """Store the offset at which the next rebalance opens a queue."""
        self._offsets.table.update(queue, queue_offset)
        try:
            await self._offsets.persist_now(queue)
        except MQClientError as error:
            report(log, "offset not stored", error, queue=str(queue))
