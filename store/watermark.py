"""A number that only grows, and those who wait for it to pass theirs.

Holds the number and a queue of waiters; belongs to the part of the store whose progress it is, and only that part may
advance or fail it. Waiters register from anywhere in the same thread. No clock, no timeout (put a trio cancel scope
around the wait), no thread may touch it.

"Beyond n" is strict: a waiter for n goes when value > n. With value = number of bytes on disk, waiting beyond the
offset of a record's last byte means "the record is on disk"; with value = end of a queue, waiting beyond the queue
offset that was asked for means "there is something to read".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush

import trio

Callback = Callable[[Exception | None], None]


class Waiter:
    """One registered callback. `cancel()` forgets it; after it was called that does nothing."""

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
    """A monotonic number. Waiters usually come in ascending order and are kept in a queue; those that do not are kept
    in a heap beside it. Cancelled ones are swept out when they are the majority."""

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
        """Raise the number and call everybody it passes. A lower number changes nothing."""
        if value <= self.value:
            return
        self.value = value
        if self._queue or self._late:
            self._call_passed()

    def rewind(self, value: int) -> None:
        """Set the number back (truncation while recovering). Nobody may be waiting."""
        if self.waiter_count:
            raise RuntimeError("a watermark with waiters cannot go back")
        self.value = value

    def set_back(self, value: int, error: Exception) -> None:
        """Set the number back while others wait: all waits end with `error` and may begin anew (a slave's log that was
        cut)."""
        self.value = value
        self.reject(error)

    def fail(self, error: Exception) -> None:
        """From now on every wait beyond the present value ends with `error`."""
        if self.error is None:
            self.error = error
        self.reject(error)

    def reject(self, error: Exception, at_least: int | None = None) -> None:
        """End the present waits, or those with a target of `at_least` or more, with `error`; later ones are not
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
                except BaseException as raised:  # the other callbacks run first
                    failure = failure or raised
        if failure is not None:
            raise failure

    def call_beyond(self, target: int, callback: Callback) -> Waiter | None:
        """Call `callback(None)` as soon as value > target, at once if it is so already (then the answer is None), or
        `callback(error)` when that will not happen. What a callback raises goes to the caller of `advance`: the store
        takes that for a failure of its own (fail_stop.py)."""
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
        """Return once value > target. Raises what `fail` or `reject` were given. May be cancelled."""
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
        """A waiter of this watermark was cancelled."""
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
        # A callback may register again, advance again or cancel others, so every step looks at the present state.
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
