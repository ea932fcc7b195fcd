"""A disk that loses what was not synced when its power fails, and that can be slow, full or failing.

The files are real ones, in a directory of the run. For every page that is written, the disk remembers what the page
held at the last sync of its file; a power failure puts some of the sectors of such pages back. Names (new files,
renames, removals) become certain with a sync of their directory, or of the new file itself; a power failure undoes some
of the others, the last first, as a journaling file system does. A sync that fails leaves its pages in memory only, and
they count as clean, as they do on Linux: a later sync of the file succeeds without them, and they are gone when memory
is needed (`evict`).
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import trio

from triomq.store.disk.files import Data, Files
from triomq.store.disk.kernel_sync import KernelSync

PAGE_BYTES = 4096
SECTOR_BYTES = 512
_STEP_NS = 1_000_000_000
_ZEROS = bytes(PAGE_BYTES)


class Disk:
    """The disk of one host. It outlives the processes that use it, each through a `DiskFiles` of its own."""

    def __init__(self, directory: Path, choose: Random) -> None:
        self.directory = directory
        self.choose = choose
        self.is_slow = False
        self.is_full = False
        self.full_since = 0.0
        self.is_failing = False
        self.failed_pages: dict[int, dict[int, bytes]] = {}
        """Pages whose sync failed, as `synced_pages`."""
        self.synced_pages: dict[int, dict[int, bytes]] = {}
        """For each file (inode): page number -> its bytes at the last sync."""
        self.is_log_synced = True
        """Whether no byte of the commit log waits for a sync."""
        self.names: dict[str, list[tuple[str, Callable[[], None]]]] = {}
        """For each directory: (path, what undoes the change), oldest first."""
        self._times: dict[int, int] = {}
        """For each file and directory (inode): when it was changed, in steps of a clock that each change moves."""
        self._steps = 0
        self._kept = directory / "undo"
        self._kept.mkdir(parents=True)
        self._numbers = 0
        self._copy = directory.parent / f"{directory.name}-copy"
        self._unlinked: tuple[str, str] | None = None

    def changed(self, what: int | str) -> None:
        """Move the clock of the modification times, and set that of a descriptor or path."""
        self._steps += 1
        self._times[os.stat(what).st_ino] = self._steps * _STEP_NS

    def size_and_time(self, path: str) -> tuple[int, int]:
        """Return what the system calls size and modification time; changes by others have their real time."""
        status = os.stat(path)
        return status.st_size, self._times.get(status.st_ino, status.st_mtime_ns)

    # What administrators and accidents do to files, while nothing runs on them.

    def copy(self) -> None:
        """Make a copy of the store, for `restore`."""
        shutil.copytree(self.directory / "store", self._copy, dirs_exist_ok=True)

    def restore(self) -> None:
        """Go back to the copy."""
        shutil.rmtree(self.directory / "store")
        shutil.copytree(self._copy, self.directory / "store")
        self._times.clear()
        self.synced_pages.clear()
        self.failed_pages.clear()
        self.names.clear()

    def lose_queues(self) -> None:
        shutil.rmtree(self.directory / "store" / "consumequeue", ignore_errors=True)
        self.names = {path: undo for path, undo in self.names.items() if "/consumequeue" not in path}

    def unlink_newest_log_file(self) -> bool:
        """Take the name of the log file that is being written, under the running broker. Return False without one."""
        files = sorted((self.directory / "store" / "commitlog").glob("0*"))
        if not files:
            return False
        path = str(files[0])
        for file in files:  # files are made in advance
            if os.stat(file).st_blocks:
                path = str(file)
        backup = f"{self._copy}-file"
        shutil.copyfile(path, backup)
        self._unlinked = backup, path
        os.unlink(path)
        return True

    def replace_unlinked(self) -> None:
        """Put a copy of the file in its place, with what it held when it lost its name."""
        if self._unlinked is not None:
            backup, path = self._unlinked
            shutil.copyfile(backup, path)
            self._unlinked = None

    def evict(self) -> None:
        """Drop from memory what a failed sync left there only."""
        for path in self._files():
            pages = self.failed_pages.get(os.stat(path).st_ino)
            if pages:
                self._put_back(path, pages, survive=0.0)
        self.failed_pages.clear()

    def keep(self, path: str) -> str:
        """Keep the content of a file that is about to be removed or replaced. Return its path from now on."""
        self._numbers += 1
        kept = str(self._kept / str(self._numbers))
        os.link(path, kept)
        return kept

    def power_failed(self) -> None:
        """Become what is found when the power returns."""
        self.evict()
        for path in self._files():
            pages = self.synced_pages.get(os.stat(path).st_ino)
            if pages:
                self._put_back(path, pages)
        self.synced_pages.clear()
        for directory in sorted(self.names, reverse=True):
            changes = self.names[directory]
            for _, undo in reversed(changes[self.choose.randint(0, len(changes)) :]):
                undo()
        self.names.clear()

    def _files(self) -> list[str]:
        found = (os.path.join(root, name) for root, _, names in os.walk(self.directory) for name in names)
        return sorted(path for path in found if not path.startswith(str(self._kept)))

    def _put_back(self, path: str, pages: dict[int, bytes], survive: float | None = None) -> None:
        if survive is None:
            survive = self.choose.choice((0.0, 0.5, 0.9, 1.0))
        size = os.path.getsize(path)
        with open(path, "r+b", buffering=0) as file:
            for page, old in sorted(pages.items()):
                for at in range(0, PAGE_BYTES, SECTOR_BYTES):
                    if page * PAGE_BYTES + at < size and self.choose.random() >= survive:
                        file.seek(page * PAGE_BYTES + at)
                        file.write(old[at : min(at + SECTOR_BYTES, size - page * PAGE_BYTES)])

    async def offload(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run what waits for the disk: it takes a while, in which others continue."""
        longest = 1.5 if self.is_slow else 0.3 if self.choose.random() < 0.3 else 0.01
        await trio.sleep(self.choose.random() * longest)
        return function(*arguments)


