"""The queues of a topic as one group consumes them. Pure: times are arguments."""

from __future__ import annotations

from typing import Final, NamedTuple

from triomq.broker.pop.in_flight import InFlight

_NEVER_MS: Final = 1 << 62


class Key(NamedTuple):
    """A queue of a topic as one group consumes it."""

    topic: str
    group: str
    queue_id: int


class GroupQueues:
    """All of them, by queue id. `in_order`: whether the last receive was one in order. No message in flight is ready
    again before `ready_ms` (Unix ms), so that a receive before it need not look at each queue."""

    __slots__ = ("by_id", "in_order", "ready_ms")

    def __init__(self) -> None:
        self.by_id: dict[int, GroupQueue] = {}
        self.in_order = False
        self.ready_ms = 0

    def note_time(self, visible_ms: int) -> None:
        """Note that messages are in flight that are ready again at this time."""
        self.ready_ms = min(self.ready_ms, visible_ms)

    def note_times(self) -> None:
        """Look when the first message is ready again."""
        times = [queue.in_flight.next_visible_ms() for queue in self.by_id.values()]
        self.ready_ms = min([time for time in times if time is not None], default=_NEVER_MS)


class GroupQueue:
    """`number`: that of the queue in the log; `is_named`: whether the log's file has it. `committed`: the offset that
    was written to the table of offsets last. `attempt_id`: of the last receive in order."""

    __slots__ = ("attempt_id", "committed", "in_flight", "is_named", "key", "number", "siblings")

    def __init__(self, siblings: GroupQueues, key: Key, in_flight: InFlight, committed: int, number: int) -> None:
        """`siblings`: the queues of the same topic and group, and this one."""
        self.siblings = siblings
        self.key = key
        self.in_flight = in_flight
        self.committed = committed
        self.number = number
        self.is_named = False
        self.attempt_id = ""

    def is_blocked(self, now_ms: int) -> bool:
        """Return whether a receive in order has to wait: a message in flight is neither done nor ready again."""
        return self.in_flight.last_visible_ms() > now_ms

    def may_repeat(self, attempt_id: str, now_ms: int) -> bool:
        """Return whether a receive in order may take what is in flight: all of it is ready again, or this is the
        attempt that has it."""
        return not self.is_blocked(now_ms) or (bool(attempt_id) and attempt_id == self.attempt_id)

    def next_visible_ms(self) -> int | None:
        """Return when the next message in flight may be received again (Unix ms), in order when all of them are; None:
        there is none."""
        if not len(self.in_flight):
            return None
        return self.in_flight.last_visible_ms() if self.siblings.in_order else self.in_flight.next_visible_ms()
