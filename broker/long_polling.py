"""Long polling: pulls that found nothing new and wait for it (RocketMQ: PullRequestHoldService).

A parked pull waits on its queue's watermark. When the queue grows, the store looks for a match among the new entries; a
match answers the pull, otherwise it keeps waiting behind them. When its time is over, it is answered with what is there
by then. There is no table to rescan: a queue without news costs nothing, however many pulls wait on it.

One heap holds all deadlines; answered pulls stay in it until their time comes, or until they are the most. The pull
pool bounds the number of parked pulls. When it is full, or memory is tight, the connection that holds the most makes
room for the others: its oldest pulls get their response early. Only the event loop touches any of this.

A pull that exceeds a quota is parked, too (`delay`): it waits for a time, whatever comes to its queue, and then runs
again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count, islice
from math import inf
from typing import Final, TypeAlias

import structlog
import trio

from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Pool
from triomq.store.message_store import MessageStore
from triomq.store.results import GetStatus, MessageFilter
from triomq.store.watermark import Waiter

log = structlog.get_logger("triomq.broker.long_polling")

SCAN_ENTRIES: Final = 4096
"""Entries examined for one parked pull at a time. If such a window holds no match, the client gets a response and pulls
again. So no commit scans without bound."""

LEAVE_SHARE: Final = 16
"""One in this number of pulls of the connection that holds the most leaves at a time; so looking for it is rare."""

LEAVE_AT_ONCE: Final = 32
"""More do not leave at a time: each reads its queue once more and has a response."""

PURGE_AT_ONCE: Final = 512
"""Deadlines that are looked at in a step when most belong to pulls that have their response."""

FORGET_AT_ONCE: Final = 256
"""Pulls of closed connections that are forgotten in a step."""

PARKED_BYTES: Final = 2048
"""About the memory that a parked pull takes, beside its request."""

SHORTEST_DELAY_SECONDS: Final = 0.05
DELAYED_A_SECOND: Final = 1000
"""How many delayed pulls of one connection run again in a second, at most."""

RESPONSES_IN_A_ROW: Final = 64
"""Responses to pulls whose time is over, after which other tasks run."""

_NO_MATCH: Final = GetStatus.NO_MATCHED_MESSAGE


class ParkedPull:
    """One waiting pull. Up to the queue offset `scanned_offset` nothing matched its filter."""

    __slots__ = (
        "connection",
        "deadline",
        "header",
        "held_bytes",
        "is_delayed",
        "is_parked",
        "message_filter",
        "request",
        "scanned_offset",
        "since",
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
        self.held_bytes = PARKED_BYTES + request.held_bytes + len(header.subscription or "")
        self.is_parked = True
        self.is_delayed = False
        self.since = inf  # when it left: since when it was held
        self.waiter: Waiter | None = None


_Deadline: TypeAlias = tuple[float, int, ParkedPull]


class _Purge:
    """Makes a heap of the deadlines of those that are still parked, in steps. Those that are parked meanwhile enter
    both heaps."""

    def __init__(self, deadlines: list[_Deadline]) -> None:
        self.kept: list[_Deadline] = []
        self._old = deadlines.copy()

    def step(self) -> bool:
        """Look at some of the old ones. Return whether all have been looked at."""
        for entry in self._old[-PURGE_AT_ONCE:]:
            if entry[2].is_parked:
                heappush(self.kept, entry)
        del self._old[-PURGE_AT_ONCE:]
        return not self._old


class LongPolling:
    """All parked pulls. `answer` runs a pull once more and sends its response, whatever it finds."""

    def __init__(self, store: MessageStore, pool: Pool, answer: Callable[[ParkedPull], None]) -> None:
        self._store = store
        self._pool = pool
        self._answer = answer
        self._deadlines: list[_Deadline] = []
        self._numbers = count()
        self._by_connection: dict[Connection, dict[ParkedPull, None]] = {}  # the oldest first
        self._by_address: dict[str, dict[Connection, None]] = {}
        self._greediest: Connection | None = None
        self._greediest_held = 0
        self._purge: _Purge | None = None
        self._old_deadlines: list[_Deadline] = []
        self._gone: deque[ParkedPull] = deque()  # pulls of closed connections
        self._is_running = False
        self._sooner = trio.Event()
        pool.make_room = self.make_room

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
        """Hold a pull until there is a message for it behind its queue offset, for a limited time."""
        deadline = trio.current_time() + wait_seconds
        parked = ParkedPull(connection, request, header, message_filter, header.queue_offset, deadline)
        self._enter(parked, deadline)
        self._wait(parked)
        self._check_memory(parked)

    def delay(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        deadline: float,
        delay_seconds: float,
    ) -> None:
        """Hold a pull for a time, at the longest until `deadline`, and then run it again; from its deadline it knows
        whether it may wait any longer. The pulls of one connection run one after the other: there may be room for one,
        and many that look for it at once would hold up the others."""
        parked = ParkedPull(connection, request, header, None, header.queue_offset, deadline)
        parked.is_delayed = True
        held = len(self._by_connection.get(connection, ()))
        delay_seconds = max(delay_seconds, SHORTEST_DELAY_SECONDS) + held / DELAYED_A_SECOND
        self._enter(parked, min(deadline, trio.current_time() + delay_seconds))
        self._check_memory(parked)

    def _enter(self, parked: ParkedPull, due: float) -> None:
        connection = parked.connection
        self._pool.entered(parked)
        mine = self._by_connection.get(connection)
        if mine is None:
            mine = self._by_connection[connection] = {}
            self._by_address.setdefault(connection.remote.ip, {})[connection] = None
        mine[parked] = None
        if not self._deadlines or due < self._deadlines[0][0]:
            self._sooner.set()
        entry = (due, next(self._numbers), parked)
        heappush(self._deadlines, entry)
        if self._purge is not None:
            heappush(self._purge.kept, entry)

    def _check_memory(self, parked: ParkedPull) -> None:
        if parked.connection.hold(parked.held_bytes):
            greediest = self._find_greediest()
            if greediest is not None:
                self._dismiss(greediest)

    def connection_closed(self, connection: Connection) -> None:
        """Drop the pulls of a closed connection."""
        held = self._by_connection.get(connection)
        if held is not None:
            self._leave(connection)
            self._gone.extend(held)
            self._forget_gone()
            while self._gone and not self._is_running:
                self._forget_gone()
            self._sooner.set()

    def _forget_gone(self) -> None:
        """Forget some of the pulls whose connection closed. There may be a hundred thousand."""
        for _ in range(min(len(self._gone), FORGET_AT_ONCE)):
            parked = self._gone.popleft()
            if parked.is_parked:
                self._forget(parked)

    def make_room(self, connection: Connection) -> bool:
        """Give the oldest pulls of the connection that holds the most their response, for one of `connection`. Return
        whether there is room now: there is none if that is the connection that holds the most."""
        if self._gone:
            self._forget_gone()
            return True
        greediest = self._find_greediest()
        if greediest is None or greediest is connection:
            return False
        self._dismiss(greediest)
        return True

    def _dismiss(self, connection: Connection) -> None:
        """Give the oldest pulls of a connection their response."""
        held = self._by_connection[connection]
        now = trio.current_time()
        for parked in list(islice(held, min(len(held) // LEAVE_SHARE + 1, LEAVE_AT_ONCE))):
            parked.deadline = now
            self._finish(parked)

    def _find_greediest(self) -> Connection | None:
        """Return the connection that holds the most pulls, of the address that holds the most."""
        known = self._greediest
        if known is not None and 4 * len(self._by_connection.get(known, ())) > 3 * self._greediest_held:
            return known
        held = self._by_connection

        def of_address(connections: dict[Connection, None]) -> int:
            return sum([len(held[connection]) for connection in connections])

        if not held:
            return None
        connections = max(self._by_address.values(), key=of_address)
        self._greediest = max(connections, key=lambda connection: len(held[connection]))
        self._greediest_held = len(held[self._greediest])
        return self._greediest

    def _leave(self, connection: Connection) -> None:
        """Forget a connection that holds no pull any more."""
        del self._by_connection[connection]
        same_address = self._by_address[connection.remote.ip]
        del same_address[connection]
        if not same_address:
            del self._by_address[connection.remote.ip]
        if self._greediest is connection:
            self._greediest = None

    def time_jumped(self, seconds: float) -> None:
        """Shift the deadlines: the clock jumped ahead, but the clients did not wait that long."""
        for _, _, parked in self._deadlines:
            parked.deadline += seconds
        self._deadlines = [(due + seconds, number, parked) for due, number, parked in self._deadlines]
        self._purge = None  # the next one begins with these

    def _wait(self, parked: ParkedPull) -> None:
        end = self._store.reading.queue_end(parked.header.topic, parked.header.queue_id)

        def reached(error: Exception | None) -> None:
            self._look(parked, error is not None)

        parked.waiter = end.call_beyond(parked.scanned_offset, reached)

    def _look(self, parked: ParkedPull, has_failed: bool) -> None:
        """Look for a message for this pull, once its queue has grown or failed. One commit may wake thousands, and so
        those that the turn has no time for, or their peer no room, are examined later."""
        connection = parked.connection
        if not parked.is_parked or not connection.is_open:
            return
        if connection.must_wait():
            connection.postpone(partial(self._look, parked, has_failed))
        elif has_failed or self._matches(parked):
            self._finish(parked)
        else:
            self._wait(parked)

    def _matches(self, parked: ParkedPull) -> bool:
        """Return whether the store has something to return for this pull, or cannot tell soon; otherwise the entries
        that came count as scanned.

        The store decides with the very call that serves the pull (`get_messages`), so the two can never disagree on
        what matches. A filter that raises costs its own client one pull, which reports the error: this runs in the
        middle of a commit, where nothing may raise."""
        message_filter = parked.message_filter
        if message_filter is None:
            return True
        header = parked.header
        stop = parked.scanned_offset + SCAN_ENTRIES
        while parked.scanned_offset < stop:
            try:
                found = self._store.reading.get_messages(
                    header.topic, header.queue_id, parked.scanned_offset, 1, message_filter
                )
            except Exception:
                log.exception("a filter failed", group=header.consumer_group, topic=header.topic)
                return True
            if found.status is not _NO_MATCH:
                return True
            parked.scanned_offset = found.next_begin_offset
            if parked.scanned_offset >= found.max_offset:
                return False
            if parked.connection.must_wait():
                return True
        return True

    def _finish(self, parked: ParkedPull) -> None:
        mine = self._by_connection.get(parked.connection)
        if mine is not None:
            mine.pop(parked, None)
            if not mine:
                self._leave(parked.connection)
        self._forget(parked)
        self._answer(parked)

    def _forget(self, parked: ParkedPull) -> None:
        parked.is_parked = False
        parked.connection.hold(-parked.held_bytes)
        parked.since = self._pool.left(parked)
        if parked.waiter is not None:
            parked.waiter.cancel()
            parked.waiter = None
        if self._purge is None and len(self._deadlines) > max(PURGE_AT_ONCE, 4 * self._pool.in_flight):
            self._purge = _Purge(self._deadlines)
            self._sooner.set()
            if not self._is_running:
                self._purge_at_once()

    def _purge_at_once(self) -> None:
        while self._is_purging():
            self._go_on_purging()

    def _is_purging(self) -> bool:
        return self._purge is not None or len(self._old_deadlines) > 0

    def _go_on_purging(self) -> None:
        """Do a step of clearing away the deadlines of pulls that have their response."""
        del self._old_deadlines[-PURGE_AT_ONCE:]  # to free them all at once would take as long as to look at them
        if self._purge is not None and not self._old_deadlines and self._purge.step():
            self._old_deadlines, self._deadlines = self._deadlines, self._purge.kept
            self._purge = None
            self._sooner.set()

    async def run(self) -> None:
        """Respond to pulls whose time is over; runs until cancelled."""
        self._is_running = True
        try:
            await self._run()
        finally:
            self._is_running = False

    async def _run(self) -> None:
        in_a_row = 0
        while True:
            self._forget_gone()
            self._go_on_purging()
            popped = 0
            while self._deadlines and not self._deadlines[0][2].is_parked and popped < PURGE_AT_ONCE:
                heappop(self._deadlines)
                popped += 1
            self._sooner = trio.Event()
            due = self._deadlines[0][0] if self._deadlines else inf
            if self._gone or self._is_purging() or popped == PURGE_AT_ONCE:
                due = min(due, trio.current_time())
                in_a_row = RESPONSES_IN_A_ROW
            elif due <= trio.current_time():
                self._finish(heappop(self._deadlines)[2])
                in_a_row += 1
                if in_a_row < RESPONSES_IN_A_ROW:
                    continue
            in_a_row = 0
            # Wait until the exact time: a wait for the difference may round to zero, and a virtual clock would stand
            # still.
            with trio.move_on_at(due):
                await self._sooner.wait()
