"""Files of equal size that together hold one long sequence of bytes (MappedFileQueue).

Holds the files in ascending order of start offset; does not know their content. Starts are multiples of the file size.
A file in the middle may be missing (deleted by an operator); then `find` returns None for its offsets. Retention
removes files at the start, truncation removes files at the end, and new files are added at the end.
"""

from __future__ import annotations

from bisect import bisect_right

from triomq.store.disk import layout
from triomq.store.disk.listing import our_files
from triomq.store.disk.mapped_file import MappedFile, OpenFiles
from triomq.store.errors import StoreRefused


class FileSequence:
    """The files of one log or queue. New files are created in `directory`. `holds_log` as in MappedFile."""

    __slots__ = ("_pool", "directory", "file_size_bytes", "files", "holds_log")

    def __init__(self, pool: OpenFiles, directory: str, file_size_bytes: int, *, holds_log: bool = False) -> None:
        self.holds_log = holds_log
        self._pool = pool
        self.directory = directory
        self.file_size_bytes = file_size_bytes
        self.files: list[MappedFile] = []

    def load(self, directory: str) -> list[MappedFile]:
        """Add the files of a directory whose names are offsets; others are left alone. Return the files that are
        shorter than the file size; the caller decides about them. Raises StoreRefused for sizes and starts that do not
        fit."""
        short: list[MappedFile] = []
        for name in our_files(self._pool.files, directory, layout.is_offset_name):
            start = int(name)
            path = f"{directory}/{name}"
            size = self._pool.files.path_size(path)
            if size > self.file_size_bytes or start % self.file_size_bytes:
                raise StoreRefused(
                    f"{path} has {size} bytes and starts at {start}, but the configured file size is "
                    f"{self.file_size_bytes} bytes; set the file size in the configuration to what wrote this store"
                )
            file = MappedFile(self._pool, directory, start, self.file_size_bytes, holds_log=self.holds_log)
            self.files.append(file)
            if size < self.file_size_bytes:
                short.append(file)
        self.files.sort(key=_start)
        return short

    def load_one(self, start: int, names_changed_ns: int, changed_ns: int) -> bool:
        """Add the file that starts here, if its size is full and the two times are those that `times_of_one` returned.
        Return False, and add nothing, if not."""
        try:
            if self._pool.files.size_and_time(self.directory)[1] != names_changed_ns:
                return False
            file = MappedFile(self._pool, self.directory, start, self.file_size_bytes, holds_log=self.holds_log)
            if self._pool.files.size_and_time(file.path) != (self.file_size_bytes, changed_ns):
                return False
        except FileNotFoundError:
            return False
        self.files.append(file)
        return True

    def times_of_one(self) -> tuple[int, int] | None:
        """Return when names in the directory and the only file were changed, or None if they cannot be found."""
        files = self._pool.files
        try:
            return files.size_and_time(self.directory)[1], files.size_and_time(self.files[0].path)[1]
        except OSError:
            return None

    @property
    def first_start(self) -> int:
        """The start of the first file; -1 if there are no files."""
        return self.files[0].start if self.files else -1

    @property
    def last(self) -> MappedFile | None:
        return self.files[-1] if self.files else None

    def find(self, offset: int) -> MappedFile | None:
        """Return the file that holds `offset`, or None."""
        files = self.files
        if not files:
            return None
        at = (offset - files[0].start) // self.file_size_bytes
        if 0 <= at < len(files):
            file = files[at]
            if file.start <= offset < file.start + self.file_size_bytes:
                return file
        at = bisect_right(files, offset, key=_start) - 1
        if at >= 0 and offset < files[at].end:
            return files[at]
        return None

    def after(self, file: MappedFile) -> MappedFile | None:
        """Return the next existing file after `file`, or None."""
        at = bisect_right(self.files, file.start, key=_start)
        return self.files[at] if at < len(self.files) else None

    def make(self, offset: int, directory: str | None = None) -> MappedFile:
        """Create the file for `offset`, which must be beyond all other files. Raises OSError."""
        file = MappedFile(
            self._pool,
            directory or self.directory,
            offset - offset % self.file_size_bytes,
            self.file_size_bytes,
            holds_log=self.holds_log,
        )
        file.create()
        self.files.append(file)
        return file

    def behind(self, front: FileSequence) -> FileSequence:
        """Return a sequence of the files that `front` and this one have now, to find them and to read them."""
        joined = FileSequence(self._pool, self.directory, self.file_size_bytes, holds_log=self.holds_log)
        joined.files = [*front.files, *self.files]
        return joined

    def truncate(self, end: int) -> list[MappedFile]:
        """Delete the files that begin at or after `end`, and clear the last remaining file from `end` on. Return the
        deleted files. Idempotent."""
        gone = [file for file in self.files if file.start >= end]
        for file in gone:
            file.delete()
        if gone:
            self.files = [file for file in self.files if file.start < end]
        last = self.last
        if last is not None and end < last.end:
            last.clear_from(end - last.start)
        return gone

    def drop_first(self) -> MappedFile:
        """Delete the oldest file."""
        file = self.files.pop(0)
        file.delete()
        return file

    def detach_first(self) -> MappedFile:
        """Remove the oldest file from the sequence and close it. The caller unlinks it."""
        file = self.files.pop(0)
        file.close()
        return file

    def delete_all(self) -> None:
        for file in self.files:
            file.delete()
        self.files = []


def _start(file: MappedFile) -> int:
    return file.start
