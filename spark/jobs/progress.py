"""A progress bar on standard error: one line, only on a terminal, redrawn at most five times a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from triomq.spark.registration import context_of

WIDTH = 30
REDRAW_SECONDS = 0.2


class Progress:
    """One bar. `total` 0 means unknown: only the count is shown."""

    def __init__(self, label: str, total: int = 0, *, unit: str = "", out: TextIO | None = None, quiet: bool = False):
        self._label = label
        self._total = total
        self._unit = unit
        self._out = out if out is not None else sys.stderr
        self._is_shown = not quiet and self._out.isatty()
        self._done = 0
        self._note = ""
        self._drawn_at = 0.0
        self._started = time.monotonic()

    def advance(self, count: int = 1, note: str = "") -> None:
        self.set(self._done + count, note)

    def set(self, done: int, note: str = "", total: int | None = None) -> None:
        self._done = done
        self._note = note or self._note
        if total is not None:
            self._total = total
        if time.monotonic() - self._drawn_at >= REDRAW_SECONDS:
            self._draw()

    def _draw(self, end: str = "\r") -> None:
        self._drawn_at = time.monotonic()
        if self._is_shown:
            self._out.write(f"\x1b[2K{self.text()}{end}")
            self._out.flush()

    def text(self) -> str:
        """The line as it is drawn."""
        seconds = time.monotonic() - self._started
        if not self._total:
            return f"{self._label} {self._done:,}{self._unit} {seconds:.0f}s {self._note}".rstrip()
        share = min(self._done / self._total, 1.0)
        bar = "#" * int(share * WIDTH)
        left = f", {seconds / share - seconds:.0f}s left" if 0 < share < 1 else ""
        counts = f"{self._done:,}/{self._total:,}{self._unit}"
        return f"{self._label} [{bar:<{WIDTH}}] {share:4.0%} {counts} {seconds:.0f}s{left} {self._note}".rstrip()

    def finish(self) -> None:
        self._draw("\n")


@contextmanager
def watching(spark: Any, label: str, quiet: bool) -> Iterator[None]:
    """Show the tasks of the Spark stages that run inside the block. Spark Connect does not tell them here: then nothing
    is shown."""
    context = context_of(spark)
    if context is None:
        yield
        return
    progress = Progress(label, unit=" tasks", quiet=quiet)
    tracker = context.statusTracker()
    over = threading.Event()
    seen: dict[int, tuple[int, int]] = {}

    def watch() -> None:
        while not over.wait(REDRAW_SECONDS):
            for stage_id in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage_id)
                if info is not None:
                    seen[stage_id] = (info.numCompletedTasks, info.numTasks)
            active = set(tracker.getActiveStageIds())
            done = sum(tasks if stage not in active else completed for stage, (completed, tasks) in seen.items())
            progress.set(done, total=sum(tasks for _, tasks in seen.values()))

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        progress.finish()
