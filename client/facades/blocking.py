"""The client for plain blocking code: the same classes, without `async`.

    with Producer("orders", name_server="127.0.0.1:9876") as producer:
        producer.send(Message("Orders", b"..."))

    with PushConsumer("billing", name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("Orders")
        for message in consumer:                # acknowledged when the next one is asked for
            ...

Methods have the names, arguments and errors of the trio classes (producer.py, push_consumer.py, ...). The work is
done by the trio core in one background thread that all objects share; listeners run in threads, and may call anything
here. Objects may be used by several threads. Without `with`: `start()` and `close()`.
"""

from __future__ import annotations

import threading
import weakref
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
from triomq.client.facades.portal import Held, Portal, blocking, plain
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

    def start(self) -> Self:
        """Connect; `with` does it, too."""
        if self._portal is not None:
            raise ClientClosed(f"this {type(self).__name__} is already open")
        portal = portals.acquire()
        try:
            self._held = portal.hold(self._core).result()
        except BaseException:
            portals.release()
            raise
        self._portal = portal
        return self

    def close(self, *, failed: bool = False) -> None:
        """Leave the group, store offsets, disconnect. May be called twice."""
        portal, held = self._portal, self._held
        if portal is None or held is None:
            return
        self._portal = self._held = None
        try:
            portal.let_go(held, failed=failed).result()
        finally:
            portals.release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(failed=error is not None)


class Producer(_Face):
    """See `triomq.Producer`."""

    _core: core_producer.Producer

    def __init__(self, group: str, **options: Any) -> None:
        super().__init__(core_producer.Producer(group, **options))

    send = blocking(core_producer.Producer.send)
    send_oneway = blocking(core_producer.Producer.send_oneway)
    send_batch = blocking(core_producer.Producer.send_batch)
    send_many = blocking(core_producer.Producer.send_many)
    request = blocking(core_producer.Producer.request)
    queues = blocking(core_producer.Producer.queues)


class TransactionProducer(Producer):
    """See `triomq.TransactionProducer`. The two functions run in threads."""

    def __init__(
        self, group: str, execute: core_transaction.Execute, check: core_transaction.Check, **options: Any
    ) -> None:
        _Face.__init__(self, core_transaction.TransactionProducer(group, execute, check, **options))

    send_in_transaction = blocking(core_transaction.TransactionProducer.send_in_transaction)


class PushConsumer(_Face):
    """See `triomq.PushConsumer`. Loop over it, or give it a listener, which runs in threads."""

    _core: core_push.PushConsumer

    def __init__(self, group: str, **options: Any) -> None:
        super().__init__(core_push.PushConsumer(group, **options))
        self._current: weakref.WeakKeyDictionary[threading.Thread, Delivery] = weakref.WeakKeyDictionary()

    subscribe = plain(core_push.PushConsumer.subscribe)
    unsubscribe = plain(core_push.PushConsumer.unsubscribe)
    listen = plain(core_push.PushConsumer.listen)
    listen_batch = plain(core_push.PushConsumer.listen_batch)
    suspend = plain(core_push.PushConsumer.suspend)
    resume = plain(core_push.PushConsumer.resume)
    wait_assigned = blocking(core_push.PushConsumer.wait_assigned)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageExt:
        self.ack()
        message = self.receive()
        if message is None:
            raise StopIteration
        return message

    def receive(self, timeout_seconds: float | None = None) -> MessageExt | None:
        """The next message for this thread, or None when the time is over. The one before is NOT acknowledged by
        this."""
        if self._portal is None:
            raise ClientClosed("this PushConsumer is closed: use it inside `with`, or call start()")
        delivery = self._portal.run(_receive, self._core, timeout_seconds)
        if delivery is None:
            return None
        self._current[threading.current_thread()] = delivery
        return delivery.message

    def ack(self) -> None:
        """The message this thread got last is consumed. Asking a loop for the next one does the same."""
        delivery = self._current.pop(threading.current_thread(), None)
        if delivery is not None and self._portal is not None:
            self._portal.call(delivery.ack)

    def retry_later(self, delay_level: int = 0) -> None:
        """The message this thread got last shall be delivered again later; see `RetryLater`."""
        delivery = self._current.pop(threading.current_thread(), None)
        if delivery is not None and self._portal is not None:
            self._portal.call(delivery.retry_later, delay_level)

    @property
    def assigned_queues(self) -> list[MessageQueue]:
        if self._portal is None:
            return []
        return self._portal.call(lambda: self._core.assigned_queues)


