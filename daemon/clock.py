"""The one place that reads the wall clock; everything else is given a `NowMs` when it is made."""

import time

_NS_PER_MS = 1_000_000


def system_now_ms() -> int:
    """Milliseconds since 1970, as Java's System.currentTimeMillis."""
    return time.time_ns() // _NS_PER_MS
