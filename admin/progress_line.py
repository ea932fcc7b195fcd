"""A line on the terminal that says how far a long command is. Nothing where standard error is no terminal."""

from __future__ import annotations

import sys
import time

INTERVAL_SECONDS = 0.5
CLEAR_LINE = "\r\x1b[K"


class ProgressLine:
    """`with` removes the line at the end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_shown = False
        self._next = 0.0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()

    def show(self, text: str) -> None:
        """Write the text if the last one is old enough."""
        now = time.monotonic()
        if now < self._next or not sys.stderr.isatty():
            return
        self._next = now + INTERVAL_SECONDS
        self._is_shown = True
        sys.stderr.write(f"{CLEAR_LINE}{self._what}: {text}")
        sys.stderr.flush()
