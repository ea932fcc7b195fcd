"""The lock that allows one process per store directory, and the mark of a run that did not end cleanly.

`lock` is held from before the first read until everything is closed. The directories of the commit log may lie
elsewhere, so each is locked as well, by a lock on the directory itself: a file in it would keep RocketMQ from starting.
The file `abort` exists while a store is open. If
a start finds it, the last run did not end cleanly, and recovery trusts nothing that a flush may have missed.
"""

from __future__ import annotations

import os

from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.errors import StoreLocked, StoreRefused


class DirectoryLock:
    def __init__(self, files: Files, paths: Layout) -> None:
        self._files = files
        self._paths = paths
        self._fd = -1
        self._log_fds: list[int] = []

    def take(self) -> None:
        """Create the directories and lock out other processes; a second call does nothing. Raises StoreLocked, and
        StoreRefused if a path cannot be a directory."""
        if self._fd >= 0:
            return
        root = self._paths.root
        for directory in (root, *self._paths.commit_logs):
            try:
                self._files.make_lasting_directories(directory)
            except (FileExistsError, NotADirectoryError):
                raise StoreRefused(
                    f"{directory} cannot be a directory of the store: it is a file, or a part of the path is; set "
                    "storePathRootDir or storePathCommitLog to a directory, or move the file away"
                ) from None
        fd = self._files.create(self._paths.lock, 4)
        if not self._files.lock(fd):
            self._files.close(fd)
            raise StoreLocked(
                f"{root} is in use by another process (Lock failed,MQ already started); stop that one or set "
                "storePathRootDir to another directory"
            )
        self._fd = fd
        try:
            self._lock_commit_logs()
            self._files.pwrite(fd, b"lock", 0)
        except BaseException:
            self.release()
            raise

    def _lock_commit_logs(self) -> None:
        """Lock the directories of the commit log. Raises StoreLocked, OSError."""
        for directory in dict.fromkeys(self._files.real_path(path) for path in self._paths.commit_logs):
            fd = self._files.lock_directory(directory)
            if fd < 0:
                raise StoreLocked(
                    f"{directory} is the commit log of another broker that runs (Lock failed,MQ already started); stop "
                    "that one or set storePathCommitLog to another directory"
                )
            self._log_fds.append(fd)

    def release(self) -> None:
        while self._log_fds:
            self._files.close(self._log_fds.pop())
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1

    @property
    def was_clean(self) -> bool:
        """True if the last run ended cleanly."""
        return not self._files.exists(self._paths.abort)

    def mark_unclean(self) -> None:
        """Create `abort`: from now on only a recovery makes the directory consistent. Raises OSError."""
        text = f"{os.getpid()}".encode()
        fd = self._files.create(self._paths.abort, len(text))
        try:
            self._files.pwrite(fd, text, 0)
        finally:
            self._files.close(fd)
        self._files.sync_directory(self._paths.root)

    def mark_clean(self) -> None:
        """Remove `abort`. Everything must be on disk, with a checkpoint that says so. Raises OSError."""
        self._files.unlink(self._paths.abort)
        self._files.sync_directory(self._paths.root)
