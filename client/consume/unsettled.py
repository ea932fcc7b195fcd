"""The messages of one consumer that the application received and has not settled.

Who may settle a message is a matter of the consumer and the message, not of a task or thread: `asyncio.wait_for`,
`create_task` and pools of threads receive in one and settle in another. `only` says what `consumer.ack()` means, and
raises where that is not certain.

Threads: the table is changed by single operations of a dict, which are atomic, so the thread that takes a delivery out
is the one that settles it. The rest of settling runs in the consumer's trio thread: a thread of a trio program waits
for it there (`at_home`); a facade posts it, in order with all that it does, and does not wait.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import trio

from triomq.client.consume.delivery import SETTLED, SETTLED_ALREADY, Delivery
from triomq.client.core.errors import CLOSED, ClientClosed, NotSettled
from triomq.client.core.results import RetryLater
from triomq.client.instance.inherited import INHERITED

R = TypeVar("R")
Post = Callable[[Callable[[], object]], None]

MANY = 1000
"""Above this number, messages of queues that have moved to other members are forgotten."""


class Unsettled:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._deliveries: dict[Delivery[Any], None] = {}
        self._token: trio.lowlevel.TrioToken | None = None
        self._process_id = os.getpid()
        self._thread_id = 0
        self.post: Post | None = None
        """How the facade that owns the consumer has something done in its trio thread; None: there is none."""

    def open(self) -> None:
        """The consumer is open, in this trio run."""
        self._token = trio.lowlevel.current_trio_token()
        self._thread_id = threading.get_ident()

    def close(self) -> None:
        """The consumer is closed: what is left is delivered again."""
        self._token = None
        for delivery in self._deliveries:
            delivery.abandon()
        self._deliveries.clear()

    def add(self, delivery: Delivery[Any]) -> None:
        """The application has this message now."""
        if len(self._deliveries) > MANY:
            for one in self.held():
                if one.is_lost:
                    self.remove(one)
        self._deliveries[delivery] = None
        delivery.holder = self
        delivery.message._settlement = delivery

    def remove(self, delivery: Delivery[Any]) -> None:
        """This message is settled, or given back."""
        self._deliveries.pop(delivery, None)

    def held(self) -> list[Delivery[Any]]:
        """Return the messages that are not settled."""
        return list(self._deliveries)

    def only(self) -> Delivery[Any]:
        """Return the one message that is not settled. Raises NotSettled when there is none, or more than one."""
        if self._token is None:
            raise ClientClosed(CLOSED)
        held = self.held()
        if len(held) != 1:
            count = len(held)
            which = f"{count} messages of this consumer are" if count else "no message of this consumer is"
            raise NotSettled(f"{which} to be settled{': message.ack() says which one' if count else ''}")
        return held[0]

    def settle(self, delivery: Delivery[Any], error: RetryLater | None) -> None:
        """Settle a message, from any thread. `error`: have it delivered again. Raises NotSettled and ClientClosed."""
        if self.post is None or threading.get_ident() == self._thread_id:
            self.at_home(delivery.settle_here, error)
        elif os.getpid() != self._process_id:
            raise ClientClosed(INHERITED)
        elif self._token is None:
            raise ClientClosed(CLOSED)
        elif not self._post(delivery, error):
            raise NotSettled(SETTLED_ALREADY)

    def ack_unless_settled(self, delivery: Delivery[Any]) -> None:
        """Settle a message as consumed, from a facade's thread, unless that was done."""
        self._post(delivery, None)

    def _post(self, delivery: Delivery[Any], error: RetryLater | None) -> bool:
        if self._deliveries.pop(delivery, self) is self:
            return False
        assert self.post is not None
        delivery.message._settlement = SETTLED
        try:
            self.post(partial(delivery.settle_unless_settled, error))
        except trio.RunFinishedError:
            raise ClientClosed(CLOSED) from None
        return True

    def at_home(self, function: Callable[..., R], *args: Any) -> R:
        """Run a function in the consumer's trio thread, and wait for it. Raises ClientClosed."""
        token = self._token
        if os.getpid() != self._process_id:
            raise ClientClosed(INHERITED)  # nobody runs the consumer here
        if token is None:
            raise ClientClosed(CLOSED)
        if trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is token:
            return function(*args)
        try:
            return trio.from_thread.run_sync(function, *args, trio_token=token)
        except trio.RunFinishedError:
            raise ClientClosed("the consumer's trio run has ended: what was not settled is delivered again") from None
