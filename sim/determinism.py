"""Makes one trio run depend on nothing but a seed.

trio chooses the order of ready tasks at random, threads end whenever they like, and programs draw random numbers. Here
the first follows the seed, a "thread" runs its function at once, and `random` is seeded. Sets of text keep one order
only under a fixed PYTHONHASHSEED, which bin/dev/simulate sets.

Time is a `VirtualClock`: as soon as every task waits, it jumps to the next thing that is due. It moves in steps of a
millisecond, so that what is due within the same one happens at the same moment, in an order that the seed chooses.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import ceil, inf
from threading import get_ident
from typing import Any, Protocol

import outcome
import trio
from trio import _threads
from trio._core import _run

STEPS_PER_SECOND = 1000
_HANGS_SECONDS = 1e9


class Alarm(Protocol):
    """Something that happens at a moment."""

    def ring(self) -> None: ...


class VirtualClock(trio.abc.Clock):
    """Jumps whenever the run would wait. `alarms` are those of the network: it has too many deliveries for a
    cancel scope each."""

    def __init__(self) -> None:
        self.now = 0.0
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._numbers = count()

    def start_clock(self) -> None:
        return

    def current_time(self) -> float:
        return self.now

    def ring_at(self, at: float, alarm: Alarm) -> None:
        """Call `alarm.ring` at this time, which must be finite."""
        heappush(self._alarms, (at, next(self._numbers), alarm))

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Move on to the next moment at which something is due; trio asks when no task can run."""
        if _run.GLOBAL_RUN_CONTEXT.runner.entry_queue.queue:
            return 0.0  # a thread has ended
        alarms = self._alarms
        due = min(deadline, alarms[0][0]) if alarms else deadline
        if due == inf:
            return _HANGS_SECONDS
        if due > self.now:
            self.now = max(due, ceil(due * STEPS_PER_SECOND) / STEPS_PER_SECOND)
        while alarms and alarms[0][0] <= self.now:
            heappop(alarms)[2].ring()
        return 0.0


class _Order:
    """Chooses the order of ready tasks of the event loop in this thread. Those of other threads, which the process may
    have, do as they would, and take nothing from the seed."""

    def __init__(self, seed: int, others: random.Random) -> None:
        self._shuffle = random.Random(seed).shuffle
        self._thread = get_ident()
        self._others = others

    def shuffle(self, tasks: list[Any]) -> None:
        if get_ident() != self._thread:
            self._others.shuffle(tasks)
        elif len(tasks) > 1:
            self._shuffle(tasks)


def run_seeded(main: Callable[[VirtualClock], Awaitable[Any]], seed: int) -> Any:
    """Return what `await main(clock)` returns, in a run that is the same each time."""
    clock = VirtualClock()
    with _seeded(seed):
        return trio.run(main, clock, clock=clock)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    scheduler: Any = _run
    threads: Any = _threads
    before = scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING, threads.start_thread_soon, random.getstate()
    scheduler._r = _Order(seed, before[0])
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    threads.start_thread_soon = partial(_at_once, get_ident(), before[2])
    random.seed(seed)
    was_enabled = gc.isenabled()
    gc.disable()  # a run is short; what it leaves is collected after it
    try:
        yield
    finally:
        scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING, threads.start_thread_soon, state = before
        random.setstate(state)
        if was_enabled:
            gc.enable()


def _at_once(
    thread: int,
    start_thread_soon: Callable[..., None],
    function: Callable[[], Any],
    deliver: Callable[[outcome.Outcome[Any]], object],
    name: str | None = None,
) -> None:
    """Call what the loop of that thread would run in another one; others get a thread."""
    if get_ident() == thread:
        deliver(outcome.capture(function))
    else:
        start_thread_soon(function, deliver, name)
