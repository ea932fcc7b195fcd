"""The follower's side: heartbeats and pushes.

The protocol has no previous index and term in a push, as Raft has. Only COMPARE says that two logs agree. So a follower
remembers up to which index its log is *proven*, that is, known to be a beginning of this leader's log in this term: by
a COMPARE or TRUNCATE that found an equal entry, and by what the leader appended since. It takes APPENDs only while its
whole log is proven, and answers all others with INCONSISTENT_STATE, which makes any leader compare. That holds after a
restart, under a new leader, after any difference, and when a push was missing for a second.

What is proven is never cut: a TRUNCATE that comes late, by another connection, would otherwise remove entries that the
leader has counted since.

Pushes that come early wait by their first index; `_waiting` is bounded. With SYNC_FLUSH an answer that the leader
counts as a copy waits in `_unsynced` until that copy is on disk; a leader receives it within the three seconds of a
call, or compares again.
"""

from __future__ import annotations

from collections import deque

from triomq.dledger.rules.actions import Role
from triomq.dledger.rules.core import NEVER, Core
from triomq.dledger.rules.log import LogRefused, PositionMismatch
from triomq.dledger.wire import bodies, codes
from triomq.dledger.wire.bodies import Entry, HeartBeatRequest, HeartBeatResponse, PushRequest


