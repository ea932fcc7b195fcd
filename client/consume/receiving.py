"""The messages of a push consumer on their way to the application's own tasks (`async for`, `receive`).

A task waits before it takes a message, never between taking and returning it: so a call that is cancelled, or whose
time passes, has taken nothing. Where a serializer has to wait for a schema after that, a cancelled call gives the
message back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, Self

import trio

from triomq.client.consume.concurrent import ConcurrentConsuming, OfferedMessage
from triomq.client.consume.delivery import Delivery
from triomq.client.consume.ordered import OrderedConsuming
from triomq.client.consume.payloads import Payloads
from triomq.client.consume.unsettled import Unsettled
from triomq.client.core.errors import CLOSED, ClientClosed, ConfigurationError
from triomq.client.core.spans import Spans
from triomq.client.core.type_variables import T
from triomq.protocol.message import MessageExt

RECEIVES_BETWEEN_CHECKPOINTS = 64
MOST_AT_ONCE = 64
"""The most messages that cross to a facade's thread together; a hop costs about as much as twenty of them."""


class Received(Generic[T]):
    """The message that a facade asked for, and those that came with it. The latter begin when the application gets
    them (`Delivery.begin`)."""

    __slots__ = ("ahead", "delivery")

    def __init__(self, delivery: Delivery[T], ahead: list[Delivery[T]]) -> None:
        self.delivery = delivery
        self.ahead = ahead

    def give_back(self) -> None:
        """Have the next `receive` return them: the caller has gone."""
        for delivery in reversed(self.ahead):
            delivery.give_back()
        self.delivery.give_back()


class Receiving(Protocol[T]):
    """The consumer, or its facade, as a loop sees it."""

    def _check_open(self) -> None:
        """Raise ClientClosed unless the consumer is open."""

    async def _receive(self) -> Delivery[T] | None:
        """Return the next message; None only within a time limit."""

    def _ack_unless_settled(self, delivery: Delivery[T]) -> None: ...


class Loop(Generic[T]):
    """One `async for` over a consumer: asking for the next message settles the one before it, of this loop alone. It
    ends when the consumer closes; with a message that it can settle no more it raises ClientClosed. `ends`: False for
    the loop that `next` of the consumer means."""

    def __init__(self, consumer: Receiving[T], *, ends: bool = True) -> None:
        self._consumer = consumer
        self._ends = ends
        self._has_begun = False
        self._delivery: Delivery[T] | None = None
        self._is_asking = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt[T]:
        if self._is_asking:
            raise ConfigurationError("this loop is being asked for its next message already: one loop for each task")
        if not self._has_begun:
            self._consumer._check_open()
            self._has_begun = self._ends
        self._is_asking = True
        try:
            last, self._delivery = self._delivery, None
            if last is not None:
                last.span.leave()
                last.check_not_abandoned()
                self._consumer._ack_unless_settled(last)
            delivery = await self._consumer._receive()
        except ClientClosed:
            if self._has_begun and not (last is not None and last.is_abandoned):
                raise StopAsyncIteration from None
            raise
        finally:
            self._is_asking = False
        assert delivery is not None
        delivery.span.enter()
        self._delivery = delivery
        return delivery.message


