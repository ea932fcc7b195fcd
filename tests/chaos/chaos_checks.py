"""What must hold after the faults: pure functions over acknowledgements, what groups got, and what is stored.

A message is a line of a sender: its kind of client, and a number that only grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

FILLER = "0123456789abcdefghijklmnopqrstuvwxyz" * 14

Queue = tuple[str, int]
"""Name of the broker, number of the queue."""


@dataclass(frozen=True)
class Told:
    """What a client reported of a message that it sent. Some clients do not report the queue."""

    number: int
    queue_offset: int
    broker: str | None = None
    queue_id: int | None = None


@dataclass(frozen=True)
class Stored:
    """A message in the store of a master."""

    broker: str
    queue_id: int
    queue_offset: int
    body: bytes


def body_of(kind: str, number: int) -> bytes:
    """Return the body of a message, which its sender and number decide. It ends as a line of a file does."""
    return f"{kind} {number} {FILLER[: number * 37 % len(FILLER)]}\n".encode()


def read_body(body: bytes) -> tuple[str, int] | None:
    """Return sender and number, or None if no sender sends this."""
    try:
        kind, number, _ = body.decode().split(" ", 2)
        return (kind, int(number)) if body_of(kind, int(number)) == body else None
    except ValueError:
        return None


class Numbers:
    """A set of numbers that begin near 0, in a bit for each."""

    def __init__(self) -> None:
        self._bits = bytearray()
        self.count = 0

    def add(self, number: int) -> None:
        at = number >> 3
        if at >= len(self._bits):
            self._bits += bytes(at + 1024 - len(self._bits))
        bit = 1 << (number & 7)
        self.count += not self._bits[at] & bit
        self._bits[at] |= bit

    def __contains__(self, number: int) -> bool:
        at = number >> 3
        return at < len(self._bits) and bool(self._bits[at] & 1 << (number & 7))


def find_losses(told: Mapping[str, list[Told]], stored: Iterable[Stored]) -> list[str]:
    """Each acknowledged message is where its acknowledgement said; offsets have no gap and no message twice; nothing is
    there that nobody sent; the acknowledged messages of one sender are in its order in each queue.
    """
    found: dict[tuple[str, int, int], list[Queue]] = {}
    offsets: dict[Queue, list[int]] = {}
    problems: list[str] = []
    for message in stored:
        queue = (message.broker, message.queue_id)
        offsets.setdefault(queue, []).append(message.queue_offset)
        read = read_body(message.body)
        if read is None:
            problems.append(f"{queue} at {message.queue_offset}: nobody sent {message.body[:60]!r}")
        else:
            found.setdefault((*read, message.queue_offset), []).append(queue)
    for queue, each in sorted(offsets.items()):
        if sorted(each) != list(range(len(each))):
            problems.append(f"{queue}: {len(each)} messages, offsets {min(each)} to {max(each)}: not each offset once")
    for kind, sent in sorted(told.items()):
        lost, placed = _places(kind, sent, found)
        if lost:
            problems.append(f"{kind}: {len(lost)} of {len(sent)} acknowledged messages lost, first {lost[:5]}")
        problems += _disorder(kind, placed)
    return problems


def _places(
    kind: str, sent: list[Told], found: Mapping[tuple[str, int, int], list[Queue]]
) -> tuple[list[Told], dict[Queue, list[Told]]]:
    """Return the messages that are not where they were acknowledged, and the others by their queue."""
    lost: list[Told] = []
    placed: dict[Queue, list[Told]] = {}
    for each in sent:
        queues = [
            queue
            for queue in found.get((kind, each.number, each.queue_offset), ())
            if each.broker in (None, queue[0]) and each.queue_id in (None, queue[1])
        ]
        if not queues:
            lost.append(each)
        elif len(queues) == 1:  # else copies at the same offset of two queues, and the client does not say which
            placed.setdefault(queues[0], []).append(each)
    return lost, placed


def _disorder(kind: str, placed: Mapping[Queue, list[Told]]) -> list[str]:
    problems = []
    for queue, each in sorted(placed.items()):
        each = sorted(each, key=lambda told: told.number)
        wrong = [(one, other) for one, other in pairwise(each) if one.queue_offset >= other.queue_offset]
        if wrong:
            problems.append(f"{kind}: {len(wrong)} messages out of order in {queue}, first {wrong[0]}")
    return problems


def missing(told: Mapping[str, list[Told]], received: Mapping[str, Numbers]) -> dict[str, list[int]]:
    """Return sender -> the numbers of acknowledged messages that a group has not received."""
    found = {}
    for kind, sent in told.items():
        numbers = received.get(kind, Numbers())
        if left := [each.number for each in sent if each.number not in numbers]:
            found[kind] = left
    return found


class OrderedGroup:
    """A group with one member at a time that gets each offset of a queue for the first time after all smaller ones."""

    def __init__(self) -> None:
        self._next: dict[Queue, int] = {}
        self.problems: list[str] = []

    def got(self, queue: Queue, queue_offset: int) -> None:
        expected = self._next.get(queue, 0)
        if queue_offset > expected:
            self.problems.append(f"ordered group: {queue} at {queue_offset} before {expected}")
        self._next[queue] = max(expected, queue_offset + 1)
