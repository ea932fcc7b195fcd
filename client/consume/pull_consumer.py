"""Pulling by hand: the application names queue and offset, and keeps track of them itself (RocketMQ:
DefaultMQPullConsumer). For assignment, seeking and committing see lite_pull_consumer.py.

    async with PullConsumer("audit", name_server="127.0.0.1:9876") as consumer:
        for queue in await consumer.queues("Orders"):
            result = await consumer.pull(queue, "*", await consumer.min_offset(queue))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Self, Unpack

import trio

from triomq.client.consume.offset_store import BrokerOffsets, FileOffsets, OffsetStore
from triomq.client.consume.pulling import Puller
from triomq.client.core import requests
from triomq.client.core.config import ClientOptions
from triomq.client.core.errors import ClientClosed
from triomq.client.core.group_names import check_group
from triomq.client.core.hooks import FilterHook
from triomq.client.core.results import MessageModel, PullResult, PullStatus
from triomq.client.instance.client import Client
from triomq.client.instance.event_loop import check_in_trio
from triomq.client.instance.own_client import OpenedWithClient
from triomq.client.instance.subscribing import subscription
from triomq.protocol.bodies.heartbeat import CONSUME_ACTIVELY, CONSUME_FROM_LAST_OFFSET, ConsumerData
from triomq.protocol.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused
from triomq.protocol.message import MessageExt
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import SQL92, TAG

__all__ = ["MessageExt", "MessageQueue", "PullConsumer", "PullResult", "PullStatus"]


class PullConsumer(OpenedWithClient):
    """Pulls from a queue and an offset that the application names (RocketMQ: DefaultMQPullConsumer).

    `model` says where `commit` stores offsets: at the brokers, or (BROADCASTING) in a local file. `suspend_seconds`:
    how long a broker may hold a pull that waits (`pull(..., wait=True)`). `client`: share this open client.
    """

    def __init__(
        self,
        group: str,
        *,
        client: Client | None = None,
        model: MessageModel = MessageModel.CLUSTERING,
        suspend_seconds: float = 20.0,
        filter_hooks: Iterable[FilterHook] = (),
        **options: Unpack[ClientOptions],
    ) -> None:
        check_group(group, "consumer")
        super().__init__(client, options)
        self.group_name = group
        self.group = self._client.namespace.wrap(group)
        self.model = model
        self._suspend_seconds = suspend_seconds
        self._filter_hooks = list(filter_hooks)
        self._topics: set[str] = set()
        self._make_parts()

    def _make_parts(self) -> None:
        """Make what holds the state of one opening."""
        self._puller = Puller(self._client, self.group, self._filter_hooks)
        self._offsets: OffsetStore
        if self.model is MessageModel.BROADCASTING:
            self._offsets = FileOffsets(self._client.config.offset_directory, self._client.client_id, self.group)
        else:
            self._offsets = BrokerOffsets(self._client, self.group)

    async def __aenter__(self) -> Self:
        check_in_trio(type(self).__name__)
        if self._is_open:
            raise ClientClosed("this consumer is already open")
        self._make_parts()
        async with AsyncExitStack() as stack:
            await self._enter_client(stack)
            await self._offsets.open()
            self._client.add_consumer(self)
            stack.push_async_callback(self._leave)
            await self._client.heartbeat_all()
            self._stack = stack.pop_all()
        self._opening_task = trio.lowlevel.current_task()
        return self

    async def _leave(self) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
            try:
                await self._offsets.persist()
            finally:
                await self._client.remove_consumer(self.group)
        self._client.consumers.pop(self.group, None)

    # Pulling.

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, sorted. Raises NoRoute."""
        await trio.lowlevel.checkpoint()
        route = await self._client.route(self._use(topic))
        return [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in route.subscribe]

    async def pull(
        self,
        queue: MessageQueue,
        expression: str,
        queue_offset: int,
        *,
        max_count: int = 32,
        wait: bool = False,
        sql: bool = False,
        timeout_seconds: float = 10.0,
    ) -> PullResult:
        """Return up to `max_count` messages from `queue_offset` on; continue at the result's `next_begin_offset`.

        `expression`: "*", tags separated by "||", or with `sql` a SQL92 condition. `wait`: let the broker hold the pull
        until a message comes (`suspend_seconds`), on top of `timeout_seconds`. Raises BrokerRefused, BrokerUnreachable,
        OperationTimeout, NoRoute.
        """
        wire = self._wire(queue)
        suspend_seconds = self._suspend_seconds if wait else 0.0
        return await self._puller.pull(
            wire,
            subscription(self._client, wire.topic, expression, SQL92 if sql else TAG, sub_version=0),
            queue_offset,
            max_count=max_count,
            suspend_seconds=suspend_seconds,
            timeout_seconds=timeout_seconds + suspend_seconds,
        )

    # Offsets.

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset of the oldest message."""
        return await self._client.call(await self._master(queue), requests.min_offset(self._wire(queue)))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset of the next message to be stored."""
        return await self._client.call(await self._master(queue), requests.max_offset(self._wire(queue)))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored at `timestamp_ms` or later, or the end of the queue
        (an Apache broker 4.9: of the message stored nearest to it)."""
        return await self._client.call(
            await self._master(queue), requests.search_offset(self._wire(queue), timestamp_ms)
        )

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int:
        """Return when the oldest message was stored, in ms; -1 when there is none."""
        return await self._client.call(await self._master(queue), requests.earliest_store_time(self._wire(queue)))

    async def committed_offset(self, queue: MessageQueue, *, from_store: bool = False) -> int | None:
        """Return the group's offset, from memory or (with `from_store`, or when memory has none) from the store; None
        when it was never committed."""
        await trio.lowlevel.checkpoint()
        wire = self._wire(queue)
        known = None if from_store else self._offsets.table.get(wire)
        return known if known is not None else await self._offsets.read(wire)

    def update_offset(self, queue: MessageQueue, queue_offset: int) -> None:
        """Set the group's offset in memory; it is stored within seconds, and when the consumer is closed."""
        self._offsets.table.update(self._wire(queue), queue_offset)

    async def commit(self, queue: MessageQueue, queue_offset: int) -> None:
        """Store the group's offset, and return when it is stored."""
        self.update_offset(queue, queue_offset)
        await self._offsets.persist_now(self._wire(queue))

    # Single messages.

    async def send_back(
        self,
        message: MessageExt,
        *,
        delay_level: int = 0,
        broker_name: str | None = None,
        max_reconsume_times: int = 16,
    ) -> None:
        """Have the broker deliver a message to this group again, later."""
        name = broker_name or message.broker_name
        address = await self._client.master_soon(name, self._use(message.topic)) if name else message.store_host.text
        await self._client.call(
            address,
            requests.send_back(
                self.group,
                message,
                delay_level=delay_level,
                max_reconsume_times=max_reconsume_times,
                unit_mode=self._client.config.unit_mode,
            ),
        )

    # ConsumerMember.

    def topics(self) -> set[str]:
        return set(self._topics)

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=CONSUME_ACTIVELY,
            message_model=self.model.value,
            consume_from_where=CONSUME_FROM_LAST_OFFSET,
            subscription_data_set=[
                subscription(self._client, topic, "*", TAG, sub_version=0) for topic in sorted(self._topics)
            ],
            unit_mode=self._client.config.unit_mode,
        )

    def wake_rebalance(self) -> None:
        """Do nothing: this consumer holds no share of the queues."""

    def members_changed(self) -> None:
        """Do nothing: this consumer holds no share of the queues."""

    async def persist_offsets(self) -> None:
        await self._offsets.persist()

    async def store_offsets_again(self, broker_name: str) -> None:
        await self._offsets.store_again(broker_name)

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, queue_offset in offsets.items():
            if queue.topic == topic:
                self._offsets.table.update(queue, queue_offset)
        await self._offsets.persist()

    def consume_offsets(self, topic: str) -> dict[MessageQueue, int]:
        return self._offsets.table.snapshot(topic)

    def running_info(self, with_stacks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            properties={"PROP_CONSUME_TYPE": CONSUME_ACTIVELY, "consumerGroup": self.group_name},
            subscription_set=[
                subscription(self._client, topic, "*", TAG, sub_version=0) for topic in sorted(self._topics)
            ],
        )

    async def consume_directly(self, message: MessageExt, broker_name: str | None) -> ConsumeMessageDirectlyResult:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the group {self.group} pulls by hand and has no listener")

    # Inside.

    def _use(self, topic: str) -> str:
        """Return the wire name of a topic, whose route is kept fresh from now on."""
        if not self._is_open:
            raise ClientClosed("this consumer is closed: use it inside `async with PullConsumer(...) as consumer`")
        wire = self._client.namespace.wrap(topic)
        self._topics.add(wire)
        return wire

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._use(queue.topic), queue.broker_name, queue.queue_id)

    async def _master(self, queue: MessageQueue) -> str:
        return await self._client.master_soon(queue.broker_name, self._use(queue.topic))
