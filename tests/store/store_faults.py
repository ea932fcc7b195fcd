"""Files that record every call, so that any crash can be replayed."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

from triomq.store.disk.files import Data, Files

SECTOR_BYTES = 512


@dataclass
class Operation:
    kind: str  # create, write, truncate, sync, rename, unlink, sync_directory, make_directories
    path: str
    at: int = 0
    data: bytes = b""
    target: str = ""


@dataclass
class RecordingFiles(Files):
    """Performs every call and keeps a journal of them."""

    journal: list[Operation] = field(default_factory=list)
    _paths: dict[int, str] = field(default_factory=dict)

    def open(self, path: str, *, write: bool = True) -> int:
        fd = super().open(path, write=write)
        self._paths[fd] = path
        return fd

    def create(self, path: str, size_bytes: int) -> int:
        known = os.path.exists(path)
        fd = super().create(path, size_bytes)
        self._paths[fd] = path
        self.journal.append(Operation("truncate" if known else "create", path, size_bytes))
        return fd

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        super().close(fd)

    def duplicate(self, fd: int) -> int:
        second = super().duplicate(fd)
        self._paths[second] = self._paths[fd]
        return second

    def pwrite(self, fd: int, data: Data, at: int) -> None:
        super().pwrite(fd, data, at)
        self.journal.append(Operation("write", self._paths[fd], at, bytes(data)))

    def datasync(self, fd: int) -> None:
        self.journal.append(Operation("sync", self._paths[fd]))

    def truncate(self, fd: int, size_bytes: int) -> None:
        super().truncate(fd, size_bytes)
        self.journal.append(Operation("truncate", self._paths[fd], size_bytes))

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.journal.append(Operation("rename", source, target=target))

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.journal.append(Operation("unlink", path))

    def make_directories(self, path: str) -> None:
        super().make_directories(path)
        self.journal.append(Operation("make_directories", path))

    def sync_filesystem(self, path: str, held_fd: int = -1) -> None:
        known = {operation.path: "sync" for operation in self.journal if operation.kind in ("create", "write")}
        for operation in self.journal:
            if operation.kind == "make_directories":
                known[operation.path] = known[os.path.dirname(operation.path)] = "sync_directory"
        self.journal += [Operation(kind, path) for path, kind in known.items()]

    def sync_directory(self, path: str) -> None:
        self.journal.append(Operation("sync_directory", path))


def crash(journal: list[Operation], at: int, root: str, target: Path, choose: random.Random, survive: float) -> None:
    """Build in `target` a possible content of the disk of `root` after a power failure before operation `at`.

    Certain: what a sync of its file followed (data), what a sync of its directory followed (names). Of the rest, each
    write survives with probability `survive`, sometimes only some of its sectors; of unsynced names a first part of
    them in order. A file whose name did not survive is gone with its data.
    """
    operations = journal[:at]
    last_sync: dict[str, int] = {}
    last_directory_sync: dict[str, int] = {}
    for number, operation in enumerate(operations):
        if operation.kind == "sync":
            last_sync[operation.path] = number
        elif operation.kind == "sync_directory":
            last_directory_sync[operation.path] = number
    names_until = {
        directory: choose.randint(last_directory_sync.get(directory, 0), len(operations))
        for directory in sorted({os.path.dirname(operation.path) for operation in operations})
    }
    contents: dict[str, bytearray] = {}
    for number, operation in enumerate(operations):
        path = operation.path
        keeps_name = number < names_until[os.path.dirname(path)] or number < last_sync.get(path, 0)
        keeps_data = number < last_sync.get(path, -1) or choose.random() < survive
        if operation.kind == "create" and keeps_name:
            contents[path] = bytearray(operation.at)
        elif operation.kind == "unlink" and keeps_name:
            contents.pop(path, None)
        elif operation.kind == "rename" and keeps_name and path in contents:
            contents[operation.target] = contents.pop(path)
        elif path in contents and keeps_data:
            if operation.kind == "truncate":
                del contents[path][operation.at :]
                contents[path].extend(bytes(operation.at - len(contents[path])))
            elif operation.kind == "write":
                _write(contents[path], operation, number < last_sync.get(path, -1), choose)
    for path, data in contents.items():
        copy = target / os.path.relpath(path, root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)


def _write(content: bytearray, operation: Operation, is_synced: bool, choose: random.Random) -> None:
    data = operation.data
    end = operation.at + len(data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if is_synced or choose.random() < 0.6:
        content[operation.at : end] = data
        return
    for sector in range(operation.at // SECTOR_BYTES, (end - 1) // SECTOR_BYTES + 1):
        if choose.random() < 0.5:
            begin = max(operation.at, sector * SECTOR_BYTES)
            stop = min(end, (sector + 1) * SECTOR_BYTES)
            content[begin:stop] = data[begin - operation.at : stop - operation.at]


def replay_onto(files: RecordingFiles, root: str, target: Path, choose: random.Random) -> None:
    """Apply the beginning of a journal to a copy of the directory that it started from; some unsynced writes are
    dropped.
    """
    operations = files.journal[: choose.randint(0, len(files.journal))]
    last_sync = {operation.path: number for number, operation in enumerate(operations) if operation.kind == "sync"}
    for number, operation in enumerate(operations):
        path = target / Path(operation.path).relative_to(root)
        if operation.kind in ("create", "truncate"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("r+b" if path.exists() else "w+b") as file:
                file.truncate(operation.at)
        elif operation.kind == "write" and path.exists():
            if choose.random() < 0.8 or number < last_sync.get(operation.path, -1):
                with path.open("r+b") as file:
                    file.seek(operation.at)
                    file.write(operation.data)
        elif operation.kind == "rename" and path.exists():
            path.rename(target / Path(operation.target).relative_to(root))
        elif operation.kind == "unlink":
            path.unlink(missing_ok=True)
