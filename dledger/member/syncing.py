"""The syncs of a member's ledger and its checkpoint every three seconds, both in a thread.

One task does both, so that only one sync is pending. With SYNC_FLUSH a sync follows the one before it as long as there
is something to sync; otherwise, where no answer waits for it, it comes half a second after the first entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog
import trio

from triomq.dledger.ledger.ledger import Ledger
from triomq.store.disk.files import TEMPORARY
from triomq.store.disk.worker_thread import Offload

log = structlog.get_logger("triomq.dledger.syncing")

NOTE_SECONDS: Final = 3.0
PAUSE_SECONDS: Final = 0.5


class Syncing:
    """`synced` is called after each sync, `failed` with an error after which nothing of the disk can be believed, and
    `committed` returns the index to be noted."""

    def __init__(
        self,
        ledger: Ledger,
        offload: Offload,
        *,
        is_sync_flush: bool,
        syncs: bool,
        synced: Callable[[], None],
        failed: Callable[[BaseException], None],
        committed: Callable[[], int],
    ) -> None:
        self._ledger = ledger
        self._offload = offload
        self._pause_seconds = 0.0 if is_sync_flush else PAUSE_SECONDS
        self._syncs = syncs
        self._synced = synced
        self._failed = failed
        self._committed = committed
        self._wanted = trio.Event()
        self._noted = self._state()

    def look(self) -> None:
        """Sync if there is something to sync. Called at the end of each turn."""
        if self._syncs and self._ledger.synced_index < self._ledger.end_index:
            self._wanted.set()

    async def run(self) -> None:
        """Sync and note until cancelled, or until something failed."""
        note_at = trio.current_time() + NOTE_SECONDS
        while True:
            with trio.move_on_at(note_at):
                await self._wanted.wait()
                await trio.sleep(self._pause_seconds)
            self._wanted = trio.Event()
            is_note_due = trio.current_time() >= note_at
            if is_note_due:
                note_at = trio.current_time() + NOTE_SECONDS
            if not await self._sync(is_noted=is_note_due and self._state() != self._noted):
                return
            self.look()

    async def _sync(self, *, is_noted: bool) -> bool:
        """Bring to disk what is written, and note that in the checkpoint if `is_noted`. Return False after an error
        that ends the member."""
        ledger = self._ledger
        if not is_noted and (not self._syncs or ledger.synced_index >= ledger.end_index):
            return True
        state = self._state()
        try:
            if is_noted:
                pending = ledger.noting.begin_checkpoint(ledger.end_index, state[2])
            else:
                pending = ledger.noting.begin_sync(ledger.end_index)
        except OSError as error:
            return await self._wait_after(error)
        with trio.CancelScope(shield=True):  # it holds descriptors
            await self._offload(pending.run)
        try:
            if not is_noted:
                ledger.noting.end_sync(pending)
            elif ledger.noting.end_checkpoint(pending, state[2]):
                self._noted = state
        except OSError as error:
            return await self._wait_after(error)
        self._synced()
        return True

    async def _wait_after(self, error: OSError) -> bool:
        if error.errno not in TEMPORARY:
            self._failed(error)
            return False
        log.error("ledger not synced at present", error=str(error))
        await trio.sleep(1)
        return True

    def note(self) -> bool:
        """Write the checkpoint if it differs from the last one. Return False after an error that ends the member."""
        if self._state() == self._noted:
            return True
        try:
            self._ledger.save_checkpoint(self._committed())
        except OSError as error:
            if error.errno in TEMPORARY:
                log.error("checkpoint not written at present", error=str(error))
                return True
            self._failed(error)
            return False
        self._noted = self._state()
        self._synced()
        return True

    def _state(self) -> tuple[int, int, int]:
        return self._ledger.end_index, self._ledger.end_term, self._committed()
