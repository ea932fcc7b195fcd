"""The standard figures of a process and of Python, under the names that process dashboards expect.

They come from /proc, which is memory, and are read only during a scrape. Where there is no /proc, those families are
left out.
"""

from __future__ import annotations

import gc
import os
import platform
import resource
import sys
import time
from collections.abc import Iterator
from functools import cache
from math import inf
from pathlib import Path
from typing import Final

from triomq.monitoring.exposition import Family, counter, gauge, labels, one

_PROC: Final = Path("/proc/self")
_LOADED: Final = time.time()
_START_TICKS_FIELD: Final = 19  # of /proc/self/stat, counted behind the name of the program
_VIRTUAL_FIELD: Final = 20
_RESIDENT_FIELD: Final = 21


def process_families() -> Iterator[Family]:
    """Yield what every process has."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield counter(
        "process_cpu_seconds_total", "Processor time used, user and system.", one(used.ru_utime + used.ru_stime)
    )
    fields = _stat_fields()
    if fields:
        yield gauge("process_resident_memory_bytes", "Resident memory.", one(resident_bytes() or 0))
        yield gauge("process_virtual_memory_bytes", "Virtual memory.", one(int(fields[_VIRTUAL_FIELD])))
    yield gauge("process_start_time_seconds", "Start of the process, seconds since 1970.", one(_start_seconds()))
    count = open_descriptors()
    if count is not None:
        yield gauge("process_open_fds", "Open file descriptors.", one(count))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield gauge("process_max_fds", "Most file descriptors.", one(inf if most == resource.RLIM_INFINITY else most))
    yield from _python_families()


def _python_families() -> Iterator[Family]:
    stats = gc.get_stats()
    for name, meaning, key in (
        ("python_gc_objects_collected_total", "Objects that the garbage collector freed.", "collected"),
        ("python_gc_objects_uncollectable_total", "Objects that it could not free.", "uncollectable"),
        ("python_gc_collections_total", "Runs of the garbage collector.", "collections"),
    ):
        yield counter(name, meaning, [(labels(generation=str(number)), each[key]) for number, each in enumerate(stats)])
    version = sys.version_info
    text = labels(
        implementation=platform.python_implementation(),
        major=str(version.major),
        minor=str(version.minor),
        patchlevel=str(version.micro),
        version=platform.python_version(),
    )
    yield gauge("python_info", "The Python that runs this; always 1.", [(text, 1)])


def resident_bytes() -> int | None:
    """Return the resident memory, or None where it cannot be known."""
    fields = _stat_fields()
    return int(fields[_RESIDENT_FIELD]) * resource.getpagesize() if fields else None


def anonymous_bytes() -> int | None:
    """Return the resident memory that belongs to no file, or None where it cannot be known. Mapped files of the store
    are in the resident memory as well, and go when others need room."""
    try:
        for line in (_PROC / "status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def open_descriptors() -> int | None:
    """Return the number of open descriptors, or None where it cannot be known."""
    directory = _PROC / "fd"
    try:
        size = directory.stat().st_size  # the number itself, since Linux 6.2
        return size or len(os.listdir(directory))  # noqa: PTH208 (names are enough)
    except OSError:
        return None


def _stat_fields() -> list[str]:
    try:
        return (_PROC / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


@cache
def _start_seconds() -> float:
    fields = _stat_fields()
    if not fields:
        return _LOADED
    since_boot = int(fields[_START_TICKS_FIELD]) / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot
