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
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Self

import trio

from triomq.client.consume.delivery import Delivery
from triomq.client.consume.polled import Polled
from triomq.client.core.errors import ClientClosed, ConfigurationError
from triomq.client.core.type_variables import T
from triomq.client.facades import portal as portals
from triomq.client.facades.methods import BlockingKind
from triomq.client.facades.tables import (
    AdminFacade,
    LitePullConsumerFacade,
    ProducerFacade,
    PullConsumerFacade,
    PushConsumerFacade,
    TransactionProducerFacade,
)
from triomq.protocol.message import MessageExt


class BlockingFacade(BlockingKind):
    """Opened with `with` or `start`; what waits blocks the calling thread."""

    def start(self) -> Self:
        """Connect; `with` does it, too."""
        if self._portal is not None:
            raise ClientClosed(f"this {type(self).__name__} is already open")
        self._warn_in_event_loop()
        portal = portals.acquire()
        self._opening(portal)
        try:
            self._held = portal.run(portal.hold, self._core)
        except BaseException:
            portals.release()
            raise
        self._portal = portal
        return self

    def close(self, *, failed: bool = False) -> None:
        """Leave the group, store offsets, disconnect. May be called twice. `failed`: leave as after an exception, so
        that messages in progress are not waited for."""
        portal, held = self._portal, self._held
        if portal is None or held is None:
            return
        self._closing()
        self._portal = self._held = None
        try:
            portal.leave(held, failed=failed).result()
        finally:
            self._threads.stop()
            portals.release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(failed=error is not None)

    def _wait(self, method: Callable[..., Awaitable[Any]], args: Any, kwargs: Any) -> Any:
        return self._opened().run(method, *args, **kwargs)

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
    """See `triomq.Producer`."""


class TransactionProducer(BlockingFacade, TransactionProducerFacade[T]):
    """See `triomq.TransactionProducer`. The two functions run in threads."""


class PushConsumer(BlockingFacade, PushConsumerFacade[T]):
    """See `triomq.PushConsumer`. Loop over it, or give it a listener, which runs in threads."""

    _loop_here: Loop[T]

    def _new_loop(self) -> Loop[T]:
        return Loop(self)

    def __iter__(self) -> Loop[T]:
        return self._new_loop()

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
        with ahead.asking():
            delivery = ahead.take(portal)
            if delivery is None:
                received = portal.run(self._core._receive_with_more, timeout_seconds, ahead.others)
                delivery = None if received is None else ahead.keep(received, portal)
        return delivery


class Loop(Generic[T]):
    """One `for` over a consumer: asking for the next message settles the one before it, of this loop alone."""

    def __init__(self, consumer: PushConsumer[T]) -> None:
        self._consumer = consumer
        self._delivery: Delivery[T] | None = None
        self._asking = threading.Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageExt[T]:
        if not self._asking.acquire(blocking=False):
            raise ConfigurationError("this loop is being asked for its next message already: one loop for each thread")
        try:
            self._consumer._opened()
            last, self._delivery = self._delivery, None
            if last is not None:
                last.span.leave()
                self._consumer._core._unsettled.ack_unless_settled(last)
            delivery = self._consumer._receive()
            assert delivery is not None
            delivery.span.enter()
            self._delivery = delivery
        finally:
            self._asking.release()
        return delivery.message


class PullConsumer(BlockingFacade, PullConsumerFacade):
    """See `triomq.PullConsumer`."""


class LitePullConsumer(BlockingFacade, LitePullConsumerFacade[T]):
    """See `triomq.LitePullConsumer`."""

    def poll(self, timeout_seconds: float = 5.0) -> list[MessageExt[T]]:
        """See `triomq.LitePullConsumer.poll`."""
        polled: Polled | None = self._wait(self._core.take, (timeout_seconds,), {})
        return [] if polled is None else polled.messages


class Admin(BlockingFacade, AdminFacade):
    """See `triomq.Admin`."""
