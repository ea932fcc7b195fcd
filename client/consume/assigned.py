"""One queue that this member of the group holds now: its window of messages, and what runs for it.

    HELD --leave--> LEAVING --drop--> DROPPED
      ^-----stay------'

A queue is LEAVING while an ordered consumer waits for a busy listener before it gives the queue up: nothing more is
pulled or consumed, and the queue returns to HELD when the member's share contains it again. `paused` is independent of
that: it belongs to the application alone, and rebalancing never sets it.
"""

from __future__ import annotations

import enum

import trio

from triomq.client.core.process_queue import ProcessQueue
from triomq.protocol.message_queue import MessageQueue

LOCK_LIVE_MS = 30_000
"""An ordered queue whose lock was not confirmed for so long counts as not locked (the broker frees it after 60 s)."""


class QueueState(enum.Enum):
    """Where a queue is between being assigned and being given up."""

    HELD = enum.auto()
    LEAVING = enum.auto()
    DROPPED = enum.auto()


class AssignedQueue:
    """Owned by the rebalancer, which creates it and alone moves it from state to state; the pull loop and the consuming
    tasks share it.

    `next_offset`: queue offset of the next pull. `scope`: cancelling it ends the tasks of this queue. `busy`: number of
    listener calls in progress. `topic_gone`: the broker has no such topic any more, so what it will have under this
    name starts again at its first offset, once what was pulled before is consumed.
    """

    __slots__ = (
        "_changed",
        "_is_awaited",
        "busy",
        "last_pull_error",
        "next_offset",
        "paused",
        "queue",
        "scope",
        "state",
        "topic_gone",
        "window",
    )

    def __init__(self, queue: MessageQueue, next_offset: int, now_ms: int) -> None:
        self.queue = queue
        self.window = ProcessQueue(now_ms)
        self.next_offset = next_offset
        self.scope = trio.CancelScope()
        self.busy = 0
        self.state = QueueState.HELD
        self.paused = False
        self.topic_gone = False
        self.last_pull_error: str | None = None
        self._changed = trio.Event()
        self._is_awaited = False

    @property
    def dropped(self) -> bool:
        return self.window.dropped

    @property
    def may_run(self) -> bool:
        """Whether messages of this queue may be pulled and consumed, as far as the queue itself is concerned."""
        return not self.paused and self.state is QueueState.HELD

    def holds_lock(self, now_ms: int) -> bool:
        return self.window.locked and now_ms - self.window.last_lock_ms < LOCK_LIVE_MS

    def notify(self) -> None:
        """Something changed: messages came or went, the lock, a pause. Wakes everyone in `wait_change`."""
        if self._is_awaited:
            self._is_awaited = False
            self._changed.set()
            self._changed = trio.Event()

    async def wait_change(self, at_most_seconds: float) -> None:
        """Wait for `notify`, at most for `timeout_seconds`."""
        self._is_awaited = True
        with trio.move_on_after(at_most_seconds):
            await self._changed.wait()

    def leave(self) -> None:
        """Stop pulling and consuming: the queue is about to be given up."""
        if self.state is QueueState.HELD:
            self.state = QueueState.LEAVING

    def stay(self) -> None:
        """Continue with a queue that was about to be given up."""
        if self.state is QueueState.LEAVING:
            self.state = QueueState.HELD
            self.notify()

    def drop(self) -> None:
        """No longer ours: nothing more may be committed, its tasks end."""
        self.state = QueueState.DROPPED
        self.window.drop()
        self.scope.cancel()
        self.notify()
