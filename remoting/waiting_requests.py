"""The requests of one connection that wait for a later turn, and functions that do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from triomq.protocol.command import HELD_BYTES, RemotingCommand
from triomq.remoting.scheduling.policy import READ_AGAIN_BELOW, READ_AHEAD_BYTES, READ_AHEAD_REQUESTS


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

    def is_full(self) -> bool:
        """Return whether so much waits that the socket is not read any more."""
        return len(self.queue) >= READ_AHEAD_REQUESTS or self.held_bytes >= READ_AHEAD_BYTES

    def has_room(self) -> bool:
        """Return whether so little waits that the socket is read again."""
        requests = READ_AGAIN_BELOW * READ_AHEAD_REQUESTS
        size_bytes = READ_AGAIN_BELOW * READ_AHEAD_BYTES
        return len(self.queue) < requests and self.held_bytes < size_bytes


def _bytes_of(each: RemotingCommand | Callable[[], None]) -> int:
    return each.held_bytes if isinstance(each, RemotingCommand) else HELD_BYTES
