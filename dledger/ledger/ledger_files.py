"""The data and index files of a ledger, and whether its disk takes changes.

A disk that is full refuses a change, and is tried again; one that fails makes the ledger broken, and nothing is taken
until a restart.
"""

from __future__ import annotations

from triomq.dledger.ledger import recovery
from triomq.dledger.ledger.noting import Noting
from triomq.dledger.ledger.runs import Run
from triomq.dledger.rules.log import LogRefused
from triomq.store.disk.file_sequence import FileSequence
from triomq.store.disk.files import TEMPORARY, Files
from triomq.store.disk.log_directories import LogDirectories
from triomq.store.disk.mapped_file import MappedFile, OpenFiles


class LedgerFiles:
    """Shared by a ledger and its ends. `pool` is closed with the ledger."""

    __slots__ = (
        "_changed_in",
        "_changes_failed",
        "data",
        "directories",
        "directory",
        "files",
        "index",
        "is_full",
        "noting",
        "pool",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        data_file_bytes: int,
        index_file_bytes: int,
        pool: OpenFiles,
        directories: LogDirectories,
    ) -> None:
        self.files = files
        self.directory = directory
        self.pool = pool
        self.directories = directories
        self.data = FileSequence(pool, directories.paths[0], data_file_bytes, holds_log=True)
        self.index = FileSequence(pool, f"{directory}/index", index_file_bytes)
        self.noting = Noting(files, directory, self.data, self.index)
        self.is_full = False
        """Whether the disk has refused the last change."""
        self._changes_failed = False
        self._changed_in = ""

    @property
    def places(self) -> str:
        """The directories of the ledger, for sentences."""
        inside = f"{self.directory}/"
        others = (path for path in self.directories.every if not path.startswith(inside))
        return " and ".join((self.directory, *others))

    # What the disk takes.

    @property
    def has_failed(self) -> bool:
        """Whether the ledger is broken."""
        return self._changes_failed or self.noting.has_failed

    def check_is_sound(self) -> None:
        """Raise LogRefused if the ledger is broken."""
        if self.has_failed:
            raise LogRefused("an earlier write or sync failed: restart this member")

    def refused(self, error: OSError) -> LogRefused:
        """Note that the disk did not take a change. Return what to raise when the ledger is as before."""
        self.is_full = True
        if error.errno not in TEMPORARY:
            self._changes_failed = True
        return LogRefused(f"{self.directory}: {error}")

    # Changes.

    def write(self, runs: list[Run]) -> None:
        """Write entries, blanks and index units. Raises OSError."""
        for run in runs:
            self.write_data(run.at, run.data)
        recovery.write_units(self.index, runs[0].first_index, b"".join([run.units for run in runs]))

    def write_data(self, at: int, data: bytes) -> None:
        """Write bytes that lie in one data file, which is made if there is none. Raises OSError."""
        file = self.data.find(at)
        if file is None:
            file = self.make_file(at)
        file.write(data, at - file.start)

    def make_file(self, at: int) -> MappedFile:
        """Make the data file for a position behind all others. Raises OSError."""
        directory = self.directories.for_file(at // self.data.file_size_bytes)
        self.will_change(directory)
        return self.data.make(at, directory)

    def cut(self, end_index: int, end_pos: int) -> None:
        """Remove everything behind an entry. Raises OSError; the ledger is broken then."""
        try:
            recovery.cut(self.data, self.index, end_index, end_pos, self.will_change)
        except OSError:
            self._changes_failed = True
            raise

    def will_change(self, directory: str) -> None:
        """Note that a data file is to be made or removed there. If the one before was in another directory, that change
        is on disk first: a start would be refused after a power failure that takes the earlier one only, since it
        would find a gap, or a file twice. Raises OSError."""
        if self._changed_in not in ("", directory):
            self.files.sync_directory(self._changed_in)
        self._changed_in = directory
