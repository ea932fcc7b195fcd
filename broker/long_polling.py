"""Long polling: pulls that found nothing new and wait for it (RocketMQ: PullRequestHoldService).

A parked pull waits on its queue's watermark. When the queue grows, the entries that came are looked at with the pull's
own filter: a match answers it, otherwise it waits on behind them. When its time is over it is answered with what
there is then. There is no table to rescan: a queue without news costs nothing, whoever waits on it.

Deadlines are kept in one heap for all of them; pulls that were answered stay in it until their time comes. The bound
on parked pulls is the pull pool's. All of it is touched only on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

import trio

from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Pool
from triomq.store.message_store import MessageStore
from triomq.store.results import MessageFilter
from triomq.store.watermark import Waiter

SCAN_ENTRIES = 4096
"""Entries looked at for one parked pull at a time; more of them answer it, and the client comes again."""


class ParkedPull:
    """One pull that waits. `scanned_offset` is the queue offset up to which nothing matched its filter."""

    __slots__ = (
        "connection",
        "deadline",
        "header",
        "is_parked",
        "message_filter",
        "request",
        "scanned_offset",
        "waiter",
    )

    def __init__(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        message_filter: MessageFilter | None,
        scanned_offset: int,
        deadline: float,
    ) -> None:
        self.connection = connection
        self.request = request
        self.header = header
        self.message_filter = message_filter
        self.scanned_offset = scanned_offset
        self.deadline = deadline
        self.is_parked = True
        self.waiter: Waiter | None = None


class LongPolling:
    """All parked pulls. `answer` runs a pull once more and answers it, whatever it finds."""

    def __init__(self, store: MessageStore, pool: Pool, answer: Callable[[ParkedPull], None]) -> None:
        self._store = store
        self._pool = pool
        self._answer = answer
        self._deadlines: list[tuple[float, int, ParkedPull]] = []
        self._numbers = count()
        self._by_connection: dict[Connection, set[ParkedPull]] = {}
        self._sooner = trio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._by_connection.values()))

    def park(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        message_filter: MessageFilter | None,
        wait_seconds: float,
    ) -> None:
        """Keep a pull until there is something for it behind its queue offset, at most so long."""
        deadline = trio.current_time() + wait_seconds
        parked = ParkedPull(connection, request, header, message_filter, header.queue_offset, deadline)
        self._pool.entered(parked)
        self._by_connection.setdefault(connection, set()).add(parked)
        if not self._deadlines or deadline < self._deadlines[0][0]:
            self._sooner.set()
        heappush(self._deadlines, (deadline, next(self._numbers), parked))
        self._wait(parked)

    def connection_closed(self, connection: Connection) -> None:
        """Nobody waits for these any more."""
        for parked in self._by_connection.pop(connection, ()):
            self._forget(parked)

    def time_jumped(self, seconds: float) -> None:
        """The clock jumped ahead, but clients have not waited for so long."""
        for _, _, parked in self._deadlines:
            parked.deadline += seconds
        self._deadlines = [(due + seconds, number, parked) for due, number, parked in self._deadlines]

    def wake_all(self) -> None:
        """Answer all of them now (the broker stops, or its role changes)."""
        for parked_pulls in list(self._by_connection.values()):
            for parked in list(parked_pulls):
                self._finish(parked)

    def _wait(self, parked: ParkedPull) -> None:
        end = self._store.queue_end(parked.header.topic, parked.header.queue_id)

        def reached(error: Exception | None) -> None:
            if parked.is_parked:
                if error is not None or self._matches(parked):
                    self._finish(parked)
                else:
                    self._wait(parked)

        parked.waiter = end.call_beyond(parked.scanned_offset, reached)

    def _matches(self, parked: ParkedPull) -> bool:
        """True when one of the entries that came may be one the pull wants; otherwise they count as scanned."""
        message_filter = parked.message_filter
        if message_filter is None:
            return True
        header = parked.header
        entries = self._store.queue_entries(header.topic, header.queue_id, parked.scanned_offset, SCAN_ENTRIES)
        if not entries or len(entries) == SCAN_ENTRIES:
            return True
        for physical_offset, _, tags_code in entries:
            if message_filter.matches_entry(tags_code, None):
                record = self._store.record_at(physical_offset)
                if record is None or message_filter.matches_record(record):
                    return True
        parked.scanned_offset += len(entries)
        return False

    def _finish(self, parked: ParkedPull) -> None:
        mine = self._by_connection.get(parked.connection)
        if mine is not None:
            mine.discard(parked)
            if not mine:
                del self._by_connection[parked.connection]
        self._forget(parked)
        self._answer(parked)

    def _forget(self, parked: ParkedPull) -> None:
        parked.is_parked = False
        self._pool.left(parked)
        if parked.waiter is not None:
            parked.waiter.cancel()
            parked.waiter = None
        if len(self._deadlines) > 1024 and len(self._deadlines) > 4 * self._pool.in_flight:
            self._deadlines = [entry for entry in self._deadlines if entry[2].is_parked]
            self._deadlines.sort()

    async def run(self) -> None:
        """Answer pulls whose time is over; runs until cancelled."""
        while True:
            while self._deadlines and not self._deadlines[0][2].is_parked:
                heappop(self._deadlines)
            self._sooner = trio.Event()
            wait_seconds = float("inf")
            if self._deadlines:
                wait_seconds = self._deadlines[0][0] - trio.current_time()
            if wait_seconds <= 0:
                self._finish(heappop(self._deadlines)[2])
                continue
            with trio.move_on_after(wait_seconds):
                await self._sooner.wait()
