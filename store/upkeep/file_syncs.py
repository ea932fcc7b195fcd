"""Syncing files outside of the event loop: in worker threads, or by the kernel (kernel_sync.py).

A sync gets duplicated descriptors and path names only, so nothing that the event loop does meanwhile can affect it. It
is waited for even when cancelled, since it uses them.

A sync reports the failed writes of the open file that its descriptor belongs to. What was written through a file that
was closed since, and failed, is reported to nobody who opens it again. So a file of the log stays open while it has
unsynced pages (OpenFiles), and when another file did not, or there are too many files, the whole file system is synced
through a descriptor of its directory that is open as long as the store (`of_file_system`). Linux reports every failed
write to that one since 5.8; what earlier kernels leave unsaid, no checkpoint may claim (`can_tell`).
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress

import trio

from triomq.store.disk.files import OUT_OF_DESCRIPTORS, SYNCFS_TELLS, Files
from triomq.store.disk.kernel_sync import KernelSync
from triomq.store.disk.mapped_file import MappedFile
from triomq.store.disk.worker_thread import Offload
from triomq.store.errors import SyncNotBegun

# The most descriptors that one sync in a thread holds.
_SYNC_AT_ONCE = 256


class FileSyncs:
    """The syncs of one store. `offload_log` runs those of the log, which must not wait for others."""

    def __init__(self, files: Files, root: str, offload: Offload, offload_log: Offload) -> None:
        self._files = files
        self._root = root
        self._root_fd = -1
        self._offload = offload
        self._offload_log = offload_log
        self.can_tell = SYNCFS_TELLS
        """Whether a sync of the whole file system reports failed writes of closed files."""
        self.kernel_sync: KernelSync | None = None

    def begin(self, *, in_kernel: bool) -> None:
        """Hold the directory of the store open until `close`. With `in_kernel` sync the log without a thread where the
        kernel supports it. Raises OSError."""
        if self._root_fd < 0:
            self._root_fd = self._files.open_directory(self._root)
        if in_kernel:
            self.kernel_sync = self._files.kernel_sync()

    def close(self) -> None:
        """Release what `begin` took. No sync may be running."""
        if self.kernel_sync is not None:
            self.kernel_sync.close()
            self.kernel_sync = None
        if self._root_fd >= 0:
            self._files.close(self._root_fd)
            self._root_fd = -1

    async def of_log(self, files: list[MappedFile], directories: list[str]) -> None:
        """Sync files of the log, and names in these directories. Raises SyncNotBegun, OSError."""
        # Looked at before the first await: retention may delete files during it, but only such as are not listed then.
        for file in files:
            if not self._is_linked(file):
                raise FileNotFoundError(errno.ENOENT, "deleted while the broker writes to it", file.path)
        if len(files) == 1 and not directories and self.kernel_sync is not None:
            with suppress(SyncNotBegun):  # the kernel has no room: a thread asks it in another way
                await self._in_kernel(self.kernel_sync, files[0])
                return
        for at in range(0, len(files), _SYNC_AT_ONCE):
            await self._in_thread(self._offload_log, files[at : at + _SYNC_AT_ONCE], directories)

    async def of_others(self, files: Sequence[MappedFile], directories: list[str]) -> None:
        """Sync other files. Directories may be gone. Raises SyncNotBegun, OSError."""
        await self._in_thread(self._offload, files, directories, may_be_gone=True)

    async def of_file_system(self, files: Sequence[MappedFile]) -> None:
        """Sync everything that was written to the file system of the store, these files among it. Raises SyncNotBegun,
        OSError."""
        for file in files:
            file.is_unsynced = False
        with trio.CancelScope(shield=True):
            try:
                await self._offload(self._files.sync_filesystem, self._root, self._root_fd)
            except OSError as error:
                raise _unless_temporary(error) from None

    def _is_linked(self, file: MappedFile) -> bool:
        try:
            return file.is_linked
        except OSError as error:
            raise _unless_temporary(error) from None

    @staticmethod
    def _borrow(file: MappedFile) -> int:
        """Return a descriptor for a sync of what is written so far. Raises SyncNotBegun if there is none, OSError."""
        try:
            fd = file.borrow()
        except OSError as error:
            raise _unless_temporary(error) from None
        file.is_unsynced = False
        return fd

    async def _in_kernel(self, kernel_sync: KernelSync, file: MappedFile) -> None:
        fd = self._borrow(file)
        try:
            await kernel_sync(fd)
        except BaseException:
            file.is_unsynced = True
            raise
        finally:
            self._files.close(fd)

    async def _in_thread(
        self,
        offload: Offload,
        files: Sequence[MappedFile],
        directories: list[str],
        *,
        may_be_gone: bool = False,
    ) -> None:
        fds: list[int] = []
        try:
            fds += (self._borrow(file) for file in files)
            with trio.CancelScope(shield=True):
                await offload(_sync_all, self._files, fds, directories, may_be_gone)
        except BaseException:
            for file in files:
                file.is_unsynced = True
            raise
        finally:
            for fd in fds:
                self._files.close(fd)


def _unless_temporary(error: OSError) -> Exception:
    """Return SyncNotBegun for the lack of a descriptor, and any other error as it is."""
    return SyncNotBegun(f"no descriptor: {error.strerror}") if error.errno in OUT_OF_DESCRIPTORS else error


def _sync_all(files: Files, fds: list[int], directories: list[str], may_be_gone: bool) -> None:
    """Sync descriptors, then directories. Runs in a thread."""
    for fd in fds:
        files.datasync(fd)
    for path in directories:
        try:
            files.sync_directory(path)
        except FileNotFoundError:
            if not may_be_gone:  # else removed with a deleted topic, so no name in it needs to survive
                raise
        except OSError as error:
            raise _unless_temporary(error) from None
