"""The order in which the tasks of all connections compute.

The event loop runs every task that can continue before it looks at sockets again. A thousand requests that each start a
task would so keep all clients waiting, however short each of them is. So a task takes its *steps* (its beginning, and
each part of a long walk) from this line. How many fit into one pass of the loop is what the scheduler says
(scheduling.scheduler.Pass). The rest waits for later passes, one connection after another. What a task does after it
has waited for something else (a file, a client) is no step of the line.

Only the event loop touches it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Final, TypeVar

import trio

from triomq.remoting.scheduling.scheduler import Pass, Scheduler

Result = TypeVar("Result")


class StepLine:
    """See the module's docstring. `run` must run while tasks do. `owner` of a step is its connection."""

    def __init__(self, scheduler: Scheduler, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self._pass = Pass(scheduler)
        self._waiting: OrderedDict[object, deque[trio.Event]] = OrderedDict()
        self._called = 0  # those that `run` has called and that have not run yet
        self._is_over = False
        self._wakeup = trio.Event()

    async def wait(self, owner: object) -> None:
        """Wait for a step. A cancelled task waits as well: it still runs up to its first checkpoint."""
        if self.has_time_now():
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
                if self._pass.may_step(self._clock()):
                    self._pass.ran()
                    return
                self._pass.sent_back()
                is_again = True

    def has_time_now(self) -> bool:
        """Return whether the next step may run at once: nobody else waits, and this pass has time."""
        if self._waiting or self._called or not self._pass.may_step(self._clock()):
            return False
        self._wakeup.set()
        return True

    async def run(self) -> None:
        """Call those that wait, until cancelled; then nobody waits any more."""
        try:
            while True:
                await self._wakeup.wait()
                self._wakeup = trio.Event()
                while self._pass.is_open or self._waiting:
                    self._call(self._pass.began())
                    await trio.lowlevel.checkpoint()  # those that were called run in the next pass
                    await trio.lowlevel.checkpoint()
                    self._pass.ended()
        finally:
            self._is_over = True
            for queue in self._waiting.values():
                for waits in queue:
                    waits.set()
            self._waiting.clear()

    def _call(self, most: int) -> None:
        """Call the first that waits of one connection after another, until this number is called."""
        waiting = self._waiting
        while waiting and self._called < most:
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
