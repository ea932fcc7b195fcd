"""The message that each task received last from its `async for`, until the task settles it.

Holds one entry for each looping task, and none for tasks that have ended. Touched only by those tasks, in one trio
thread. Mostly there is one task that loops, so its entry is kept aside, where it costs no weak reference.
"""

from __future__ import annotations

import weakref

import trio

from triomq.client.consume.delivery import Delivery


class CurrentDeliveries:
    """See the module's docstring."""

    __slots__ = ("_last", "_others")

    def __init__(self) -> None:
        self._last: tuple[trio.lowlevel.Task, Delivery] | None = None
        self._others: weakref.WeakKeyDictionary[trio.lowlevel.Task, Delivery] = weakref.WeakKeyDictionary()

    def put(self, delivery: Delivery) -> None:
        """This task received a message."""
        if self._last is not None:
            self._others[self._last[0]] = self._last[1]
        self._last = (trio.lowlevel.current_task(), delivery)

    def take(self) -> Delivery | None:
        """Return what this task received last, once; None when that is settled."""
        task = trio.lowlevel.current_task()
        last = self._last
        if last is not None and last[0] is task:
            self._last = None
            return last[1]
        return self._others.pop(task, None)
