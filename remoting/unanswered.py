"""The requests to one peer that await a response, with their deadlines (RocketMQ: responseTable, scanResponseTable).

One timer serves all of them. It fires at the earliest deadline and ends every overdue request. A cancel scope per
request would cost a fifth of a client's work for a message.
"""

from __future__ import annotations

from math import inf

import outcome
import trio

from triomq.protocol.command import RemotingCommand


class Unanswered:
    """Waiting requests by opaque. `nursery` runs the timer, which ends when no request waits any more."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._waiting: dict[int, tuple[trio.lowlevel.Task, float]] = {}
        self._due = inf  # finite exactly while the timer's task exists
        self._timer: trio.CancelScope | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def answer(self, opaque: int, deadline: float) -> RemotingCommand | None:
        """Wait for the response to the request `opaque`. Return None if it does not arrive by `deadline` (trio's time).
        Raise the error passed to `fail`."""
        if deadline < self._due:
            self._set_timer(deadline)
        # Register the task only now: if the nursery is closed, the timer raises, and an entry that stayed behind would
        # reschedule a task that does not wait.
        self._waiting[opaque] = (trio.lowlevel.current_task(), deadline)

        def forget(_: object) -> trio.lowlevel.Abort:
            # Remove the entry here, not in the task: until the cancelled task runs, neither a response nor a close may
            # reschedule it a second time.
            self._waiting.pop(opaque, None)
            return trio.lowlevel.Abort.SUCCEEDED

        response: RemotingCommand | None = await trio.lowlevel.wait_task_rescheduled(forget)
        return response

    def resolve(self, response: RemotingCommand) -> None:
        """Pass a response to the task that waits for it. Drop a late response."""
        waiting = self._waiting.pop(response.opaque, None)
        if waiting is not None:
            trio.lowlevel.reschedule(waiting[0], outcome.Value(response))

    def fail(self, error: Exception) -> None:
        """Raise `error` in every waiting request."""
        waiting, self._waiting = self._waiting, {}
        for task, _ in waiting.values():
            trio.lowlevel.reschedule(task, outcome.Error(error))
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, due: float) -> None:
        if self._due == inf:
            self._nursery.start_soon(self._time)
        elif self._timer is not None:
            self._timer.deadline = due
        self._due = due

    async def _time(self) -> None:
        while self._due < inf:
            with trio.CancelScope(deadline=self._due) as self._timer:
                await trio.sleep_forever()
            self._timer = None
            now = trio.current_time()
            for opaque in [opaque for opaque, (_, deadline) in self._waiting.items() if deadline <= now]:
                task, _ = self._waiting.pop(opaque)
                trio.lowlevel.reschedule(task)
            self._due = min((deadline for _, deadline in self._waiting.values()), default=inf)
