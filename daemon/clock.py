"""The only module that reads the wall clock; everything else receives a `NowMs` at construction."""

import time
from typing import Final

_NS_PER_MS: Final = 1_000_000
_now_ns: Final = time.time_ns


def system_now_ms() -> int:
    """Return milliseconds since 1970, like Java's System.currentTimeMillis."""
    return _now_ns() // _NS_PER_MS
