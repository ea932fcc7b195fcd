"""Apache's own daemons and tools, which some tests run beside ours. The script that starts them is not part of the
project."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

from built_once import one_at_a_time, run_tool


@cache
def find_peer() -> Path | None:
    """The script that starts Apache's daemons, which has all it needs by then: TRIOMQ_PEER, or shared/bench/apache/peer
    next to the project or above it. None without one, or without the Java and Maven that it needs."""
    named = os.environ.get("TRIOMQ_PEER")
    above = [directory / "shared" / "bench" / "apache" / "peer" for directory in Path(__file__).resolve().parents]
    path = next((path for path in ([Path(named)] if named else above) if path.is_file()), None)
    if path is None or shutil.which("java") is None or shutil.which("mvn") is None:
        return None
    with one_at_a_time():
        run_tool([str(path), "fetch"], path.parent)
    return path
