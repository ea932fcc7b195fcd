"""Ports that a daemon is about to open: which of them it cannot have, and why."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

from triomq.remoting import network

WantedPort = tuple[str, str, int]
"""The setting that selects it, its address (empty: all), its number."""


def port_problems(wanted: Iterable[WantedPort]) -> Iterator[str]:
    """Yield a sentence for each port that cannot be opened beside those before it. All are open for a moment."""
    taken: dict[int, str] = {}
    with ExitStack() as stack:
        for key, address, port in wanted:
            if port in taken:
                yield f"{key}: port {port} is that of {taken[port]}: choose another"
                continue
            taken[port] = key
            try:
                stack.callback(network.listen(address, port, 1).close)
            except OSError as error:
                yield refusal(key, address, port, error)


def refusal(key: str, address: str, port: int, error: OSError) -> str:
    """Return what to say of a port that cannot be opened."""
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    return f"{key}: cannot listen on {address or '*'}:{port}: {reason}; stop what uses it, or change the setting"
