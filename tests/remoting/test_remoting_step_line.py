"""Steps of tasks beside an interactive client."""

from __future__ import annotations

import pytest
import trio

from triomq.remoting.scheduling.policy import INTERACTIVE_READS
from triomq.remoting.scheduling.scheduler import Client, Scheduler
from triomq.remoting.scheduling.step_line import StepLine


def beside_a_client(*, is_waiting: bool) -> Scheduler:
    """Return a scheduler that has an interactive client."""
    scheduler, client = Scheduler(), Client()
    for _ in range(INTERACTIVE_READS):
        client.was_read(1, 0.0, has_more=False)
    scheduler.was_read(client, 0.0)
    scheduler.ask(lambda: is_waiting)
    return scheduler


@pytest.mark.parametrize("is_waiting", [False, True])
async def test_a_pass_has_one_step_while_an_interactive_client_waits(is_waiting: bool) -> None:
    line = StepLine(beside_a_client(is_waiting=is_waiting), lambda: 0.0)
    assert line.has_time_now(), "each pass has one step"
    assert line.has_time_now() is not is_waiting


async def test_tasks_go_on_while_an_interactive_client_waits_all_the_time() -> None:
    line = StepLine(beside_a_client(is_waiting=True), lambda: 0.0)
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
