"""The note of the queues: what a clean shutdown knew of each, so that the next start need not read it.

    "TRIOMQ15" | digest uint64 | start of the log int64
    for each topic:    length of its name int16 | name | queues int32
    for each queue:    queue id | time of its directory | start of its file | time of the file | end
                       | max_physical_end | min_offset, int64 each
    CRC-32 of everything before, uint32

Only queues of one file are in it, which most of many are. Times are modification times in ns. That of the directory
changes with each name in it, that of the file with each write to it: while both are as noted and the file has its full
size, the queue is what it was, and otherwise it is read. A file may change twice within one step of the clock that
makes these times, so one that is not clearly older than the note is read, too.

`digest` is that of the checkpoint's note, which is in the checkpoint only after a clean exit and says that nobody else
has used the store since; a note of the queues with another one is of another exit. As a note that is torn, missing or
old costs reading only, it is not synced. `start of the log` is -1 if the values of min_offset may be behind it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final
from zlib import crc32

import structlog

from triomq.store.disk.files import Files

log = structlog.get_logger("triomq.store")

_MAGIC: Final = b"TRIOMQ15"
_HEAD: Final = struct.Struct(">8sQq")
_LENGTH: Final = struct.Struct(">h")
_COUNT: Final = struct.Struct(">i")
_ROW: Final = struct.Struct(">7q")
_CRC: Final = struct.Struct(">I")
_SAME_TIME_NS: Final = 100_000_000
"""No clock of a kernel has longer steps; a file system with longer ones has them in the time of the note, too."""

Row = tuple[int, int, int, int, int, int, int]


class QueueNote:
    """A note that was read. `log_begin` as above; what was changed at `before_ns` or later is not in it."""

    def __init__(self, log_begin: int, before_ns: int, parts: dict[str, bytes]) -> None:
        self.log_begin = log_begin
        self.before_ns = before_ns
        self._parts = parts

    def of_topic(self, topic: str) -> dict[int, Row]:
        """Return the rows of a topic by queue id. They are made when asked for: all at once are tens of megabytes."""
        rows: dict[int, Row] = {row[0]: row for row in _ROW.iter_unpack(self._parts.get(topic, b""))}
        return rows


def encode(digest: int, log_begin: int, topics: Iterable[tuple[str, list[Row]]]) -> bytes:
    parts = [_HEAD.pack(_MAGIC, digest, log_begin)]
    for topic, rows in topics:
        name = topic.encode("utf-8", "surrogateescape")
        parts += [_LENGTH.pack(len(name)), name, _COUNT.pack(len(rows))]
        parts += [_ROW.pack(*row) for row in rows]
    data = b"".join(parts)
    return data + _CRC.pack(crc32(data))


def decode(data: bytes, digest: int, changed_ns: int) -> QueueNote | None:
    """Return the note in a file that was changed at `changed_ns`, or None if it is not whole or has another digest."""
    end = len(data) - _CRC.size
    if end < _HEAD.size or _CRC.unpack_from(data, end)[0] != crc32(memoryview(data)[:end]):
        return None
    magic, noted_digest, log_begin = _HEAD.unpack_from(data)
    if magic != _MAGIC or noted_digest != digest:
        return None
    topics: dict[str, bytes] = {}
    at = _HEAD.size
    while at < end:
        name_end = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
        topic = data[at + _LENGTH.size : name_end].decode("utf-8", "surrogateescape")
        at = name_end + _COUNT.size + _COUNT.unpack_from(data, name_end)[0] * _ROW.size
        topics[topic] = data[name_end + _COUNT.size : at]
    return QueueNote(log_begin, changed_ns - _SAME_TIME_NS, topics)


def save(files: Files, path: str, data: bytes) -> None:
    """Write the file. If that fails, it is logged: the next start reads more, and nothing else depends on it."""
    try:
        fd = files.create(path, len(data))
        try:
            files.pwrite(fd, data, 0)
        finally:
            files.close(fd)
    except OSError as error:
        log.warning("note of the queues not written; the next start reads every queue", error=str(error))


def load(files: Files, path: str, digest: int) -> QueueNote | None:
    """Return the note in the file, or None if there is none of the exit with this digest. Raises OSError."""
    try:
        return decode(files.read_file(path), digest, files.size_and_time(path)[1])
    except FileNotFoundError:
        return None
