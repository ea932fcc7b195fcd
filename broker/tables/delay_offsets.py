"""DelayOffsets: how far each delay level is delivered (RocketMQ: ScheduleMessageService's delayOffset.json)."""

from __future__ import annotations

from collections.abc import Iterator

import trio

from triomq.broker.tables.logged import LogOfTable
from triomq.broker.tables.table_file import NoFile, TableFile, decoder
from triomq.broker.tables.write_behind import Covered, WriteBehind
from triomq.protocol.bodies.offset import DelayOffsetSerializeWrapper
from triomq.store.disk.worker_thread import Offload


class DelayOffsets:
    """Level (1-based) -> queue offset of the next message to deliver, persisted in delayOffset.json.

    A slave replaces it by its master's table (`merge`); on a master only the deliveries move it. It holds at most one
    entry for each level of messageDelayLevel, and the entries for other levels that the file contained.
    """

    def __init__(
        self,
        file: TableFile | None = None,
        *,
        covered: Covered | None = None,
        offload: Offload = trio.to_thread.run_sync,
    ) -> None:
        """`covered` as in WriteBehind: an offset passes what was delivered, so that must be on disk before the file,
        which `offload` writes."""
        self._offload = offload
        self._file = file if file is not None else NoFile()
        self._offsets: dict[int, int] = {}
        self._writer = WriteBehind(self._file, lambda: [self.wrapper().encode_pretty()], covered=covered)
        self.log: LogOfTable | None = None

    def get(self, level: int) -> int:
        """Return the offset of a level, 0 if nothing was ever delivered from it."""
        return self._offsets.get(level, 0)

    def set(self, level: int, queue_offset: int) -> None:
        if self._offsets.get(level) != queue_offset:
            self._offsets[level] = queue_offset
            self._writer.mark()
            if self.log is not None:
                self.log.changed(str(level))

    def logged_names(self) -> list[str]:
        """See LoggedTable. A name is a level."""
        return [str(level) for level in self._offsets]

    def logged_entry(self, name: str) -> bytes | None:
        """See LoggedTable: a queue offset."""
        queue_offset = self._offsets.get(int(name))
        return str(queue_offset).encode() if queue_offset is not None else None

    def take_logged(self, name: str, entry: bytes | None) -> None:
        """See LoggedTable."""
        if entry is not None:
            self.set(int(name), int(entry))

    def items(self) -> Iterator[tuple[int, int]]:
        """Return pairs of level and offset, lowest level first."""
        yield from sorted(self._offsets.items())

    def merge(self, wrapper: DelayOffsetSerializeWrapper) -> None:
        """Replace the offsets by those of the master (SlaveSynchronize)."""
        if wrapper.offset_table != self._offsets:
            self._offsets = dict(wrapper.offset_table)
            self._writer.mark()

    def wrapper(self) -> DelayOffsetSerializeWrapper:
        """Return the table as it is sent (GET_ALL_DELAY_OFFSET) and persisted."""
        return DelayOffsetSerializeWrapper(offset_table=dict(sorted(self._offsets.items())))

    def load(self) -> None:
        """Load the file; without one every level begins at 0."""
        loaded = self._file.load(decoder(DelayOffsetSerializeWrapper))
        if loaded is not None:
            self._offsets = dict(loaded.offset_table)

    @property
    def is_written(self) -> bool:
        """Return whether the file has all changes."""
        return not self._writer.is_dirty

    async def persist(self) -> bool:
        """Write the file if an offset moved since the last write, after what it speaks of is on disk. Return True if it
        was written. Raises OSError."""
        return await self._writer.save_offloaded(self._offload)

    async def save(self) -> None:
        """Return when the file has all changes so far. Raises OSError if it cannot have them."""
        await self._writer.save_all(self._offload)
