"""The order in which the tasks of all connections compute.

The event loop runs every task that can continue before it looks at sockets again. A thousand requests that each start a
task would so keep all clients waiting, however short each of them is. So a task takes its *steps* (its beginning, and
each part of a long walk) from this line: those of one pass of the loop last `PASS_SECONDS` together, fewer when a
client waits that goes first (`Turn.is_awaited`), and at least one is taken. The rest waits for later passes, one
connection after another. What a task does after it has waited for something else (a file, a client) is no step of the
line.

Only the event loop touches it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Final, TypeVar

import trio

PASS_SECONDS: Final = 0.0005
MOST_IN_A_PASS: Final = 64

Result = TypeVar("Result")


class StepLine:
    """See the module's docstring. `run` must run while tasks do. `owner` of a step is its connection. `is_awaited`
    tells whether a client waits that goes before the next step of a pass."""

    def __init__(
        self, clock: Callable[[], float] = trio.current_time, is_awaited: Callable[[], bool] = lambda: False
    ) -> None:
        self._clock = clock
        self._is_awaited = is_awaited
        self._waiting: OrderedDict[object, deque[trio.Event]] = OrderedDict()
        self._began: float | None = None  # when the first step of this pass began
        self._called = 0  # those that `run` has called and that have not run yet
        self._most = 1  # that it calls for a pass; the loop runs them in any order, so none should come for nothing
        self._ran = self._sent_back = 0
        self._is_over = False
        self._wakeup = trio.Event()

    async def wait(self, owner: object) -> None:
        """Wait for a step. A cancelled task waits as well: it still runs up to its first checkpoint."""
        if not self._waiting and not self._called and self._has_time():
            self._wakeup.set()
            return
        with trio.CancelScope(shield=True):
            is_again = False
            while not self._is_over:
                mine = trio.Event()
                queue = self._waiting.setdefault(owner, deque())
                if is_again:
                    queue.appendleft(mine)
                    self._waiting.move_to_end(owner, last=False)
                else:
                    queue.append(mine)
                self._wakeup.set()
                await mine.wait()
                self._called -= 1
                if self._has_time():
                    self._ran += 1
                    return
                self._sent_back += 1
                is_again = True

    def has_time_now(self) -> bool:
        """Return whether the next step may run at once: nobody else waits, and this pass has time."""
        if self._waiting or self._called or not self._has_time():
            return False
        self._wakeup.set()
        return True

    def _has_time(self) -> bool:
        """Return whether this pass has time for another step."""
        now = self._clock()
        if self._began is None:
            self._began = now
            return True
        return now - self._began <= PASS_SECONDS and not self._is_awaited()

    async def run(self) -> None:
        """Call those that wait, until cancelled; then nobody waits any more."""
        try:
            while True:
                await self._wakeup.wait()
                self._wakeup = trio.Event()
                while self._began is not None or self._waiting:
                    self._began = None
                    self._ran = self._sent_back = 0
                    self._call()
                    await trio.lowlevel.checkpoint()  # those that were called run in the next pass
                    await trio.lowlevel.checkpoint()
                    self._most = max(1, self._ran) if self._sent_back else min(2 * self._most, MOST_IN_A_PASS)
        finally:
            self._is_over = True
            for queue in self._waiting.values():
                for waits in queue:
                    waits.set()
            self._waiting.clear()

    def _call(self) -> None:
        """Call the first that waits of one connection after another."""
        waiting = self._waiting
        while waiting and self._called < self._most:
            owner = next(iter(waiting))
            queue = waiting.pop(owner)
            queue.popleft().set()
            self._called += 1
            if queue:
                waiting[owner] = queue  # at the end


line_of_task: Final[ContextVar[tuple[StepLine, object] | None]] = ContextVar("line_of_task", default=None)
"""The line of this task, and its owner."""


async def next_step() -> None:
    """Let other tasks run between two parts of a long walk; a task of a connection waits for its next step."""
    await trio.lowlevel.checkpoint()
    line = line_of_task.get()
    if line is not None:
        await line[0].wait(line[1])


async def next_step_of_many() -> None:
    """Do the same as `next_step` after a part that is much shorter than a pass: the next part runs in the same pass as
    long as nobody else waits for a step and there is time."""
    line = line_of_task.get()
    if line is None or not line[0].has_time_now():
        await next_step()


async def in_steps(steps: Generator[None, None, Result]) -> Result:
    """Run work to its end and return what it returns. Each of its items ends a step."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        await next_step()
