"""Pulls that exceed a quota: each is held for a time, whatever comes to its queue, and then runs again.

They lie among the other held pulls (long_polling.py), and so count with them, end with their connection, and are
evicted with the others.
"""

from __future__ import annotations

from typing import Final

import trio

from triomq.broker.pulls.long_polling import LongPolling, ParkedPull
from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.remoting.connection import Connection

SHORTEST_DELAY_SECONDS: Final = 0.05
DELAYED_A_SECOND: Final = 1000
"""How many delayed pulls of one connection run again in a second, at most."""


def delay_pull(
    polling: LongPolling,
    connection: Connection,
    request: RemotingCommand,
    header: PullMessageRequestHeader,
    deadline: float,
    delay_seconds: float,
) -> None:
    """Hold a pull for a time, at the longest until `deadline` (trio's time), and then run it again; from its deadline
    it knows whether it may wait any longer. The pulls of one connection run one after the other: there may be room for
    one, and many that look for it at once would hold up the others."""
    parked = ParkedPull(connection, request, header, None, header.queue_offset, deadline)
    parked.is_delayed = True
    delay_seconds = max(delay_seconds, SHORTEST_DELAY_SECONDS) + polling.held_by(connection) / DELAYED_A_SECOND
    polling.hold(parked, min(deadline, trio.current_time() + delay_seconds))
