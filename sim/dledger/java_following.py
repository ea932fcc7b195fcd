"""A follower by RocketMQ's rules: APPENDs wait in a map by their first index, all other pushes in a queue.

Nothing is proven: whatever follows the end and comes from the known leader of this term is written, and a TRUNCATE cuts
whatever is behind it.
"""

from __future__ import annotations

from collections import deque

from triomq.dledger.rules.actions import Committed, Role
from triomq.dledger.rules.core import NEVER, Core
from triomq.dledger.rules.log import LogRefused, PositionMismatch
from triomq.dledger.wire import bodies, codes
from triomq.dledger.wire.bodies import Entry, PushRequest

SWEEP_MS = 1000
MAX_QUEUED = 1024


def raise_committed(core: Core, index: int) -> None:
    """Take a committed index as updateCommittedIndex does: an older one is ignored, the end of the log bounds it."""
    log = core.log
    if index < 0 or log.end_index < 0 or index <= core.committed or index < log.begin_index:
        return
    bounded = min(index, log.end_index)
    if bounded != core.committed:
        core.committed = bounded
        core.actions.append(Committed(bounded))


class _Waiting:
    """An APPEND in the map. It may be there although it has its answer (D5)."""

    __slots__ = ("is_answered", "request", "since", "ticket")

    def __init__(self, ticket: object, request: PushRequest, since: int) -> None:
        self.ticket = ticket
        self.request = request
        self.since = since
        self.is_answered = False


class JavaFollowing:
    """Pushes at a member, whatever its role is."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._map: dict[int, _Waiting] = {}
        self._queue: deque[tuple[object, PushRequest]] = deque()
        self._swept_at = 0

    def wake_at(self) -> int:
        if self._core.role is not Role.FOLLOWER or not self._map:
            return NEVER
        return self._swept_at + SWEEP_MS

    def push(self, ticket: object, request: PushRequest, now: int) -> None:
        if request.type == bodies.PUSH_APPEND:
            first = request.entries[0].index
            if first in self._map:
                self._core.reply_push(ticket, request, codes.REPEATED_PUSH)
            else:
                self._map[first] = _Waiting(ticket, request, now)
            return
        if request.type in (bodies.PUSH_COMPARE, bodies.PUSH_TRUNCATE):
            self._forget_map()
        if len(self._queue) >= MAX_QUEUED:
            self._core.reply_push(ticket, request, codes.PUSH_REQUEST_IS_FULL)
        else:
            self._queue.append((ticket, request))

    def work(self, now: int) -> None:
        """Handle what waits: the queue first, then the APPENDs that follow the end."""
        core = self._core
        while self._queue:
            ticket, request = self._queue.popleft()
            if core.role is not Role.FOLLOWER:
                self._core.reply_push(ticket, request, codes.NOT_FOLLOWER)
            elif request.type == bodies.PUSH_COMPARE:
                is_same = core.has(request.entries[0])
                self._core.reply_push(ticket, request, codes.SUCCESS if is_same else codes.INCONSISTENT_STATE)
            elif request.type == bodies.PUSH_TRUNCATE:
                self._truncate(ticket, request)
            else:
                if request.term >= core.term:
                    raise_committed(core, request.commit_index)
                self._core.reply_push(ticket, request, codes.SUCCESS)
        if core.role is not Role.FOLLOWER:
            return
        while (waiting := self._map.pop(core.log.end_index + 1, None)) is not None:
            self._append(waiting)
        if now >= self._swept_at + SWEEP_MS:
            self._swept_at = now
            self._sweep(now)

    def _is_of_leader(self, request: PushRequest) -> bool:
        return request.term == self._core.term and request.leader_id == self._core.leader

    def _append(self, waiting: _Waiting) -> None:
        request = waiting.request
        code = codes.INCONSISTENT_STATE
        if self._is_of_leader(request):
            try:
                for entry in request.entries:
                    self._core.log.write([entry])
                code = codes.SUCCESS
            except (LogRefused, PositionMismatch):
                pass
        self._complete(waiting, code)
        if code == codes.SUCCESS and request.term >= self._core.term:
            raise_committed(self._core, request.commit_index)

    def _truncate(self, ticket: object, request: PushRequest) -> None:
        code = codes.INCONSISTENT_STATE
        if self._is_of_leader(request) and self._cut_at(request.entries[0]):
            code = codes.SUCCESS
            raise_committed(self._core, request.commit_index)
        self._core.reply_push(ticket, request, code)

    def _cut_at(self, entry: Entry) -> bool:
        """Make the log end with an entry. The committed index stays, whatever was cut (D2)."""
        core = self._core
        log = core.log
        if core.has(entry):
            log.cut(entry.index)
            return True
        if not log.can_append:
            return False
        try:
            if 0 <= log.begin_index < entry.index <= log.end_index + 1:
                log.cut(entry.index - 1)
                log.write([entry])
                return True
        except PositionMismatch:
            pass
        log.reset(entry)
        return True

    def _sweep(self, now: int) -> None:
        """Answer what is behind the end, and one of those that wait too long (checkAbnormalFuture)."""
        end = self._core.log.end_index
        lowest: _Waiting | None = None
        for first, waiting in list(self._map.items()):
            entries = waiting.request.entries
            if entries[-1].index <= end:
                is_same = all(self._core.has(entry) for entry in entries)
                self._complete(waiting, codes.SUCCESS if is_same else codes.INCONSISTENT_STATE)
                del self._map[first]
            elif now - waiting.since > SWEEP_MS and (lowest is None or first < lowest.request.entries[0].index):
                lowest = waiting
        if lowest is not None:
            self._complete(lowest, codes.INCONSISTENT_STATE)  # it stays in the map (D5)

    def _forget_map(self) -> None:
        for waiting in self._map.values():
            if not waiting.is_answered:
                self._core.drop(waiting.ticket)
        self._map.clear()

    # Answers.

    def _complete(self, waiting: _Waiting, code: int) -> None:
        if not waiting.is_answered:
            waiting.is_answered = True
            self._core.reply_push(waiting.ticket, waiting.request, code)
