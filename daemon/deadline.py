"""Deadlines of a stop. A process that misses one ends at once, as after a crash.

A thread watches it, since the event loop itself may hang. What holds the stop up may hold up the log, too, so the log
gets a moment and no more.
"""

from __future__ import annotations

import os
import threading

import structlog

from triomq.daemon.errors import ExitCode
from triomq.daemon.lines import complain, flush_all

log = structlog.get_logger("triomq.daemon.deadline")

LOG_SECONDS = 1.0


class Deadline:
    """Ends the process with `code` and one line, `text`, if `cancel` is not called within the time after `start`."""

    def __init__(self, program: str, seconds: float, code: ExitCode, text: str) -> None:
        self._program = program
        self._seconds = seconds
        self._code = code
        self._text = text
        self._timer: threading.Timer | None = None

    def start(self) -> None:
        """Start the time. Further calls change nothing."""
        if self._timer is not None:
            return
        self._timer = threading.Timer(self._seconds, self._expire)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        log.info("daemon ended by a deadline", reason=self._text)
        complain(f"{self._program}: {self._text}", LOG_SECONDS)
        flush_all(LOG_SECONDS)
        os._exit(self._code)
