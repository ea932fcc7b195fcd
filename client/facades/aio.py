"""The client for asyncio programs: the same classes, awaited in an asyncio event loop.

    async with Producer("orders", name_server="127.0.0.1:9876") as producer:
        await producer.send(Message("Orders", b"..."))

    async with PushConsumer("billing", name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("Orders")
        async for message in consumer:          # acknowledged when the next one is asked for
            ...

Methods have the names, arguments and errors of the trio classes. The work is done by the trio core in one background
thread that all objects share (portal.py says why); listeners that are `async def` run in the event loop in which the
consumer was opened, plain ones in threads. Cancelling a task cancels its call.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from triomq.client.administer import admin as core_admin
from triomq.client.consume import lite_pull_consumer as core_lite
from triomq.client.consume import pull_consumer as core_pull
from triomq.client.consume import push_consumer as core_push
from triomq.client.consume.delivery import Delivery
from triomq.client.core.config import ClientOptions
from triomq.client.core.errors import ClientClosed
from triomq.client.facades import portal as portals
from triomq.client.facades.portal import Held, Portal, awaited, plain, wait_future
from triomq.client.instance.handlers import is_async
from triomq.client.produce import producer as core_producer
from triomq.client.produce import transaction_producer as core_transaction
from triomq.client.produce.request_reply import reply_to
from triomq.protocol.message import Message, MessageExt
from triomq.protocol.message_queue import MessageQueue

__all__ = [
    "Admin",
    "LitePullConsumer",
    "Message",
    "MessageExt",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "TransactionProducer",
    "reply_to",
]


class _Face:
    """An object of the core that lives in the portal's thread."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self._portal: Portal | None = None
        self._held: Held | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        if self._portal is not None:
            raise ClientClosed(f"this {type(self).__name__} is already open")
        self._loop = asyncio.get_running_loop()
        portal = await self._loop.run_in_executor(None, portals.acquire)
        try:
            self._held = await asyncio.wrap_future(portal.hold(self._core))
        except BaseException:
            await self._loop.run_in_executor(None, portals.release)
            raise
        self._portal = portal
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        portal, held = self._portal, self._held
        if portal is None or held is None:
            return
        self._portal = self._held = None
        loop = asyncio.get_running_loop()
        try:
            await asyncio.shield(asyncio.wrap_future(portal.let_go(held, failed=error is not None)))
        finally:
            await loop.run_in_executor(None, portals.release)

    def _in_loop(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function the core can call in trio: an `async def` runs in the loop that opened this object."""
        if not is_async(function):
            return function

        async def call(*args: Any) -> Any:
            if self._loop is None:
                raise ClientClosed("not open")
            coroutine: Coroutine[Any, Any, Any] = function(*args)
            return await wait_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

        return call


class Producer(_Face):
    """See `triomq.Producer`."""

    _core: core_producer.Producer

    def __init__(self, group: str, **options: Any) -> None:
        super().__init__(core_producer.Producer(group, **options))

    send = awaited(core_producer.Producer.send)
    send_oneway = awaited(core_producer.Producer.send_oneway)
    send_batch = awaited(core_producer.Producer.send_batch)
    send_many = awaited(core_producer.Producer.send_many)
    request = awaited(core_producer.Producer.request)
    queues = awaited(core_producer.Producer.queues)


class TransactionProducer(Producer):
    """See `triomq.TransactionProducer`."""

    def __init__(
        self, group: str, execute: core_transaction.Execute, check: core_transaction.Check, **options: Any
    ) -> None:
        core = core_transaction.TransactionProducer(group, self._in_loop(execute), self._in_loop(check), **options)
        _Face.__init__(self, core)

    send_in_transaction = awaited(core_transaction.TransactionProducer.send_in_transaction)


class PushConsumer(_Face):
    """See `triomq.PushConsumer`. Loop over it, or give it a listener."""

    _core: core_push.PushConsumer

    def __init__(self, group: str, **options: Any) -> None:
        super().__init__(core_push.PushConsumer(group, **options))
        self._current: weakref.WeakKeyDictionary[asyncio.Task[Any], Delivery] = weakref.WeakKeyDictionary()

    subscribe = plain(core_push.PushConsumer.subscribe)
    unsubscribe = plain(core_push.PushConsumer.unsubscribe)
    suspend = plain(core_push.PushConsumer.suspend)
    resume = plain(core_push.PushConsumer.resume)
    wait_assigned = awaited(core_push.PushConsumer.wait_assigned)

    def listen(self, handler: Callable[[MessageExt], Any]) -> None:
        """See `triomq.PushConsumer.listen`; an `async def` runs in the asyncio loop."""
        if self._portal is None:
            self._core.listen(self._in_loop(handler))
        else:
            self._portal.call(self._core.listen, self._in_loop(handler))

    def listen_batch(self, handler: Callable[[Sequence[MessageExt]], Any]) -> None:
        """Like `listen`, with several messages at once."""
        if self._portal is None:
            self._core.listen_batch(self._in_loop(handler))
        else:
            self._portal.call(self._core.listen_batch, self._in_loop(handler))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        self.ack()
        return await self.receive()

    async def receive(self) -> MessageExt:
        """The next message for this task. The one before is NOT acknowledged by this."""
        if self._portal is None:
            raise ClientClosed("this PushConsumer is closed: use it inside `async with`")
        future = self._portal.submit(self._core.receive)
        try:
            delivery = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel() and not future.cancelled() and future.exception() is None:
                self._portal.call(future.result().give_back)
            raise
        task = asyncio.current_task()
        assert task is not None
        self._current[task] = delivery
        return delivery.message

    def ack(self) -> None:
        """The message this task got last is consumed. Asking a loop for the next one does the same."""
        delivery = self._mine()
        if delivery is not None and self._portal is not None:
            self._portal.call(delivery.ack)

    def retry_later(self, delay_level: int = 0) -> None:
        """The message this task got last shall be delivered again later; see `RetryLater`."""
        delivery = self._mine()
        if delivery is not None and self._portal is not None:
            self._portal.call(delivery.retry_later, delay_level)

    def _mine(self) -> Delivery | None:
        task = asyncio.current_task()
        return None if task is None else self._current.pop(task, None)

    @property
    def assigned_queues(self) -> list[MessageQueue]:
        if self._portal is None:
            return []
        return self._portal.call(lambda: self._core.assigned_queues)


class PullConsumer(_Face):
    """See `triomq.PullConsumer`."""

    _core: core_pull.PullConsumer

    def __init__(self, group: str, **options: Any) -> None:
        super().__init__(core_pull.PullConsumer(group, **options))

    queues = awaited(core_pull.PullConsumer.queues)
    pull = awaited(core_pull.PullConsumer.pull)
    min_offset = awaited(core_pull.PullConsumer.min_offset)
    max_offset = awaited(core_pull.PullConsumer.max_offset)
    search_offset = awaited(core_pull.PullConsumer.search_offset)
    earliest_store_time_ms = awaited(core_pull.PullConsumer.earliest_store_time_ms)
    committed_offset = awaited(core_pull.PullConsumer.committed_offset)
    update_offset = plain(core_pull.PullConsumer.update_offset)
    commit = awaited(core_pull.PullConsumer.commit)
    send_back = awaited(core_pull.PullConsumer.send_back)


class LitePullConsumer(_Face):
    """See `triomq.LitePullConsumer`."""

    _core: core_lite.LitePullConsumer

    def __init__(self, group: str, **options: Any) -> None:
        super().__init__(core_lite.LitePullConsumer(group, **options))

    subscribe = plain(core_lite.LitePullConsumer.subscribe)
    unsubscribe = plain(core_lite.LitePullConsumer.unsubscribe)
    assign = awaited(core_lite.LitePullConsumer.assign)
    queues = awaited(core_lite.LitePullConsumer.queues)
    poll = awaited(core_lite.LitePullConsumer.poll)
    pause = plain(core_lite.LitePullConsumer.pause)
    resume = plain(core_lite.LitePullConsumer.resume)
    seek = awaited(core_lite.LitePullConsumer.seek)
    seek_to_begin = awaited(core_lite.LitePullConsumer.seek_to_begin)
    seek_to_end = awaited(core_lite.LitePullConsumer.seek_to_end)
    offset_for_time = awaited(core_lite.LitePullConsumer.offset_for_time)
    position = awaited(core_lite.LitePullConsumer.position)
    committed = awaited(core_lite.LitePullConsumer.committed)
    commit = awaited(core_lite.LitePullConsumer.commit)

    @property
    def assignment(self) -> list[MessageQueue]:
        return self._core.assignment if self._portal is None else self._portal.call(lambda: self._core.assignment)


class Admin(_Face):
    """See `triomq.Admin`: every async method of it, for asyncio."""

    _core: core_admin.Admin

    def __init__(self, *, timeout_seconds: float = 5.0, **options: Unpack[ClientOptions]) -> None:
        super().__init__(core_admin.Admin(timeout_seconds=timeout_seconds, **options))

    create_topic = awaited(core_admin.Admin.create_topic)
    delete_topic = awaited(core_admin.Admin.delete_topic)
    topics = awaited(core_admin.Admin.topics)
    route = awaited(core_admin.Admin.route)
    topic_stats = awaited(core_admin.Admin.topic_stats)
    create_group = awaited(core_admin.Admin.create_group)
    delete_group = awaited(core_admin.Admin.delete_group)
    consume_stats = awaited(core_admin.Admin.consume_stats)
    consumer_connection = awaited(core_admin.Admin.consumer_connection)
    reset_offset = awaited(core_admin.Admin.reset_offset)
    cluster_info = awaited(core_admin.Admin.cluster_info)
    clusters = awaited(core_admin.Admin.clusters)
    message_by_id = awaited(core_admin.Admin.message_by_id)
    messages_by_key = awaited(core_admin.Admin.messages_by_key)
    broker_runtime = awaited(core_admin.Admin.broker_runtime)
    broker_config = awaited(core_admin.Admin.broker_config)

    def __getattr__(self, name: str) -> Any:
        """The less common methods."""
        if name.startswith("_"):
            raise AttributeError(name)
        return awaited(getattr(core_admin.Admin, name)).__get__(self)
