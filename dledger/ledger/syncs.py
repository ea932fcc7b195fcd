"""Which part of a ledger the syncs that run will have brought to disk, and which files need none.

A sync covers what was written before it began. Several may run at once, of whom each has a mark; a cut of the ledger
lowers the marks of all. Files before the last one of an earlier sync do not change, so a later one leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable

from triomq.store.disk.file_sequence import FileSequence
from triomq.store.disk.files import Files
from triomq.store.disk.mapped_file import MappedFile


class SyncMark:
    """What a sync covers: the entries up to `end_index`, less those that are cut while it runs."""

    __slots__ = ("end_index", "is_whole")

    def __init__(self, end_index: int) -> None:
        self.end_index = end_index
        self.is_whole = True

    def was_cut(self, end_index: int) -> None:
        if end_index < self.end_index:
            self.end_index = end_index
            self.is_whole = False


class PendingSync:
    """A sync of what was written before it began. Nothing here refers to the ledger, so a thread may run it."""

    __slots__ = ("_directories", "_fds", "_files", "error", "mark", "note", "note_error", "starts")

    def __init__(
        self, files: Files, fds: list[int], directories: list[str], starts: dict[str, int], mark: SyncMark
    ) -> None:
        """`directories`: those of the files. `starts`: for each sequence, by its directory, the start of its last
        file."""
        self._files = files
        self._fds = fds
        self._directories = directories
        self.starts = starts
        self.mark = mark
        self.error: OSError | None = None
        self.note: Callable[[], None] | None = None
        """What to write when everything is synced. `note_error` is what went wrong with it."""
        self.note_error: OSError | None = None

    def run(self) -> None:
        """Sync, close the descriptors, and write the note. `error` is what went wrong with the sync."""
        self._sync()
        if self.note is None or self.error is not None:
            return
        try:
            self.note()
        except OSError as error:
            self.note_error = error

    def _sync(self) -> None:
        try:
            for fd in self._fds:
                self._files.datasync(fd)
            for directory in self._directories:
                self._files.sync_directory(directory)
        except OSError as error:
            self.error = error
        finally:
            for fd in self._fds:
                self._files.close(fd)


class Syncs:
    """The syncs of one ledger."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._marks: list[SyncMark] = []
        self._synced_to: dict[str, int] = {}  # of a sequence -> start of the last file in a sync

    def begin(self, sequences: list[FileSequence], end_index: int) -> PendingSync:
        """Return a sync of the files. Raises OSError without a descriptor."""
        files = [file for sequence in sequences for file in self.unsynced(sequence)]
        directories = dict.fromkeys(file.directory for file in files)
        fds: list[int] = []
        try:
            fds += (file.borrow() for file in files)
        except OSError:
            for fd in fds:
                self._files.close(fd)
            raise
        for file in files:  # the pool may close them, once they are not written any more
            file.is_unsynced = False
        starts = {sequence.directory: _last_start(sequence) for sequence in sequences}
        return PendingSync(self._files, fds, list(directories), starts, self.mark(end_index))

    def ended(self, sync: PendingSync) -> None:
        """Note which files a sync has left behind it."""
        if sync.mark.is_whole:
            self._synced_to.update(sync.starts)

    def mark(self, end_index: int) -> SyncMark:
        found = SyncMark(end_index)
        self._marks.append(found)
        return found

    def forget(self, mark: SyncMark) -> None:
        self._marks = [each for each in self._marks if each is not mark]

    def was_cut(self, end_index: int) -> None:
        """Note that nothing is left behind this index."""
        self._synced_to.clear()
        for mark in self._marks:
            mark.was_cut(end_index)

    def unsynced(self, sequence: FileSequence) -> list[MappedFile]:
        """Return the files that may have changed since the last sync of them."""
        begin = self._synced_to.get(sequence.directory, 0)
        return [file for file in sequence.files if file.end > begin]


def _last_start(sequence: FileSequence) -> int:
    return sequence.files[-1].start if sequence.files else 0
