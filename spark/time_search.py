"""The first message of a queue stored at or after a time: exactly.

TrioMQ's brokers return that offset themselves. RocketMQ 4.9's return the nearest message, which may be off by one, and
by more when many messages share a millisecond. Either result is the starting point here. From there the search reads
the store times of single messages, in growing steps until the time is enclosed, then by bisection. Store times increase
along a queue unless the broker's clock was set back; then the search may find any of the positions where the time is
passed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.record import read_fields
from triomq.spark.cluster import Cluster
from triomq.spark.pulling import Pull, QueueRange

StoreTimeAt = Callable[[int], int]
"""Queue offset -> store time in ms of that message."""

_PROBE_GROWTH: Final = 4


def first_at_or_after(timestamp_ms: int, begin: int, end: int, hint: int, store_time_at: StoreTimeAt) -> int:
    """Return the first offset in [begin, end) whose store time is >= `timestamp_ms`, or `end`."""
    low, high = begin, end  # invariant: everything before low is too early, everything from high on is not
    at = min(max(hint, begin), end - 1)
    step = 1
    while low < high:
        at = min(max(at, low), high - 1)
        if store_time_at(at) < timestamp_ms:
            low = at + 1
            at += step
        else:
            high = at
            at -= step
        step *= _PROBE_GROWTH
        if step > high - low:
            at = (low + high) // 2
    return low


def offsets_at_time(
    cluster: Cluster, timestamps: dict[MessageQueue, int], group: str, queues: Sequence[MessageQueue]
) -> dict[MessageQueue, int]:
    """Return for each queue the offset of the first message stored at or after its time (ms) in `timestamps`."""
    begins = cluster.min_offsets(queues)
    ends = cluster.max_offsets(queues)
    found = {}
    by_time: dict[int, list[MessageQueue]] = {}
    for queue in queues:
        by_time.setdefault(timestamps[queue], []).append(queue)
    for timestamp_ms, theirs in by_time.items():
        hints = cluster.hinted_offsets(theirs, timestamp_ms)
        for queue in theirs:

            def store_time_at(queue_offset: int, queue: MessageQueue = queue) -> int:
                return store_time(cluster, queue, queue_offset, group)

            found[queue] = first_at_or_after(timestamp_ms, begins[queue], ends[queue], hints[queue], store_time_at)
    return found


def store_time(cluster: Cluster, queue: MessageQueue, queue_offset: int, group: str) -> int:
    """Return the store time of one message in ms; 0 when it is gone, so that the search continues after it."""
    pull = Pull(group, count=1, depth=1, fail_on_data_loss=False)
    for body, _, _ in QueueRange(cluster, queue, queue_offset, queue_offset + 1, pull).bodies():
        if body:
            return read_fields(body, 0, len(body)).store_timestamp
    return 0
