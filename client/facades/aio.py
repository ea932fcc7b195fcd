"""The client for asyncio programs: the same classes, awaited in an asyncio event loop.

    async with Producer("orders", name_server="127.0.0.1:9876") as producer:
        await producer.send(Message("Orders", b"..."))

    async with PushConsumer("billing", name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("Orders")
        async for message in consumer:          # acknowledged by asking for the next one
            ...

Methods have the names, arguments and errors of the trio classes. The trio client does the work in one background thread
that all objects share (portal.py says why). Listeners that are `async def` run in the event loop in which the consumer
was opened, plain ones in threads. Cancelling a task cancels its call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from triomq.client.consume.delivery import Delivery
from triomq.client.consume.polled import Polled
from triomq.client.consume.receiving import RECEIVES_BETWEEN_CHECKPOINTS, Loop
from triomq.client.core.errors import ConfigurationError
from triomq.client.core.type_variables import T
from triomq.client.facades import portal as portals
from triomq.client.facades.callbacks import Put, Threads, call_in_loop
from triomq.client.facades.inbox import Inbox
from triomq.client.facades.methods import AioKind
from triomq.client.facades.portal import Portal
from triomq.client.facades.portal_call import PortalCall
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
from triomq.client.instance.handlers import is_async
from triomq.protocol.message import MessageExt

if TYPE_CHECKING:
    from datetime import timedelta

    from triomq.client.core.results import SendResult
    from triomq.client.payloads.serializer import Serializer
    from triomq.client.produce.producer import V


class AioFacade(AioKind):
    """Opened with `async with`; what waits is a coroutine."""

    _loop: asyncio.AbstractEventLoop | None = None
    _inbox: Inbox
    _how_to_open = "use it inside `async with`, or call start()"

    async def __aenter__(self) -> Self:
        return await self.start()

    async def start(self) -> Self:
        """Connect; `async with` does it, too."""
        closing = self._check_start()
        if closing is not None:
            await asyncio.wait([asyncio.wrap_future(closing)])
        self._loop = _running_loop(type(self).__name__)
        self._inbox = Inbox(self._loop.call_soon_threadsafe)
        acquiring = portals.in_thread(portals.acquire)
        try:
            portal = await asyncio.wrap_future(acquiring)
        except asyncio.CancelledError:
            # The thread that acquires cannot be cancelled: it gives back what it gets.
            acquiring.add_done_callback(_give_back)
            raise
        self._opening(portal)
        try:
            self._held = await self._result_of(portal, partial(portal.hold, self._core))
        except BaseException:
            await asyncio.shield(asyncio.wrap_future(portals.in_thread(partial(portals.release, portal))))
            raise
        self._portal = portal
        return self

    async def close(self, *, failed: bool = False) -> None:
        """Leave the group, store offsets, disconnect. May be called twice, and by any task: inside of a function that
        this object calls it returns when closing has begun, which waits for that function. `failed`: leave as after an
        exception, so that messages in progress are not waited for."""
        close = self._begin_to_close(failed=failed)
        closing = self._closed if close is None else portals.close_later(close)
        if closing is not None and not self._is_inside:
            await asyncio.shield(asyncio.wrap_future(closing))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(failed=error is not None)

    async def _drive(self, steps: Steps) -> Any:
        self._opened()
        try:
            call = next(steps)
            while True:
                call = steps.send(await self._wait(*call))
        except StopIteration as end:
            return end.value

    async def _wait(self, method: Callable[..., Awaitable[Any]], args: Any, kwargs: Any) -> Any:
        return await self._result_of(self._opened(), partial(method, *args, **kwargs))

    async def _result_of(self, portal: Portal, function: Callable[[], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        inbox = self._inbox if loop is self._loop else Inbox(loop.call_soon_threadsafe)
        answered = loop.create_future()
        call = PortalCall(function, partial(_put, inbox, partial(_wake, answered)))
        portal.begin(call)
        try:
            await answered
        except BaseException:
            portal.abandon(call)
            raise
        return call.outcome()

    def _callback(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """An `async def` runs in the loop that opened this object."""
        if not is_async(function):
            return super()._callback(function)

        async def call(*args: Any) -> Any:
            return await call_in_loop(function, args, home=self._put_home, loop=self._inbox.put)

        return call

    def _away(self, function: Callable[..., Any]) -> Put | Threads | None:
        # The inbox is that of the loop that will open this object.
        return (lambda call: self._inbox.put(call)) if is_async(function) else self._threads


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _put(inbox: Inbox, call: Callable[[], object]) -> None:
    """A loop that has ended waits for nothing."""
    with suppress(RuntimeError):
        inbox.put(call)


def _running_loop(name: str) -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigurationError(
            f"triomq.aio.{name} runs in asyncio, and no asyncio event loop runs in this thread: use triomq.{name} in "
            f"trio programs, triomq.blocking.{name} in plain code"
        ) from None


def _give_back(acquired: Future[Portal]) -> None:
    if acquired.exception() is None:
        portals.release(acquired.result())


class Producer(AioFacade, ProducerFacade[T]):
    """Sends messages (RocketMQ: DefaultMQProducer). Use it as `async with Producer(group) as producer`.

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

        async def send_value(
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

        async def request_value(
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

        async def reply_value(self, asked: MessageExt, value: T, *, tags: str | None = None) -> SendResult:
            """Send a value as the reply to a request. Raises InvalidMessage when `asked` is not a request."""


class TransactionProducer(AioFacade, TransactionProducerFacade[T]):
    """Sends transactional messages, and everything a `Producer` sends (RocketMQ: TransactionMQProducer).

    `execute(message, argument)` runs the local transaction, `check(message)` looks up its outcome when the broker asks;
    both return a LocalTransactionState and may be `async def`, or plain functions, which run in a thread. `max_checks`:
    number of checks at once. The other parameters are those of `Producer`.

    An `async def` among the two functions runs in the asyncio loop.
    """


class PushConsumer(AioFacade, PushConsumerFacade[T]):
    """Consumes with a listener or in a loop; the members of the group share the queues (RocketMQ:
    DefaultMQPushConsumer). All members of a group must subscribe to the same topics with the same expressions.

    `model`: CLUSTERING shares the messages out, BROADCASTING gives every member all of them. `ordered`: one message at
    a time for each queue, in order. `consume_from`: where a group begins in a queue without an offset, with
    `consume_from_time` (local time when it has no zone) for CONSUME_FROM_TIMESTAMP. `strategy`: how queues are shared
    out. `rules`: limits. `serializer`: makes each message's `value` of its body; a message whose body is wrong goes to
    the dead letter topic. `client`: share this open client. `consume_hooks` see every call of the listener,
    `filter_hooks` every pull. `trace`: send message trace to the usual topic, or to the one named.

    Loop over it, or give it a listener.
    """

    _loop_here: Loop[T]
    _received = 0

    def _new_loop(self) -> Loop[T]:
        return Loop(self, ends=False)

    def __aiter__(self) -> Loop[T]:
        return Loop(self)

    async def __anext__(self) -> MessageExt[T]:
        return await anext(self._loop_here)

    @overload
    async def receive(self) -> MessageExt[T]: ...

    @overload
    async def receive(self, timeout_seconds: float | None) -> MessageExt[T] | None: ...

    async def receive(self, timeout_seconds: float | None = None) -> MessageExt[T] | None:
        """Return the next message, or None when the time is over; with a time of 0 the message that is there. This does
        NOT acknowledge the one before."""
        delivery = await self._receive(timeout_seconds)
        return None if delivery is None else delivery.message

    def _check_open(self) -> None:
        self._opened()

    def _ack_unless_settled(self, delivery: Delivery[T]) -> None:
        self._core._unsettled.ack_unless_settled(delivery)

    async def _receive(self, timeout_seconds: float | None = None) -> Delivery[T] | None:
        portal = self._opened()
        self._received += 1
        if self._received % RECEIVES_BETWEEN_CHECKPOINTS == 0:
            await asyncio.sleep(0)
        ahead = self._ahead
        delivery = ahead.take(portal)
        if delivery is None:
            with ahead.asking(object()):
                delivery = ahead.take(portal)
                if delivery is None:
                    received = await self._wait(self._core._receive_with_more, (timeout_seconds, ahead.others), {})
                    delivery = None if received is None else ahead.keep(received, portal)
        return delivery


class PullConsumer(AioFacade, PullConsumerFacade):
    """Pulls from a queue and an offset that the application names (RocketMQ: DefaultMQPullConsumer).

    `model` says where `commit` stores offsets: at the brokers, or (BROADCASTING) in a local file. `suspend_seconds`:
    how long a broker may hold a pull that waits (`pull(..., wait=True)`). `client`: share this open client.
    """


class LitePullConsumer(AioFacade, LitePullConsumerFacade[T]):
    """Polls messages of its share of the queues, or of queues assigned by hand (RocketMQ: DefaultLitePullConsumer).

    Messages are pulled in the background up to a limit, and `poll` returns them. With `auto_commit` (the default), what
    one poll returned is stored as consumed by the next poll (at most every `auto_commit_seconds`), and when the `async
    with` block ends without an exception. Without it, call `commit`.

    The other parameters are those of `PushConsumer`.
    """

    async def poll(self, timeout_seconds: float = 5.0) -> list[MessageExt[T]]:
        """See `triomq.LitePullConsumer.poll`. A poll that is cancelled has taken nothing."""
        polled: Polled | None = await self._wait(self._core.take, (timeout_seconds,), {})
        return [] if polled is None else polled.messages


class SimpleConsumer(AioFacade, SimpleConsumerFacade):
    """Receives single messages, which are hidden from the other members of the group until they are acknowledged, or
    their invisible time is over and they are delivered again (RocketMQ 5: SimpleConsumer). It needs brokers that know
    POP: TrioMQ or RocketMQ 5.

    `ordered`: a queue has one batch at a time, and nothing behind it is received before all of it is acknowledged.
    `consume_from`: where a group begins in a queue without an offset, CONSUME_FROM_FIRST_OFFSET or
    CONSUME_FROM_LAST_OFFSET. `client`: share this open client.
    """


class Admin(AioFacade, AdminFacade):
    """Administration: everything the `mqadmin` commands ask of brokers and name servers, as async calls (RocketMQ:
    DefaultMQAdminExt). Use it as `async with Admin(...) as admin`. Topics and groups are wire names. `timeout_seconds`:
    limit of each call. `client`: share this open client."""
