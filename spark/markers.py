"""Batch markers: how a write that runs again finds out what it has already stored.

Every message of an idempotent write carries one extra property:

    SPARK_BATCH = <write key>:<batch>:<partition>:<digest>

The write key is 16 hex digits of a hash of the streaming query's id (kept in its checkpoint) or of the option writeId;
batch is the number of the micro-batch; digest is 16 hex digits over all fields of the row. Before a task writes, it
reads the target queues from where they ended before the batch began, counts the digests under its own write key, batch
and partition, and skips that many equal rows. So a task, batch or query that runs again stores each row once, whatever
the order in which it computes the rows of the partition this time.

The ends of the queues before a batch are kept at the brokers, as offsets of groups:

    SPARK_SINK_<write key>_<batch mod 2>               written at the commit of the batch before
    SPARK_SINK_<write key>_<batch mod 2>_<partition>   written by a task for queues that the group above does not have

Two groups alternate because a crash after a commit, but before Spark has recorded it, runs the same batch again, and
that run must still start from its own beginning. A lost or outdated offset only means that more is read. Values are
stored plus one, since brokers return 0 for offsets they do not have.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from triomq.protocol.message_queue import MessageQueue
from triomq.spark.cluster import Cluster
from triomq.spark.positions import Positions
from triomq.spark.pulling import Pull, QueueRange

MARKER: Final = "SPARK_BATCH"
DIGEST_DIGITS: Final = 16


def write_key(name: str) -> str:
    """Return the 16 hex digits that stand for a query id or a writeId."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def prefix(key: str, batch_id: int, partition_id: int) -> str:
    """The marker without its digest."""
    return f"{key}:{batch_id}:{partition_id}:"


def digest(parts: Sequence[bytes]) -> str:
    """Return 16 hex digits over fields and their lengths."""
    state = hashlib.blake2b(digest_size=DIGEST_DIGITS // 2)
    for part in parts:
        state.update(len(part).to_bytes(4, "big"))
        state.update(part)
    return state.hexdigest()


def count(data: bytes, marker_prefix: bytes, found: Counter[str]) -> None:
    """Count the digests after each marker with this prefix in a run of encoded records."""
    at = data.find(marker_prefix)
    while at >= 0:
        end = at + len(marker_prefix) + DIGEST_DIGITS
        found[data[at + len(marker_prefix) : end].decode("ascii", "replace")] += 1
        at = data.find(marker_prefix, end)


class StoredRows:
    """What one task has already stored, in this attempt or an earlier one. One owner: the task's sender.

    `find_begins` returns the offsets to search from, for queues that the task is about to use; None when there was no
    earlier attempt. Holds the digests found and not yet taken, and for each queue the offset up to which every message
    of this task is accounted for.
    """

    def __init__(
        self,
        cluster: Cluster,
        marker_prefix: str,
        group: str,
        find_begins: Callable[[Sequence[MessageQueue]], Positions | None],
    ) -> None:
        self._cluster = cluster
        self._needle = f"{MARKER}\x01{marker_prefix}".encode()
        self._pull = Pull(group, fail_on_data_loss=False)
        self._find_begins = find_begins
        self._present: Counter[str] = Counter()
        self._accounted: Positions = {}

    def look_into(self, queues: Sequence[MessageQueue]) -> None:
        """Search these queues; call this before sending the first message to them."""
        begins = self._find_begins(queues)
        ends = self._cluster.max_offsets(queues)
        if begins is not None:
            self._present += self._digests(begins, ends)
        self._accounted.update(ends)

    def take(self, row_digest: str) -> bool:
        """Return whether an earlier attempt stored an equal row. Each stored row is taken once."""
        if self._present.get(row_digest, 0) <= 0:
            return False
        self._present[row_digest] -= 1
        return True

    def confirm(self, queue: MessageQueue, end: int) -> None:
        """Note that all messages of this task before the offset `end` of `queue` are accounted for."""
        if end > self._accounted.get(queue, 0):
            self._accounted[queue] = end

    def of_lost_response(self, queues: Sequence[MessageQueue]) -> Counter[str]:
        """Return the digests that a request without a response stored in these queues after all."""
        begins = {queue: self._accounted.get(queue, 0) for queue in queues}
        ends = self._cluster.max_offsets(queues)
        found = self._digests(begins, ends)
        self._accounted.update(ends)
        return found

    def _digests(self, begins: Positions, ends: Positions) -> Counter[str]:
        found: Counter[str] = Counter()
        for queue, begin in begins.items():
            for body, _, _ in QueueRange(self._cluster, queue, begin, ends[queue], self._pull).bodies():
                count(body, self._needle, found)
        return found


class Beginnings:
    """The ends of queues before a batch of one write, kept at the brokers."""

    def __init__(self, cluster: Cluster, key: str, batch_id: int) -> None:
        self._cluster = cluster
        self._group = f"SPARK_SINK_{key}_{batch_id % 2}"
        self._next_group = f"SPARK_SINK_{key}_{(batch_id + 1) % 2}"

    def find(self, queues: Sequence[MessageQueue], partition_id: int) -> Positions:
        """Return where these queues ended before the batch. A queue without a stored end gets its present one, which is
        stored before this returns."""
        found = self._stored(self._group, queues)
        missing = [queue for queue in queues if queue not in found]
        if missing:
            own_group = f"{self._group}_{partition_id}"
            found |= self._stored(own_group, missing)
            new = [queue for queue in missing if queue not in found]
            if new:
                ends = self._cluster.max_offsets(new)
                self._store(own_group, ends)
                found |= ends
        return found

    def commit(self, queues: Sequence[MessageQueue]) -> None:
        """Note that the batch is complete, so that the next one begins at the present ends. Queues without a route are
        skipped: their broker is away, or received no row and so never created the topic. For those the next batch
        begins at an older end, or stores one of its own."""
        present = [queue for queue in queues if self._cluster.has_route(queue)]
        if present:
            self._store(self._next_group, self._cluster.max_offsets(present))

    def _stored(self, group: str, queues: Sequence[MessageQueue]) -> Positions:
        offsets = self._cluster.group_offsets(group, queues)
        return {queue: value - 1 for queue, value in offsets.items() if value > 0}

    def _store(self, group: str, positions: Mapping[MessageQueue, int]) -> None:
        self._cluster.store_group_offsets(group, {queue: offset + 1 for queue, offset in positions.items()})
