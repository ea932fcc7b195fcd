"""Running a command again whenever a Python file changes: for development, so it polls, and needs no library.

Bounds: it examines MAX_FILES files, each POLL_SECONDS.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

POLL_SECONDS = 0.3
MAX_FILES = 10_000
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


def run_until_stopped(words: Sequence[str], directory: Path) -> int:
    """Run a command until a signal comes, again after each change below the directory. Return its last exit code."""
    stopped = threading.Event()
    child: subprocess.Popen[bytes] | None = None

    def stop(number: int, frame: object) -> None:
        if stopped.is_set() and child is not None and child.poll() is None:
            child.terminate()  # the second one, which ends it at once
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    while True:
        before = times_of(directory)
        # A process group of its own: Ctrl-C reaches this process alone, which stops the child once.
        child = subprocess.Popen(list(words), process_group=0)
        while (changed := first_change(before, times_of(directory))) is None and not stopped.is_set():
            stopped.wait(POLL_SECONDS)
        if child.poll() is None:
            child.terminate()
        code = child.wait()  # as long as it needs for the messages in hand
        if stopped.is_set():
            return code
        print(f"triomq: {changed} changed, starting again", file=sys.stderr)  # noqa: T201


def times_of(directory: Path) -> dict[str, int]:
    """Return when each Python file below the directory was modified; 0 for one that is gone a moment later."""
    files = islice(_python_files(directory), MAX_FILES)
    return {str(path): path.stat().st_mtime_ns if path.exists() else 0 for path in files}


def first_change(before: Mapping[str, int], now: Mapping[str, int]) -> str | None:
    """Return a file that is new, changed or gone."""
    return next((path for path in sorted({*before, *now}) if before.get(path) != now.get(path)), None)


def _python_files(directory: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))
