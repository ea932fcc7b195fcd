"""LineLimit: at most a number of log lines a second about what strangers cause, so that they cannot fill the logs."""

from __future__ import annotations

from collections.abc import Callable


class LineLimit:
    """Holds the number of lines of the present second. Touched only on the event loop; `clock` returns seconds."""

    def __init__(self, per_second: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._began = clock()
        self._lines = 0
        self._left_out = 0

    def take(self) -> int | None:
        """Return the number of lines left out in an earlier second, for the line that may be written now; None if this
        one has to be left out."""
        now = self._clock()
        if now - self._began >= 1:
            self._began = now
            self._lines = 0
        if self._lines >= self._per_second:
            self._left_out += 1
            return None
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        return left_out
