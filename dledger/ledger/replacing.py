"""Replacing a whole ledger by one that begins with another entry, with one rename.

    <directory>/reset-<20 digits>[.tmp]    the first data file of the new ledger; in the data directory, if that is
                                           elsewhere

It is on disk under this name before any old file is removed; a start that finds it completes the change.
"""

from __future__ import annotations

from triomq.dledger.ledger import entry_format
from triomq.dledger.wire.bodies import Entry
from triomq.store.disk.files import Files
from triomq.store.disk.layout import file_name, start_offset

_RESET = "reset-"


def prepare(files: Files, directory: str, data_directory: str, file_size_bytes: int, entry: Entry) -> None:
    """Write the first file of the new ledger. Raises OSError with the ledger as before."""
    start = entry.pos - entry.pos % file_size_bytes
    home = _home(directory, data_directory)
    path = f"{home}/{_RESET}{file_name(start)}"
    fd = files.create(f"{path}.tmp", file_size_bytes)
    try:
        files.pwrite(fd, entry_format.encode(entry), entry.pos - start)
        files.datasync(fd)
    finally:
        files.close(fd)
    files.rename(f"{path}.tmp", path)
    files.sync_directory(home)


def finish(files: Files, directory: str, data_directory: str) -> None:
    """Complete a replacement that has its name, and remove one that has not. Raises OSError."""
    home = _home(directory, data_directory)
    for name in files.list_directory(home):
        if not name.startswith(_RESET):
            continue
        path = f"{home}/{name}"
        if start_offset(name.removeprefix(_RESET)) is None:
            files.unlink(path)
            continue
        for part in (f"{directory}/index", data_directory):
            for old in reversed(files.list_directory(part)):
                if start_offset(old) is not None:
                    files.unlink(f"{part}/{old}")
        sync_directories(files, directory, data_directory)
        files.rename(path, f"{data_directory}/{name.removeprefix(_RESET)}")
        sync_directories(files, directory, data_directory)


def _home(directory: str, data_directory: str) -> str:
    """Return where the new file waits for its name: in the file system of the data files, since a rename cannot leave
    it, and beside them if possible, since RocketMQ refuses a data directory with other files."""
    return directory if data_directory.startswith(f"{directory}/") else data_directory


def sync_directories(files: Files, directory: str, data_directory: str) -> None:
    """Bring the names of all files of a ledger to disk. Raises OSError."""
    for path in (data_directory, f"{directory}/index", directory):
        files.sync_directory(path)
