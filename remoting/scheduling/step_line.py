"""The order in which the tasks of all connections compute, and how they do that in steps.

The event loop runs every task that can continue before it looks at sockets again. A thousand requests that each start a
task would so keep all clients waiting, however short each of them is. So a task takes its *steps* (its beginning, and
each part of a long walk) from this line. How many fit into one pass of the loop is what the scheduler says
(scheduler.Pass). The rest waits for later passes, one connection after another. What a task does after it
has waited for something else (a file, a client) is no step of the line.

Only the event loop touches it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

import trio

from triomq.remoting.scheduling.scheduler import Pass, Scheduler

Result = TypeVar("Result")
Answer = TypeVar("Answer")


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


class Steps:
    """How the tasks of one owner (a connection) run in steps: each takes its place in the line. Without a line they
    only let other tasks run."""

    def __init__(self, line: StepLine | None = None) -> None:
        self._line = line

    async def begin(self) -> None:
        """Wait for the first step of a task; without a line it begins at once."""
        if self._line is not None:
            await self._line.wait(self)

    async def next(self, *, is_short: bool = False) -> None:
        """End a step and wait for the next one. A short one is much shorter than a pass: the next runs in the same
        pass, as long as nobody else waits for a step and there is time."""
        if is_short and self._line is not None and self._line.has_time_now():
            return
        await trio.lowlevel.checkpoint()
        await self.begin()

    async def run(self, work: Generator[None, None, Result], *, are_short: bool = False) -> Result:
        """Run work to its end and return what it returns. Each of its items ends a step. If this is cancelled, or
        fails, the work is closed."""
        try:
            while True:
                try:
                    next(work)
                except StopIteration as end:
                    result: Result = end.value
                    return result
                await self.next(is_short=are_short)
        finally:
            work.close()

    def start(
        self, work: Generator[None, None, Result], then: Callable[[Result], Answer]
    ) -> Answer | Coroutine[Any, Any, Answer]:
        """Do the first step of work with short steps now. Return what `then` makes of the result, or what does the
        others, if there are any."""
        try:
            next(work)
        except StopIteration as end:
            return then(end.value)
        return self._others(work, then)

    async def _others(self, work: Generator[None, None, Result], then: Callable[[Result], Answer]) -> Answer:
        await self.next(is_short=True)
        return then(await self.run(work, are_short=True))


NO_LINE: Final = Steps()
"""For tasks of the daemon itself, and for work that nobody waits for."""
