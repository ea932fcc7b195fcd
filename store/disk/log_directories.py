"""The directories of one log: whose files are read, and which of them gets a new file (MultiPathMappedFileQueue)."""

from __future__ import annotations

from triomq.store.disk.file_sequence import FileSequence
from triomq.store.disk.layout import Layout
from triomq.store.disk.mapped_file import MappedFile
from triomq.store.errors import StoreRefused


def log_directories(paths: Layout) -> LogDirectories:
    """Return those of storePathCommitLog and readOnlyCommitLogStorePaths."""
    return LogDirectories(paths.commit_logs, paths.read_only_commit_logs)


class LogDirectories:
    """`paths` are those of the log, `read_only` those that get no new files, which may be other ones. `full` may be
    replaced at any time: they get no new files while there is another."""

    def __init__(self, paths: list[str], read_only: list[str]) -> None:
        self.paths = paths
        self.read_only = read_only
        self.full: frozenset[str] = frozenset()

    @property
    def every(self) -> list[str]:
        """All directories that may hold files of the log."""
        return list(dict.fromkeys([*self.paths, *self.read_only]))

    def load(self, sequence: FileSequence) -> list[MappedFile]:
        """Add the files of all directories. Return those that are shorter than the file size; the caller decides about
        them. Raises StoreRefused if two begin at the same offset, or if no directory may get a new file."""
        if len(self.paths) > 1 and not self._writable:
            raise StoreRefused(
                f"readOnlyCommitLogStorePaths names all of {', '.join(self.paths)}; leave one of them for new files"
            )
        short = [file for directory in self.every for file in sequence.load(directory)]
        for earlier, later in zip(sequence.files, sequence.files[1:], strict=False):
            if earlier.start == later.start:
                raise StoreRefused(f"{earlier.path} and {later.path} begin at the same offset; remove one of them")
        return short

    def for_file(self, number: int) -> str:
        """Return the directory for a new file: its offset divided by the file size. Several take turns; full ones are
        skipped while there is another."""
        if len(self.paths) == 1:
            return self.paths[0]
        writable = self._writable
        usable = sorted(path for path in writable if path not in self.full) or sorted(writable)
        return usable[number % len(usable)]

    @property
    def _writable(self) -> list[str]:
        return [path for path in self.paths if path not in self.read_only]