class DiskFiles(Files):
    """The system calls of one process. Once the process is dead, nothing that its code still does reaches the disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.is_dead = False
        self.fuse = -1
        """The number of writes after which the process dies, in the middle of the last one; below 0: it does not."""
        self.slips = -1
        """The number of writes of log and queues until one raises what no system call does; below 0: none."""
        self.on_burnt: Callable[[], None] = lambda: None

    def _check(self, *, needs_space: bool = False) -> None:
        if self.is_dead:
            raise OSError(errno.EIO, "the process is dead")
        if needs_space and self._disk.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def _changed(self, path: str, undo: Callable[[], None]) -> None:
        self._disk.changed(os.path.dirname(path))
        self._disk.names.setdefault(os.path.dirname(path), []).append((path, undo))

    def _remember(self, fd: int, at: int, size_bytes: int) -> None:
        """Keep the pages as they are on the disk, unless older bytes of them are kept."""
        pages = self._disk.synced_pages.setdefault(os.fstat(fd).st_ino, {})
        if not pages and "/commitlog/" in os.readlink(f"/proc/self/fd/{fd}"):
            self._disk.is_log_synced = False
        for page in range(at // PAGE_BYTES, (at + size_bytes - 1) // PAGE_BYTES + 1):
            if page not in pages:
                pages[page] = os.pread(fd, PAGE_BYTES, page * PAGE_BYTES).ljust(PAGE_BYTES, b"\0")

    def create(self, path: str, size_bytes: int) -> int:
        self._check(needs_space=True)
        is_new = not os.path.exists(path)
        fd = super().create(path, size_bytes)
        if is_new:
            self._disk.changed(fd)
            self._changed(path, lambda: _remove(path))
        return fd

    def pwrite(self, fd: int, data: Data, at: int) -> None:
        self._check(needs_space=True)
        if self.slips >= 0 and self._is_of_messages(fd):
            self.slips -= 1
            if self.slips < 0:
                raise RuntimeError("an error that nobody foresaw")
        if len(data):
            self._remember(fd, at, len(data))
        self._disk.changed(fd)
        if self.fuse == 0:
            self._write_a_part(fd, bytes(data), at)
            self.is_dead = True
            self.on_burnt()
            raise OSError(errno.EIO, "the process died in this write")
        self.fuse -= 1
        super().pwrite(fd, data, at)

    @staticmethod
    def _is_of_messages(fd: int) -> bool:
        path = os.readlink(f"/proc/self/fd/{fd}")
        return "/commitlog/" in path or "/consumequeue/" in path

    def _write_a_part(self, fd: int, data: bytes, at: int) -> None:
        """Write up to a page boundary: between pages a killed process leaves the kernel."""
        ends = [at, *range((at // PAGE_BYTES + 1) * PAGE_BYTES, at + len(data), PAGE_BYTES), at + len(data)]
        super().pwrite(fd, data[: self._disk.choose.choice(ends) - at], at)

    def datasync(self, fd: int) -> None:
        self._check()
        pages = self._disk.synced_pages.pop(inode := os.fstat(fd).st_ino, None)
        if self._disk.is_failing:
            failed = self._disk.failed_pages.setdefault(inode, {})
            for page, old in (pages or {}).items():
                failed.setdefault(page, old)
            raise OSError(errno.EIO, "Input/output error")
        failed = self._disk.failed_pages.get(inode, {})
        for page in pages or ():
            failed.pop(page, None)  # it was written again as a whole
        path = os.readlink(f"/proc/self/fd/{fd}")
        if "/commitlog/" in path:
            self._disk.is_log_synced = True
        changes = self._disk.names.get(os.path.dirname(path), [])
        for number, (changed, _) in enumerate(changes):
            if changed == path:
                del changes[: number + 1]
                break

    def kernel_sync(self) -> KernelSync | None:
        return None

    def is_in_memory(self, fd: int, at: int) -> bool:
        return not self._disk.is_slow  # what the real page cache holds differs from run to run

    def sync_directory(self, path: str) -> None:
        self._check()
        self._disk.names.pop(path.rstrip("/"), None)

    def sync_filesystem(self, path: str, held_fd: int = -1) -> None:
        self._check()
        self._disk.synced_pages.clear()
        self._disk.names.clear()

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._check()
        size = os.fstat(fd).st_size
        at = size_bytes
        while at < size and (at := self.next_data(fd, at)) >= 0:
            self._remember(fd, at, 1)
            at = (at // PAGE_BYTES + 1) * PAGE_BYTES
        super().truncate(fd, size_bytes)
        self._disk.changed(fd)

    def allocate(self, fd: int, at: int, size_bytes: int) -> None:
        self._check(needs_space=True)

    def make_directories(self, path: str) -> None:
        self._check()
        made: list[str] = []
        at = path
        while not os.path.exists(at):
            made.append(at)
            at = os.path.dirname(at)
        super().make_directories(path)
        for directory in reversed(made):
            self._disk.changed(directory)
            self._changed(directory, partial(shutil.rmtree, directory, ignore_errors=True))

    def rename(self, source: str, target: str) -> None:
        self._check()
        moved = self._disk.keep(source)
        replaced = self._disk.keep(target) if os.path.exists(target) else None
        super().rename(source, target)

        def undo() -> None:
            _remove(target)
            if replaced is not None:
                _link(replaced, target)
            if not os.path.exists(source):
                _link(moved, source)

        self._changed(target, undo)

    def unlink(self, path: str) -> None:
        self._check()
        kept = self._disk.keep(path)
        super().unlink(path)

        def undo() -> None:
            if not os.path.exists(path):
                _link(kept, path)

        self._changed(path, undo)

    def size_and_time(self, path: str) -> tuple[int, int]:
        return self._disk.size_and_time(path)

    def disk_usage_ratio(self, path: str) -> float:
        return 0.99 if self._disk.is_full else 0.1

    def physical_memory_bytes(self) -> int:
        return 8 << 30


def _link(kept: str, path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.link(kept, path)


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)
