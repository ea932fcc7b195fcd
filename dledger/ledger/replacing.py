"""Replacing a whole ledger by one that begins with another entry, with one rename.

    <directory>/reset-<20 digits>[.tmp]    the first data file of the new ledger; where it will be, if data files are
                                           elsewhere, or in several directories

It is on disk under this name before any old file is removed; a start that finds it completes the change.
"""

from __future__ import annotations

from triomq.dledger.ledger import entry_format
from triomq.dledger.wire.bodies import Entry
from triomq.store.disk.files import Files
from triomq.store.disk.layout import file_name, is_offset_name
from triomq.store.disk.listing import our_files
from triomq.store.disk.log_directories import LogDirectories

_RESET = "reset-"
_BEGUN = ".tmp"


def prepare(files: Files, directory: str, data: LogDirectories, file_size_bytes: int, entry: Entry) -> None:
    """Write the first file of the new ledger. Raises OSError with the ledger as before."""
    number = entry.pos // file_size_bytes
    start = number * file_size_bytes
    home = _home(directory, data, data.for_file(number))
    path = f"{home}/{_RESET}{file_name(start)}"
    fd = files.create(path + _BEGUN, file_size_bytes)
    try:
        files.pwrite(fd, entry_format.encode(entry), entry.pos - start)
        files.datasync(fd)
    finally:
        files.close(fd)
    files.rename(path + _BEGUN, path)
    files.sync_directory(home)


def finish(files: Files, directory: str, data: LogDirectories) -> None:
    """Complete a replacement that has its name, and remove one that has not. Raises OSError."""
    for home, name in waiting(files, directory, data):
        path = f"{home}/{name}"
        if name.endswith(_BEGUN):
            files.unlink(path)
            continue
        for part in (f"{directory}/index", *data.every):
            for old in reversed(our_files(files, part, is_offset_name, tells=False)):
                files.unlink(f"{part}/{old}")
        sync_directories(files, directory, data)
        files.rename(path, f"{_target(directory, data, home)}/{name.removeprefix(_RESET)}")
        sync_directories(files, directory, data)


def waiting(files: Files, directory: str, data: LogDirectories) -> list[tuple[str, str]]:
    """Return directory and name of each replacement that was not completed."""
    return [
        (home, name)
        for home in dict.fromkeys((directory, *data.every))
        for name in our_files(files, home, _is_reset, tells=False)
    ]


def _is_reset(name: str) -> bool:
    return name.startswith(_RESET) and is_offset_name(name.removeprefix(_RESET).removesuffix(_BEGUN))


def _home(directory: str, data: LogDirectories, target: str) -> str:
    """Return where the new file waits for its name: in the file system of its target, since a rename cannot leave it,
    and beside the data files if possible, since RocketMQ refuses a data directory with other files."""
    return directory if data.every == [target] and target.startswith(f"{directory}/") else target


def _target(directory: str, data: LogDirectories, home: str) -> str:
    """Return the data directory into which a file that waits in `home` is renamed. It may wait beside the only data
    directory that there was, and belongs to that one although others may have been added since."""
    if home != directory or home in data.every:
        return home
    return next((path for path in data.every if path.startswith(f"{directory}/")), data.paths[0])


def sync_directories(files: Files, directory: str, data: LogDirectories) -> None:
    """Bring the names of all files of a ledger to disk; a read-only directory may be absent. Raises OSError."""
    for path in (*data.every, f"{directory}/index", directory):
        if files.exists(path):
            files.sync_directory(path)
