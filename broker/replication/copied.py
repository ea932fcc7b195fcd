"""CopiedPart: from which physical offset on a slave's log came from a master.

A slave that has bytes which its master lacks cuts them if this broker appended them itself, when it was a master. If
they came from a master, that master has gone back: it was restored from an older copy of its disk, or lost its end in a
crash. Its producers may have got SEND_OK for those messages, so a slave does not cut them by itself.

The offset is kept in config/copied.json, because it has to outlive this process: it is the end of the log when the
broker first runs as a slave, and is forgotten when it runs as a master. Only the follower's task touches it, and the
start of a master.
"""

from __future__ import annotations

import json

import structlog

from triomq.broker.tables.table_file import TableFile

log = structlog.get_logger("triomq.broker.replication")

COPIED_FILE = "copied.json"
NONE = -1
_KEY = "copiedFrom"


class CopiedPart:
    """See the module's docstring."""

    def __init__(self, file: TableFile) -> None:
        self._file = file
        self._begin: int | None = None

    def follows(self, log_end: int) -> int:
        """Return the offset for a slave whose log ends at `log_end`; note it if this slave is a new one."""
        if self._begin is None:
            self._begin = self._file.load(decode_copied)
        begin = log_end if self._begin is None else min(self._begin, log_end)
        if begin != self._begin:
            self._save(begin)
        return begin

    def is_known(self) -> bool:
        """Return whether this broker was a slave until now."""
        return self._file.load(decode_copied) is not None

    def leads(self) -> None:
        """Forget the offset: this broker is a master, and appends to the log itself."""
        if self.is_known():
            self._save(None)

    def _save(self, begin: int | None) -> None:
        self._begin = begin
        try:
            self._file.save(json.dumps({_KEY: begin if begin is not None else NONE}))
        except OSError as error:
            log.warning("start of the copied part of the log not written", error=str(error))


def decode_copied(text: str) -> int | None:
    """Return the offset, None if the broker was a master last. Raises ValueError."""
    value = json.loads(text)
    begin = value.get(_KEY) if isinstance(value, dict) else None
    if not isinstance(begin, int) or isinstance(begin, bool):
        raise ValueError(f"{_KEY} is not a physical offset")
    return begin if begin >= 0 else None
