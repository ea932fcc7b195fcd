"""Tests run in several processes at once; what they build or download for all of them is done by one at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_directory() -> Path:
    """Where what is built or downloaded for tests is kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "triomq-interop"


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """No other process is inside meanwhile. The lock goes with its process, however that ends."""
    cache_directory().mkdir(parents=True, exist_ok=True)
    with (cache_directory() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
