"""The only module that reads the wall clock; everything else receives a `NowMs` at construction."""

import time

_NS_PER_MS = 1_000_000


def system_now_ms() -> int:
    """Return milliseconds since 1970, like Java's System.currentTimeMillis."""
    return time.time_ns() // _NS_PER_MS
