"""The only place that calls the operating system for the store.

Stateless: descriptors and paths in, bytes out; so its methods may also be called from threads. One object is given to
the store at construction; tests give one that records writes, tears them, or refuses them (ENOSPC, EIO).

All writing goes through `pwrite`, all files are made at full size and sparse, and mappings are read-only or private: a
full disk is then an OSError and never a SIGBUS. `datasync` is fdatasync; `mmap.flush` is never used, as it holds the
interpreter's lock. A new name survives a power loss only after `sync_directory`.
"""

# Plain os calls on text paths: this module is the seam, and its callers keep paths as text.
# ruff: noqa: PTH103, PTH105, PTH106, PTH108, PTH110, PTH116, PTH123, PTH208

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
from collections.abc import Sequence
from typing import Final

from triomq.store.disk.kernel_sync import KernelSync

Data = bytes | bytearray | memoryview

_READ_AHEAD_BYTES: Final = 4 * 1024 * 1024
_ONLY_FROM_MEMORY: Final[int] = getattr(os, "RWF_NOWAIT", 0)
PAGE_BYTES = 4096


class Files:
    """Everything the store asks of the operating system. Errors are OSError as raised by the call."""

    def open(self, path: str, *, write: bool = True) -> int:
        return os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC)

    def create(self, path: str, size_bytes: int) -> int:
        """Make a file (or take an existing one) and give it its full size, without allocating blocks."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(fd).st_size != size_bytes:
                os.ftruncate(fd, size_bytes)
        except OSError:
            os.close(fd)
            raise
        return fd

    def close(self, fd: int) -> None:
        os.close(fd)

    def duplicate(self, fd: int) -> int:
        """A second descriptor of the same open file: for a thread, whose use must outlive a close."""
        return os.dup(fd)

    def pwrite(self, fd: int, data: Data, at: int) -> None:
        """Write all of `data`. After an error any part of it may have been written."""
        written = os.pwrite(fd, data, at)
        if written == len(data):
            return
        view = memoryview(data)
        while written < len(view):
            step = os.pwrite(fd, view[written:], at + written)
            if step == 0:
                raise OSError(errno.EIO, "a write made no progress")
            written += step

    def pread(self, fd: int, size_bytes: int, at: int) -> bytes:
        """Up to `size_bytes`; fewer only at the end of the file."""
        data = os.pread(fd, size_bytes, at)
        if len(data) == size_bytes or not data:
            return data
        parts = [data]
        have = len(data)
        while have < size_bytes:
            more = os.pread(fd, size_bytes - have, at + have)
            if not more:
                break
            parts.append(more)
            have += len(more)
        return b"".join(parts)

    def pread_into(self, fd: int, places: Sequence[memoryview], at: int, *, wait: bool = True) -> int:
        """Fill the places one after the other; bytes read. Without `wait` only what is in memory: 0 when its first byte
        is not, or when this system cannot tell. With it the disk is also asked for what may be wanted next."""
        if wait:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(fd, at, _READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
            return os.preadv(fd, places, at)
        try:
            return os.preadv(fd, places, at, _ONLY_FROM_MEMORY) if _ONLY_FROM_MEMORY else 0
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                return 0
            raise

    def datasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def kernel_sync(self) -> KernelSync | None:
        """`datasync` without a thread, where the kernel has that and no subclass has its own."""
        return KernelSync.open() if type(self).datasync is Files.datasync else None

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_filesystem(self, path: str) -> None:
        """Everything written to the file system that `path` is on, names included: syncfs, or sync where there is
        none. Raises OSError as fdatasync would."""
        import ctypes

        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            os.sync()
            return
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if syncfs(fd) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), path)
        finally:
            os.close(fd)

    def truncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def allocate(self, fd: int, at: int, size_bytes: int) -> None:
        """Reserve blocks (warm-up). Raises ENOSPC when there are not enough."""
        os.posix_fallocate(fd, at, size_bytes)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def next_data(self, fd: int, at: int) -> int:
        """Offset of the next byte at or behind `at` that is not in a hole, -1 when there is none. A file system without
        holes answers `at`."""
        try:
            return os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return -1
            return at if at < os.fstat(fd).st_size else -1

    def map_read(self, fd: int, size_bytes: int) -> mmap.mmap:
        return mmap.mmap(fd, size_bytes, access=mmap.ACCESS_READ)

    def map_private(self, fd: int, size_bytes: int) -> mmap.mmap:
        """Writable in memory only; untouched pages show the file."""
        return mmap.mmap(fd, size_bytes, access=mmap.ACCESS_COPY)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def path_size(self, path: str) -> int:
        return os.stat(path).st_size

    def allocated_bytes(self, path: str) -> int:
        """What of it is no hole, in whole blocks."""
        return os.stat(path).st_blocks * 512

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def list_directory(self, path: str) -> list[str]:
        """Names in it, sorted; an absent directory is empty."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def make_directories(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; one that is not empty stays."""
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT, errno.EEXIST):
                raise

    def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def lock(self, fd: int) -> bool:
        """Lock byte 0 against other processes (as Java's FileChannel does) and the file against other descriptors of
        this one; False when somebody has it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def disk_usage_ratio(self, path: str) -> float:
        """Used part of what this process may use of the file system (0..1), -1.0 when the system does not say.

        What is reserved for the superuser or by a quota counts as neither used nor free (RocketMQ:
        UtilAll.getDiskPartitionSpaceUsedPercent).
        """
        try:
            usage = shutil.disk_usage(path)
        except OSError:
            return -1.0
        usable = usage.used + usage.free
        return usage.used / usable if usable else -1.0

    def physical_memory_bytes(self) -> int:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class UnsyncedFiles(Files):
    """Files of which nothing waits for the disk, for stores that are gone with the test that made them. A process that
    dies loses nothing by it, only a machine does."""

    def datasync(self, fd: int) -> None:
        return

    def sync_directory(self, path: str) -> None:
        return

    def sync_filesystem(self, path: str) -> None:
        return
