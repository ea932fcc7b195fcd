"""Pulls of messages that are on the disk only: each is held until they are in memory, and then runs again.

They lie among the other held pulls (long_polling.py), and so count with them, end with their connection, and are
evicted with the others.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import trio

from triomq.broker.pulls.long_polling import LongPolling, ParkedPull
from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.remoting.connection import Connection
from triomq.store.cold_reads import ColdReads
from triomq.store.results import Missing

FETCH_SECONDS: Final = 5.0
"""So long a pull waits for the disk. Then its client pulls again, before it gives up."""

STILL_ON_DISK: Final = "the messages are still being read from the disk"


def cold_pull(
    connection: Connection, request: RemotingCommand, header: PullMessageRequestHeader, patience_seconds: float
) -> ParkedPull:
    """Return a pull that waits for the disk first, and for anything else no longer than its client allows."""
    now = trio.current_time()
    parked = ParkedPull(connection, request, header, None, header.queue_offset, now + FETCH_SECONDS)
    parked.patience_end = now + patience_seconds
    return parked


def again_cold(before: ParkedPull) -> ParkedPull:
    """Return a pull that was held before, with what is left of its time, to wait for the disk."""
    header = before.header
    parked = ParkedPull(before.connection, before.request, header, None, header.queue_offset, before.deadline)
    parked.patience_end = before.patience_end
    parked.is_delayed = before.is_delayed
    return parked


def pull_when_read(polling: LongPolling, cold: ColdReads, parked: ParkedPull, missing: Missing) -> None:
    """Hold a pull until what it misses is read, at the longest until its deadline, and then run it again. The pulls of
    one connection run in its turns: the same blocks may hold what a thousand of them want."""
    connection = parked.connection
    parked.is_cold = True
    polling.hold(parked, parked.deadline)

    def read(error: OSError | None) -> None:
        if not parked.is_parked or not connection.is_open:
            return
        if error is not None:
            parked.failure = f"the messages cannot be read from the disk: {error}"
        connection.postpone(partial(polling.run_again, parked))

    cold.fetch(missing, read)
