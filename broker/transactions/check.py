"""CheckRun: one check run over a queue of half messages, as a pure state machine (RocketMQ:
TransactionalMessageServiceImpl.check).

Half messages wait in RMQ_SYS_TRANS_HALF_TOPIC; an op message names a half message whose transaction has ended, or which
was discarded or put back. A run walks the half queue from where the previous one stopped, and decides for each half
message that no op message names:

    too young            the run ends here
    maybe ended          more op messages are read first
    not ended, too old   it is discarded                                        DISCARD
    not ended, immune    it is put back behind the others, nobody is asked      PUT_BACK
    not ended            it is put back, and its producer is asked              CHECK

`CheckRun.step` reads through `CheckReads` and returns the next action; the driver performs it and reports the outcome
with `carried_out`. The run holds offsets and the op messages read so far, but no clock, store or task.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from msgspec import Struct

from triomq.broker.transactions.ends import ENDED, ENDS
from triomq.broker.transactions.half_message import HalfMessage as HalfMessage
from triomq.broker.transactions.half_message import small_number
from triomq.protocol import property_names as names

MAX_RUN_MS = 60_000
"""The longest duration of a run over one queue."""
MAX_OPS_HELD = 1_000_000
"""Op messages held before the half message they end is reached; beyond this number the half message counts as not
ended."""
STEPS_BEFORE_PAUSE = 256


class OpMessage(Struct, frozen=True):
    """An op message: its own queue offset, and that of the half message that needs no further check (None if its body
    names none). `state` says why, as in ends.py."""

    queue_offset: int
    half_offset: int | None
    born_timestamp: int
    state: int = ENDED
    physical_offset: int = 0

    @property
    def is_end(self) -> bool:
        """Return True if the transaction ended; False if the half message was discarded, or has a copy."""
        return self.state in ENDS


class OpPull(Struct, frozen=True):
    """Op messages from a queue offset on. `is_moved`: that offset was outside the queue, or no message could be read
    there, so the op queue counts as consumed up to `next_offset`."""

    messages: list[OpMessage]
    next_offset: int
    is_moved: bool = False


class HalfRead(Struct, frozen=True):
    """The half message at a queue offset. Without one: whether that is the end of the queue, or the offset to continue
    at."""

    message: HalfMessage | None
    is_end: bool = False
    next_offset: int = 0


class CheckReads(Protocol):
    """The reads of a run."""

    def pull_ops(self, queue_id: int, queue_offset: int) -> OpPull: ...

    def read_half(self, queue_id: int, queue_offset: int) -> HalfRead: ...


class CheckRules(Struct, frozen=True):
    """transactionTimeOut, transactionCheckMax and fileReservedTime; times in ms."""

    timeout_ms: int
    check_max: int
    reserved_ms: int


class Kind(Enum):
    PAUSE = "pause"  # nothing to do; yield to other tasks, then step again
    DISCARD = "discard"  # copy the message to TRANS_CHECK_MAX_TIME_TOPIC
    PUT_BACK = "put back"  # store a copy in the half topic
    CHECK = "check"  # store a copy, then ask the producer about it
    END = "end"  # the run is over; keep the offsets


class Action(Struct, frozen=True):
    """What to do next; `half` is set for all kinds that concern a message."""

    kind: Kind
    half: HalfMessage | None = None


PAUSE = Action(Kind.PAUSE)
END = Action(Kind.END)


def _check(half: HalfMessage) -> Action:
    """Count a check and return its action. Rounds in which the message was put back because it is immune count for
    nothing: with a long immunity it would be discarded before its producer was ever asked."""
    half.properties = half.properties.with_({names.TRANSACTION_CHECK_TIMES: str(half.check_times + 1)})
    return Action(Kind.CHECK, half)


class CheckRun:
    """See the module's docstring. `half_offset` and `op_offset` are the consumed offsets of the two queues."""

    def __init__(self, queue_id: int, half_offset: int, op_offset: int, start_ms: int, rules: CheckRules) -> None:
        self.queue_id = queue_id
        self.half_offset = half_offset
        self.op_offset = op_offset
        self.start_ms = start_ms
        self.rules = rules
        self._first_half_offset = half_offset
        self._next_op_offset = op_offset
        self._removed: dict[int, OpMessage] = {}  # half offset -> op, at or behind start
        self._earlier: set[int] = set()  # half offsets before the start that have ended
        self._done: set[int] = set()  # op offsets behind op_offset that are no longer needed
        self._pulled: OpPull | None = None
        self._half: HalfMessage | None = None  # the one at half_offset
        self._is_behind_gap = False  # the last pull found only op messages to pass over
        self._is_over = False

    def step(self, reads: CheckReads, now_ms: int) -> Action:
        """Advance to the next action and return it."""
        if self._pulled is None:
            self._pull(reads)
        for _ in range(STEPS_BEFORE_PAUSE):
            if self._is_over or not 0 <= now_ms - self.start_ms <= MAX_RUN_MS:
                return END  # also when the clock was set back: the run would not know its own copies
            if self._is_passed(self.half_offset):
                self._next()
                continue
            action = self._look_at(reads, now_ms)
            if action is not None:
                return action
        return PAUSE

    def carried_out(self, was_successful: bool) -> None:
        """Report whether the last action succeeded. If not, the run ends, and the next run begins with this message."""
        if was_successful:
            self._next()
        else:
            self._is_over = True

    # -- inside ------------------------------------------------------------------------------------------------------

    def _look_at(self, reads: CheckReads, now_ms: int) -> Action | None:
        half = self._half
        if half is None:
            half = self._read(reads)
            if half is None:
                return None
            if self._is_given_up(half, now_ms):
                return Action(Kind.DISCARD, half)
            self._half = half
        if self.start_ms <= half.store_timestamp <= now_ms:
            return END  # stored during this run; one with a later time was stored when the clock was ahead
        first_offset = small_number(half.properties.get(names.TRANSACTION_PREPARED_QUEUE_OFFSET))
        if first_offset is not None and self._is_passed(first_offset):
            self._next()
            return None
        return self._judge(half, now_ms - half.born_timestamp, reads)

    def _judge(self, half: HalfMessage, age_ms: int, reads: CheckReads) -> Action | None:
        limit_ms = self.rules.timeout_ms
        immunity = half.properties.get(names.CHECK_IMMUNITY_TIME_IN_SECONDS)
        first_offset_text = half.properties.get(names.TRANSACTION_PREPARED_QUEUE_OFFSET)
        if immunity is not None:
            seconds = small_number(immunity)
            limit_ms = min(seconds * 1000, self.rules.reserved_ms) if seconds is not None else limit_ms
            if age_ms < limit_ms:
                if first_offset_text is None:
                    first = {names.TRANSACTION_PREPARED_QUEUE_OFFSET: str(half.queue_offset)}
                    half.properties = half.properties.with_(first)
                return Action(Kind.PUT_BACK, half)
        elif 0 <= age_ms < limit_ms:
            return END
        assert self._pulled is not None
        newest = self._pulled.messages[-1] if self._pulled.messages else None
        if newest is None and self._is_behind_gap:
            self._pull(reads)
            return None
        if age_ms < 0 or newest is None or newest.born_timestamp - self.start_ms > self.rules.timeout_ms:
            return _check(half)
        if len(self._removed) + len(self._done) >= MAX_OPS_HELD:
            return _check(half)
        self._pull(reads)
        return None

    def _read(self, reads: CheckReads) -> HalfMessage | None:
        """Return the message at half_offset. Without one, half_offset advances to where the next may be (RocketMQ does
        so once in a run); if there is no such place, the run ends."""
        read = reads.read_half(self.queue_id, self.half_offset)
        if read.message is None:
            if read.is_end or read.next_offset == self.half_offset:
                self._is_over = True
            else:
                self.half_offset = read.next_offset
        return read.message

    def _is_given_up(self, half: HalfMessage, now_ms: int) -> bool:
        """Return whether the producer was asked often enough, or the message is too old to be asked about again."""
        is_old = now_ms - half.born_timestamp > self.rules.reserved_ms
        return half.check_times >= self.rules.check_max or (is_old and half.check_times > 0)

    def _next(self) -> None:
        self.half_offset += 1
        self._half = None

    def _is_passed(self, half_offset: int) -> bool:
        """Return True if an op message read so far names this half message; the op message is then no longer needed."""
        op = self._removed.pop(half_offset, None)
        if op is None:
            return half_offset in self._earlier
        self._finish_op(op.queue_offset)
        return True

    def _pull(self, reads: CheckReads) -> None:
        begin_offset = self._next_op_offset
        pulled = self._pulled = reads.pull_ops(self.queue_id, begin_offset)
        if pulled.is_moved and self.op_offset == begin_offset:
            self.op_offset = pulled.next_offset
        self._next_op_offset = pulled.next_offset
        self._is_behind_gap = pulled.is_moved and pulled.next_offset > begin_offset
        if pulled.messages:  # what cannot be read between them is needed no more, or op_offset would stay there
            readable = {op.queue_offset for op in pulled.messages}
            for op_offset in range(begin_offset, pulled.messages[-1].queue_offset):
                if op_offset not in readable:
                    self._finish_op(op_offset)
        for op in pulled.messages:
            # One that was put back and is passed already must not seem to end its copy, which is still to come.
            begin = self._first_half_offset if op.is_end else self.half_offset
            if op.half_offset is None or op.half_offset < begin:
                if op.half_offset is not None and op.is_end and len(self._earlier) < MAX_OPS_HELD:
                    self._earlier.add(op.half_offset)
                self._finish_op(op.queue_offset)
                continue
            again = self._removed.get(op.half_offset)
            self._removed[op.half_offset] = op
            if again is not None:
                self._finish_op(again.queue_offset)

    def _finish_op(self, op_offset: int) -> None:
        """Mark an op message as no longer needed; op_offset advances over all consecutive ones."""
        self._done.add(op_offset)
        while self.op_offset in self._done:
            self._done.remove(self.op_offset)
            self.op_offset += 1
