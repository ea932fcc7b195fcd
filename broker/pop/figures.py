"""What an operator sees of a queue that a group receives by POP."""

from __future__ import annotations

from msgspec import Struct


class InFlightFigures(Struct, frozen=True):
    """A queue of a group at one moment. `count` messages are in flight, `ready_again` of them are to be received again;
    `oldest` and `oldest_ready` are the queue offsets of the first of each, -1 if there is none. `most_attempts` is how
    often the one was received that was it most often."""

    next_offset: int
    count: int
    oldest: int
    ready_again: int
    oldest_ready: int
    most_attempts: int