class Receiver(Generic[T]):
    """See the module's docstring; owned by one consumer."""

    def __init__(self, payloads: Payloads[T] | None, spans: Spans, unsettled: Unsettled) -> None:
        self._unsettled = unsettled
        self._payloads = payloads
        self._spans = spans
        self._received = 0
        self._deliveries_in, self._deliveries_out = trio.open_memory_channel[Delivery[Any]](0)

    def end(self) -> None:
        """Have calls raise ClientClosed, those that wait too: the consumer closes."""
        self._deliveries_out.close()

    async def receive(self, consuming: ConcurrentConsuming | OrderedConsuming) -> Delivery[T]:
        """Return the next message, waiting for one."""
        delivery = await self.take(consuming)
        self._unsettled.add(delivery)
        return delivery

    async def take(self, consuming: ConcurrentConsuming | OrderedConsuming) -> Delivery[T]:
        """Return the next message, which the application does not have to settle yet, unlike that of `receive`."""
        if not isinstance(consuming, ConcurrentConsuming):
            return await self._take_ordered()
        while True:
            self._received += 1
            if self._received % RECEIVES_BETWEEN_CHECKPOINTS == 0:
                await trio.lowlevel.checkpoint()
            delivery = consuming.take_nowait() or await consuming.take()
            if self._payloads is None or await self._fits(delivery):
                return delivery

    async def receive_within(
        self, consuming: ConcurrentConsuming | OrderedConsuming, timeout_seconds: float
    ) -> Delivery[T] | None:
        """Return the next message; None when the time has passed and none is there."""
        delivery = await self.take_within(consuming, timeout_seconds)
        if delivery is not None:
            self._unsettled.add(delivery)
        return delivery

    async def take_within(
        self, consuming: ConcurrentConsuming | OrderedConsuming, timeout_seconds: float
    ) -> Delivery[T] | None:
        """Return the next message, which the application does not have to settle yet; None when the time has passed."""
        deadline = trio.current_time() + timeout_seconds
        while True:
            await trio.lowlevel.checkpoint()
            delivery = self._take_nowait(consuming)
            if delivery is None:
                with trio.move_on_at(deadline):
                    delivery = await self._take(consuming)
            if delivery is None:
                return None
            if await self._fits(delivery):
                return delivery

    async def take_with_more(
        self,
        consuming: ConcurrentConsuming | OrderedConsuming,
        timeout_seconds: float | None,
        others: Callable[[], int],
    ) -> Received[T] | None:
        """Return the next message and those that wait behind it, to be settled later as with `take_within`. `others`
        returns how many callers wait for messages beside this one."""
        if timeout_seconds is None:
            delivery: Delivery[T] | None = await self.take(consuming)
        else:
            delivery = await self.take_within(consuming, timeout_seconds)
        if delivery is None:
            return None
        received: Received[T] = Received(delivery, [])
        if isinstance(consuming, ConcurrentConsuming):
            claimed = consuming.claim_share(MOST_AT_ONCE - 1, others())
            if self._payloads is None:
                received.ahead = claimed
            else:
                await self._keep_fitting(received, claimed)
        else:
            received.ahead = self._take_share(MOST_AT_ONCE - 1, others())
        return received

    def _take_share(self, at_most: int, others: int) -> list[Delivery[T]]:
        """Return messages of further ordered queues, one of each: the next one of a queue comes when this is settled.
        A share, as `ConcurrentConsuming.claim_share` does."""
        offered = self._deliveries_out.statistics().tasks_waiting_send
        share = min(at_most, max(0, offered - others) // (1 + others))
        return [self._deliveries_out.receive_nowait() for _ in range(share)]

    async def _keep_fitting(self, received: Received[T], claimed: list[Delivery[T]]) -> None:
        for at, delivery in enumerate(claimed):
            try:
                if await self._fits(delivery):
                    received.ahead.append(delivery)
            except BaseException:
                for later in reversed(claimed[at + 1 :]):
                    later.give_back()
                received.give_back()
                raise

    async def hand_out(
        self, consuming: ConcurrentConsuming | OrderedConsuming, messages: Sequence[MessageExt[Any]]
    ) -> None:
        """Offer each message, and wait until it is settled: messages of an ordered queue, or of an administrator."""
        for message in messages:
            refused = True
            while refused:
                offered = OfferedMessage()
                delivery = Delivery(message, offered)
                delivery.span = self._spans.current()
                if isinstance(consuming, ConcurrentConsuming):
                    consuming.offer(delivery)
                else:
                    await self._offer(delivery)
                try:
                    await offered.wait()
                except trio.Cancelled:
                    delivery.is_withdrawn = True
                    raise
                refused = offered.refused

    async def _offer(self, delivery: Delivery[Any]) -> None:
        try:
            await self._deliveries_in.send(delivery)
        except trio.BrokenResourceError:
            await trio.sleep_forever()  # the consumer closes: nobody takes it, and this task is cancelled

    async def _take_ordered(self) -> Delivery[T]:
        try:
            delivery: Delivery[T] = await self._deliveries_out.receive()
        except trio.ClosedResourceError:
            raise ClientClosed(CLOSED) from None
        return delivery

    def _take_nowait(self, consuming: ConcurrentConsuming | OrderedConsuming) -> Delivery[T] | None:
        if isinstance(consuming, ConcurrentConsuming):
            return consuming.take_nowait()
        try:
            return self._deliveries_out.receive_nowait()
        except trio.WouldBlock:
            return None
        except trio.ClosedResourceError:
            raise ClientClosed(CLOSED) from None

    async def _take(self, consuming: ConcurrentConsuming | OrderedConsuming) -> Delivery[T]:
        if isinstance(consuming, ConcurrentConsuming):
            return await consuming.take()
        return await self._take_ordered()

    async def _fits(self, delivery: Delivery[T]) -> bool:
        """Set the value of a message. Messages that are offered went through the consuming's own call, which has set
        their values."""
        return self._payloads is None or delivery.assigned is None or await self._payloads.fits(delivery)
