"""Messages that have crossed to the application's threads with one that was asked for.

They wait here as they would in the consumer: consuming has not begun, and those of a queue that was given up or reset
in the meantime are not handed out. They go back when the consumer is suspended, and when somebody waits in the consumer
for a message that lies here.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic

from triomq.client.consume.delivery import Delivery
from triomq.client.consume.receiving import Received
from triomq.client.consume.unsettled import Unsettled
from triomq.client.core.type_variables import T
from triomq.client.facades.portal import Portal


class Ahead(Generic[T]):
    """See the module's docstring; owned by one consumer of a facade. Any thread may take.

    Bounds: `MOST_AT_ONCE` messages for each call of `receive` that is in progress.
    """

    def __init__(self, unsettled: Unsettled) -> None:
        self._unsettled = unsettled
        self._waiting: deque[Delivery[T]] = deque()
        self._lock = threading.Lock()
        self._askers: set[object] = set()

    def take(self, portal: Portal) -> Delivery[T] | None:
        """Return the next message that waits here."""
        while self._waiting:
            with self._lock:
                if not self._waiting:  # another thread was first
                    return None
                delivery = self._waiting[0]
                is_lost = delivery.is_lost
                if not is_lost:
                    if delivery.assigned is not None:  # else it has begun, see `OfferedMessage`
                        portal.put(delivery.begin)
                    self._unsettled.add(delivery)
                self._waiting.popleft()
            if not is_lost:
                return delivery
        return None

    @contextmanager
    def asking(self, caller: object) -> Iterator[None]:
        """Count the caller as one that asks the consumer for a message while the block runs. Inside of it the caller
        first looks whether one has come."""
        # A set, and not a number: when a signal handler raises in here, the caller's next call puts it right.
        self._askers.add(caller)
        try:
            yield
        finally:
            self._askers.discard(caller)

    def others(self) -> int:
        """Return how many callers ask the consumer beside one of them."""
        return max(0, len(self._askers) - 1)

    def keep(self, received: Received[T], portal: Portal) -> Delivery[T]:
        """Return the message that was asked for; the others wait here, while the caller still counts as asking."""
        self._unsettled.add(received.delivery)
        if received.ahead:
            self._waiting.extend(received.ahead)
            if len(self._askers) > 1:  # a caller that does not count yet looks here first
                portal.put(self.give_back)
        return received.delivery

    def give_back(self) -> None:
        """Return what waits here to the consumer; in the portal's thread."""
        with self._lock:
            while self._waiting:
                self._waiting.pop().give_back()

    def clear(self) -> None:
        """Forget what waits: the consumer closes, and its queues go to other members."""
        self._waiting.clear()
