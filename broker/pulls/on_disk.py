"""A pull of messages that are on the disk only: it is held until they are in memory, and then runs again.

It waits whether its client wants to wait or not: otherwise it would hold up all clients while the disk is read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from triomq.broker.pulls.long_polling import LongPolling, Parked
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.errors import RequestRefused
from triomq.store.reading.cold_reads import ColdReads
from triomq.store.results import Missing

FETCH_SECONDS: Final = 5.0
"""How long a pull waits for the disk in all. Then its client pulls again, before it gives up."""


class OnDisk:
    """`respond` makes a response that finds nothing, with a remark."""

    __slots__ = ("_cold", "_missing", "_respond")

    def __init__(self, cold: ColdReads, missing: Missing, respond: Callable[[str], RemotingCommand]) -> None:
        self._cold = cold
        self._missing = missing
        self._respond = respond

    def hold(self, polling: LongPolling, pull: Parked) -> bool:
        """Hold a pull until what it misses is read, unless its time is over or a read has failed. Return whether it is
        held. The pulls of one connection run in its turns: the same blocks may hold what a thousand of them want."""
        now = trio.current_time()
        if pull.fetch_end is None:
            pull.fetch_end = now + FETCH_SECONDS
        if pull.fetch_end <= now or pull.failure is not None:
            return False
        pull.waited_for = self
        polling.hold(pull, pull.fetch_end)

        def read(error: OSError | None) -> None:
            if not pull.is_parked or not pull.connection.is_open:
                return
            if error is not None:
                pull.failure = f"the messages cannot be read from the disk: {error}"
            pull.connection.postpone(partial(polling.run_again, pull))

        self._cold.fetch(self._missing, read)
        return True

    def response(self, pull: Parked) -> RemotingCommand:
        """Return the response to a pull that is not held: its client pulls again. Raises RequestRefused if the disk
        cannot be read."""
        if pull.failure is not None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, pull.failure)
        return self._respond("the messages are still being read from the disk")
