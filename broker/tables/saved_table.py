"""SavedTable: the base of tables whose file is written in the background, and which may be in the log of a group."""

from __future__ import annotations

import trio

from triomq.broker.tables.logged import LogOfTable
from triomq.broker.tables.write_behind import WriteBehind
from triomq.store.disk.worker_thread import Offload


class SavedTable:
    """A subclass makes the writer, and tells it and the log of its changes."""

    _writer: WriteBehind
    log: LogOfTable | None = None

    async def wait_saved(self) -> None:
        """Wait until the changes made so far are on disk, and on a quorum of the group. Raises OSError,
        NotReplicated."""
        if self.log is not None:
            await self.log.settled()
        await self.wait_written()

    async def wait_written(self) -> None:
        """Wait until the changes made so far are on disk. Raises OSError."""
        await self._writer.wait_saved()

    async def wait_kept(self) -> None:
        """Wait until no crash loses the changes made so far: the file has them, or a quorum of the group, from whose
        log a start takes them. Raises OSError, NotReplicated."""
        if self.log is not None:
            await self.log.settled()
        else:
            await self.wait_written()

    @property
    def is_written(self) -> bool:
        """Return whether the file has all changes."""
        return not self._writer.is_dirty

    async def run(self, offload: Offload = trio.to_thread.run_sync) -> None:
        """Write changes in the background, until cancelled."""
        await self._writer.run(offload)
