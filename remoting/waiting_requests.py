"""The requests of one connection that wait for a later turn, and functions that do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from triomq.protocol.command import HELD_BYTES, RemotingCommand

READ_AHEAD_REQUESTS = 1024
READ_AHEAD_BYTES = 2 * 1024 * 1024
"""While this number of postponed requests of a connection wait, or requests of this size, it is not read."""


class WaitingRequests:
    """`queue`, which nobody else changes. `held_bytes` is about the memory of what is in it."""

    def __init__(self) -> None:
        self.queue: deque[RemotingCommand | Callable[[], None]] = deque()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self.queue)

    def append(self, each: RemotingCommand | Callable[[], None]) -> None:
        self.queue.append(each)
        self.held_bytes += _bytes_of(each)

    def popleft(self) -> RemotingCommand | Callable[[], None]:
        each = self.queue.popleft()
        self.held_bytes -= _bytes_of(each)
        return each

    def clear(self) -> None:
        self.queue.clear()
        self.held_bytes = 0

    def share(self) -> float:
        """Return how much waits, as a part of that at which the socket is not read any more."""
        return max(len(self.queue) / READ_AHEAD_REQUESTS, self.held_bytes / READ_AHEAD_BYTES)


def _bytes_of(each: RemotingCommand | Callable[[], None]) -> int:
    return each.held_bytes if isinstance(each, RemotingCommand) else HELD_BYTES
