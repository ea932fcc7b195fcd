"""A leader's view of one follower by RocketMQ's rules (EntryDispatcher): one entry a push, one step back a COMPARE, and
after a second without an answer the push behind the watermark again."""

from __future__ import annotations

from triomq.dledger.rules.actions import Role
from triomq.dledger.rules.core import NEVER, Core, Handler
from triomq.dledger.wire import bodies, codes
from triomq.dledger.wire.bodies import Entry, PushResponse, Response

MAX_PENDING = 1000
REPEAT_MS = 1000
COMMIT_MS = 1000
PAUSE_MS = 500


class JavaPusher:
    """One follower in one term. `watermark`: the last index of which it has said in this term that it has it."""

    def __init__(self, core: Core, peer: str) -> None:
        self._core = core
        self._peer = peer
        self._term = core.term
        self._state = bodies.PUSH_COMPARE
        self._index = -1  # the next entry to compare, to truncate at, or to append; -1: the leader's end
        self._is_waiting = False  # for the answer to a COMPARE or TRUNCATE
        self._paused_until = 0
        self._pending: dict[int, int] = {}  # index -> when it was sent
        self._pushed_at = 0
        self.watermark = -1

    def wake_at(self) -> int:
        if self._is_waiting:
            return NEVER
        if self._state != bodies.PUSH_APPEND:
            return self._paused_until if self._core.log.end_index >= 0 else NEVER
        sent_at = self._pending.get(self.watermark + 1)
        return min(self._pushed_at + COMMIT_MS + 1, sent_at + REPEAT_MS + 1 if sent_at is not None else NEVER)

    def pump(self, now: int) -> None:
        if self._state == bodies.PUSH_APPEND:
            self._append(now)
        elif not self._is_waiting and now >= self._paused_until and self._core.log.end_index >= 0:
            self._ask(now)

    # COMPARE and TRUNCATE.

    def _compare(self) -> None:
        self._state = bodies.PUSH_COMPARE
        self._index = -1
        self._pending.clear()

    def _ask(self, now: int) -> None:
        log = self._core.log
        if not log.begin_index <= self._index <= log.end_index:
            self._index = log.end_index
        self._is_waiting = True
        index = self._index
        self._push(self._state, log.entry(index), now, lambda answer, at: self._answered(index, answer, at))

    def _answered(self, index: int, answer: Response | None, now: int) -> None:
        self._is_waiting = False
        found = answer if isinstance(answer, PushResponse) else None
        if self._state == bodies.PUSH_TRUNCATE:
            if found is not None and found.code == codes.SUCCESS:
                self._append_from(index + 1)
                return
        elif found is not None and found.code == codes.SUCCESS:
            if found.end_index == index:
                self._append_from(index + 1)
            else:
                self._truncate_at(index)
            return
        elif found is not None and found.code == codes.INCONSISTENT_STATE:
            self._step_back(index, found)
            return
        self._paused_until = now + PAUSE_MS
        self._compare()

    def _step_back(self, index: int, answer: PushResponse) -> None:
        log = self._core.log
        has_overlap = answer.end_index >= log.begin_index and answer.begin_index <= log.end_index
        if not has_overlap or index < answer.begin_index:
            self._truncate_at(log.begin_index)
        else:
            self._index = answer.end_index if index > answer.end_index else index - 1
            if self._index < log.begin_index:
                self._truncate_at(log.begin_index)

    def _truncate_at(self, index: int) -> None:
        self._state = bodies.PUSH_TRUNCATE
        self._index = index

    # APPEND.

    def _append_from(self, index: int) -> None:
        self.watermark = max(self.watermark, index - 1)
        self._state = bodies.PUSH_APPEND
        self._index = index

    def _append(self, now: int) -> None:
        log = self._core.log
        while self._state == bodies.PUSH_APPEND and self._index <= log.end_index and len(self._pending) < MAX_PENDING:
            self._send(self._index, now)
            self._index += 1
        if self._state != bodies.PUSH_APPEND:
            return
        sent_at = self._pending.get(self.watermark + 1)
        if sent_at is not None and now - sent_at > REPEAT_MS:
            self._send(self.watermark + 1, now)
        if now - self._pushed_at > COMMIT_MS:
            self._push(bodies.PUSH_COMMIT, None, now, lambda answer, at: None)

    def _send(self, index: int, now: int) -> None:
        log = self._core.log
        if not log.begin_index <= index <= log.end_index:
            self._compare()
            return
        self._pending[index] = now
        self._push(bodies.PUSH_APPEND, log.entry(index), now, lambda answer, at: self._appended(index, answer))

    def _appended(self, index: int, answer: Response | None) -> None:
        if not isinstance(answer, PushResponse) or self._core.term != self._term:
            return
        if answer.code == codes.SUCCESS:
            self.watermark = max(self.watermark, index)
            for done in [done for done in self._pending if done <= self.watermark]:
                del self._pending[done]
        elif answer.code == codes.INCONSISTENT_STATE and self._state == bodies.PUSH_APPEND:
            self._compare()

    def _push(self, kind: str, entry: Entry | None, now: int, handler: Handler) -> None:
        core = self._core
        assert core.role is Role.LEADER
        self._pushed_at = now
        request = bodies.push_request(
            kind,
            group=core.setup.group,
            leader=core.self_id,
            follower=self._peer,
            term=self._term,
            committed=core.committed,
            entries=[entry] if entry is not None else [],
        )
        core.call(self._peer, request, handler)
