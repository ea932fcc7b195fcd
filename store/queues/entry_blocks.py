"""The queue entries that were read last, so that reading a few does not each time read a file: for pulls of a few
messages, delayed messages that fall due, and the ends of transactions, each of which reads the entry of a half message.

Holds a block of entries for each of the queues that were read last, at most `MOST_QUEUES` of them; the queue whose
first block is the oldest leaves. What can be read of a queue does not change unless it is cut, which
`ConsumeQueue.cuts` tells, or its first file is deleted; messages that come are behind the block. A consumer of few
messages thus reads a file once for many of them, and groups that read the same messages share a block.
"""

from __future__ import annotations

from typing import Final

from triomq.store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue

BLOCK_ENTRIES: Final = 128
MOST_QUEUES: Final = 256


class EntryBlock:
    """The entries of a queue from `begin` to `end`, as they were after this number of its cuts."""

    __slots__ = ("begin", "cuts", "data", "end")

    def __init__(self) -> None:
        self.begin = self.end = 0
        self.data = b""
        self.cuts = 0


class EntryBlocks:
    """See the module's docstring."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: dict[ConsumeQueue, EntryBlock] = {}

    def entries(self, queue: ConsumeQueue, queue_offset: int, count: int) -> bytes:
        """Return what `queue.entries` returns for at least one entry."""
        held = self.held(queue, queue_offset, count)
        return held if held is not None else self.read(queue, queue_offset, count)

    def held(self, queue: ConsumeQueue, queue_offset: int, count: int) -> bytes | None:
        """Return the entries if they are in memory, or None if a file has to be read."""
        block = self._blocks.get(queue)
        if (
            block is None
            or queue_offset < block.begin
            or min(queue_offset + count, queue.end) > block.end
            or block.cuts != queue.cuts
            or queue_offset < queue.first_in_files
        ):
            return None
        at = (queue_offset - block.begin) * ENTRY_BYTES
        return block.data[at : at + count * ENTRY_BYTES]

    def read(self, queue: ConsumeQueue, queue_offset: int, count: int) -> bytes:
        """Return the entries from the file, and hold their block unless it is long."""
        if count > BLOCK_ENTRIES:
            return queue.entries(queue_offset, count)
        block = self._blocks.get(queue)
        if block is None:
            if len(self._blocks) >= MOST_QUEUES:
                del self._blocks[next(iter(self._blocks))]
            block = self._blocks[queue] = EntryBlock()
        block.data = queue.entries(queue_offset, BLOCK_ENTRIES)
        block.begin = queue_offset
        block.end = queue_offset + len(block.data) // ENTRY_BYTES
        block.cuts = queue.cuts
        return block.data[: count * ENTRY_BYTES]
