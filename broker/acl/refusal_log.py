"""RefusalLog: log lines about refused requests, at most `LINES_PER_SECOND`, so that strangers cannot fill the logs.
What is left out is counted, and the count is said with the next line that fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

log = structlog.get_logger("triomq.broker.acl")

LINES_PER_SECOND: Final = 20


class RefusalLog:
    """Holds the number of lines of the present second. Touched only on the event loop; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._lines = 0
        self._left_out = 0

    def refused(self, remote: str, code: int, reason: str) -> None:
        """Log that a request was refused, or count it."""
        now = self._clock()
        if now - self._began >= 1:
            self._began, self._lines = now, 0
            if self._left_out:
                log.warning("access refused to many requests", not_logged=self._left_out)
            self._left_out = 0
        if self._lines >= LINES_PER_SECOND:
            self._left_out += 1
            return
        self._lines += 1
        log.info("access refused", remote=remote, code=code, reason=reason)
