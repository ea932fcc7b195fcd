"""The only place that calls the operating system for the store.

Stateless: descriptors and paths in, bytes out; so threads may call its methods too. The store receives one object at
construction; tests pass one that records writes, tears them, or refuses them (ENOSPC, EIO).

All writing uses `pwrite`, all files are created sparse at full size, and mappings are read-only or private: a full disk
is then an OSError and never a SIGBUS. `datasync` is fdatasync; `mmap.flush` is never used, as it holds the
interpreter's lock. A new name survives a power loss only after `sync_directory`.
"""

# Plain os calls on text paths: this module replaces them for its callers, which keep paths as text.
# ruff: noqa: PTH103, PTH105, PTH106, PTH108, PTH110, PTH116, PTH120, PTH123, PTH208

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import resource
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from triomq.store.disk.kernel_sync import KernelSync

Data = bytes | bytearray | memoryview

_READ_AHEAD_BYTES: Final = 4 * 1024 * 1024
_ONLY_FROM_MEMORY: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_DISCARDED_BYTES: Final = 64 * 1024
_MOST_DISCARDED: Final = 256
PAGE_BYTES = 4096
OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
TEMPORARY: Final = (errno.ENOSPC, errno.EDQUOT, *OUT_OF_DESCRIPTORS)
"""Errors that say nothing about the disk's health: the same call may succeed later."""


