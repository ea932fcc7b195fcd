"""Functions that other threads want run in an event loop.

What costs between two threads is the wake-up, not the function: it is a write to a socket, and the other thread has to
get the interpreter. So all functions that come before the loop has run share one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from triomq.client.core.log import get_logger

log = get_logger("triomq.client.facades")


def run_each(calls: Iterable[Callable[[], object]]) -> None:
    """Run functions that crossed together; one that raises is logged."""
    for call in calls:
        try:
            call()
        except Exception:
            log.exception("call from another thread failed")


class Inbox:
    """Functions to run in one event loop, in the order in which they come, from any thread. One that raises is logged.

    Bounds: callers wait for the results of what they put, or put two for each message that they have.
    """

    __slots__ = ("_calls", "_is_woken", "_wake")

    def __init__(self, wake: Callable[[Callable[[], None]], object]) -> None:
        """`wake` has the event loop call a function soon: `run_sync_soon` or `call_soon_threadsafe`."""
        self._wake = wake
        self._calls: deque[Callable[[], object]] = deque()
        self._is_woken = False

    def put(self, call: Callable[[], object]) -> None:
        """Have a function run in the loop. Raises what `wake` does when the loop has ended."""
        # Safe without a lock: the call is in the queue before the flag is read, and `_run` clears the flag before it
        # reads the queue. Two threads that both find it clear wake the loop twice, which does no harm.
        self._calls.append(call)
        if not self._is_woken:
            try:
                self._is_woken = True
                self._wake(self._run)
            except BaseException:  # the loop has ended, or a signal came: the next call wakes it
                self._is_woken = False
                raise

    def _run(self) -> None:
        self._is_woken = False
        calls = self._calls
        for _ in range(len(calls)):
            if not calls:  # the second of two wake-ups
                return
            try:
                calls.popleft()()
            except Exception:
                log.exception("call from another thread failed")
