"""Apache's own daemons and tools, which some tests run beside ours. `apache/peer` downloads and starts them."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

from built_once import one_at_a_time, run_tool

QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of virtual machines that live for a few seconds: their code is not optimized before they end."""

PEER = Path(__file__).parent.parent / "apache" / "peer"


@cache
def find_peer() -> Path | None:
    """Return the script that starts Apache's daemons; None without Java, Maven or the downloads."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        return None
    os.environ.setdefault("PEER_JAVA", QUICK_TO_START)
    with one_at_a_time():
        run_tool([str(PEER), "fetch"], PEER.parent)
    return PEER
