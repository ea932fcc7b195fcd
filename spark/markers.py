"""Batch markers: how a write that is done again finds out what it has stored before.

Every message of an idempotent write carries one more property:

    SPARK_BATCH = <write key>:<batch>:<partition>:<digest>

write key: 16 hex digits of the streaming query's id (it lives in the checkpoint) or of the option writeId. batch: the
micro-batch. digest: 16 hex digits over everything the row says. Before a task writes, it reads the target queues from
where they ended before the batch began, counts the digests under its own write key, batch and partition, and leaves
out that many equal rows. So a task, batch or query that is run again stores each row once, in whatever order it now
computes the rows of the partition.

Where the queues ended before a batch is kept at the brokers, as offsets of groups:

    SPARK_SINK_<write key>_<batch mod 2>               written at the commit of the batch before
    SPARK_SINK_<write key>_<batch mod 2>_<partition>   written by a task for queues that the group above does not have

Two groups in turn: a crash after a commit, but before Spark knows of it, runs the same batch again, and that must
still look from its own beginning. An offset that got lost or is old only means that more is read. Values are stored
plus one, since brokers answer 0 for offsets they do not have.
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
    """16 hex digits for a query id or a writeId."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def prefix(key: str, batch_id: int, partition_id: int) -> str:
    """The marker without its digest."""
    return f"{key}:{batch_id}:{partition_id}:"


def digest(parts: Sequence[bytes]) -> str:
    """16 hex digits over fields; their lengths count too."""
    state = hashlib.blake2b(digest_size=DIGEST_DIGITS // 2)
    for part in parts:
        state.update(len(part).to_bytes(4, "big"))
        state.update(part)
    return state.hexdigest()


def count(data: bytes, marker_prefix: bytes, found: Counter[str]) -> None:
    """Add the digests behind every marker with that prefix in a run of records."""
    at = data.find(marker_prefix)
    while at >= 0:
        end = at + len(marker_prefix) + DIGEST_DIGITS
        found[data[at + len(marker_prefix) : end].decode("ascii", "replace")] += 1
        at = data.find(marker_prefix, end)


class StoredRows:
    """What one task has stored already, in this attempt or an earlier one. One owner: the task's sender.

    `find_begins` answers where to look from for queues that the task is about to use, or None when there was no earlier
    attempt. Holds the digests found and not yet taken, and for each queue the offset up to which everything of this
    task is accounted for.
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
        """Before the first message for these queues is sent."""
        begins = self._find_begins(queues)
        ends = self._cluster.max_offsets(queues)
        if begins is not None:
            self._present += self._digests(begins, ends)
        self._accounted.update(ends)

    def take(self, row_digest: str) -> bool:
        """Whether an equal row was stored by an earlier attempt; each one counts for one row."""
        if self._present.get(row_digest, 0) <= 0:
            return False
        self._present[row_digest] -= 1
        return True

    def confirm(self, queue: MessageQueue, end: int) -> None:
        """Everything of this task in `queue` before the offset `end` is accounted for."""
        if end > self._accounted.get(queue, 0):
            self._accounted[queue] = end

    def of_lost_answer(self, queues: Sequence[MessageQueue]) -> Counter[str]:
        """After a request to one of these queues without an answer: the digests it stored all the same."""
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
    """Where queues ended before a batch of one write began, kept at the brokers."""

    def __init__(self, cluster: Cluster, key: str, batch_id: int) -> None:
        self._cluster = cluster
        self._group = f"SPARK_SINK_{key}_{batch_id % 2}"
        self._next_group = f"SPARK_SINK_{key}_{(batch_id + 1) % 2}"

    def find(self, queues: Sequence[MessageQueue], partition_id: int) -> Positions:
        """Of these queues; where none is known yet, their present end, which is stored before this returns."""
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
        """The batch is complete: the next one begins at the present ends. Queues without a route are left out: their
        broker is away, or got no row and therefore never created the topic. The next batch then begins at an older
        end, or finds one by itself."""
        present = [queue for queue in queues if self._cluster.has_route(queue)]
        if present:
            self._store(self._next_group, self._cluster.max_offsets(present))

    def _stored(self, group: str, queues: Sequence[MessageQueue]) -> Positions:
        offsets = self._cluster.group_offsets(group, queues)
        return {queue: value - 1 for queue, value in offsets.items() if value > 0}

    def _store(self, group: str, positions: Mapping[MessageQueue, int]) -> None:
        self._cluster.store_group_offsets(group, {queue: offset + 1 for queue, offset in positions.items()})
