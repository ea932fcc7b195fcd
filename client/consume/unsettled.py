"""The messages of one consumer that the application received and has not settled.

Who may settle a message is a matter of the consumer and the message, not of a task or thread: `asyncio.wait_for`,
`create_task` and pools of threads receive in one and settle in another. `only` says what `consumer.ack()` means, and
raises where that is not certain. Everything here runs in the consumer's trio thread; `at_home` brings other threads
there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import trio

from triomq.client.consume.delivery import Delivery
from triomq.client.core.errors import ClientClosed, NotSettled
from triomq.client.instance.inherited import INHERITED

R = TypeVar("R")

MANY = 1000
"""Above this number, messages of queues that have moved to other members are forgotten."""


class Unsettled:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._deliveries: dict[Delivery[Any], None] = {}
        self._token: trio.lowlevel.TrioToken | None = None
        self._process_id = os.getpid()

    def open(self) -> None:
        """The consumer is open, in this trio run."""
        self._token = trio.lowlevel.current_trio_token()

    def close(self) -> None:
        """The consumer is closed: what is left is delivered again."""
        self._token = None
        for delivery in self._deliveries:
            delivery.abandon()
        self._deliveries.clear()

    def add(self, delivery: Delivery[Any]) -> None:
        """The application has this message now."""
        if len(self._deliveries) > MANY:
            moved = [one for one in self._deliveries if one.assigned is not None and one.assigned.dropped]
            for one in moved:
                del self._deliveries[one]
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
            raise ClientClosed("the consumer is closed: what was not settled is delivered again")
        if len(self._deliveries) != 1:
            count = len(self._deliveries)
            which = f"{count} messages of this consumer are" if count else "no message of this consumer is"
            raise NotSettled(f"{which} to be settled{': message.ack() says which one' if count else ''}")
        return next(iter(self._deliveries))

    def at_home(self, function: Callable[..., R], *args: Any) -> R:
        """Run a function in the consumer's trio thread, and wait for it. Raises ClientClosed."""
        token = self._token
        if os.getpid() != self._process_id:
            raise ClientClosed(INHERITED)  # nobody runs the consumer here
        if token is None:
            raise ClientClosed("the consumer is closed: what was not settled is delivered again")
        if trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is token:
            return function(*args)
        try:
            return trio.from_thread.run_sync(function, *args, trio_token=token)
        except trio.RunFinishedError:
            raise ClientClosed("the consumer's trio run has ended: what was not settled is delivered again") from None
