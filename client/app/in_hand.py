"""What the handlers of an application have in hand, and the line that says what a stop waits for.

State: for each handler the number of its calls that run. They run in the event loop and in threads, so a lock guards
the numbers. May not live here: how long anything is waited for, which `ConsumeRules.close_seconds` says.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from triomq.client.instance.handlers import is_async

SAY_AFTER_SECONDS = 1.0
log = logging.getLogger("triomq.app")


class InHand:
    """The messages that the handlers of one application have in hand."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def counting(self, handler: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, counted while it runs. `handler` describes it in the log."""
        if not is_async(function):

            def call(*args: Any) -> Any:
                with self._one_more(handler):
                    return function(*args)

            return call

        async def call_async(*args: Any) -> Any:
            with self._one_more(handler):
                return await function(*args)

        return call_async

    @contextmanager
    def _one_more(self, handler: str) -> Iterator[None]:
        self._add(handler, 1)
        try:
            yield
        finally:
            self._add(handler, -1)

    def _add(self, handler: str, count: int) -> None:
        with self._lock:
            self._counts[handler] = self._counts.get(handler, 0) + count

    def __str__(self) -> str:
        with self._lock:
            running = {handler: count for handler, count in self._counts.items() if count}
        each = [f"{count} message{'s' if count > 1 else ''} in hand of {handler}" for handler, count in running.items()]
        return "; ".join(each) or "no message in hand; offsets are stored, groups left, and what was provided closes"

    @contextmanager
    def saying(self, name: str) -> Iterator[None]:
        """Log once what is in hand if the block, in which the application `name` stops, takes longer than a second. A
        thread does it, which also speaks when a handler blocks the event loop."""
        timer = threading.Timer(SAY_AFTER_SECONDS, lambda: log.info("%s not stopped yet: %s", name, self))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
