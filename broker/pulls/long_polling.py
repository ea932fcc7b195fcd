"""Long polling: pulls that found nothing new and wait for it (RocketMQ: PullRequestHoldService), and receives (POP).

A parked pull waits on its queue's watermark. When the queue grows, the store looks for a match among the new entries; a
match answers the pull, otherwise it keeps waiting behind them. When its time is over, it is answered with what is there
by then. There is no table to rescan: a queue without news costs nothing, however many pulls wait on it.

One heap holds all deadlines; answered pulls stay in it until their time comes, or until they are the most. The pull
pool bounds the number of parked pulls. When it is full, or memory is tight, the connection that holds the most makes
room for the others: its oldest pulls get their response early. Only the event loop touches any of this.

Pulls wait for three things: news (nothing_new.py), a quota (over_quota.py), the disk (on_disk.py); receives for a
message of any of their queues (broker/pop/waiting.py), a quota, the disk. Here all are alike: they count together, end
with their connection, are evicted, and run again when what they waited for has come.

An orderly stop answers all held pulls as if their time were over, and refuses those that come afterwards (`end`).
RocketMQ's Java client 4.9 does not notice that a pull ended with its connection: it waits 30 s for the response, and
pulls 3 s later. PULL_NOT_FOUND makes it pull again at once, an error after 3 s. So the answer alone would only move the
pull that is lost; the refusal that follows leaves none unanswered when connections close.

A leader of a group that becomes a follower answers nothing. PULL_NOT_FOUND would bring the pull back to the same
address, since that client asks for routes every 30 s and not between; and it is served there meanwhile, as the queue
grows with what the next leader commits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from heapq import heappop, heappush
from itertools import count, islice
from math import inf
from typing import Any, Final, Protocol, TypeAlias

import structlog
import trio

from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Pool
from triomq.remoting.scheduling.step_line import NO_LINE
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import GetStatus, MessageFilter

log = structlog.get_logger("triomq.broker.pulls.long_polling")

SCAN_ENTRIES: Final = 4096
"""Entries examined for one parked pull at a time. If such a window holds no match, the client gets a response and pulls
again. So no commit scans without bound."""

EVICTED_SHARE: Final = 16
"""One in this number of pulls of the connection that holds the most is evicted at a time; so looking for it is rare."""

EVICTED_AT_ONCE: Final = 32
"""More are not evicted at a time: each reads its queue once more and has a response."""

ANSWERING_SECONDS: Final = 2.0
"""A stop waits at most that long until every held pull has its response."""

RETURN_SECONDS: Final = 0.25
"""And then at most that long until their clients have pulled again, see `end`."""

PURGE_AT_ONCE: Final = 512
"""Deadlines that one step examines when most belong to pulls that have their response."""

FORGET_AT_ONCE: Final = 256
"""Pulls of closed connections that are forgotten in a step."""

PARKED_BYTES: Final = 2048
"""About the memory that a parked pull takes, beside its request."""

RESPONSES_IN_A_ROW: Final = 64
"""Responses to pulls whose time is over, after which other tasks run."""

_NO_MATCH: Final = GetStatus.NO_MATCHED_MESSAGE


class Waits(Protocol):
    """What a parked request waits for."""

    def cancel(self) -> None:
        """Wait no longer."""


class Parked:
    """One waiting request: a pull, or a receive (POP). Until `patience_end` (trio's time) its client lets it wait.
    `answer` runs it once more and sends its response, whatever it finds."""

    __slots__ = (
        "answer",
        "connection",
        "failure",
        "fetch_end",
        "held_bytes",
        "is_delayed",
        "is_parked",
        "patience_end",
        "request",
        "since",
        "waited_for",
        "waiter",
    )

    def __init__(
        self,
        connection: Connection,
        request: RemotingCommand,
        patience_end: float,
        expression: str | None,
        answer: Callable[[Any], None],
    ) -> None:
        self.answer = answer
        self.connection = connection
        self.request = request
        self.patience_end = patience_end
        self.held_bytes = PARKED_BYTES + len(expression or "")
        self.is_parked = False
        self.waited_for: object = None  # what it waits for, or waited for last
        self.is_delayed = False  # it waits for a quota, or did, and is counted among those
        self.fetch_end: float | None = None  # until then it waits for the disk, since it has begun to
        self.failure: str | None = None  # why what it waits for was not read from the disk
        self.since = inf  # when it left: since when it was held
        self.waiter: Waits | None = None

    def waited_like(self, former: Parked) -> None:
        """Continue the wait of this request, which was parked before: its deadlines are still in the heap."""
        self.waited_for = former.waited_for
        self.is_delayed = former.is_delayed
        self.fetch_end = former.fetch_end
        self.failure = former.failure

    def end_time(self, now: float) -> None:
        """Let its time be over at `now`: it may not be held again."""
        self.patience_end = min(self.patience_end, now)
        self.fetch_end = now if self.fetch_end is None else min(self.fetch_end, now)


class ParkedPull(Parked):
    """One waiting pull. Up to the queue offset `scanned_offset` nothing matched its filter."""

    __slots__ = ("header", "message_filter", "scanned_offset")

    def __init__(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        patience_end: float,
        answer: Callable[[Any], None],
    ) -> None:
        super().__init__(connection, request, patience_end, header.subscription, answer)
        self.header = header
        self.message_filter: MessageFilter | None = None
        self.scanned_offset = header.queue_offset

    def again(self) -> ParkedPull:
        """Return the same pull, to be held once more."""
        pull = ParkedPull(self.connection, self.request, self.header, self.patience_end, self.answer)
        pull.waited_like(self)
        return pull


_Deadline: TypeAlias = tuple[float, int, Parked]


class LongPolling:
    """All parked requests."""

    def __init__(self, store: DefaultMessageStore, pool: Pool) -> None:
        self._store = store
        self._pool = pool
        self._deadlines: list[_Deadline] = []
        self._numbers = count()
        self._by_connection: dict[Connection, dict[Parked, None]] = {}  # the oldest first
        self._by_address: dict[str, dict[Connection, None]] = {}
        self._largest_holder: Connection | None = None
        self._largest_held = 0  # by it, when it was found
        self._to_purge: list[_Deadline] = []  # of the heap before; see `_purge`
        self._gone: deque[Parked] = deque()  # pulls of closed connections
        self._is_running = False
        self._sooner = trio.Event()
        self.has_ended = False
        """The broker stops: no pull is held any more."""
        self._to_return = 0
        self._all_answered = trio.Event()
        self._all_returned = trio.Event()
        pool.make_room = self.make_room

    def __len__(self) -> int:
        return sum(map(len, self._by_connection.values()))

    def hold_for_news(self, parked: ParkedPull, message_filter: MessageFilter | None) -> None:
        """Hold a pull until there is a message for it behind its queue offset, or its client's patience ends."""
        parked.message_filter = message_filter
        self._enter(parked, parked.patience_end)
        self._wait(parked)
        self._check_memory(parked)

    def hold(self, parked: Parked, due: float) -> None:
        """Hold a pull until `due` (trio's time)."""
        self._enter(parked, due)
        self._check_memory(parked)

    async def end(self) -> None:
        """Respond to all held pulls, and refuse those that come from now on: the broker stops. Return when as many have
        come as were held, or a short time later: clients that pull again at once have their refusal then."""
        self.has_ended = True
        self._to_return = len(self)
        if not self._to_return:
            return
        self._sooner.set()
        with trio.move_on_after(ANSWERING_SECONDS):
            await self._all_answered.wait()
        with trio.move_on_after(RETURN_SECONDS):
            await self._all_returned.wait()

    def patience_end(self, wait_ms: int) -> float:
        """Return until when (trio's time) a request may be held whose client waits this long, from now on."""
        return self._pool.clock() + wait_ms / 1000

    def refusal(self) -> RequestRefused:
        """Return the refusal of a pull that came after `end`."""
        self._to_return -= 1
        if self._to_return <= 0:
            self._all_returned.set()
        return RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker stops")

    def held_by(self, connection: Connection) -> int:
        """Return the number of pulls of a connection."""
        return len(self._by_connection.get(connection, ()))

    def queues_of(self, connection: Connection, group: str, most: int) -> list[tuple[str, int]]:
        """Return topic and queue id of pulls of a connection for a group; of at most this number of its pulls."""
        held = islice(self._by_connection.get(connection, ()), most)
        headers = [parked.header for parked in held if isinstance(parked, ParkedPull)]
        return [(header.topic, header.queue_id) for header in headers if header.consumer_group == group]

    def _enter(self, parked: Parked, due: float) -> None:
        connection = parked.connection
        parked.is_parked = True
        parked.held_bytes += parked.request.held_bytes
        self._pool.entered(parked)
        mine = self._by_connection.get(connection)
        if mine is None:
            mine = self._by_connection[connection] = {}
            self._by_address.setdefault(connection.remote.ip, {})[connection] = None
        mine[parked] = None
        if not self._deadlines or due < self._deadlines[0][0]:
            self._sooner.set()
        heappush(self._deadlines, (due, next(self._numbers), parked))

    def _check_memory(self, parked: Parked) -> None:
        if parked.connection.hold(parked.held_bytes):
            holder = self._find_largest_holder()
            if holder is not None:
                self._evict(holder)

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
        """Make room for a pull of `connection`: respond to the oldest pulls of the connection of which most are held.
        Return whether there is room now. There is none if `connection` itself is that one."""
        if self._gone:
            self._forget_gone()
            return True
        holder = self._find_largest_holder()
        if holder is None or holder is connection:
            return False
        self._evict(holder)
        return True

    def _evict(self, connection: Connection) -> None:
        """Give the oldest pulls of a connection their response."""
        held = self._by_connection[connection]
        now = trio.current_time()
        for parked in list(islice(held, min(len(held) // EVICTED_SHARE + 1, EVICTED_AT_ONCE))):
            parked.end_time(now)
            self._finish(parked)

    def _find_largest_holder(self) -> Connection | None:
        """Return the connection that holds the most pulls, of the address that holds the most."""
        known = self._largest_holder
        if known is not None and 4 * len(self._by_connection.get(known, ())) > 3 * self._largest_held:
            return known
        held = self._by_connection

        def of_address(connections: dict[Connection, None]) -> int:
            return sum([len(held[connection]) for connection in connections])

        if not held:
            return None
        connections = max(self._by_address.values(), key=of_address)
        self._largest_holder = max(connections, key=lambda connection: len(held[connection]))
        self._largest_held = len(held[self._largest_holder])
        return self._largest_holder

    def _leave(self, connection: Connection) -> None:
        """Forget a connection that holds no pull any more."""
        del self._by_connection[connection]
        same_address = self._by_address[connection.remote.ip]
        del same_address[connection]
        if not same_address:
            del self._by_address[connection.remote.ip]
        if self._largest_holder is connection:
            self._largest_holder = None
        if self.has_ended and not self._by_connection:
            self._all_answered.set()

    def time_jumped(self, seconds: float) -> None:
        """Shift the deadlines: the clock jumped ahead, but the clients did not wait that long."""
        for deadlines in (self._deadlines, self._to_purge):
            for at, (due, number, parked) in enumerate(deadlines):
                parked.patience_end += seconds
                if parked.fetch_end is not None:
                    parked.fetch_end += seconds
                deadlines[at] = (due + seconds, number, parked)

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

    def run_again(self, parked: Parked) -> None:
        """Run a request before its time, unless it has its response by now."""
        if parked.is_parked and parked.connection.is_open:
            self._finish(parked)

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
                log.exception("filter failed", group=header.consumer_group, topic=header.topic)
                return True
            if found.status is not _NO_MATCH:
                return True
            parked.scanned_offset = found.next_begin_offset
            if parked.scanned_offset >= found.max_offset:
                return False
            if parked.connection.must_wait():
                return True
        return True

    def _finish(self, parked: Parked) -> None:
        mine = self._by_connection.get(parked.connection)
        if mine is not None:
            mine.pop(parked, None)
            if not mine:
                self._leave(parked.connection)
        self._forget(parked)
        parked.answer(parked)

    def _forget(self, parked: Parked) -> None:
        parked.is_parked = False
        parked.connection.hold(-parked.held_bytes)
        parked.since = self._pool.left(parked)
        if parked.waiter is not None:
            parked.waiter.cancel()
            parked.waiter = None
        if self._must_purge():
            self._sooner.set()
            if not self._is_running:
                for _ in self._purge():
                    pass

    def _must_purge(self) -> bool:
        """Return whether most deadlines belong to pulls that have their response."""
        return len(self._deadlines) > max(PURGE_AT_ONCE, 4 * self._pool.in_flight)

    def _purge(self) -> Generator[None, None, None]:
        """Make a heap of the deadlines of those that are still parked, in steps."""
        self._to_purge, self._deadlines = self._deadlines, self._to_purge
        while self._to_purge:
            for entry in self._to_purge[-PURGE_AT_ONCE:]:
                if entry[2].is_parked:
                    heappush(self._deadlines, entry)
            del self._to_purge[-PURGE_AT_ONCE:]  # to free them all at once would take as long as to look at them
            yield

    async def run(self) -> None:
        """Respond to pulls whose time is over; runs until cancelled."""
        self._is_running = True
        try:
            while True:
                self._sooner = trio.Event()
                await NO_LINE.run(self._do_what_is_due())
                due = self._deadlines[0][0] if self._deadlines else inf
                # Wait until the exact time: a wait for the difference may round to zero, and a virtual clock would
                # stand still.
                with trio.move_on_at(due):
                    await self._sooner.wait()
        finally:
            self._is_running = False

    def _do_what_is_due(self) -> Generator[None, None, None]:
        """Forget the pulls of closed connections and respond to those whose time is over, in steps."""
        is_more = True
        while is_more:
            while self._gone:
                self._forget_gone()
                yield
            if self._must_purge():
                yield from self._purge()
            is_more = self._respond()
            if is_more:
                yield

    def _respond(self) -> bool:
        """Respond to some of the pulls whose time is over: all of them when the broker stops. Return whether there may
        be more."""
        dropped = responses = 0
        while self._deadlines and dropped < PURGE_AT_ONCE and responses < RESPONSES_IN_A_ROW:
            due, _, parked = self._deadlines[0]
            if not parked.is_parked:
                dropped += 1
            elif due <= trio.current_time() or self.has_ended:
                responses += 1
            else:
                return False
            heappop(self._deadlines)
            if parked.is_parked:
                if self.has_ended:
                    parked.end_time(trio.current_time())
                self._finish(parked)
        return len(self._deadlines) > 0
