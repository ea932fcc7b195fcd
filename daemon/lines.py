"""Lines for streams and files that may be full, slow, closed or missing: the caller never waits for them.

    put ──> [ queue, at most MAX_BYTES ] ──> a thread ──> sink

A log driver that reads no more, a terminal that is stopped or a disk that does not respond holds up that thread and
nothing else. Lines that find the queue full are dropped and counted; the first line that fits again says how many. What
is queued at the stop is written within a bounded time (`flush_all`).

State: the queue and the counts, under one lock that nobody holds while writing. It may be taken twice by one thread,
since an object that is freed meanwhile may log.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import weakref
from collections import deque
from itertools import groupby
from operator import itemgetter
from time import monotonic
from typing import Final, Protocol, TextIO

MAX_BYTES: Final = 1024 * 1024
"""Characters that wait in one queue, with those that are being written."""
IDLE_SECONDS: Final = 10.0
"""A thread without lines ends after this time; the next line begins another."""
STOP_SECONDS: Final = 2.0
"""How long a stop waits for what is queued."""


class Sink(Protocol):
    """Where lines go. It is called by one thread."""

    def write(self, text: str) -> bool:
        """Write lines; return whether that worked. Must not raise."""


class Lines:
    """The lines for a few sinks, of which one that stands still holds up the others. `name` is that of the metric."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lost_total = 0
        self._changed = threading.Condition()
        self._queue: deque[tuple[Sink, str]] = deque()
        self._size = 0
        self._lost: dict[Sink, int] = {}
        self._thread: threading.Thread | None = None
        _ALL.add(self)

    def put(self, sink: Sink, text: str) -> None:
        """Have a thread write the text, which ends with a newline. Never waits for the sink."""
        with self._changed:
            is_full = self._size > 0 and self._size + len(text) > MAX_BYTES
            if is_full or not self._has_thread():
                self._lost[sink] = self._lost.get(sink, 0) + 1
                self.lost_total += 1
                return
            lost = self._lost.pop(sink, 0)
            if lost:
                text = f"... {lost} lines lost\n{text}"
            self._queue.append((sink, text))
            self._size += len(text)
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until everything is written, this long at most. Return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._size, seconds)

    def _has_thread(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=f"lines of {self.name}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no thread left
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._queue, IDLE_SECONDS):
                    self._thread = None
                    return
                items = list(self._queue)
                self._queue.clear()
            lost = 0
            for sink, some in groupby(items, key=itemgetter(0)):
                texts = [text for _, text in some]
                lost += 0 if sink.write("".join(texts)) else len(texts)
            with self._changed:
                self.lost_total += lost
                self._size -= sum(len(text) for _, text in items)
                self._changed.notify_all()


_ALL: Final[weakref.WeakSet[Lines]] = weakref.WeakSet()


class Stream:
    """A stream of the process as a sink. It writes to the descriptor: who is stopped inside a buffered stream holds its
    lock, and Python needs that to end. A stream without one, such as a test's, is written to itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other._stream is self._stream

    def __hash__(self) -> int:
        return id(self._stream)

    def write(self, text: str) -> bool:
        try:
            descriptor = self._stream.fileno()
        except (OSError, ValueError):
            return self._write_to_object(text)
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        try:
            while data:
                data = data[_write_some(descriptor, data) :]
        except OSError:
            return False  # the reader is gone, or the disk is full
        return True

    def _write_to_object(self, text: str) -> bool:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            return False
        return True


def _write_some(descriptor: int, data: memoryview) -> int:
    while True:
        try:
            return os.write(descriptor, data)
        except BlockingIOError:  # a program that shares the pipe made it non-blocking
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()


STDOUT: Final = Lines("stdout")
STDERR: Final = Lines("stderr")
SAY_SECONDS: Final = 1.0


def say(text: str) -> None:
    """Print a line to standard output, without waiting."""
    if sys.stdout is not None:
        STDOUT.put(Stream(sys.stdout), f"{text}\n")


def complain(text: str, seconds: float = SAY_SECONDS) -> None:
    """Print a line to standard error, behind those of the log, and wait for that no longer than this."""
    if sys.stderr is not None:
        STDERR.put(Stream(sys.stderr), f"{text}\n")
        STDERR.flush(seconds)


def flush_all(seconds: float = STOP_SECONDS) -> None:
    """Wait until all lines are written, this long at most."""
    end = monotonic() + seconds
    for lines in list(_ALL):
        lines.flush(max(0.0, end - monotonic()))


LOST_LINES: Final = "Lines of the log that were dropped or could not be written."


def lost_lines() -> dict[str, int]:
    """Return the number of lines that were dropped or could not be written, by where they should have gone."""
    found: dict[str, int] = {}
    for lines in list(_ALL):
        found[lines.name] = found.get(lines.name, 0) + lines.lost_total
    return dict(sorted(found.items()))


def open_missing_streams() -> None:
    """Open /dev/null for each standard stream that the process was started without. The next file or socket would
    otherwise have its number, and what Python or a library prints would be written into that."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, this one