async def _receive(core: core_push.PushConsumer, timeout_seconds: float | None) -> Delivery | None:
    import math

    import trio

    with trio.move_on_after(math.inf if timeout_seconds is None else timeout_seconds):
        return await core.receive()
    return None


class PullConsumer(_Face):
    """See `triomq.PullConsumer`."""

    _core: core_pull.PullConsumer

    def __init__(self, group: str, **options: Any) -> None:
        super().__init__(core_pull.PullConsumer(group, **options))

    queues = blocking(core_pull.PullConsumer.queues)
    pull = blocking(core_pull.PullConsumer.pull)
    min_offset = blocking(core_pull.PullConsumer.min_offset)
    max_offset = blocking(core_pull.PullConsumer.max_offset)
    search_offset = blocking(core_pull.PullConsumer.search_offset)
    earliest_store_time_ms = blocking(core_pull.PullConsumer.earliest_store_time_ms)
    committed_offset = blocking(core_pull.PullConsumer.committed_offset)
    update_offset = plain(core_pull.PullConsumer.update_offset)
    commit = blocking(core_pull.PullConsumer.commit)
    send_back = blocking(core_pull.PullConsumer.send_back)


class LitePullConsumer(_Face):
    """See `triomq.LitePullConsumer`."""

    _core: core_lite.LitePullConsumer

    def __init__(self, group: str, **options: Any) -> None:
        super().__init__(core_lite.LitePullConsumer(group, **options))

    subscribe = plain(core_lite.LitePullConsumer.subscribe)
    unsubscribe = plain(core_lite.LitePullConsumer.unsubscribe)
    assign = blocking(core_lite.LitePullConsumer.assign)
    queues = blocking(core_lite.LitePullConsumer.queues)
    poll = blocking(core_lite.LitePullConsumer.poll)
    pause = plain(core_lite.LitePullConsumer.pause)
    resume = plain(core_lite.LitePullConsumer.resume)
    seek = blocking(core_lite.LitePullConsumer.seek)
    seek_to_begin = blocking(core_lite.LitePullConsumer.seek_to_begin)
    seek_to_end = blocking(core_lite.LitePullConsumer.seek_to_end)
    offset_for_time = blocking(core_lite.LitePullConsumer.offset_for_time)
    position = blocking(core_lite.LitePullConsumer.position)
    committed = blocking(core_lite.LitePullConsumer.committed)
    commit = blocking(core_lite.LitePullConsumer.commit)

    @property
    def assignment(self) -> list[MessageQueue]:
        return self._core.assignment if self._portal is None else self._portal.call(lambda: self._core.assignment)


class Admin(_Face):
    """See `triomq.Admin`: every async method of it, blocking."""

    _core: core_admin.Admin

    def __init__(self, *, timeout_seconds: float = 5.0, **options: Unpack[ClientOptions]) -> None:
        super().__init__(core_admin.Admin(timeout_seconds=timeout_seconds, **options))

    create_topic = blocking(core_admin.Admin.create_topic)
    delete_topic = blocking(core_admin.Admin.delete_topic)
    topics = blocking(core_admin.Admin.topics)
    route = blocking(core_admin.Admin.route)
    topic_stats = blocking(core_admin.Admin.topic_stats)
    create_group = blocking(core_admin.Admin.create_group)
    delete_group = blocking(core_admin.Admin.delete_group)
    consume_stats = blocking(core_admin.Admin.consume_stats)
    consumer_connection = blocking(core_admin.Admin.consumer_connection)
    reset_offset = blocking(core_admin.Admin.reset_offset)
    cluster_info = blocking(core_admin.Admin.cluster_info)
    clusters = blocking(core_admin.Admin.clusters)
    message_by_id = blocking(core_admin.Admin.message_by_id)
    messages_by_key = blocking(core_admin.Admin.messages_by_key)
    broker_runtime = blocking(core_admin.Admin.broker_runtime)
    broker_config = blocking(core_admin.Admin.broker_config)

    def __getattr__(self, name: str) -> Any:
        """The less common methods."""
        if name.startswith("_"):
            raise AttributeError(name)
        return blocking(getattr(core_admin.Admin, name)).__get__(self)
