"""A waiting caller gets its response, or an error in time."""

from __future__ import annotations

import random
from math import inf

import pytest
import trio
from trio.testing import MockClock

from triomq.protocol.command import RemotingCommand
from triomq.remoting.unanswered import Unanswered

TOO_LATE_SECONDS = 10_000  # of the clock that jumps: a timer that misses its deadline fails there instead of hanging


@pytest.mark.parametrize("seed", range(8))
async def test_each_gets_its_answer_or_none_at_its_time(
    autojump_clock: MockClock, nursery: trio.Nursery, seed: int
) -> None:
    choice = random.Random(seed)
    unanswered = Unanswered(nursery)
    found: dict[int, tuple[float, bool]] = {}
    expected: dict[int, tuple[float, bool]] = {}

    async def ask(opaque: int, begins: float, deadline: float, answered: float) -> None:
        await trio.sleep_until(begins)
        nursery.start_soon(answer, opaque, answered)
        response = await unanswered.answer(opaque, deadline)
        found[opaque] = (trio.current_time(), response is not None)

    async def answer(opaque: int, at: float) -> None:
        await trio.sleep_until(at)
        unanswered.resolve(RemotingCommand(0, opaque=opaque))

    with trio.fail_after(TOO_LATE_SECONDS):
        async with trio.open_nursery() as asking:
            for opaque in range(200):
                begins = choice.uniform(0, 20)
                deadline = begins + choice.choice([0.01, 1, 3, 3, 3, 30])
                answered = begins + choice.choice([0.005, 0.5, 2, 40, 3600])
                expected[opaque] = (min(deadline, answered), answered < deadline)
                asking.start_soon(ask, opaque, begins, deadline, answered)
    assert {opaque: has_answer for opaque, (_, has_answer) in found.items()} == {
        opaque: has_answer for opaque, (_, has_answer) in expected.items()
    }
    for opaque, (at, _) in expected.items():
        assert found[opaque][0] == pytest.approx(at, abs=1e-6)
    assert len(unanswered) == 0


async def test_the_timer_ends_when_nobody_waits_and_begins_again(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    unanswered = Unanswered(nursery)
    for _ in range(3):
        began = trio.current_time()
        with trio.fail_after(TOO_LATE_SECONDS):
            assert await unanswered.answer(1, began + 5) is None
        assert trio.current_time() - began == pytest.approx(5)
        await trio.testing.wait_all_tasks_blocked()
        assert not nursery.child_tasks
        await trio.sleep(100)


async def test_a_wait_without_end_needs_no_timer(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    unanswered = Unanswered(nursery)
    with trio.move_on_after(1000):
        await unanswered.answer(1, inf)
    assert len(unanswered) == 0
    assert not nursery.child_tasks


async def test_who_was_cancelled_or_failed_is_not_woken_again(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    unanswered = Unanswered(nursery)
    with trio.move_on_after(1) as limit:
        await unanswered.answer(1, trio.current_time() + 3)
    assert limit.cancelled_caught
    unanswered.resolve(RemotingCommand(0, opaque=1))
    errors: list[str] = []

    async def ask(opaque: int) -> None:
        try:
            await unanswered.answer(opaque, trio.current_time() + 3)
        except ConnectionError as error:
            errors.append(str(error))

    async with trio.open_nursery() as asking:
        for opaque in range(5):
            asking.start_soon(ask, opaque)
        await trio.testing.wait_all_tasks_blocked()
        assert len(unanswered) == 5
        unanswered.fail(ConnectionError("gone"))
        unanswered.resolve(RemotingCommand(0, opaque=2))
    assert errors == ["gone"] * 5
    await trio.testing.wait_all_tasks_blocked()
    assert not nursery.child_tasks
    assert await unanswered.answer(9, trio.current_time() + 2) is None


async def test_a_request_that_cannot_be_timed_waits_for_nothing() -> None:
    async with trio.open_nursery() as closed:
        pass
    unanswered = Unanswered(closed)
    with pytest.raises(RuntimeError):
        await unanswered.answer(1, 5.0)
    assert len(unanswered) == 0
    unanswered.fail(OSError("closed"))  # would reschedule this task, which does not wait
    await trio.lowlevel.checkpoint()
