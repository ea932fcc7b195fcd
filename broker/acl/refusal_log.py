"""RefusalLog: log lines about refused requests, at most `LINES_PER_SECOND`, so that strangers cannot fill the logs.
What is left out is counted, and the count is said with the next line that fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from triomq.remoting.line_limit import LineLimit

log = structlog.get_logger("triomq.broker.acl")

LINES_PER_SECOND: Final = 20
REASON_CHARACTERS: Final = 1000
"""The longest reason that a line shows: it names what the stranger sent."""


class RefusalLog:
    """Touched only on the event loop; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._limit = LineLimit(LINES_PER_SECOND, clock)

    def refused(self, remote: str, code: int, reason: str) -> None:
        """Log that a request was refused, or count it."""
        left_out = self._limit.take()
        if left_out is None:
            return
        if left_out:
            log.warning("access refused to many requests", not_logged=left_out)
        log.info("access refused", remote=remote, code=code, reason=reason[:REASON_CHARACTERS])
