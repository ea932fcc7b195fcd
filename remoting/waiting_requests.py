"""The requests of one connection that wait for a later turn, and functions that do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from triomq.protocol.command import HELD_BYTES, RemotingCommand
from triomq.remoting.scheduling.policy import READ_AGAIN_BELOW, READ_AHEAD_BYTES, READ_AHEAD_REQUESTS


class Later:
    """A function that waits, and about the memory that it holds."""

    __slots__ = ("function", "held_bytes")

    def __init__(self, function: Callable[[], None], size_bytes: int) -> None:
        """`size_bytes` is that of what it holds in addition to a few fields."""
        self.function = function
        self.held_bytes = HELD_BYTES + size_bytes


class WaitingRequests:
    """`queue`, which nobody else changes. `held_bytes` is about the memory of what is in it."""

    def __init__(self) -> None:
        self.queue: deque[RemotingCommand | Later] = deque()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self.queue)

    def append(self, each: RemotingCommand | Later) -> None:
        self.queue.append(each)
        self.held_bytes += each.held_bytes

    def popleft(self) -> RemotingCommand | Later:
        each = self.queue.popleft()
        self.held_bytes -= each.held_bytes
        return each

    def clear(self) -> None:
        self.queue.clear()
        self.held_bytes = 0

    def is_full(self) -> bool:
        """Return whether so much waits that the socket is not read any more."""
        return len(self.queue) >= READ_AHEAD_REQUESTS or self.held_bytes >= READ_AHEAD_BYTES

    def has_room(self) -> bool:
        """Return whether so little waits that the socket is read again."""
        requests = READ_AGAIN_BELOW * READ_AHEAD_REQUESTS
        size_bytes = READ_AGAIN_BELOW * READ_AHEAD_BYTES
        return len(self.queue) < requests and self.held_bytes < size_bytes
