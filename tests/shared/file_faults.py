"""Files that note each call and fail the calls that a test chooses: a full disk, a broken one, a process that ends."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from triomq.store.disk.files import Files

FULL: Final = errno.ENOSPC
BROKEN: Final = errno.EIO
WRITES: Final = ("create", "pwrite")
SYNCS: Final = ("datasync", "sync_directory", "sync_filesystem")

_OPENING: Final = ("open", "create", "duplicate", "open_directory", "lock_directory")
_NOTED: Final = (
    *_OPENING,
    *SYNCS,
    *("close", "pwrite", "pread", "next_data", "truncate", "allocate", "map_read", "map_private"),
    *("list_kinds", "read_file", "make_directories", "rename", "unlink"),
)


class Call(NamedTuple):
    """A call of `name` on `path`, for a descriptor that of its file. `size_bytes` is that of a write, `thread` the
    identity of the thread that called."""

    name: str
    path: str
    size_bytes: int
    thread: int


@dataclass
class Fault:
    """What happens to calls; see `FaultyFiles.fail`. `raised` counts those that failed."""

    error: int | BaseException
    names: tuple[str, ...]
    where: str
    part: float
    after: int
    times: int | None
    raised: int = 0

    def meets(self, call: Call) -> bool:
        if call.name not in self.names or self.where not in call.path:
            return False
        self.after -= 1
        if self.after >= 0 or self.raised == self.times:
            return False
        self.raised += 1
        return True

    def error_of(self, call: Call) -> BaseException:
        if isinstance(self.error, BaseException):
            return self.error
        return OSError(self.error, os.strerror(self.error), call.path)


class FaultyFiles(Files):
    """Real files on a disk that misbehaves as told.

    `usage` is the used part of the disk (0..1) and `descriptors` the limit of open ones; None for those of the system.
    Without `does_sync`, a sync is only noted.
    """

    def __init__(self, *, usage: float | None = None, descriptors: int | None = None, does_sync: bool = True) -> None:
        self.usage = usage
        self.descriptors = descriptors
        self.does_sync = does_sync
        self.calls: list[Call] = []
        self.paths: dict[int, str] = {}
        """Descriptor -> path, of the open files."""
        self._faults: list[Fault] = []

    def fail(
        self,
        error: int | BaseException,
        *names: str,
        where: str = "",
        part: float = 0.0,
        after: int = 0,
        times: int | None = None,
    ) -> Fault:
        """Raise `error`, or OSError for an error number, from the methods `names` for paths that contain `where`.

        `part` of a write's bytes (0..1) is written first. The first `after` calls pass, and after `times` failures all.
        """
        if unknown := set(names).difference(_NOTED):
            raise ValueError(f"calls that are not noted: {unknown}")
        fault = Fault(error, names, where, part, after, times)
        self._faults.append(fault)
        return fault

    def mend(self) -> None:
        """Let every call succeed again."""
        self._faults.clear()

    def noted(self, *names: str, where: str = "") -> list[Call]:
        """Return the calls of these methods for paths that contain `where`, also those that failed."""
        if unknown := set(names).difference(_NOTED):
            raise ValueError(f"calls that are not noted: {unknown}")
        return [call for call in self.calls if call.name in names and where in call.path]

    def disk_usage_ratio(self, path: str) -> float:
        return super().disk_usage_ratio(path) if self.usage is None else self.usage

    def descriptor_limit(self) -> int:
        return super().descriptor_limit() if self.descriptors is None else self.descriptors

    def _call(self, name: str, at: int | str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        real = getattr(Files, name)
        path = at if isinstance(at, str) else self.paths.get(at, "")
        call = Call(name, path, len(arguments[0]) if name == "pwrite" else 0, threading.get_ident())
        self.calls.append(call)
        for fault in self._faults:
            if fault.meets(call):
                if fault.part and name == "pwrite":
                    real(self, at, bytes(arguments[0])[: int(call.size_bytes * fault.part)], arguments[1])
                raise fault.error_of(call)
        if name in SYNCS and not self.does_sync:
            return None
        if name == "close":  # first: another thread may be given the same number before this call has returned
            self.paths.pop(int(at), None)
        result = real(self, at, *arguments, **keywords)
        if name in _OPENING:
            self.paths[result] = path
        return result


def _noted(name: str) -> Any:
    def call(self: FaultyFiles, at: int | str, *arguments: Any, **keywords: Any) -> Any:
        return self._call(name, at, arguments, keywords)

    return call


for _name in _NOTED:
    setattr(FaultyFiles, _name, _noted(_name))
