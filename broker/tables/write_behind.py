"""WriteBehind: writes a table's file in the background, so that a change costs its caller next to nothing.

A table marks itself changed as often as it likes. While `run` is running, the file is written soon after: many changes
at a time, in a thread, and less often the larger the table is. A caller that needs a change to be on disk awaits
`wait_saved`, which ends the rest: clients that lock one queue after another would otherwise wait for as many rests. All
that wait by the time of a write share it. Without `run` (at start, at the end, in tests) every change is written
immediately.

    changed ──> [ rest ] ──> render in steps on the event loop ──> file.save_pieces in a thread ──> saved

A table that speaks of the log (offsets of groups, of delays, of transaction checks) must not be on disk ahead of it. It
passes `covered`, which is awaited between the rendering and the write: then whatever the text speaks of is on disk.

What changed is rendered in steps (fragments.py), between which other tasks run: after a start, or after a burst, that
can be a hundred thousand entries. A failed write is logged and repeated with the next change, at the latest after
`RETRY_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import structlog
import trio

from triomq.broker.tables.table_file import TableFile
from triomq.protocol.outage import Outage
from triomq.store.disk.worker_thread import Offload

log = structlog.get_logger("triomq.broker.tables")

REST_SECONDS = 0.05
REST_FACTOR = 10
"""The pause after a write is this many times as long as the write took, for changes that nobody awaits..."""
LONGEST_REST_SECONDS = 1.0
"""... but no longer than this: one slow write may be an exception."""
RETRY_SECONDS = 5.0

Covered = Callable[[], Awaitable[bool]]
"""Returns when everything that is in the log is on disk; False if that will never be (DefaultMessageStore.cover)."""


class WriteBehind:
    """Keeps one file up to date. `pieces` returns the whole content; it is quick when `render`, which does a part of
    its work in advance, has returned False. With `covered` only `save_offloaded` writes."""

    def __init__(
        self,
        file: TableFile,
        pieces: Callable[[], Sequence[bytes]],
        render: Callable[[], bool] | None = None,
        covered: Covered | None = None,
    ) -> None:
        self._covered = covered
        self._file = file
        self._pieces = pieces
        self._render = render
        self._changes = 0
        self._saved = 0
        self._is_running = False
        self._is_writing = False
        self._written = trio.Event()
        self._wakeup = trio.Event()
        self._awaited = trio.Event()
        self._attempted = trio.Event()
        self._error: OSError | None = None
        self._outage = Outage()

    @property
    def is_dirty(self) -> bool:
        """Return whether there is a change that is not in the file."""
        return self._saved != self._changes

    def changed(self) -> None:
        """Note that the table changed. Raises OSError if the file is written at once and that fails."""
        self._changes += 1
        if self._is_running:
            self._wakeup.set()
        else:
            self.save()

    def mark(self) -> None:
        """Note that the table changed; the caller arranges for `save` or `run`."""
        self._changes += 1
        self._wakeup.set()

    def save(self) -> bool:
        """Write now, on the event loop, if there is a change. Return True if the file was written. Raises OSError.

        While a thread writes the file, nothing else may: the change stays marked for the next write.
        """
        if not self.is_dirty or self._is_writing:
            return False
        changes = self._changes
        self._file.save_pieces(self._pieces())
        self._saved = changes
        return True

    async def save_offloaded(self, offload: Offload = trio.to_thread.run_sync) -> bool:
        """Write in a thread; otherwise like `save`. If `covered` says that something must be on disk first and is
        not, nothing is written. Raises OSError."""
        if not self.is_dirty or self._is_writing:
            return False
        self._is_writing = True
        try:
            while self._render is not None and self._render():
                await trio.lowlevel.checkpoint()
            # The table may change during the waits: those changes are not in this text.
            changes, pieces = self._changes, self._pieces()
            if self._covered is not None and not await self._covered():
                return False
            await offload(self._file.save_pieces, pieces)
            self._saved = changes
        finally:
            self._is_writing = False
            self._written.set()
            self._written = trio.Event()
        return True

    async def save_all(self, offload: Offload = trio.to_thread.run_sync) -> None:
        """Return when the file has all changes so far. Raises OSError if it cannot have them, also when what they speak
        of does not get on the disk."""
        wanted = self._changes
        while self._saved < wanted:
            if self._is_writing:
                await self._written.wait()
            elif not await self.save_offloaded(offload):
                raise OSError("the log that the table speaks of is not on the disk")

    async def wait_saved(self) -> None:
        """Wait until all changes so far are in the file. Raises OSError if it cannot be written."""
        wanted = self._changes
        while self._saved < wanted and self._is_running:
            self._awaited.set()
            self._wakeup.set()
            attempted = self._attempted
            await attempted.wait()
            if self._saved < wanted and self._error is not None:
                raise self._error

    async def run(self, offload: Offload = trio.to_thread.run_sync) -> None:
        """Write changes until cancelled; the last changes are then written too."""
        self._is_running = True
        try:
            while True:
                await self._wakeup.wait()
                # A caller that waits from here on may have a change that this write does not have.
                self._wakeup = trio.Event()
                self._awaited = trio.Event()
                began = trio.current_time()
                self._error = None
                try:
                    await self.save_offloaded(offload)
                    if self._outage.worked(trio.current_time()):
                        log.info("table written again")
                except OSError as error:
                    if self._outage.failed(trio.current_time()):
                        log.error("table not written; the next write tries again", exc_info=error)
                    self._error = error
                self._attempted.set()
                self._attempted = trio.Event()
                if self._error is not None:
                    with trio.move_on_after(RETRY_SECONDS):
                        await self._wakeup.wait()
                    self._wakeup.set()
                rest = max(REST_SECONDS, REST_FACTOR * (trio.current_time() - began))
                with trio.move_on_after(min(rest, LONGEST_REST_SECONDS)):
                    await self._awaited.wait()
        finally:
            self._is_running = False
            self._attempted.set()
            try:
                self.save()
            except OSError as error:
                log.error("table not written at shutdown", exc_info=error)
