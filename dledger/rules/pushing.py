"""The leader's side of one follower: COMPARE until both logs are known to agree up to an index, TRUNCATE what the
follower has behind it, then APPEND.

A follower that is far behind needs no entry for a quorum: it catches up, and gives way to clients that append. It gets
its entries in pieces with pauses between them; each piece has more entries than were appended since the one before, so
that it always comes nearer. Without this a leader would read and send all that may be on its way within one turn, and
members that share a machine would take each other's processor.

`_stretch` numbers the time between two changes of state; an answer to a call of an earlier stretch is ignored. APPENDs
are batches that are not waited for, up to a bound. Any answer other than SUCCESS, and any missing one, begins a new
COMPARE: repeating only the push in question can leave a follower behind that has lost another one.

RocketMQ steps back one entry a question to find where two logs part. Here the steps double, and then the place is found
by halving: what agrees at an index agrees before it.
"""

from __future__ import annotations

import enum

from triomq.dledger.rules.actions import Role
from triomq.dledger.rules.core import NEVER, Core
from triomq.dledger.wire import bodies, codes
from triomq.dledger.wire.bodies import Entry, PushResponse, Response


class _State(enum.Enum):
    COMPARE = "COMPARE"
    TRUNCATE = "TRUNCATE"
    APPEND = "APPEND"


class _Piece:
    """What a follower that catches up may get before the next pause: as many entries as were appended since the piece
    before this one, and a number of bytes more."""

    __slots__ = ("bytes_left", "end_at", "log_end", "next_at")

    def __init__(self) -> None:
        self.bytes_left = 0
        self.end_at = -1  # entries before this index do not count as bytes
        self.log_end = -1  # the end of the log when this piece began
        self.next_at = 0  # when the next one begins

    def begin(self, next_index: int, log_end: int, size_bytes: int, next_at: int) -> None:
        self.end_at = next_index + (log_end - self.log_end if self.log_end >= 0 else 0)
        self.log_end = log_end
        self.bytes_left = size_bytes
        self.next_at = next_at

    def room(self, next_index: int, most_entries: int, most_bytes: int) -> tuple[int, int]:
        """Return how many entries, and how many bytes, the next batch of this piece may have."""
        if next_index < self.end_at:
            return min(most_entries, self.end_at - next_index), most_bytes
        return most_entries, min(most_bytes, self.bytes_left)

    def took(self, batch: list[Entry]) -> None:
        if batch[0].index >= self.end_at:
            self.bytes_left -= batch[-1].pos + batch[-1].size - batch[0].pos


