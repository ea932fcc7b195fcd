"""What a target queue has: the positions that its messages carry.

With --exactly-once the target itself says what arrived. Nothing is sent to a queue before its tail has been read: at
the start, after a request whose result is not known, and when the queue has another master. The broker may still store
what a closed connection has sent, so the caller waits for a moment first.
"""

from __future__ import annotations

from typing import Final

from triomq.pipeline.copying.reading import PULL_GROUP
from triomq.pipeline.copying.records import position_of, read_records
from triomq.pipeline.copying.state import QueueCopy
from triomq.spark.cluster import Cluster
from triomq.spark.pulling import Pull, QueueRange

FIRST_STEP: Final = 32
LARGEST_STEP: Final = 4096
SAMPLES: Final = 100
"""Number of places of a target queue that are read when nothing is noted of it. Groups continue behind one of them."""


def read_back(cluster: Cluster, copy: QueueCopy, position: str) -> None:
    """Set the position of a queue to that behind the last message that its target has, and note where those went that
    were not noted. `position`: what positions of this queue begin with. Raises BrokerError.

    What is noted says where the known part of the target queue ends. If the last message of it is still there, all that
    is behind it is read. Otherwise the queue is read from its end towards its beginning."""
    end = cluster.max_offsets([copy.target])[copy.target]
    if not _read_on(cluster, copy, position, end):
        copy.offsets.cut_target(end)
        begin = cluster.min_offsets([copy.target])[copy.target]
        pairs = _searched(cluster, copy, position, begin, end)
        if pairs:
            copy.offsets.cut(min(pairs))
            if not copy.offsets.runs:
                copy.offsets.add(0, begin, 0)  # a group with an earlier offset begins with all there is
                _note(copy, _sampled(cluster, copy, position, begin, min(pairs.values())))
            _note(copy, pairs)
            copy.next_offset = max(pairs) + 1
    copy.is_unsure = False


def _read_on(cluster: Cluster, copy: QueueCopy, position: str, end: int) -> bool:
    """Read what is behind the known part. Return False if nothing is known, or the target has lost some of it."""
    known = copy.next_offset
    if known is None or not copy.offsets.runs:
        return False
    source, target, count = copy.offsets.runs[-1]
    frontier = target + count
    if frontier > end:
        return False
    found = _pairs(cluster, copy, position, frontier - 1 if count else frontier, end)
    if count and (source + count - 1, frontier - 1) not in found:
        return False
    pairs = {at: place for at, place in _first_of_each(found).items() if at >= known}
    _note(copy, pairs)
    copy.next_offset = max([known - 1, *pairs]) + 1
    return True


def _searched(cluster: Cluster, copy: QueueCopy, position: str, begin: int, end: int) -> dict[int, int]:
    """Return source offset -> target offset of the last messages that come from the source. In a retry topic messages
    come again, so all of it is read."""
    pairs: dict[int, int] = {}
    step = FIRST_STEP
    while end > begin and (not pairs or copy.target.topic.startswith("%")):
        first = max(end - step, begin)
        pairs |= _first_of_each(_pairs(cluster, copy, position, first, end))
        end = first
        step = min(step * 2, LARGEST_STEP)
    return pairs


def _sampled(cluster: Cluster, copy: QueueCopy, position: str, begin: int, end: int) -> dict[int, int]:
    """Return source offset -> target offset of some messages in [begin, end), at the most SAMPLES."""
    step = max((end - begin) // SAMPLES, 1)
    pairs: dict[int, int] = {}
    for place in range(begin, end, step)[:SAMPLES]:
        for source, target in _pairs(cluster, copy, position, place, place + 1):
            pairs.setdefault(source, target)
    return pairs


def _first_of_each(found: list[tuple[int, int]]) -> dict[int, int]:
    pairs: dict[int, int] = {}
    for source, target in found:
        pairs.setdefault(source, target)
    return pairs


def _note(copy: QueueCopy, pairs: dict[int, int]) -> None:
    for source in sorted(pairs):
        copy.offsets.add(source, pairs[source], 1)


def _pairs(cluster: Cluster, copy: QueueCopy, position: str, begin: int, end: int) -> list[tuple[int, int]]:
    """Return (source offset, target offset) of the messages in [begin, end) of the target that come from the source."""
    found = []
    pull = Pull(PULL_GROUP, fail_on_data_loss=False)
    for data, first, last in QueueRange(cluster, copy.target, begin, end, pull).bodies():
        for record in read_records(data, first, last):
            source = position_of(record, position)
            if source is not None:
                found.append((source, record.offset))
    return found
