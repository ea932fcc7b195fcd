"""Ports for daemons that tests start.

Ports are handed out in blocks of four: a port, the two below it and the one above it. Each block goes to a single
caller, however many processes run tests on the machine: a process holds a lock on one byte of a file for each of its
blocks, and the system releases the locks when the process ends.

Other servers do not take part in this. A block is drawn again if one of them listens on it. If one takes a port between
the draw and the start of the daemon, the start raises `PortTaken`, and the caller draws again.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

# Below the range from which systems choose the ports of outgoing connections: such a port may be taken between the
# check and the start of the daemon.
FIRST_PORT, LAST_PORT = 12_000, 32_000
BLOCK_PORTS = 4
BLOCKS = (LAST_PORT - FIRST_PORT) // BLOCK_PORTS
DRAWS = 500

_own_blocks: set[int] = set()  # a process's own lock does not exclude the process itself


class PortTaken(AssertionError):
    """A daemon did not start because another process listens on its port."""


@cache
def _lock_file() -> int:
    """Return the descriptor, which is opened once and never closed: closing any descriptor of the file would drop all
    locks of the process.
    """
    path = Path(tempfile.gettempdir()) / f"triomq-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _claim(block: int) -> bool:
    """Return whether the block now belongs to this caller."""
    if block in _own_blocks:
        return False
    try:
        fcntl.lockf(_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, block)
    except OSError:
        return False
    _own_blocks.add(block)
    return True


def is_free(port: int) -> bool:
    """Return whether a daemon can listen there now, on all addresses."""
    for family in (socket.AF_INET, socket.AF_INET6) if socket.has_dualstack_ipv6() else (socket.AF_INET,):
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True


def free_port() -> int:
    """Return a port that is free together with its neighbours: a broker also uses port - 2 (fast) and port + 1 (HA)."""
    for _ in range(DRAWS):
        block = random.randrange(BLOCKS)
        begin = FIRST_PORT + block * BLOCK_PORTS
        if _claim(block) and all(is_free(port) for port in range(begin, begin + BLOCK_PORTS)):
            return begin + 2
    raise AssertionError(f"no free ports found between {FIRST_PORT} and {LAST_PORT}")
