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
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Self

from triomq.client.consume.delivery import Delivery
from triomq.client.consume.polled import Polled
from triomq.client.core.errors import ClientClosed, ConfigurationError
from triomq.client.core.type_variables import T
from triomq.client.facades import portal as portals
from triomq.client.facades.methods import AioKind
from triomq.client.facades.portal import Portal, wait_future
from triomq.client.facades.tables import (
    AdminFacade,
    LitePullConsumerFacade,
    ProducerFacade,
    PullConsumerFacade,
    PushConsumerFacade,
    TransactionProducerFacade,
)
from triomq.client.instance.handlers import is_async
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


class AioFacade(AioKind):
    """Opened with `async with`; what waits is a coroutine."""

    _loop: asyncio.AbstractEventLoop | None = None
    _how_to_open = "use it inside `async with`"

    async def __aenter__(self) -> Self:
        if self._portal is not None:
            raise ClientClosed(f"this {type(self).__name__} is already open")
        self._loop = _running_loop(type(self).__name__)
        acquiring = portals.in_thread(portals.acquire)
        try:
            portal = await asyncio.wrap_future(acquiring)
        except asyncio.CancelledError:
            # The thread that acquires cannot be cancelled: it gives back what it gets.
            acquiring.add_done_callback(_give_back)
            raise
        holding = portal.submit(portal.hold, self._core)
        try:
            self._held = await asyncio.wrap_future(holding)
        except BaseException:
            portal.abandon(holding)
            await asyncio.shield(asyncio.wrap_future(portals.in_thread(portals.release)))
            raise
        self._portal = portal
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        portal, held = self._portal, self._held
        if portal is None or held is None:
            return
        self._closing()
        self._portal = self._held = None
        try:
            await asyncio.shield(asyncio.wrap_future(portal.leave(held, failed=error is not None)))
        finally:
            await asyncio.shield(asyncio.wrap_future(portals.in_thread(portals.release)))

    async def _wait(self, method: Callable[..., Awaitable[Any]], args: Any, kwargs: Any) -> Any:
        portal = self._opened()
        future = portal.submit(method, *args, **kwargs)
        try:
            return await asyncio.wrap_future(future)
        except BaseException:
            portal.abandon(future)
            raise

    def _callback(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """An `async def` runs in the loop that opened this object."""
        if not is_async(function):
            return function

        async def call(*args: Any) -> Any:
            if self._loop is None:
                raise ClientClosed("not open")
            coroutine: Coroutine[Any, Any, Any] = function(*args)
            return await wait_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

        return call


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
        portals.release()


class Producer(AioFacade, ProducerFacade[T]):
    """See `triomq.Producer`."""


class TransactionProducer(AioFacade, TransactionProducerFacade[T]):
    """See `triomq.TransactionProducer`. An `async def` among the two functions runs in the asyncio loop."""


class PushConsumer(AioFacade, PushConsumerFacade[T]):
    """See `triomq.PushConsumer`. Loop over it, or give it a listener."""

    _loop_here: Loop[T]

    def _new_loop(self) -> Loop[T]:
        return Loop(self)

    def __aiter__(self) -> Loop[T]:
        return self._new_loop()

    async def __anext__(self) -> MessageExt[T]:
        return await anext(self._loop_here)

    async def receive(self) -> MessageExt[T]:
        """Return the next message. This does NOT acknowledge the one before."""
        return (await self._receive()).message

    async def _receive(self) -> Delivery[T]:
        delivery: Delivery[T] = await self._wait(self._core.receive, (), {})
        return delivery


class Loop(Generic[T]):
    """One `async for` over a consumer: asking for the next message settles the one before it, of this loop alone."""

    def __init__(self, consumer: PushConsumer[T]) -> None:
        self._consumer = consumer
        self._delivery: Delivery[T] | None = None
        self._is_asking = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt[T]:
        if self._is_asking:
            raise ConfigurationError("this loop is being asked for its next message already: one loop for each task")
        portal = self._consumer._opened()
        self._is_asking = True
        try:
            last, self._delivery = self._delivery, None
            if last is not None:
                last.span.leave()
                portal.call(last.ack_unless_settled)
            delivery = await self._consumer._receive()
        finally:
            self._is_asking = False
        delivery.span.enter()
        self._delivery = delivery
        return delivery.message


class PullConsumer(AioFacade, PullConsumerFacade):
    """See `triomq.PullConsumer`."""


class LitePullConsumer(AioFacade, LitePullConsumerFacade[T]):
    """See `triomq.LitePullConsumer`."""

    async def poll(self, timeout_seconds: float = 5.0) -> list[MessageExt[T]]:
        """See `triomq.LitePullConsumer.poll`. A poll that is cancelled has taken nothing."""
        polled: Polled | None = await self._wait(self._core.take, (timeout_seconds,), {})
        return [] if polled is None else polled.messages


class Admin(AioFacade, AdminFacade):
    """See `triomq.Admin`."""
