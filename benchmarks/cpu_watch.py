"""CPU time of this process for each message. Standard library only: other environments import this, too."""

from __future__ import annotations

import resource
import time
from typing import NamedTuple


class Took(NamedTuple):
    """What a run took: messages a second, and microseconds of CPU time for each."""

    rate: float
    cpu_us: float


class Watch:
    """Measures the time and the CPU time of this process, user and system, since its construction."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._cpu_began = _cpu_seconds()

    def took(self, messages: int) -> Took:
        cpu_us = (_cpu_seconds() - self._cpu_began) / messages * 1e6
        return Took(messages / (time.perf_counter() - self._began), cpu_us)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
