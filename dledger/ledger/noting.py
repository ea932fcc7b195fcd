"""What of a ledger is on disk: its syncs, and the checkpoint that tells the next start what need not be read again.

What a sync covers is decided before it begins: entries that are cut while it runs are not counted. A checkpoint is put
in place behind the sync of what it says, and lowered before anything that it says is cut.
"""

from __future__ import annotations

from functools import partial

from triomq.dledger.ledger.syncs import PendingSync, SyncMark, Syncs
from triomq.dledger.ledger.term_files import TermFiles
from triomq.store.disk.file_sequence import FileSequence
from triomq.store.disk.files import Files


class Noting:
    """`Ledger.noting`. Indices are those of entries, -1 for none."""

    def __init__(self, files: Files, directory: str, data: FileSequence, index: FileSequence) -> None:
        self._files = files
        self._data = data
        self._index = index
        self._notes = TermFiles(files, directory)
        self._noted = (-1, -1)
        self._syncs = Syncs(files)
        self.synced_index = -1
        """The last entry that a power failure cannot take."""
        self.has_failed = False
        """Whether a sync has failed: a second one would succeed without the pages that the first one lost."""

    def load(self) -> int:
        """Read the checkpoint. Return the last entry that it says. Raises OSError."""
        self._noted = self._notes.load_checkpoint()
        return self._noted[0]

    def committed(self, begin_index: int, end_index: int) -> int:
        """Return the committed index of the last checkpoint; -1 if it is not of the ledger between these."""
        return min(self._noted[1], end_index) if self._noted[1] >= begin_index >= 0 else -1

    # -- syncs ---------------------------------------------------------------------------------------------------------

    def begin_sync(self, end_index: int) -> PendingSync:
        """Return a sync of all entries up to the last one. A thread may `run` it while the ledger changes; `end_sync`
        then raises `synced_index`. Raises OSError without a descriptor."""
        return self._syncs.begin([self._data], end_index)

    def end_sync(self, sync: PendingSync) -> None:
        """Count what a sync has brought to disk. Raises its OSError; the ledger takes nothing then."""
        if sync.error is not None:
            self.has_failed = True
            raise sync.error
        self._syncs.ended(sync)
        self.sync_ended(sync.mark)

    def sync_began(self, end_index: int, instead_of: SyncMark | None = None) -> SyncMark:
        """Note that a sync of everything that is written begins, by whatever means; one that did not begin is over."""
        if instead_of is not None:
            self._syncs.forget(instead_of)
        return self._syncs.mark(end_index)

    def sync_ended(self, mark: SyncMark) -> None:
        """Count a sync that has ended well."""
        self._syncs.forget(mark)
        self.synced_index = max(self.synced_index, mark.end_index)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def begin_checkpoint(self, end_index: int, committed: int) -> PendingSync:
        """Return a sync of entries and index units that also writes a checkpoint; `end_checkpoint` ends it."""
        pending = self._syncs.begin([self._data, self._index], end_index)
        pending.note = partial(self._notes.prepare_checkpoint, end_index, committed)
        return pending

    def end_checkpoint(self, sync: PendingSync, committed: int) -> bool:
        """Count what `begin_checkpoint` has brought to disk, like `end_sync`, and put its checkpoint in place. Return
        False if entries were cut meanwhile. Raises OSError."""
        self.end_sync(sync)
        if not sync.mark.is_whole:
            return False
        if sync.note_error is not None:
            raise sync.note_error
        self._notes.put_checkpoint()
        self._noted = (sync.mark.end_index, committed)
        return True

    # -- cuts ----------------------------------------------------------------------------------------------------------

    def lower(self, end_index: int) -> None:
        """Note a smaller end before anything behind it changes. Raises OSError."""
        if self._noted[0] > end_index:
            noted = (end_index, min(self._noted[1], end_index))
            self._notes.save_checkpoint(*noted)
            self._noted = noted

    def was_cut(self, end_index: int) -> None:
        """Note that nothing is left behind this index."""
        self.synced_index = min(self.synced_index, end_index)
        self._syncs.was_cut(end_index)
