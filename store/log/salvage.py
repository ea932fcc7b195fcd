"""Bytes that are removed from the log are saved under salvage/, because an operator may look for a message in them.

A file is written under a name that ends in .part and renamed once it is on disk, so a file with its final name is
complete. Partial files that a crash left are deleted when the next file is begun; their bytes are still in the log.

There are two kinds, distinguished by the suffix of their names: damaged ranges that recovery removes, and ends of the
log that a slave truncates. The newest files of each kind are kept, the last one whatever its size.
"""

from __future__ import annotations

import re
from typing import Final

import structlog

from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.disk.listing import our_files
from triomq.store.errors import StoreRefused

log = structlog.get_logger("triomq.store.salvage")

_PART: Final = ".part"
_NAME: Final = re.compile(r"[0-9]+(-[0-9]+)?")
_PART_NAME: Final = re.compile(r"[0-9]+(-[0-9]+)?\.(bin|tail)\.part")


class Salvage:
    """The saved bytes of one kind. Threads may call it, one at a time; only one kind is written at a time."""

    def __init__(self, files: Files, paths: Layout, suffix: str, *, max_files: int, max_bytes: int) -> None:
        self._files = files
        self._root = paths.root
        self._directory = paths.salvage
        self._suffix = suffix
        self._max_files = max_files
        self._max_bytes = max_bytes

    def path(self, name: str) -> str:
        return f"{self._directory}/{name}{self._suffix}"

    def begin(self, name: str, size_bytes: int) -> int:
        """Create a file of `size_bytes`, all a hole, and return its descriptor, which `keep` or `give_up` closes.
        Raises OSError."""
        self._files.make_lasting_directories(self._directory)
        for left in our_files(self._files, self._directory, _is_part, tells=False):
            self._files.unlink(f"{self._directory}/{left}")
        return self._files.create(self.path(name) + _PART, size_bytes)

    def keep(self, name: str, fd: int) -> str:
        """Sync the written file, give it its final name, and delete the oldest files beyond the bounds. Return the
        path. Raises OSError."""
        path = self.path(name)
        try:
            self._files.datasync(fd)
            self._files.rename(path + _PART, path)
            self._files.sync_directory(self._directory)
            self._files.sync_directory(self._root)
        finally:
            self._files.close(fd)
        self._forget_oldest(path)
        return path

    def give_up(self, name: str, fd: int) -> None:
        """Delete the file that cannot be written. Raises OSError."""
        self._files.close(fd)
        self._files.unlink(self.path(name) + _PART)

    def _is_saved(self, name: str) -> bool:
        return name.endswith(self._suffix) and _NAME.fullmatch(name.removesuffix(self._suffix)) is not None

    def _forget_oldest(self, newest: str) -> None:
        """Delete the oldest files beyond the bounds. A file that cannot be deleted stays until the next call."""
        try:
            names = our_files(self._files, self._directory, self._is_saved, tells=False)
            paths = [f"{self._directory}/{name}" for name in names]
            saved = [(path == newest, self._files.modified_ms(path), path) for path in paths]
            saved.sort(reverse=True)
            kept_bytes = 0
            for number, (is_newest, _, path) in enumerate(saved):
                size = self._files.path_size(path)
                kept_bytes += size
                if not is_newest and (number >= self._max_files or kept_bytes > self._max_bytes):
                    self._files.unlink(path)
                    log.warning(
                        "oldest saved part of the log deleted",
                        path=path,
                        size_bytes=size,
                        max_files=self._max_files,
                        max_bytes=self._max_bytes,
                    )
        except (OSError, StoreRefused) as error:
            log.error("old saved parts of the log not deleted", error=str(error))


def _is_part(name: str) -> bool:
    return _PART_NAME.fullmatch(name) is not None
