"""Progress of a long scan of the log: on a terminal (Bar), or in the log of a daemon (LogLines)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TextIO

import structlog
from msgspec import Struct

from triomq.protocol.clock import NowMs

log = structlog.get_logger("triomq.store.recovery")

_MIB: Final = 1 << 20


class State(Struct, frozen=True):
    what: str
    done_bytes: int
    left_bytes: int
    seconds: float

    @property
    def percent(self) -> int:
        total = self.done_bytes + self.left_bytes
        return 100 * self.done_bytes // total if total else 100

    @property
    def mib_per_second(self) -> float:
        return self.done_bytes / _MIB / max(self.seconds, 0.001)

    @property
    def seconds_left(self) -> int | None:
        """The estimated remaining seconds; None while no bytes are done."""
        return round(self.left_bytes / self.done_bytes * self.seconds) if self.done_bytes else None


class ProgressListener(Protocol):
    """Receives the progress at most every `every_ms` ms, first after `every_ms`, and a call of `end` at the end."""

    every_ms: int

    def tell(self, state: State) -> None: ...

    def end(self) -> None: ...


class Progress:
    """One scan from `begin` to about `end`, in bytes. The scan calls `at` often, and `over` at the end."""

    def __init__(self, listener: ProgressListener, now_ms: NowMs, what: str, begin: int, end: int) -> None:
        self._listener = listener
        self._now_ms = now_ms
        self._what = what
        self._begin = begin
        self._end = end
        self._begun_ms = self._last_ms = now_ms()

    def at(self, offset: int) -> None:
        now = self._now_ms()
        if now - self._last_ms < self._listener.every_ms:
            return
        self._last_ms = now
        seconds = (now - self._begun_ms) / 1000
        self._listener.tell(State(self._what, offset - self._begin, max(0, self._end - offset), seconds))

    def over(self) -> None:
        self._listener.end()


StartProgress = Callable[[str, int, int], Progress]
"""Creates a Progress from a description, begin and end: `partial(Progress, listener, now_ms)`."""


class LogLines:
    """A structured log line every two seconds."""

    every_ms = 2000

    def tell(self, state: State) -> None:
        log.info(
            state.what,
            done_mib=state.done_bytes // _MIB,
            left_mib=state.left_bytes // _MIB,
            mib_per_second=round(state.mib_per_second, 1),
            seconds_left=state.seconds_left,
        )

    def end(self) -> None:
        """Do nothing."""


class Bar:
    """On a terminal, one line that is redrawn and removed at the end; elsewhere, a line every ten seconds."""

    _WIDTH: Final = 30

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._is_drawn = False
        self.every_ms = 200 if self._is_terminal else 10_000

    def tell(self, state: State) -> None:
        left = state.seconds_left
        time_left = f"{left // 60}:{left % 60:02d} left" if left is not None else ""
        numbers = f"{state.percent:3d} %  {state.mib_per_second:.0f} MiB/s  {time_left}"
        if self._is_terminal:
            full = self._WIDTH * state.percent // 100
            self._stream.write(f"\r\x1b[K{state.what} [{'#' * full:.<{self._WIDTH}}] {numbers}")
            self._is_drawn = True
        else:
            self._stream.write(f"{state.what}: {numbers}\n")
        self._stream.flush()

    def end(self) -> None:
        if self._is_drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_drawn = False


class Silence:
    """A ProgressListener that shows nothing."""

    every_ms = 1 << 60

    def tell(self, state: State) -> None:
        """Never called."""

    def end(self) -> None:
        """Do nothing."""


def unseen(what: str, begin: int, end: int) -> Progress:
    """Return a Progress that shows nothing (a StartProgress)."""
    return Progress(Silence(), lambda: 0, what, begin, end)
