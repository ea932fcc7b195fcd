"""A number that only grows, and the waiters for it to exceed their targets.

Holds the number and a queue of waiters. It belongs to the part of the store whose progress it measures, and only that
part may advance or fail it. Any code in the same thread may wait; no other thread may touch it. It has no clock and no
timeout (put a trio cancel scope around the wait).

"Beyond n" is strict: a waiter for n is called when value > n. With value = number of bytes on disk, waiting beyond the
offset of a record's last byte means "the record is on disk"; with value = end of a queue, waiting beyond the requested
queue offset means "there is something to read".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush

import trio

Callback = Callable[[Exception | None], None]


class Waiter:
    """One registered callback. `cancel()` removes it; after the callback ran, `cancel()` does nothing."""

    __slots__ = ("_owner", "callback", "target")

    def __init__(self, owner: Watermark, target: int, callback: Callback) -> None:
        self._owner = owner
        self.target = target
        self.callback: Callback | None = callback

    def __lt__(self, other: Waiter) -> bool:
        return self.target < other.target

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._owner.forget_one()


class Watermark:
    """A monotonic number. Waiters usually arrive in ascending order of their targets and are kept in a queue; the
    others are kept in a heap. Cancelled waiters are removed once they are at least half of all."""

    __slots__ = ("_cancelled", "_late", "_queue", "error", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.error: Exception | None = None
        self._queue: deque[Waiter] | None = None
        self._late: list[Waiter] | None = None
        self._cancelled = 0

    @property
    def waiter_count(self) -> int:
        waiting = (len(self._queue) if self._queue else 0) + (len(self._late) if self._late else 0)
        return waiting - self._cancelled

    def advance(self, value: int) -> None:
        """Raise the number and call the waiters whose targets it exceeds. A lower number changes nothing."""
        if value <= self.value:
            return
        self.value = value
        if self._queue or self._late:
            self._call_passed()

    def rewind(self, value: int) -> None:
        """Set the number back (truncation during recovery). Raises RuntimeError if there are waiters."""
        if self.waiter_count:
            raise RuntimeError("a watermark with waiters cannot go back")
        self.value = value

    def rewind_to(self, value: int) -> None:
        """Set the number back, and let the waiters wait on: it rises again (the end of a group's log was replaced)."""
        self.value = value

    def set_back(self, value: int, error: Exception) -> None:
        """Set the number back although there may be waiters: all waits end with `error` and may start again (a slave's
        log was truncated)."""
        self.value = value
        self.reject(error)

    def fail(self, error: Exception) -> None:
        """End all present waits, and every later wait beyond the present value, with `error`."""
        if self.error is None:
            self.error = error
        self.reject(error)

    def reject(self, error: Exception, at_least: int | None = None) -> None:
        """End the present waits, or those with a target of `at_least` or more, with `error`. Later waits are not
        affected."""
        waiting = [*(self._queue or ()), *(self._late or ())]
        spared = [waiter for waiter in waiting if at_least is not None and waiter.target < at_least]
        self._queue = deque(sorted(spared)) if spared else None
        self._late = None
        self._cancelled = sum(waiter.callback is None for waiter in spared)
        failure: BaseException | None = None
        for waiter in waiting:
            callback = waiter.callback
            if callback is not None and (at_least is None or waiter.target >= at_least):
                waiter.callback = None
                try:
                    callback(error)
                except BaseException as raised:  # raised again after the other callbacks ran
                    failure = failure or raised
        if failure is not None:
            raise failure

    def call_beyond(self, target: int, callback: Callback) -> Waiter | None:
        """Call `callback(None)` once value > target, or `callback(error)` if that will not happen.

        If either is certain already, call it immediately and return None. An exception of a callback propagates to the
        caller of `advance`, and the store treats it as a failure of its own (fail_stop.py).
        """
        if self.value > target:
            callback(None)
            return None
        if self.error is not None:
            callback(self.error)
            return None
        waiter = Waiter(self, target, callback)
        queue = self._queue
        if queue is None:
            self._queue = deque((waiter,))
        elif not queue or queue[-1].target <= target:
            queue.append(waiter)
        else:
            if self._late is None:
                self._late = []
            heappush(self._late, waiter)
        return waiter

    async def wait_beyond(self, target: int) -> None:
        """Return once value > target. Raises the error that `fail` or `reject` received. May be cancelled."""
        if self.value > target:
            await trio.lowlevel.checkpoint()
            return
        woken = _Woken()
        waiter = self.call_beyond(target, woken)
        try:
            await woken.event.wait()
        finally:
            if waiter is not None:
                waiter.cancel()
        if woken.error is not None:
            raise woken.error

    def forget_one(self) -> None:
        """Count a cancelled waiter, and remove the cancelled ones if they are at least half of all."""
        self._cancelled += 1
        live = self.waiter_count
        if live == 0:
            self._queue = None
            self._late = None
        elif self._cancelled < 8 or self._cancelled < live:
            return
        if self._queue:
            self._queue = deque(waiter for waiter in self._queue if waiter.callback is not None)
        if self._late:
            self._late = [waiter for waiter in self._late if waiter.callback is not None]
            heapify(self._late)
        self._cancelled = 0

    def _call_passed(self) -> None:
        # A callback may register again, advance again or cancel others, so every step reads the present state.
        while self._queue and self._queue[0].target < self.value:
            self._call(self._queue.popleft())
        while self._late and self._late[0].target < self.value:
            self._call(heappop(self._late))
        if self._queue is not None and not self._queue:
            self._queue = None
        if self._late is not None and not self._late:
            self._late = None

    def _call(self, waiter: Waiter) -> None:
        callback = waiter.callback
        if callback is None:
            self._cancelled -= 1
        else:
            waiter.callback = None
            callback(None)


class _Woken:
    __slots__ = ("error", "event")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.error: Exception | None = None

    def __call__(self, error: Exception | None) -> None:
        self.error = error
        self.event.set()
