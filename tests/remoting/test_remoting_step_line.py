"""Steps of tasks beside a client that goes first."""

from __future__ import annotations

import pytest
import trio

from triomq.remoting.step_line import StepLine


@pytest.mark.parametrize("is_awaited", [False, True])
async def test_a_pass_has_one_step_while_somebody_waits_who_goes_first(is_awaited: bool) -> None:
    line = StepLine(lambda: 0.0, lambda: is_awaited)
    assert line.has_time_now(), "each pass has one step"
    assert line.has_time_now() is not is_awaited


async def test_tasks_go_on_while_somebody_waits_all_the_time() -> None:
    line = StepLine(lambda: 0.0, lambda: True)
    done = []

    async def task(number: int) -> None:
        for _ in range(3):
            await line.wait(number)
        done.append(number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.run)
        with trio.fail_after(10):
            async with trio.open_nursery() as tasks:
                for number in range(5):
                    tasks.start_soon(task, number)
        nursery.cancel_scope.cancel()
    assert sorted(done) == [0, 1, 2, 3, 4]
