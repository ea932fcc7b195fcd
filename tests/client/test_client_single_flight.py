"""Work that many tasks request at once runs once."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from triomq.client.instance.single_flight import SingleFlight


class Work:
    """Takes a second; the first `failures` runs fail."""

    def __init__(self, failures: int = 0) -> None:
        self.begun = 0
        self._failures = failures

    async def __call__(self) -> None:
        self.begun += 1
        fails = self.begun <= self._failures
        await trio.sleep(1)
        if fails:
            raise ZeroDivisionError


async def test_all_wait_for_the_one_that_works(autojump_clock: MockClock) -> None:
    flights, one, other = SingleFlight(), Work(), Work()
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(flights.run, "one", one)
            nursery.start_soon(flights.run, "other", other)
    assert (one.begun, other.begun, trio.current_time()) == (1, 1, 1)
    await flights.run("one", one)
    assert one.begun == 2


async def test_all_hear_of_its_failure(autojump_clock: MockClock) -> None:
    flights, work = SingleFlight(), Work(failures=1)
    failed = 0

    async def ask() -> None:
        nonlocal failed
        with pytest.raises(ZeroDivisionError):
            await flights.run("key", work)
        failed += 1

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)
    assert (failed, work.begun) == (5, 1)
    await flights.run("key", work)


async def test_another_goes_on_for_one_that_is_cancelled(autojump_clock: MockClock) -> None:
    flights, work = SingleFlight(), Work()

    async def impatient() -> None:
        with trio.move_on_after(0.5):
            await flights.run("key", work)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(impatient)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            nursery.start_soon(flights.run, "key", work)
    assert (work.begun, trio.current_time()) == (2, 1.5)
