"""Sampling: derives the counts of the last minute, hour and day from running totals (RocketMQ: StatsItem,
StatsItemSet).

Counting adds to a Flow. A task samples all flows of a broker, every 10 s for the minute, every 10 min for the hour,
every hour for the day; a window is the difference between its newest and its oldest sample. All flows share the sample
times (Timeline). A flow's samples are three rings in one array,

    minute 7 | hour 7 | day 25        each sample: messages, size_bytes, times (int64)

allocated when the flow is first sampled and freed after a day without change: an idle queue costs nothing. Only the
event loop touches it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from triomq.protocol.bodies.broker_stats import BrokerStatsItem

MINUTE: Final = 0
HOUR: Final = 1
DAY: Final = 2

CAPACITIES: Final[tuple[int, ...]] = (7, 7, 25)
PERIODS_MS: Final[tuple[int, ...]] = (10_000, 600_000, 3_600_000)

UNKNOWN_OFFSET: Final = -1

MESSAGES: Final = 0
SIZE_BYTES: Final = 1

SMALL_BYTES: Final = 1024
MIDDLE_BYTES: Final = 4096
SIZE_EDGES_BYTES: Final[tuple[int, ...]] = (SMALL_BYTES, MIDDLE_BYTES, 524288, 1048576, 2097152, 4194304)
"""Upper edges by which messages are counted by size (RocketMQ 5's rocketmq_message_size)."""

_COLUMNS: Final = 3
_TIMES: Final = 2
_STARTS: Final[tuple[int, ...]] = (0, 7 * _COLUMNS, 14 * _COLUMNS)
_SLOTS: Final = 39
_LONG_AGO: Final = -(10**9)


class Timeline:
    """The times of the samples of one span, in a ring. `tick` counts them."""

    __slots__ = ("capacity", "period_ms", "tick", "times_ms")

    def __init__(self, capacity: int, period_ms: int) -> None:
        self.capacity = capacity
        self.period_ms = period_ms
        self.tick = 0
        self.times_ms = [0] * capacity

    def take(self, now_ms: int) -> None:
        """Add a sample time. The first one is preceded by an empty sample, one period older."""
        if self.tick == 0:
            self.times_ms[0] = now_ms - self.period_ms
            self.tick = 1
        self.times_ms[self.tick % self.capacity] = now_ms
        self.tick += 1


def timelines() -> tuple[Timeline, Timeline, Timeline]:
    """Return the timelines of minute, hour and day."""
    minute, hour, day = (Timeline(*span) for span in zip(CAPACITIES, PERIODS_MS, strict=True))
    return minute, hour, day


class Flow:
    """Running totals. Count by adding to `messages`, `size_bytes` and `times` (the number of additions). `next_offset`
    is where a group that reads a queue will read next, UNKNOWN_OFFSET before it has read.

    A flow with `parts` is their sum, which `gather` updates.

    Messages of more than SMALL_BYTES are counted by size, too: up to MIDDLE_BYTES in `middle_messages`, and beyond by
    `count_size`. The small ones are the rest, so that they cost nothing.
    """

    __slots__ = (
        "_base",
        "_born",
        "_large",
        "_samples",
        "messages",
        "middle_messages",
        "next_offset",
        "parts",
        "size_bytes",
        "times",
    )

    def __init__(self, spans: Sequence[Timeline], parts: list[Flow] | None = None) -> None:
        self.messages = 0
        self.size_bytes = 0
        self.times = 0
        self.middle_messages = 0
        self.next_offset = UNKNOWN_OFFSET
        self._large: list[int] | None = None  # by the edges beyond MIDDLE_BYTES
        self.parts = parts
        self._base = (0, 0, 0)
        self._born: tuple[int, ...] = tuple(span.tick - 1 for span in spans)
        self._samples: array[int] | None = None

    def begin_with(self, times: int) -> None:
        """Begin with this number of empty additions; only for a new flow."""
        self.times = times
        self._base = (0, 0, times)

    @property
    def is_at_rest(self) -> bool:
        """Return whether nothing was counted for a day."""
        return self._samples is None and self.times == self._base[_TIMES] and self.messages == self._base[MESSAGES]

    def gather(self) -> None:
        """Add up the totals of the parts."""
        if self.parts is not None:
            messages = size_bytes = times = 0
            for part in self.parts:
                messages += part.messages
                size_bytes += part.size_bytes
                times += part.times
            self.messages = messages
            self.size_bytes = size_bytes
            self.times = times

    def count_size(self, message_count: int, size_bytes: int) -> None:
        """Count messages by their average size; `size_bytes` is that of all of them."""
        bucket = bisect_left(SIZE_EDGES_BYTES, size_bytes / message_count)
        if bucket == 1:
            self.middle_messages += message_count
        elif bucket > 1:
            if self._large is None:
                self._large = [0] * (len(SIZE_EDGES_BYTES) - 1)
            self._large[bucket - 2] += message_count

    def sizes(self) -> list[int]:
        """Return the number of messages between each of SIZE_EDGES_BYTES and the one before, and of the larger ones."""
        self.gather()
        counts = [0] * (len(SIZE_EDGES_BYTES) + 1)
        for part in [self] if self.parts is None else self.parts:
            counts[1] += part.middle_messages
            if part._large is not None:
                for bucket, count in enumerate(part._large, 2):
                    counts[bucket] += count
        counts[0] = self.messages - sum(counts)
        return counts

    def sample(self, kind: int, span: Timeline) -> None:
        """Store the present totals as the newest sample of `span`, the timeline of `kind`."""
        self.gather()
        samples = self._samples
        if samples is None:
            if self.is_at_rest:
                return
            samples = self._samples = array("q", self._base) * _SLOTS
        at = _place(kind, span.tick - 1)
        samples[at] = self.messages
        samples[at + 1] = self.size_bytes
        samples[at + 2] = self.times
        if kind == DAY:
            self._rest(samples, span)

    def window(self, kind: int, span: Timeline, column: int) -> BrokerStatsItem:
        """Return sum, rate per second and sum per addition between the oldest and the newest sample; zeros without
        samples."""
        samples = self._samples
        if samples is None or span.tick == 0:
            return BrokerStatsItem()
        newest = span.tick - 1
        oldest = max(0, span.tick - span.capacity, self._born[kind])
        first = _place(kind, oldest)
        last = _place(kind, newest)
        total = samples[last + column] - samples[first + column]
        times = samples[last + _TIMES] - samples[first + _TIMES]
        elapsed_ms = span.times_ms[newest % span.capacity] - span.times_ms[oldest % span.capacity]
        return BrokerStatsItem(
            sum=total,
            tps=total * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0,
            avgpt=total / times if times > 0 else 0.0,
        )

    def _rest(self, samples: array[int], span: Timeline) -> None:
        """Free the samples if nothing changed for the whole day."""
        if span.tick - span.capacity <= self._born[DAY]:
            return
        oldest = _place(DAY, span.tick - span.capacity)
        if samples[oldest] == self.messages and samples[oldest + _TIMES] == self.times:
            self._base = (self.messages, self.size_bytes, self.times)
            self._born = (_LONG_AGO, _LONG_AGO, _LONG_AGO)
            self._samples = None


def _place(kind: int, tick: int) -> int:
    """Return the index of that tick's sample in a flow's array."""
    return _STARTS[kind] + tick % CAPACITIES[kind] * _COLUMNS
