"""Ports for daemons that tests start."""

from __future__ import annotations

import random
import socket
import sys
from functools import cache

# Below the range from which systems take the ports of outgoing connections: one of those may come and go between the
# moment a port is found free and the moment a daemon listens on it.
FIRST_PORT, LAST_PORT = 12_000, 32_000
# Each process that runs tests has a part of the range to itself, for the same reason.
PARTS = 10
PART_PORTS = (LAST_PORT - FIRST_PORT) // PARTS

_claims: list[socket.socket] = []


@cache
def own_part() -> range:
    """The part of the range that this process has claimed, by a name in Linux' abstract namespace that no other process
    can have while this one lives; any part where there are no such names, or when all are taken."""
    parts = random.sample(range(PARTS), PARTS)
    if sys.platform == "linux":
        for part in parts:
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0triomq-test-ports-{part}")
            except OSError:
                claim.close()
                continue
            _claims.append(claim)
            return _ports(part)
    return _ports(parts[0])


def _ports(part: int) -> range:
    begin = FIRST_PORT + part * PART_PORTS
    return range(begin + 4, begin + PART_PORTS - 4)  # the neighbours of the last ones are in this part, too


def is_free(port: int) -> bool:
    """True when a daemon could listen there now, on all addresses."""
    for family in (socket.AF_INET, socket.AF_INET6) if socket.has_dualstack_ipv6() else (socket.AF_INET,):
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True


def free_port(neighbours: tuple[int, ...] = (-2, 1)) -> int:
    """A port that is free together with its neighbours: a broker also takes port - 2 (fast) and port + 1 (HA)."""
    for _ in range(500):
        port = random.choice(own_part())
        if all(is_free(port + step) for step in {0, *neighbours}):
            return port
    raise AssertionError("no free ports found")
