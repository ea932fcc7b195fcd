"""The messages in flight of one queue for one group; docs/internals/pop.md has their states. Pure: times are arguments.

They are columns, ascending by queue offset, because there may be a million of them:

    offsets     int64   queue offset
    popped      int64   when the message was received, or its invisible time changed (Unix ms): the mark of its handle
    visible     int64   when it is ready again (Unix ms); 0: it is done, and its place is free
    attempts    uint16  how often it was received

    indexes     uint32  the index of its place in the heap of times

Those that are done stay as free places, until they are the first, or as many as the others. The heap has the places of
all others, the one that is ready again first at its beginning; places of the same time are ordered by queue offset. It
is an array of uint32: as objects, a million times would take more memory than all columns.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, compress
from typing import Final, NamedTuple

from triomq.broker.pop.figures import InFlightFigures

MOST_ATTEMPTS: Final = 65_535
ENTRY_BYTES: Final = 100
"""The most memory that a message in flight takes: 34 in columns and heap, as much again for a free place, and what
arrays have in reserve, or copy."""
HELD_MS: Final = 3 * 3600 * 1000 + 1
"""The invisible time of a message that a client has for as long as it lives, three hours at most. The millisecond tells
it from a time that somebody asked for."""
NO_HANDLE_MS: Final = 1
"""The time of a message in flight whose handle has ended before it was received again: no handle has it."""
_SLACK: Final = 64
_NOWHERE: Final = 0xFFFF_FFFF
"""The index of a place that is not in the heap."""


class Columns(NamedTuple):
    """Messages in flight, as they are written."""

    offsets: array[int]
    popped: array[int]
    visible: array[int]
    attempts: array[int]


class InFlight:
    """`next_offset`: what is behind it was not received yet."""

    __slots__ = (
        *("_attempts", "_count", "_first", "_heap", "_indexes", "_offsets", "_popped", "_visible", "next_offset"),
    )

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self._clear()

    def _clear(self) -> None:
        self._offsets = array("q")
        self._popped = array("q")
        self._visible = array("q")
        self._attempts = array("H")
        self._indexes = array("I")
        self._heap = array("I")
        self._first = 0  # the places before are free
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def oldest(self) -> int:
        """Return the offset to commit: that of the first message in flight, or `next_offset`."""
        return self._offsets[self._first] if self._count else self.next_offset

    def offsets(self) -> Iterator[int]:
        """Return the queue offsets of the messages in flight, ascending."""
        for place in range(self._first, len(self._offsets)):
            if self._visible[place]:
                yield self._offsets[place]

    def attempts(self, queue_offset: int) -> int:
        """Return how often a message in flight was received; 0: it is not in flight."""
        place = self._find(queue_offset)
        return self._attempts[place] if place >= 0 else 0

    def popped_ms(self, queue_offset: int) -> int:
        """Return the time in the valid handle of a message in flight; 0: it is not in flight."""
        place = self._find(queue_offset)
        return self._popped[place] if place >= 0 else 0

    def visible_ms(self, queue_offset: int) -> int:
        """Return when a message in flight is ready again; 0: it is not in flight."""
        place = self._find(queue_offset)
        return self._visible[place] if place >= 0 else 0

    def has_handle(self, queue_offset: int, now_ms: int) -> bool:
        """Return whether a message is ready again, and the handle of its last receive still valid."""
        return 0 < self.visible_ms(queue_offset) <= now_ms and self.popped_ms(queue_offset) != NO_HANDLE_MS

    def last_visible_ms(self) -> int:
        """Return when all messages in flight are ready again (Unix ms); 0: there is none."""
        return max(self._visible[self._first :], default=0)

    def figures(self, now_ms: int) -> InFlightFigures:
        """Return what an operator sees of the queue. Takes a millisecond for some ten thousand messages."""
        visible = self._visible[self._first :]
        attempts = self._attempts[self._first :]
        waiting = sum([each > now_ms for each in visible])
        ready_again = self._count - waiting
        oldest_ready = -1
        if ready_again:
            ready = (self._offsets[self._first + place] for place, each in enumerate(visible) if 0 < each <= now_ms)
            oldest_ready = next(ready)
        most = max([tries for tries, each in zip(attempts, visible, strict=True) if each], default=0)
        oldest = self.oldest() if self._count else -1
        return InFlightFigures(self.next_offset, self._count, oldest, ready_again, oldest_ready, most)

    def invisible(self, now_ms: int, begin: int, most: int) -> list[int]:
        """Return queue offsets from `begin` on, ascending, of messages in flight that are not ready again."""
        found: list[int] = []
        for place in range(bisect_left(self._offsets, begin, self._first), len(self._offsets)):
            if len(found) == most:
                break
            if self._visible[place] > now_ms:
                found.append(self._offsets[place])
        return found

    # -- changes -------------------------------------------------------------------------------------------------------

    def receive(self, offsets: Sequence[int], popped_ms: int, visible_ms: int, next_offset: int) -> None:
        """Let new messages be in flight: ascending, none below `next_offset` as it was."""
        for queue_offset in offsets:
            self._append(queue_offset, popped_ms, visible_ms, 1)
        self.next_offset = next_offset

    def receive_again(self, queue_offset: int, popped_ms: int, visible_ms: int) -> None:
        """Let a message in flight be received once more."""
        place = self._find(queue_offset)
        if place >= 0:
            self._attempts[place] = min(self._attempts[place] + 1, MOST_ATTEMPTS)
            self._set_times(place, popped_ms, visible_ms)

    def change(self, queue_offset: int, popped_ms: int, visible_ms: int) -> None:
        """Let a message in flight be ready again at another time."""
        place = self._find(queue_offset)
        if place >= 0:
            self._set_times(place, popped_ms, visible_ms)

    def done(self, queue_offset: int) -> None:
        """Forget a message in flight."""
        place = self._find(queue_offset)
        if place < 0:
            return
        self._take_out(place)
        self._visible[place] = 0
        self._count -= 1
        if not self._count:
            self._clear()
            return
        while not self._visible[self._first]:
            self._first += 1
        if len(self._offsets) - self._count > self._count + _SLACK:
            self._compact()

    def begin_at(self, queue_offset: int) -> None:
        """Forget all messages in flight; the next one to receive is at this offset."""
        self._clear()
        self.next_offset = queue_offset

    def forget(self, begin: int, end: int) -> int:
        """Forget the messages in flight outside of [begin, end), and receive on inside of it. Return their number."""
        outside = [offset for offset in self.offsets() if not begin <= offset < end]
        for queue_offset in outside:
            self.done(queue_offset)
        self._compact()  # the offsets of free places may be those of other messages soon
        self.next_offset = min(max(self.next_offset, begin), end)
        return len(outside)

    def shorten_holds(self, until_ms: int) -> None:
        """Let messages that clients have for as long as they live be ready again at this time, if that is sooner."""
        for place in range(self._first, len(self._offsets)):
            visible_ms = self._visible[place]
            if visible_ms > until_ms and visible_ms - self._popped[place] == HELD_MS:
                self._set_times(place, self._popped[place], until_ms)

    # -- times ---------------------------------------------------------------------------------------------------------

    def next_visible_ms(self) -> int | None:
        """Return when the next message in flight is ready again (Unix ms); None: there is none."""
        return self._visible[self._heap[0]] if self._heap else None

    def take_ready(self, now_ms: int, most: int) -> list[int]:
        """Return queue offsets of messages that are ready again, those that are it longest first. Each is received
        again or done next, or given back."""
        taken: list[int] = []
        while len(taken) < most and self._heap and self._visible[self._heap[0]] <= now_ms:
            place = self._heap[0]
            self._take_out(place)
            taken.append(self._offsets[place])
        return taken

    def give_back(self, offsets: Sequence[int]) -> None:
        """Let messages that were taken as ready be so again."""
        for queue_offset in offsets:
            place = self._find(queue_offset)
            if place >= 0:
                self._put_in(place)

    def _set_times(self, place: int, popped_ms: int, visible_ms: int) -> None:
        self._take_out(place)
        self._popped[place] = popped_ms
        self._visible[place] = visible_ms
        self._put_in(place)

    def _put_in(self, place: int) -> None:
        """Put a place into the heap, if it is not there."""
        if self._indexes[place] == _NOWHERE:
            self._heap.append(place)
            self._rise(place, len(self._heap) - 1)

    def _take_out(self, place: int) -> None:
        """Take a place out of the heap, if it is there."""
        index = self._indexes[place]
        if index == _NOWHERE:
            return
        self._indexes[place] = _NOWHERE
        last = self._heap.pop()
        if last != place:
            self._sink(last, index)
            self._rise(last, self._indexes[last])

    def _rise(self, place: int, index: int) -> None:
        """Put a place at this index of the heap, or at that of a parent that comes later."""
        heap, indexes, visible = self._heap, self._indexes, self._visible
        time = visible[place]
        while index:
            parent = heap[(index - 1) >> 1]
            before = visible[parent]
            if before < time or (before == time and parent < place):
                break
            heap[index] = parent
            indexes[parent] = index
            index = (index - 1) >> 1
        heap[index] = place
        indexes[place] = index

    def _sink(self, place: int, index: int) -> None:
        """Put a place at this index of the heap, or at that of a child that comes sooner."""
        heap, indexes, visible = self._heap, self._indexes, self._visible
        time, size = visible[place], len(heap)
        while 2 * index + 1 < size:
            below = 2 * index + 1
            child = heap[below]
            after = visible[child]
            if below + 1 < size:
                other = heap[below + 1]
                if visible[other] < after or (visible[other] == after and other < child):
                    below, child, after = below + 1, other, visible[other]
            if time < after or (time == after and place < child):
                break
            heap[index] = child
            indexes[child] = index
            index = below
        heap[index] = place
        indexes[place] = index

    # -- all of them ---------------------------------------------------------------------------------------------------

    def columns(self) -> Columns:
        """Return all messages in flight."""
        self._compact()
        return Columns(self._offsets, self._popped, self._visible, self._attempts)

    def add(self, columns: Columns) -> None:
        """Add messages in flight, whose offsets are behind those that are there."""
        begin = len(self._offsets)
        for values, more in (
            (self._offsets, columns.offsets),
            (self._popped, columns.popped),
            (self._visible, columns.visible),
            (self._attempts, columns.attempts),
        ):
            values.extend(more)
        self._count += len(columns.offsets)
        for place in range(begin, len(self._offsets)):
            self._indexes.append(_NOWHERE)
            self._put_in(place)

    def _append(self, queue_offset: int, popped_ms: int, visible_ms: int, attempts: int) -> None:
        place = len(self._offsets)
        self._offsets.append(queue_offset)
        self._popped.append(popped_ms)
        self._visible.append(visible_ms)
        self._attempts.append(attempts)
        self._indexes.append(_NOWHERE)
        self._count += 1
        self._put_in(place)

    def _find(self, queue_offset: int) -> int:
        """Return the place of a message in flight, -1 if it is not in flight."""
        place = bisect_left(self._offsets, queue_offset, self._first)
        if place < len(self._offsets) and self._offsets[place] == queue_offset and self._visible[place]:
            return place
        return -1

    def _compact(self) -> None:
        """Give the free places back."""
        if len(self._offsets) == self._count:
            return
        kept = self._visible
        places = array("I", accumulate(map(bool, kept), initial=0))  # former place -> place
        self._heap = array("I", map(places.__getitem__, self._heap))
        self._offsets = array("q", compress(self._offsets, kept))
        self._popped = array("q", compress(self._popped, kept))
        self._attempts = array("H", compress(self._attempts, kept))
        self._indexes = array("I", compress(self._indexes, kept))
        self._visible = array("q", compress(kept, kept))
        self._first = 0
