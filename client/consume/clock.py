"""The time by which consumers measure: trio's, so that a test can own it."""

from __future__ import annotations

import trio


def now_ms() -> int:
    """Return the event loop's time in milliseconds."""
    return int(trio.current_time() * 1000)
