"""The archive mark: the physical offset up to which the log is archived.

    <root>/config/archived.json    {"archivedUntil": 3221225472, "archive": "/archive/old", "writtenAtMs": 1}

The archiver (`mqpipeline archive --store`) writes it in another process. Retention reads it, and with
archiveBeforeDelete deletes nothing at or beyond the mark. The file is complete or absent: it is written under another
name, synced and renamed. This module keeps nothing in memory.
"""

from __future__ import annotations

import json

from triomq.store.disk.files import Files

_STAGED_SUFFIX = ".staged"


def read_mark(files: Files, path: str) -> int | None:
    """Return the mark, or None if there is none yet. Raises OSError, and ValueError for a file without a mark."""
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
    """Write the mark. The log below `until` must be safe in the archive. Blocks for two syncs. Raises OSError."""
    data = json.dumps({"archivedUntil": until, "archive": archive, "writtenAtMs": now_ms}).encode()
    directory = path.rpartition("/")[0]
    files.make_lasting_directories(directory)
    staged = path + _STAGED_SUFFIX
    fd = files.create(staged, len(data))
    try:
        files.pwrite(fd, data, 0)
        files.datasync(fd)
    finally:
        files.close(fd)
    files.rename(staged, path)
    files.sync_directory(directory)
