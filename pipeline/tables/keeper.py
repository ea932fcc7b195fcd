"""Brings a table up to date with its topic, commit by commit.

A commit takes a range of each queue from where the table's own position is, and sets the position to where the range
ends. What is read and not committed is read again by the next run, so a kill at any moment changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from triomq.pipeline.tables.rows import MESSAGE_SCHEMA
from triomq.pipeline.tables.shapes import RawRows, Shape
from triomq.pipeline.tables.sources import Source, everything
from triomq.pipeline.tables.target import About, Conflict, Target
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.data_loss import DataLoss, text_of
from triomq.spark.jobs.session import JobFailed
from triomq.spark.positions import Positions, Range, limited

BYTES_PER_COMMIT: Final = 256 * 1024 * 1024


class Keeper:
    """Holds where the table is. One owner, one thread. `rows`: the most messages that one commit has."""

    def __init__(
        self,
        source: Source,
        target: Target,
        rows: int,
        *,
        shape: Shape | None = None,
        key: str = "",
        bytes_per_commit: int = BYTES_PER_COMMIT,
    ) -> None:
        self._source = source
        self._target = target
        self._rows = rows
        self._shape: Shape = RawRows() if shape is None else shape
        self._key = key
        self._bytes = bytes_per_commit
        self._loss = DataLoss(source.fails)
        self.committed = 0
        self.commits = 0

    def open(self) -> None:
        """Check the table, or make it. Raises JobFailed."""
        queues = self._source.queues()
        wanted, found = self._about(), self._target.about()
        begins = self._source.begins(queues)
        if found is not None:
            self.check(wanted, found)
        self._shape.open(self._source.about(), begins)
        if found is None:
            try:
                self._target.create(wanted, self._shape.schema(), begins)
            except Conflict:
                raise JobFailed("--to: another run has just made this table") from None
            self._target.about()

    def preview(self) -> list[Range]:
        """Return the ranges that a run would read; makes no table."""
        ends = self.ends()
        found = self._target.about()
        if found is None:
            return everything(self._source)
        self.check(self._about(), found)
        return [(queue, begin, end) for queue, (begin, end) in self.ranges(ends).items()]

    def _about(self) -> About:
        return replace(self._source.about(), key=self._key)

    def check(self, wanted: About, found: About) -> None:
        """Raise JobFailed for a table of something else."""
        if found.topic != wanted.topic:
            raise JobFailed(f"--to: it is a table of topic {found.topic!r}, not of {wanted.topic!r}")
        if found.cluster != wanted.cluster:
            raise JobFailed(f"--to: it is a table of cluster {found.cluster!r}, not of {wanted.cluster!r}")
        if found.key != wanted.key:
            has = f"the last message of each {found.key!r}" if found.key else "all messages"
            raise JobFailed(f"--to: it is a table of {has}")
        different = self._shape.different(self._target.kinds())
        if different:
            raise JobFailed(f"--to: it is a table of another schema: {different}")

    def ends(self) -> Positions:
        """Return where the queues end now."""
        return self._source.ends(self._source.queues())

    def ranges(self, ends: Positions) -> dict[MessageQueue, tuple[int, int]]:
        """Return the offsets [begin, end) of each queue that the table lacks. Raises DataLost for messages that are
        gone, unless the source continues without."""
        known = self._target.positions(list(ends))
        oldest = self._source.begins(list(ends))
        found = {}
        for queue, end in ends.items():
            begin = known.get(queue, 0)  # a queue that was added later begins at 0
            if end < begin:
                self._loss.found(f"{text_of(queue)} ends at {end}, and the table has it up to {begin}")
                begin = oldest[queue]
            if begin < oldest[queue]:
                self._loss.found(f"offsets {begin} to {oldest[queue]} of {text_of(queue)} were deleted")
                begin = oldest[queue]
            found[queue] = (begin, max(end, begin))
        return found

    def commit(self, ends: Positions) -> int:
        """Append what is between the table and `ends`, or a part of it. Return the number of messages: 0 when there is
        nothing. Raises JobFailed when another run has committed."""
        ranges = self.ranges(ends)
        begins = {queue: begin for queue, (begin, _) in ranges.items()}
        stops = limited(begins, {queue: end for queue, (_, end) in ranges.items()}, self._rows)
        busy = [queue for queue in sorted(begins) if stops[queue] > begins[queue]]
        if not busy:
            return 0
        batches: list[Any] = []
        positions: Positions = {}
        for queue in busy:
            positions[queue] = self._read(queue, begins[queue], stops[queue], self._bytes // len(busy), batches.append)
        messages = pa.Table.from_batches(batches, MESSAGE_SCHEMA)
        dead_before = self.dead_rows
        try:
            self._shape.commit(self._target, messages, positions, ends)
        except Conflict:
            raise JobFailed("--to: another run has committed to this table; nothing of this commit was kept") from None
        self._target.about()
        count = int(messages.num_rows)
        self.committed += count - (self.dead_rows - dead_before)
        self.commits += 1
        return count

    @property
    def dead_rows(self) -> int:
        """Messages that this run has put into the table of dead rows."""
        return self._shape.dead_rows

    def _read(self, queue: MessageQueue, begin: int, end: int, limit_bytes: int, take: Callable[[Any], object]) -> int:
        """Pass the batches of a range on, until they have `limit_bytes`. Return where they end."""
        size = 0
        with closing(self._source.batches(queue, begin, end)) as batches:
            for batch in batches:
                take(batch)
                size += batch.nbytes
                if size >= limit_bytes:
                    return int(batch.column("queueOffset")[-1].as_py()) + 1
        return end
