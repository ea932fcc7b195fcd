"""Requests whose work is a generator: until its next item it may run at once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from triomq.protocol.command import RemotingCommand
from triomq.remoting.step_line import next_step_of_many

_T = TypeVar("_T")


def in_steps(
    steps: Generator[None, None, _T], answer: Callable[[_T], RemotingCommand]
) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand]:
    """Do the first step now, and the others, if there are any, as a task. `answer` makes the response of the result."""
    try:
        next(steps)
    except StopIteration as stop:
        return answer(stop.value)
    return _do_others(steps, answer)


async def _do_others(steps: Generator[None, None, _T], answer: Callable[[_T], RemotingCommand]) -> RemotingCommand:
    while True:
        await next_step_of_many()
        try:
            next(steps)
        except StopIteration as stop:
            return answer(stop.value)
