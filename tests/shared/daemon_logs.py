"""The logs of daemons as processes."""

from __future__ import annotations

import time
from pathlib import Path

SECONDS = 60.0


def wait_for_log(path: Path) -> None:
    """Wait until a daemon that has said that it is there has its log, too: a thread of its own writes it."""
    deadline = time.monotonic() + SECONDS
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
