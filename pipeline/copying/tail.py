"""What a target queue has: the positions that its last messages carry.

With --exactly-once the target itself says what arrived. Nothing is sent to a queue before its tail has been read: at
the start, and after a request whose result is not known. The broker may still store what a closed connection has sent,
so the caller waits for a moment first.
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


def read_back(cluster: Cluster, copy: QueueCopy, position: str) -> None:
    """Set the position of a queue to that behind the last message that its target has, and note where those went that
    were not noted. `position`: what positions of this queue begin with. Raises BrokerError.

    What is noted says where the known part of the target queue ends; all that is behind it is read. Where nothing is
    noted, or the target has lost some of it, the queue is read from its end towards its beginning."""
    queue = copy.target
    end = cluster.max_offsets([queue])[queue]
    runs = copy.offsets.runs
    frontier = runs[-1][1] + runs[-1][2] if runs else None
    if copy.next_offset is not None and frontier is not None and frontier <= end:
        known = copy.next_offset
        pairs = _first_of_each(_pairs(cluster, copy, position, frontier, end))
        _note(copy, {source: target for source, target in pairs.items() if source >= known})
    else:
        pairs = _searched(cluster, copy, position, end)
        if pairs:
            copy.offsets.cut(min(pairs))
            _note(copy, pairs)
    copy.is_unsure = False


def _searched(cluster: Cluster, copy: QueueCopy, position: str, end: int) -> dict[int, int]:
    """Return source offset -> target offset of the last messages that come from the source. In a retry topic messages
    come again, so all of it is read."""
    begin = cluster.min_offsets([copy.target])[copy.target]
    pairs: dict[int, int] = {}
    step = FIRST_STEP
    while end > begin and (not pairs or copy.target.topic.startswith("%")):
        first = max(end - step, begin)
        pairs |= _first_of_each(_pairs(cluster, copy, position, first, end))
        end = first
        step = min(step * 2, LARGEST_STEP)
    return pairs


def _first_of_each(found: list[tuple[int, int]]) -> dict[int, int]:
    pairs: dict[int, int] = {}
    for source, target in found:
        pairs.setdefault(source, target)
    return pairs


def _note(copy: QueueCopy, pairs: dict[int, int]) -> None:
    for source in sorted(pairs):
        copy.offsets.add(source, pairs[source], 1)
    if pairs:
        copy.next_offset = max(pairs) + 1


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
