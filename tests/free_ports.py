"""Ports for daemons that tests start."""

from __future__ import annotations

import random
import socket

# Below the range from which systems take the ports of outgoing connections: one of those may come and go between the
# moment a port is found free and the moment a daemon listens on it.
FIRST_PORT, LAST_PORT = 12_000, 32_000


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
        port = random.randrange(FIRST_PORT, LAST_PORT)
        if all(is_free(port + step) for step in {0, *neighbours}):
            return port
    raise AssertionError("no free ports found")
