"""The archive mark: up to which physical offset somebody has put the log into an archive.

    <root>/config/archived.json    {"archivedUntil": 3221225472, "archive": "/archive/old", "writtenAtMs": 1}

The archiver (`mqpipeline archive --store`) writes it, in another process; retention reads it, and with
archiveBeforeDelete deletes nothing at or behind the mark. The file is whole or absent: it is written beside, synced and
renamed. Nothing is kept in memory here.
"""

from __future__ import annotations

import json

from triomq.store.disk.files import Files

_STAGED_SUFFIX = ".staged"


def read_mark(files: Files, path: str) -> int | None:
    """The mark, None when there is none yet. Raises OSError, and ValueError for a file that holds no mark."""
    try:
        text = files.read_file(path)
    except FileNotFoundError:
        return None
    try:
        until = json.loads(text)["archivedUntil"]
    except (ValueError, TypeError, KeyError):
        until = None
    if type(until) is not int or until < 0:
        raise ValueError(f"{path}: no number archivedUntil in it; run the archive job again or remove the file")
    return until


def write_mark(files: Files, path: str, until: int, *, archive: str, now_ms: int) -> None:
    """What is below `until` must be safe already. Blocks for two syncs. Raises OSError."""
    data = json.dumps({"archivedUntil": until, "archive": archive, "writtenAtMs": now_ms}).encode()
    directory = path.rpartition("/")[0]
    files.make_directories(directory)
    staged = path + _STAGED_SUFFIX
    fd = files.create(staged, len(data))
    try:
        files.pwrite(fd, data, 0)
        files.datasync(fd)
    finally:
        files.close(fd)
    files.rename(staged, path)
    files.sync_directory(directory)