def _does_syncfs_tell(system: str, release: str) -> bool:
    """Return whether syncfs reports failed writes: Linux does since 5.8."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return system == "linux" and found is not None and (int(found[1]), int(found[2])) >= (5, 8)


SYNCFS_TELLS: Final = _does_syncfs_tell(sys.platform, os.uname().release)
"""Whether syncfs reports every write that failed since its descriptor was opened, also of files that were closed."""


class Files:
    """All system calls of the store. Errors are OSError as raised by the call."""

    def open(self, path: str, *, write: bool = True) -> int:
        return os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC)

    def create(self, path: str, size_bytes: int) -> int:
        """Create or open a file, and set its full size without allocating blocks. Return a descriptor."""
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
        """Return a second descriptor of the same open file, for a thread that outlives a close of the first."""
        return os.dup(fd)

    def pwrite(self, fd: int, data: Data, at: int) -> None:
        """Write all of `data`. After an error any part of it may have been written."""
        try:
            written = os.pwrite(fd, data, at)
            if written == len(data):
                return
            view = memoryview(data)
            while written < len(view):
                step = os.pwrite(fd, view[written:], at + written)
                if step == 0:
                    raise OSError(errno.EIO, "a write made no progress")
                written += step
        except OSError as error:
            error.filename = _path_of(fd)
            raise

    def pread(self, fd: int, size_bytes: int, at: int) -> bytes:
        """Return `size_bytes` bytes; fewer only at the end of the file."""
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
        """Fill the places in order. Return the number of bytes read.

        With `wait`, also request read-ahead of the next bytes. Without it, read only bytes that are in memory: 0 if the
        first byte is not, or if this system cannot tell.
        """
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

    def is_in_memory(self, fd: int, at: int) -> bool:
        """Return whether the byte at `at` is in the page cache, or this system, or its file system, cannot tell."""
        if not _ONLY_FROM_MEMORY:
            return True
        try:
            os.preadv(fd, (bytearray(1),), at, _ONLY_FROM_MEMORY)
        except OSError as error:
            return error.errno != errno.EAGAIN
        return True

    def read_into_memory(self, runs: Sequence[tuple[int, int, int]]) -> None:
        """Read what the page cache lacks of these runs of bytes (descriptor, position, size). Raises OSError."""
        if hasattr(os, "posix_fadvise"):
            for fd, at, size_bytes in runs:  # the disk has all of them before the first is waited for
                os.posix_fadvise(fd, at, size_bytes, os.POSIX_FADV_WILLNEED)
        # The bytes themselves are of no use: one small buffer takes all of them, and stays in the processor's cache.
        buffer = memoryview(bytearray(_DISCARDED_BYTES))
        for fd, at, size_bytes in runs:
            for begin in range(at, at + size_bytes, _MOST_DISCARDED * _DISCARDED_BYTES):
                count = -(-(at + size_bytes - begin) // _DISCARDED_BYTES)
                os.preadv(fd, [buffer] * min(count, _MOST_DISCARDED), begin)

    def datasync(self, fd: int) -> None:
        try:
            os.fdatasync(fd)
        except OSError as error:
            error.filename = _path_of(fd)
            raise

    def kernel_sync(self) -> KernelSync | None:
        """Return a `datasync` without a thread, or None if the kernel lacks it or a subclass overrides `datasync`."""
        return KernelSync.open() if type(self).datasync is Files.datasync else None

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory survive a power loss."""
        fd = _open_directory(path)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def open_directory(self, path: str) -> int:
        """Return a descriptor of a directory."""
        return _open_directory(path)

    def sync_filesystem(self, path: str, held_fd: int = -1) -> None:
        """Sync all data and names written to the file system of `path`: syncfs, or sync where that is missing.

        `held_fd` is a descriptor of `path`: of the writes that fail, Linux reports those that failed since it was
        opened (SYNCFS_TELLS). Raises OSError as fdatasync would, and without a free descriptor.
        """
        import ctypes

        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            os.sync()
            return
        fd = held_fd if held_fd >= 0 else _open_directory(path)
        try:
            if syncfs(fd) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), path)
        finally:
            if fd != held_fd:
                os.close(fd)

    def truncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def allocate(self, fd: int, at: int, size_bytes: int) -> None:
        """Reserve blocks (warm-up). Raises OSError (ENOSPC) if there are not enough."""
        os.posix_fallocate(fd, at, size_bytes)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def is_linked(self, fd: int) -> bool:
        """Return whether an open file still has a name."""
        return os.fstat(fd).st_nlink > 0

    def descriptor_limit(self) -> int:
        """Return the number of descriptors that this process may have."""
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return soft if soft != resource.RLIM_INFINITY else 1 << 20

    def next_data(self, fd: int, at: int) -> int:
        """Return the offset of the next byte at or after `at` that is not in a hole, or -1 if there is none. On a file
        system without holes that is `at`."""
        try:
            return os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return -1
            return at if at < os.fstat(fd).st_size else -1

    def map_read(self, fd: int, size_bytes: int) -> mmap.mmap:
        return mmap.mmap(fd, size_bytes, access=mmap.ACCESS_READ)

    def map_private(self, fd: int, size_bytes: int) -> mmap.mmap:
        """Return a mapping that is writable in memory only; unchanged pages show the file."""
        return mmap.mmap(fd, size_bytes, access=mmap.ACCESS_COPY)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def path_size(self, path: str) -> int:
        return os.stat(path).st_size

    def allocated_bytes(self, path: str) -> int:
        """Return the bytes of the file's allocated blocks, without holes."""
        return os.stat(path).st_blocks * 512

    def size_and_time(self, path: str) -> tuple[int, int]:
        """Return the size in bytes and the modification time in ns of a file or directory."""
        status = os.stat(path)
        return status.st_size, status.st_mtime_ns

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; a missing directory is empty."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def list_kinds(self, path: str) -> list[tuple[str, bool | None]]:
        """Return the names in a directory, sorted, and of each whether it is a directory; None for what is neither that
        nor a regular file, nor a link to one. A missing directory is empty."""
        try:
            with os.scandir(path) as found:
                return sorted((each.name, _is_directory(each)) for each in found)
        except FileNotFoundError:
            return []

    def make_directories(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def make_lasting_directories(self, path: str) -> None:
        """Create a directory like `make_directories`, so that a power loss cannot take any new name on its path."""
        made: list[str] = []
        at = path
        while at and not self.exists(at):
            made.append(at)
            at = os.path.dirname(at)
        self.make_directories(path)
        for directory in made:
            with suppress(PermissionError):  # a parent that may be searched but not read
                self.sync_directory(os.path.dirname(directory) or ".")

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        """Remove a directory if it exists and is empty. A link to one stays, and so does one that is mounted."""
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EBUSY):
                raise

    def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def lock(self, fd: int) -> bool:
        """Lock byte 0 against other processes (as Java's FileChannel does) and the file against other descriptors of
        this process. Return False if either is locked already."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def lock_directory(self, path: str) -> int:
        """Lock a directory against other descriptors of it, in any process. Return a descriptor that holds the lock, or
        -1 if it is locked already. On a file system that cannot lock directories, the descriptor holds nothing."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP):
                return fd
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return -1
            raise
        return fd

    def real_path(self, path: str) -> str:
        """Return the path without symbolic links."""
        return os.path.realpath(path)

    def disk_usage_ratio(self, path: str) -> float:
        """Return the used part (0..1) of the space that this process may use of the file system, or -1.0 if unknown.

        Space reserved for the superuser or by a quota counts as neither used nor free (RocketMQ:
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


def no_access(error: PermissionError) -> str:
    """Return a sentence about a file or directory that the system does not let this process use, and the cure."""
    return (
        f"{error.filename or 'the store'}: {error.strerror or error}: this process runs as user {os.geteuid()}; give "
        "that user the files of the store (chown -R), or start it as the user that owns them"
    )


def _is_directory(entry: os.DirEntry[str]) -> bool | None:
    """Return the kind of a directory's entry as `list_kinds` does; of most the system tells it with the name."""
    try:
        return entry.is_dir() or (False if entry.is_file() else None)
    except OSError:  # a link that may not be followed, or leads in a circle
        return None


def _path_of(fd: int) -> str | None:
    """Return the path of an open file, for the message of an error; the system does not name it for a descriptor."""
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:
        return None


def _open_directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


class UnsyncedFiles(Files):
    """Files that never wait for the disk, for stores that last only as long as the test that created them. Data then
    survives the end of the process, but not a power loss."""

    def datasync(self, fd: int) -> None:
        return

    def sync_directory(self, path: str) -> None:
        return

    def sync_filesystem(self, path: str, held_fd: int = -1) -> None:
        return
