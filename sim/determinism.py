"""Makes one trio run depend on nothing but a seed.

trio chooses the order of ready tasks at random, threads end whenever they like, and programs draw random numbers. Here
the first follows the seed, a "thread" runs its function at once, and `random` is seeded. Time is trio's MockClock: it
jumps as soon as every task waits. Sets of text keep one order only under a fixed PYTHONHASHSEED, which bin/simulate
sets.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import outcome
import trio
import trio.testing
from trio import _threads
from trio._core import _run


def run_seeded(main: Callable[[], Awaitable[Any]], seed: int) -> Any:
    """Return what `await main()` returns, in a run that is the same each time."""
    with _seeded(seed):
        return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    scheduler: Any = _run
    threads: Any = _threads
    before = scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING, threads.start_thread_soon, random.getstate()
    scheduler._r = random.Random(seed)
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    threads.start_thread_soon = _at_once
    random.seed(seed)
    try:
        yield
    finally:
        scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING, threads.start_thread_soon, state = before
        random.setstate(state)


def _at_once(
    function: Callable[[], Any], deliver: Callable[[outcome.Outcome[Any]], object], name: str | None = None
) -> None:
    deliver(outcome.capture(function))
