"""A process without descriptors, for real: the limit of the test's own process."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Inside, the process gets `count` more descriptors and then EMFILE. What earlier tests left is collected before:
    inside, it would give descriptors back."""
    gc.collect()
    gc.disable()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    taken = [os.dup(0)]
    while taken[-1] < highest:  # no gaps below the limit
        taken.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1 + count, hard))
    try:
        yield
    finally:
        gc.enable()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)