class Following:
    """Everything that a member knows of the leader that it follows."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._must_compare = True
        self._proven = -1
        self._proven_by: tuple[str | None, int] = (None, -1)
        self._waiting: dict[int, tuple[object, PushRequest]] = {}
        self._hole_since = NEVER
        self._unsynced: deque[tuple[int, object, PushRequest]] = deque()
        self.heard_at = 0

    def wake_at(self) -> int:
        if self._core.role is not Role.FOLLOWER:
            return NEVER
        timing = self._core.timing
        return min(self.heard_at + timing.lost_after_ms + 1, self._hole_since + timing.hole_ms)

    def leave(self) -> None:
        """Forget everything of a leader: this member follows it no more."""
        self._distrust()
        self._drop_unsynced()

    def has_lost_leader(self, now: int) -> bool:
        return self._core.role is Role.FOLLOWER and now - self.heard_at > self._core.timing.lost_after_ms

    # Heartbeats.

    def heart_beat(self, request: HeartBeatRequest, now: int) -> HeartBeatResponse:
        core = self._core
        leader = request.leader_id
        if leader is None or leader not in core.setup.members:
            return HeartBeatResponse(code=codes.UNKNOWN_MEMBER)
        if leader == core.self_id:
            return HeartBeatResponse(code=codes.UNEXPECTED_MEMBER)
        if request.term < core.term:
            return HeartBeatResponse(code=codes.EXPIRED_TERM, term=core.term)
        if request.term > core.term:
            core.to_candidate(request.term)
            return HeartBeatResponse(code=codes.TERM_NOT_READY)
        if core.leader is None:
            core.follow(leader)
        if core.leader != leader:
            return HeartBeatResponse(code=codes.INCONSISTENT_LEADER)
        self.heard_at = now
        return HeartBeatResponse()

    # Pushes.

    def push(self, ticket: object, request: PushRequest, now: int) -> None:
        core = self._core
        if core.role is not Role.FOLLOWER:
            self._core.reply_push(ticket, request, codes.NOT_FOLLOWER)
        elif request.type == bodies.PUSH_APPEND and request.entries:
            self._append(ticket, request, now)
        elif request.type == bodies.PUSH_COMPARE and request.entries:
            self._compare(ticket, request)
        elif request.type == bodies.PUSH_TRUNCATE and request.entries:
            self._truncate(ticket, request)
        elif request.type == bodies.PUSH_COMMIT:
            is_known = not self._is_of_leader(request) or not self._must_compare
            if self._is_of_leader(request) and is_known:
                core.commit(request.commit_index)
            self._core.reply_push(ticket, request, codes.SUCCESS if is_known else codes.INCONSISTENT_STATE)
        else:
            core.reply(ticket, bodies.refusal(request, codes.UNEXPECTED_ARGUMENT, core.leader))

    def _is_of_leader(self, request: PushRequest) -> bool:
        return request.term == self._core.term and request.leader_id == self._core.leader

    def _compare(self, ticket: object, request: PushRequest) -> None:
        log = self._core.log
        entry = request.entries[0]
        is_of_leader = self._is_of_leader(request)  # anybody else learns something, and changes nothing
        if is_of_leader:
            self._forget_waiting()
        if not self._core.has(entry):
            if is_of_leader and entry.index <= log.end_index:
                self._must_compare = True
                self._proven = min(self._proven, entry.index - 1)
            self._core.reply_push(ticket, request, codes.INCONSISTENT_STATE)
            return
        if is_of_leader:
            self._prove(entry.index)
        self._answer_when_synced(ticket, request)

    def _truncate(self, ticket: object, request: PushRequest) -> None:
        entry = request.entries[0]
        if not self._is_of_leader(request) or not self._has_sound_entries(request):
            self._core.reply_push(ticket, request, codes.INCONSISTENT_STATE)
            return
        self._forget_waiting()
        try:
            if self._core.has(entry):
                self._shorten(max(entry.index, self._proven_end()))
            else:
                self._replace_from(entry)
        except LogRefused:
            self._must_compare = True
            self._core.reply_push(ticket, request, codes.INCONSISTENT_STATE)
            return
        self._prove(self._core.log.end_index)
        self._answer_when_synced(ticket, request)

    def _shorten(self, end_index: int) -> None:
        if end_index < self._core.log.end_index:
            self._drop_unsynced()
            self._core.shorten(end_index)

    def _replace_from(self, entry: Entry) -> None:
        """Make the log end with an entry that it does not have. Raises LogRefused.

        What is before it stays only if it is proven. A leader that finds nothing in common sends its first entry; the
        two logs may have parted before that."""
        core = self._core
        self._drop_unsynced()
        self._proven = min(self._proven_end(), entry.index - 1)
        if self._proven == entry.index - 1 >= core.log.begin_index >= 0:
            core.shorten(entry.index - 1)
            try:
                core.log.write([entry])
                return
            except PositionMismatch:
                pass  # begin with the leader's entry
        core.reset(entry)

    def _append(self, ticket: object, request: PushRequest, now: int) -> None:
        if not self._is_of_leader(request) or self._must_compare or not self._has_sound_entries(request):
            self._core.reply_push(ticket, request, codes.INCONSISTENT_STATE)
            return
        first = request.entries[0].index
        if first > self._core.log.end_index + 1:
            self._wait(ticket, request, first, now)
        elif self._take(ticket, request):
            self._take_waiting(now)

    def _wait(self, ticket: object, request: PushRequest, first: int, now: int) -> None:
        if first in self._waiting:
            self._core.reply_push(ticket, request, codes.REPEATED_PUSH)
        elif len(self._waiting) >= self._core.timing.max_waiting:
            self._core.reply_push(ticket, request, codes.PUSH_REQUEST_IS_FULL)
        else:
            self._waiting[first] = (ticket, request)
            self._hole_since = min(self._hole_since, now)

    def _take_waiting(self, now: int) -> None:
        """Take what waited for the entries that have come, then forget what is no longer early."""
        progressed = False
        while (next_one := self._waiting.pop(self._core.log.end_index + 1, None)) is not None:
            progressed = True
            if not self._take(*next_one):
                return
        for first in [first for first in self._waiting if first <= self._core.log.end_index]:
            if not self._take(*self._waiting.pop(first)):
                return
        if not self._waiting:
            self._hole_since = NEVER
        elif progressed:
            self._hole_since = now

    def _take(self, ticket: object, request: PushRequest) -> bool:
        """Write the entries that are new; those that are there must be the same. Return whether all went well."""
        core = self._core
        end = core.log.end_index
        entries = request.entries
        known = [entry for entry in entries if entry.index <= end]
        new = entries[len(known) :]
        try:
            if not all(self._core.has(entry) for entry in known):
                raise PositionMismatch
            if new:
                core.log.write(new)
                self._prove(core.log.end_index)
        except (LogRefused, PositionMismatch):
            self._core.reply_push(ticket, request, codes.INCONSISTENT_STATE)
            self._distrust()
            return False
        core.commit(request.commit_index)
        self._answer_when_synced(ticket, request)
        return True

    def _has_sound_entries(self, request: PushRequest) -> bool:
        """Whether indexes follow each other, terms do not fall, and no entry is of a later term than the leader's."""
        previous: Entry | None = None
        for entry in request.entries:
            if entry.size != len(entry.body) + bodies.ENTRY_HEADER_BYTES or entry.index < 0 or entry.magic != 1:
                return False
            if previous is not None and (entry.index != previous.index + 1 or entry.term < previous.term):
                return False
            previous = entry
        return previous is not None and previous.term <= request.term

    # Agreement with the leader.

    def _proven_end(self) -> int:
        """Return up to which index the log is known to be a beginning of this leader's in this term. An entry of the
        present term can only have come from its leader."""
        log = self._core.log
        if log.end_term == self._core.term:
            return log.end_index
        if self._proven_by != (self._core.leader, self._core.term):
            return -1
        return min(self._proven, log.end_index)

    def _prove(self, index: int) -> None:
        self._proven = max(self._proven_end(), index)
        self._proven_by = (self._core.leader, self._core.term)
        if self._proven >= self._core.log.end_index:
            self._must_compare = False

    def _distrust(self) -> None:
        """Take no APPEND until the leader has compared."""
        self._must_compare = True
        self._forget_waiting()

    def _drop_unsynced(self) -> None:
        while self._unsynced:
            self._core.drop(self._unsynced.popleft()[1])

    def _forget_waiting(self) -> None:
        """Forget pushes that came early. A leader that compares sends them again, so they get no answer."""
        for ticket, _ in self._waiting.values():
            self._core.drop(ticket)
        self._waiting.clear()
        self._hole_since = NEVER

    def tick(self, now: int) -> None:
        """Make the leader compare if a push has been missing for too long. The answer INCONSISTENT_STATE says so; the
        first of the pushes that wait for the missing one gets it."""
        if now < self._hole_since + self._core.timing.hole_ms or not self._waiting:
            return
        ticket, request = self._waiting.pop(min(self._waiting))
        self._core.reply_push(ticket, request, codes.INCONSISTENT_STATE)
        self._distrust()

    # Answers.

    def synced(self) -> None:
        """Give the answers that waited for the disk."""
        while self._unsynced and self._unsynced[0][0] <= self._core.log.synced_index:
            _, ticket, request = self._unsynced.popleft()
            self._core.reply_push(ticket, request, codes.SUCCESS)

    def _answer_when_synced(self, ticket: object, request: PushRequest) -> None:
        """Answer SUCCESS when the entries count as copied. The order of answers does not matter to a leader, but the
        wait of each is that of the last entry before it."""
        last = request.entries[-1].index
        if self._core.copied_index >= last:
            self._core.reply_push(ticket, request, codes.SUCCESS)
        else:
            self._unsynced.append((last, ticket, request))
