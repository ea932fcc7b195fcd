"""What happened in a run, in order: the last lines for people, a digest of all of them for replay."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

import trio

KEPT_LINES = 5_000


class Trace:
    """`echo` receives every line at once."""

    def __init__(self, echo: Callable[[str], object] | None = None) -> None:
        self._digest = hashlib.sha256()
        self._echo = echo
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)

    def add(self, text: str) -> None:
        """Note an event at the present virtual time."""
        line = f"{trio.current_time():10.4f}  {text}"
        self._digest.update(line.encode())
        self.lines.append(line)
        if self._echo is not None:
            self._echo(line)

    @property
    def digest(self) -> str:
        """Return 16 hexadecimal digits: two runs with the same events have the same."""
        return self._digest.hexdigest()[:16]
