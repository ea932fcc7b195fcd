"""The client for plain blocking code: the same classes, without `async`.

    with Producer("orders", name_server="127.0.0.1:9876") as producer:
        producer.send(Message("Orders", b"..."))

    with PushConsumer("billing", name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("Orders")
        for message in consumer:                # acknowledged by asking for the next one
            ...

Methods have the names, arguments and errors of the trio classes. The trio client does the work in one background thread
that all objects share; listeners run in threads, and may call anything here. Several threads may use one object.
Without `with`: `start()` and `close()`.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import wait
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

import trio

from triomq.client.consume.delivery import Delivery
from triomq.client.consume.polled import Polled
from triomq.client.core.errors import ClientClosed, ConfigurationError
from triomq.client.core.type_variables import T
from triomq.client.facades import portal as portals
from triomq.client.facades.methods import BlockingKind
from triomq.client.facades.sending import Steps
from triomq.client.facades.tables import (
    AdminFacade,
    LitePullConsumerFacade,
    ProducerFacade,
    PullConsumerFacade,
    PushConsumerFacade,
    SimpleConsumerFacade,
    TransactionProducerFacade,
)
from triomq.protocol.message import MessageExt

if TYPE_CHECKING:
    from datetime import timedelta

    from triomq.client.core.results import SendResult
    from triomq.client.payloads.serializer import Serializer
    from triomq.client.produce.producer import V


class BlockingFacade(BlockingKind):
    """Opened with `with` or `start`; what waits blocks the calling thread."""

    def start(self) -> Self:
        """Connect; `with` does it, too."""
        closing = self._check_start()
        self._warn_in_event_loop()
        if closing is not None:
            wait([closing])
        portal = portals.acquire()
        self._opening(portal)
        try:
            self._held = portal.run(portal.hold, self._core)
        except BaseException:
            portals.release(portal)
            raise
        self._portal = portal
        return self

    def close(self, *, failed: bool = False) -> None:
        """Leave the group, store offsets, disconnect. May be called twice, and by any thread: inside of a function that
        this object calls it returns when closing has begun, which waits for that function. `failed`: leave as after an
        exception, so that messages in progress are not waited for."""
        close = self._begin_to_close(failed=failed)
        if close is not None:
            portals.close_later(close) if self._is_inside else close()
        elif self._closed is not None and not self._is_inside:
            wait([self._closed])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(failed=error is not None)

    def _wait(self, method: Callable[..., Awaitable[Any]], args: Any, kwargs: Any) -> Any:
        return self._opened().run(method, *args, **kwargs)

    def _drive(self, steps: Steps) -> Any:
        self._opened()
        try:
            call = next(steps)
            while True:
                call = steps.send(self._wait(*call))
        except StopIteration as end:
            return end.value

    def _warn_in_event_loop(self) -> None:
        name = type(self).__name__
        if asyncio._get_running_loop() is not None:
            better = f"triomq.aio.{name}"
        elif trio.lowlevel.in_trio_run():
            better = f"triomq.{name}"
        else:
            return
        warnings.warn(
            f"triomq.blocking.{name} blocks the event loop that runs in this thread; use {better}",
            RuntimeWarning,
            stacklevel=4,
        )


class Producer(BlockingFacade, ProducerFacade[T]):
    """Sends messages (RocketMQ: DefaultMQProducer). Use it as `with Producer(group) as producer`.

    `group` names the producers that send the same kind of messages. `client`: share this open client instead of
    creating one; then no client options are allowed. `send_timeout_seconds`: limit of one send with all its attempts.
    `retries`: attempts after the first; those that reach no broker do not count. `retry_when_not_stored_ok`: also try
    another broker when the message is stored but not flushed or replicated in time. `default_topic_queues`: number of
    queues of a topic that the first send creates, with the settings of `template_topic`. `rules`: sizes and
    compression. `latency_faults`: avoid brokers that were slow or failed. `max_in_flight`: sends that may wait for a
    response at once; others wait for their turn. `send_hooks` see every attempt. `trace`: send message trace to the
    usual topic, or to the one named. `serializer`: makes bodies of the values that `message`, `send_value`,
    `request_value` and `reply_value` take.
    """

    if TYPE_CHECKING:

        def send_value(
            self,
            topic: str,
            value: T,
            *,
            tags: str | None = None,
            keys: str | Iterable[str] | None = None,
            properties: Mapping[str, str] | None = None,
            delay_level: int = 0,
            delay: timedelta | None = None,
            sharding_key: str | None = None,
            timeout_seconds: float | None = None,
        ) -> SendResult:
            """Send a value, as `send` does with a message. Raises what `message` and `send` raise."""

        def request_value(
            self,
            topic: str,
            value: T,
            reply: Serializer[V],
            *,
            tags: str | None = None,
            keys: str | Iterable[str] | None = None,
            timeout_seconds: float = 3.0,
        ) -> MessageExt[V]:
            """Send a value and wait for the reply, whose `value` the serializer `reply` reads. Raises what `request`
            raises, and WrongPayload for a reply that it cannot read."""

        def reply_value(self, asked: MessageExt, value: T, *, tags: str | None = None) -> SendResult:
            """Send a value as the reply to a request. Raises InvalidMessage when `asked` is not a request."""


class TransactionProducer(BlockingFacade, TransactionProducerFacade[T]):
    """Sends transactional messages, and everything a `Producer` sends (RocketMQ: TransactionMQProducer).

    `execute(message, argument)` runs the local transaction, `check(message)` looks up its outcome when the broker asks;
    both return a LocalTransactionState and may be `async def`, or plain functions, which run in a thread. `max_checks`:
    number of checks at once. The other parameters are those of `Producer`.

    The two functions run in threads.
    """


class PushConsumer(BlockingFacade, PushConsumerFacade[T]):
    """Consumes with a listener or in a loop; the members of the group share the queues (RocketMQ:
    DefaultMQPushConsumer). All members of a group must subscribe to the same topics with the same expressions.

    `model`: CLUSTERING shares the messages out, BROADCASTING gives every member all of them. `ordered`: one message at
    a time for each queue, in order. `consume_from`: where a group begins in a queue without an offset, with
    `consume_from_time` (local time when it has no zone) for CONSUME_FROM_TIMESTAMP. `strategy`: how queues are shared
    out. `rules`: limits. `serializer`: makes each message's `value` of its body; a message whose body is wrong goes to
    the dead letter topic. `client`: share this open client. `consume_hooks` see every call of the listener,
    `filter_hooks` every pull. `trace`: send message trace to the usual topic, or to the one named.

    Loop over it, or give it a listener, which runs in threads.
    """

    _loop_here: Loop[T]

    def _new_loop(self) -> Loop[T]:
        return Loop(self, ends=False)

    def __iter__(self) -> Loop[T]:
        return Loop(self)

    def __next__(self) -> MessageExt[T]:
        return next(self._loop_here)

    def receive(self, timeout_seconds: float | None = None) -> MessageExt[T] | None:
        """Return the next message, or None when the time is over; with a time of 0 the message that is there. This does
        NOT acknowledge the one before."""
        delivery = self._receive(timeout_seconds)
        return None if delivery is None else delivery.message

    def _receive(self, timeout_seconds: float | None = None) -> Delivery[T] | None:
        portal = self._opened()
        ahead = self._ahead
        delivery = ahead.take(portal)
        if delivery is not None:
            return delivery
        with ahead.asking(threading.get_ident()):
            delivery = ahead.take(portal)
            if delivery is None:
                received = portal.run(self._core._receive_with_more, timeout_seconds, ahead.others)
                delivery = None if received is None else ahead.keep(received, portal)
        return delivery


class Loop(Generic[T]):
    """One `for` over a consumer: asking for the next message settles the one before it, of this loop alone. It ends
    when the consumer closes, see `receiving.Loop`."""

    def __init__(self, consumer: PushConsumer[T], *, ends: bool = True) -> None:
        self._consumer = consumer
        self._ends = ends
        self._has_begun = False
        self._delivery: Delivery[T] | None = None
        # The thread that asks, if one does. Not a lock: a signal handler may raise anywhere, also between taking a lock
        # and the `try` that gives it back. `setdefault` is atomic.
        self._asking: dict[str, int] = {}

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageExt[T]:
        thread = threading.get_ident()
        try:
            if self._asking.setdefault("thread", thread) != thread:
                raise ConfigurationError(
                    "this loop is being asked for its next message already: one loop for each thread"
                )
            return self._next()
        finally:
            if self._asking.get("thread") == thread:
                self._asking.clear()

    def _next(self) -> MessageExt[T]:
        if not self._has_begun:
            self._consumer._opened()
            self._has_begun = self._ends
        last, self._delivery = self._delivery, None
        if last is not None:
            last.span.leave()
            last.check_not_abandoned()
            self._consumer._core._unsettled.ack_unless_settled(last)
        try:
            delivery = self._consumer._receive()
        except ClientClosed:
            if self._has_begun:
                raise StopIteration from None
            raise
        assert delivery is not None
        delivery.span.enter()
        self._delivery = delivery
        return delivery.message


class PullConsumer(BlockingFacade, PullConsumerFacade):
    """Pulls from a queue and an offset that the application names (RocketMQ: DefaultMQPullConsumer).

    `model` says where `commit` stores offsets: at the brokers, or (BROADCASTING) in a local file. `suspend_seconds`:
    how long a broker may hold a pull that waits (`pull(..., wait=True)`). `client`: share this open client.
    """


class LitePullConsumer(BlockingFacade, LitePullConsumerFacade[T]):
    """Polls messages of its share of the queues, or of queues assigned by hand (RocketMQ: DefaultLitePullConsumer).

    Messages are pulled in the background up to a limit, and `poll` returns them. With `auto_commit` (the default), what
    one poll returned is stored as consumed by the next poll (at most every `auto_commit_seconds`), and when the `with`
    block ends without an exception. Without it, call `commit`.

    The other parameters are those of `PushConsumer`.
    """

    def poll(self, timeout_seconds: float = 5.0) -> list[MessageExt[T]]:
        """See `triomq.LitePullConsumer.poll`."""
        polled: Polled | None = self._wait(self._core.take, (timeout_seconds,), {})
        return [] if polled is None else polled.messages


class SimpleConsumer(BlockingFacade, SimpleConsumerFacade):
    """Receives single messages, which are hidden from the other members of the group until they are acknowledged, or
    their invisible time is over and they are delivered again (RocketMQ 5: SimpleConsumer). It needs brokers that know
    POP: TrioMQ or RocketMQ 5.

    `ordered`: a queue has one batch at a time, and nothing behind it is received before all of it is acknowledged.
    `consume_from`: where a group begins in a queue without an offset, CONSUME_FROM_FIRST_OFFSET or
    CONSUME_FROM_LAST_OFFSET. `client`: share this open client.
    """


class Admin(BlockingFacade, AdminFacade):
    """Administration: everything the `mqadmin` commands ask of brokers and name servers, as calls (RocketMQ:
    DefaultMQAdminExt). Use it as `with Admin(...) as admin`. Topics and groups are wire names. `timeout_seconds`:
    limit of each call. `client`: share this open client."""
