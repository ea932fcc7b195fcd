"""Health: is the process alive, and is it ready for clients.

Alive is who responds: only the event loop is needed, because a restart helps against nothing else. Ready is whose
checks all pass; each says in a sentence what it found. Checks are plain functions that read what the daemon keeps
anyway.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found. `detail` is the reason if it does not pass."""

    name: str
    is_ok: bool
    detail: str


FindOut = Callable[[], Check]


def report(checks: Iterable[Check]) -> tuple[bool, bytes]:
    """Return whether all checks pass, and the report as JSON."""
    found = list(checks)
    is_ready = all(check.is_ok for check in found)
    body = {
        "status": "ready" if is_ready else "not ready",
        "checks": [{"name": check.name, "ok": check.is_ok, "detail": check.detail} for check in found],
    }
    return is_ready, json.dumps(body).encode() + b"\n"