class Pusher:
    """One follower, as long as this member leads one term. `watermark`: the last index of which it has a copy that
    counts, as far as it has said so in this term."""

    def __init__(self, core: Core, peer: str) -> None:
        self._core = core
        self._term = core.term
        self._peer = peer
        self._stretch = 0
        self._paused_until = 0
        self._pushed_at = 0
        self._trouble_at = -NEVER
        self._committed_sent = -1
        self._must_truncate = False
        self._piece = _Piece()
        self.watermark = -1
        self._compare_from(core.log.end_index)

    # Changes of state.

    def _begin(self, state: _State, index: int) -> None:
        """Enter a state; `_next` is the index of the next entry to be sent in it."""
        self._stretch += 1
        self._state = state
        self._next = index
        self._outstanding = 0

    def _compare_from(self, index: int) -> None:
        self._begin(_State.COMPARE, index)
        self._agreed = -1  # the largest index that is known to agree
        self._differs = -1  # the smallest that is known to differ
        self._step = 1

    def _compare_again(self, now: int) -> None:
        """Begin again: at once after the first trouble in half a second, otherwise after a pause."""
        pause_ms = self._core.timing.push_pause_ms
        self._compare_from(self._core.log.end_index)
        self._paused_until = now + pause_ms if now < self._trouble_at + pause_ms else now
        self._trouble_at = now

    def _append_from(self, index: int) -> None:
        self.watermark = max(self.watermark, index - 1)
        self._begin(_State.APPEND, index)

    # Sending.

    def wake_at(self) -> int:
        if self._is_catching_up and self._outstanding < self._core.timing.catch_up_outstanding:
            return self._piece.next_at
        if self._outstanding:
            return NEVER
        if self._state is not _State.APPEND:
            return self._paused_until if self._core.log.end_index >= 0 else NEVER
        return self._pushed_at + self._commit_after_ms

    @property
    def _commit_after_ms(self) -> int:
        """How long after the last push the committed index is sent alone."""
        timing = self._core.timing
        return timing.commit_push_ms if self._committed_sent < self._core.committed else timing.idle_push_ms

    @property
    def _is_catching_up(self) -> bool:
        """Whether the follower is so far behind that nobody waits for it."""
        if self._state is not _State.APPEND:
            return False
        core = self._core
        return self._next <= core.committed and core.log.end_index - self._next >= core.timing.max_behind

    def _may_catch_up(self, now: int, *, is_busy: bool) -> bool:
        """Return whether this piece has room for another batch; begin the next one when its time has come."""
        piece = self._piece
        timing = self._core.timing
        if self._outstanding >= timing.catch_up_outstanding:
            return False
        if now >= piece.next_at:
            size, pause = (timing.busy_piece_bytes, timing.busy_pause_ms) if is_busy else (timing.idle_piece_bytes, 1)
            piece.begin(self._next, self._core.log.end_index, size, now + pause)
        return piece.bytes_left > 0 or self._next < piece.end_at

    def pump(self, now: int, *, is_busy: bool = False) -> None:
        """Send whatever may be sent at present. `is_busy`: clients append."""
        if self._state is not _State.APPEND:
            if not self._outstanding and now >= self._paused_until:
                self._ask(now)
            return
        log, timing = self._core.log, self._core.timing
        while self._next <= log.end_index and self._outstanding < timing.max_outstanding:
            if self._next < log.begin_index:
                self._compare_again(now)
                return
            most_entries, most_bytes = timing.max_batch_entries, timing.max_batch_bytes
            if self._is_catching_up:
                if not self._may_catch_up(now, is_busy=is_busy):
                    break
                most_entries, most_bytes = self._piece.room(self._next, most_entries, most_bytes)
            batch = log.batch(self._next, most_entries, most_bytes)
            self._piece.took(batch)
            self._next = batch[-1].index + 1
            self._push(bodies.PUSH_APPEND, batch, now)
        if now >= self._pushed_at + self._commit_after_ms:
            self._push(bodies.PUSH_COMMIT, [], now)

    def _ask(self, now: int) -> None:
        """Send the next COMPARE or TRUNCATE."""
        log = self._core.log
        if log.end_index < 0:
            self._next = 0  # nothing to compare before there is a first entry
            return
        if self._next < log.begin_index:
            self._begin(_State.TRUNCATE, log.begin_index)
        kind = bodies.PUSH_COMPARE if self._state is _State.COMPARE else bodies.PUSH_TRUNCATE
        self._push(kind, [log.entry(min(self._next, log.end_index))], now)

    def _push(self, kind: str, entries: list[Entry], now: int) -> None:
        core = self._core
        self._pushed_at = now
        if kind in (bodies.PUSH_APPEND, bodies.PUSH_COMMIT):  # followers commit nothing by the others
            self._committed_sent = core.committed
        request = bodies.push_request(
            kind,
            group=core.setup.group,
            leader=core.self_id,
            follower=self._peer,
            term=self._term,
            committed=core.committed,
            entries=entries,
        )
        stretch = self._stretch
        if kind == bodies.PUSH_COMMIT:
            core.call(self._peer, request, lambda answer, at: self._committed(stretch, answer, at))
            return
        self._outstanding += 1
        last = entries[-1].index
        core.call(self._peer, request, lambda answer, at: self._answered(stretch, last, answer, at))

    # Answers.

    def _answered(self, stretch: int, last: int, answer: Response | None, now: int) -> None:
        core = self._core
        if stretch != self._stretch or core.role is not Role.LEADER or core.term != self._term:
            return
        self._outstanding -= 1
        if not isinstance(answer, PushResponse):
            self._compare_again(now)
        elif self._state is _State.APPEND:
            self._appended(last, answer, now)
        elif self._state is _State.TRUNCATE:
            if answer.code == codes.SUCCESS:
                self._must_truncate = False
                self._append_from(last + 1)
            else:
                self._compare_again(now)
        elif answer.code == codes.SUCCESS:
            self._agrees(last, answer)
        elif answer.code == codes.INCONSISTENT_STATE:
            self._disagrees(last, answer)
        else:
            self._compare_again(now)

    def _committed(self, stretch: int, answer: Response | None, now: int) -> None:
        """Compare with a follower that has restarted: it takes nothing before. RocketMQ's answer SUCCESS always."""
        if stretch == self._stretch and isinstance(answer, PushResponse) and answer.code == codes.INCONSISTENT_STATE:
            self._compare_again(now)

    def _appended(self, last: int, answer: PushResponse, now: int) -> None:
        if answer.code == codes.SUCCESS:
            self.watermark = max(self.watermark, last)
        else:
            # A member of RocketMQ that has restarted may want its next entry in the next file: a cut puts that right.
            self._must_truncate = answer.code == codes.INCONSISTENT_STATE
            self._compare_again(now)

    def _agrees(self, index: int, answer: PushResponse) -> None:
        self._agreed = index
        if answer.end_index == index and not self._must_truncate:
            self._append_from(index + 1)
        elif self._differs in (-1, index + 1):
            self._begin(_State.TRUNCATE, index)
        else:
            self._begin(_State.COMPARE, (index + self._differs) // 2)

    def _disagrees(self, index: int, answer: PushResponse) -> None:
        """Choose the next index to compare from the range of the follower's indexes in its answer."""
        log = self._core.log
        floor = max(log.begin_index, answer.begin_index)
        if answer.end_index < log.begin_index or answer.begin_index > log.end_index:
            self._begin(_State.TRUNCATE, log.begin_index)
        elif index > answer.end_index:
            self._begin(_State.COMPARE, answer.end_index)
        elif index <= floor:
            self._begin(_State.TRUNCATE, log.begin_index)
        else:
            self._differs = index
            if self._agreed < 0:
                self._begin(_State.COMPARE, max(floor, index - self._step))
                self._step *= 2
            elif index - self._agreed == 1:
                self._begin(_State.TRUNCATE, self._agreed)
            else:
                self._begin(_State.COMPARE, (index + self._agreed) // 2)
