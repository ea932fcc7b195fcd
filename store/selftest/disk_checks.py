"""Checks whether a directory's file system does what the store relies on: one check per property, each in its own file.

Every check receives the store's seam of system calls (`Files`), so that a test can pass a faulty one. A missing
property by which messages can be lost or read incorrectly is FAILED; one that costs only space or speed is a WARNING.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from triomq.store.disk.files import PAGE_BYTES, Files
from triomq.store.selftest.report import FILE_SYSTEM, SYNC, Finding, Outcome, percentile

Seconds = Callable[[], float]
"""A clock that only grows, in seconds (time.perf_counter)."""

_FILE_BYTES: Final = 4 * 1024 * 1024
_MARK: Final = b"the store relies on this" * 8
_MAX_SYNCS: Final = 2000
# Faster than any drive: an NVMe drive with a protected cache takes about 20 us.
_TOO_FAST_SECONDS: Final = 10e-6
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_REMOTE: Final = re.compile(r"nfs|cifs|smb|9p|fuse|ceph|gluster|afs")


def check_disk(files: Files, directory: Path, sync_seconds: float, seconds: Seconds) -> Iterator[Finding]:
    """Yield one Finding per property as soon as it is known. `sync_seconds` bounds the measurement of syncs."""
    yield _file_system(directory)
    for name, check in _CHECKS.items():
        path = str(directory / name.replace(" ", "-"))
        try:
            yield Finding(name, *check(files, path))
        except OSError as error:
            yield Finding(name, Outcome.FAILED, f"{error}")
    try:
        yield _sync(files, str(directory / SYNC), sync_seconds, seconds)
    except OSError as error:
        yield Finding(SYNC, Outcome.FAILED, f"{error}")
    kernel_sync = files.kernel_sync()
    if kernel_sync is None:
        yield Finding("kernel sync", Outcome.WARNING, "not available; each synchronous flush costs a thread's wake-up")
    else:
        kernel_sync.close()
        yield Finding("kernel sync", Outcome.OK, "the kernel syncs without a thread")


def file_system_of(directory: Path, mount_info: str) -> str:
    """Return the type of the file system that holds `directory` (absolute), from the text of /proc/self/mountinfo;
    "unknown" if no line fits."""
    found, length = "unknown", -1
    for line in mount_info.splitlines():
        head, separator, tail = line.partition(" - ")
        if not separator or len(head.split()) < 5:
            continue
        mount_point = Path(head.split()[4].replace("\\040", " "))
        if directory.is_relative_to(mount_point) and len(mount_point.parts) >= length:
            found, length = tail.split()[0], len(mount_point.parts)
    return found


def judge_file_system(kind: str) -> Finding:
    """Judge a file system type by what its syncs can guarantee."""
    if kind in _IN_MEMORY:
        return Finding(FILE_SYSTEM, Outcome.WARNING, f"{kind} is memory: nothing here survives a power failure")
    if _REMOTE.search(kind):
        detail = f"{kind} is remote: the server decides what a sync means, and locks may not hold between machines"
        return Finding(FILE_SYSTEM, Outcome.WARNING, detail)
    return Finding(FILE_SYSTEM, Outcome.OK, kind)


def _file_system(directory: Path) -> Finding:
    try:
        mount_info = Path("/proc/self/mountinfo").read_text("utf-8", "replace")
    except OSError:
        return Finding(FILE_SYSTEM, Outcome.OK, "unknown on this system")
    return judge_file_system(file_system_of(directory.resolve(), mount_info))


def _sparse_files(files: Files, path: str) -> tuple[Outcome, str]:
    fd = files.create(path, _FILE_BYTES)
    try:
        files.pwrite(fd, _MARK, _FILE_BYTES // 2)
        if files.pread(fd, len(_MARK), 0).strip(b"\0"):
            return Outcome.FAILED, "bytes that were never written are not zero"
        allocated = files.allocated_bytes(path)
    finally:
        files.close(fd)
    if allocated > _FILE_BYTES // 2:
        return Outcome.WARNING, "none here: each log file takes its full size at once"
    return Outcome.OK, "files take the space of what is written"


def _mapped_reads(files: Files, path: str) -> tuple[Outcome, str]:
    """Check that mappings show what pwrite wrote: the store reads through mappings."""
    fd = files.create(path, _FILE_BYTES)
    try:
        with files.map_read(fd, _FILE_BYTES) as mapping:
            before = mapping[PAGE_BYTES : PAGE_BYTES + len(_MARK)]
            files.pwrite(fd, _MARK, PAGE_BYTES)
            after = mapping[PAGE_BYTES : PAGE_BYTES + len(_MARK)]
    finally:
        files.close(fd)
    if before.strip(b"\0") or after != _MARK:
        return Outcome.FAILED, "a mapping does not show what was written; messages would be read wrong"
    return Outcome.OK, "a mapping shows each write at once"


def _preallocation(files: Files, path: str) -> tuple[Outcome, str]:
    fd = files.create(path, _FILE_BYTES)
    try:
        files.allocate(fd, 0, _FILE_BYTES)
    except OSError as error:
        return Outcome.WARNING, f"not available ({error}); warmMapedFileEnable has no effect"
    finally:
        files.close(fd)
    return Outcome.OK, "space can be reserved"


def _rename(files: Files, path: str) -> tuple[Outcome, str]:
    """Check that a rename replaces a file: a new version of a configuration file replaces the old one."""
    for name, data in ((path, b"old"), (f"{path}.tmp", b"new")):
        fd = files.create(name, len(data))
        try:
            files.pwrite(fd, data, 0)
            files.datasync(fd)
        finally:
            files.close(fd)
    files.rename(f"{path}.tmp", path)
    files.sync_directory(str(Path(path).parent))
    if files.exists(f"{path}.tmp") or files.read_file(path) != b"new":
        return Outcome.FAILED, "a renamed file does not replace the old one; configuration could be lost"
    return Outcome.OK, "a renamed file replaces the old one, and its directory syncs"


def _lock(files: Files, path: str) -> tuple[Outcome, str]:
    first = files.create(path, 4)
    second = files.open(path)
    try:
        if not files.lock(first):
            return Outcome.FAILED, "a new file cannot be locked"
        if files.lock(second):
            return Outcome.FAILED, "a lock does not keep a second one out: two brokers could open one store"
    finally:
        files.close(second)
        files.close(first)
    return Outcome.OK, "a lock keeps a second one out"


_CHECKS: Final[dict[str, Callable[[Files, str], tuple[Outcome, str]]]] = {
    "sparse files": _sparse_files,
    "mapped reads": _mapped_reads,
    "preallocation": _preallocation,
    "rename": _rename,
    "lock": _lock,
}


def _sync(files: Files, path: str, sync_seconds: float, seconds: Seconds) -> Finding:
    """Write a page and sync it, repeatedly, as a producer that waits for each message does."""
    fd = files.create(path, _FILE_BYTES)
    page = bytes(PAGE_BYTES)
    took: list[float] = []
    end = seconds() + sync_seconds
    try:
        while len(took) < _MAX_SYNCS and (not took or seconds() < end):
            files.pwrite(fd, page, len(took) * PAGE_BYTES % _FILE_BYTES)
            began = seconds()
            files.datasync(fd)
            took.append(seconds() - began)
    finally:
        files.close(fd)
    took.sort()
    p50 = percentile(took, 50)
    p99 = percentile(took, 99)
    longest = took[-1]
    measured = f"fdatasync p50 {_ms(p50)}, p99 {_ms(p99)}, longest {_ms(longest)} ({len(took)} syncs)"
    if p50 < _TOO_FAST_SECONDS:
        return Finding(SYNC, Outcome.WARNING, f"{measured}: faster than any drive, so nothing may reach one")
    return Finding(SYNC, Outcome.OK, measured)


def _ms(value_seconds: float) -> str:
    return f"{value_seconds * 1000:.3f} ms"
