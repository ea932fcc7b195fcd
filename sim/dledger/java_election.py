"""Votes by RocketMQ's rules (DLedgerLeaderElector): a candidate asks in the term that it has, without a look round, and
raises it when a round has shown that it must.

A round holds up the candidate's own loop until it has a result or its time is over; requests of others are answered
meanwhile. So a larger term that one of them names is taken over afterwards only.
"""

from __future__ import annotations

from triomq.dledger.rules.actions import Role
from triomq.dledger.rules.core import NEVER, Core
from triomq.dledger.wire import bodies, codes
from triomq.dledger.wire.bodies import Response, VoteRequest, VoteResponse

LOOP_MS = 10
ROUND_MS = 2000
WAIT_LOW_MS, WAIT_HIGH_MS = 300, 999
TAKING_LOW_MS, TAKING_HIGH_MS = 30, 99
HAS_LEADER_MS = 6000
LONGER_LOG_MS = 1000

_LARGER_TERM = (codes.REJECT_EXPIRED_VOTE_TERM, codes.REJECT_TERM_SMALL_THAN_LEDGER)
_LONGER_LOG = (codes.REJECT_EXPIRED_LEDGER_TERM, codes.REJECT_SMALL_LEDGER_END_INDEX)


class _Round:
    def __init__(self, term: int, ends_at: int) -> None:
        self.term = term
        self.ends_at = ends_at
        self.results: list[tuple[str, int]] = []

    def count(self, *results: str) -> int:
        return sum(result in results for result, _ in self.results)


class JavaElection:
    """The candidate's side and the voter's."""

    def __init__(self, core: Core, now: int) -> None:
        self._core = core
        self._known = core.term  # the largest term heard of
        self._must_raise_now = False
        self._must_raise = False  # before the next round
        self._next_at = now
        self._loop_at = now
        self._round: _Round | None = None
        self.taking_term = -1

    # The candidate.

    def candidate_of(self, term: int, now: int, *, at_once: bool = False) -> None:
        """Follow and lead nobody. The term is raised later: at once means in the next pass of the loop."""
        core = self._core
        self._known = max(self._known, term)
        self._must_raise_now = self._must_raise_now or at_once
        if at_once:
            self._loop_at = now + LOOP_MS
        core.to_candidate(core.term)

    def wake_at(self) -> int:
        if self._core.role is not Role.CANDIDATE:
            return NEVER
        if self._round is not None:
            return self._round.ends_at
        return self._loop_at if self._must_raise_now else self._next_at

    def tick(self, now: int) -> None:
        if self._round is not None and now >= self._round.ends_at:
            self._end_round(self._round, now)
        core = self._core
        if core.role is not Role.CANDIDATE or self._round is not None or now < self.wake_at():
            return
        if self._must_raise or self._must_raise_now:
            core.raise_term(max(self._known, core.term + 1))
            self._known = core.term
            self._must_raise = False
        if self._must_raise_now:
            self._must_raise_now = False
            self._next_at = now + self._random_wait()
            return
        self._ask(now)

    def _random_wait(self) -> int:
        if self.taking_term == self._core.term:
            return self._core.draw(TAKING_LOW_MS, TAKING_HIGH_MS)
        return self._core.draw(WAIT_LOW_MS, WAIT_HIGH_MS)

    def _ask(self, now: int) -> None:
        core = self._core
        asked = self._round = _Round(core.term, now + ROUND_MS + core.draw(0, WAIT_HIGH_MS))
        for member in core.setup.members:
            if member == core.self_id:
                self._voted(asked, self.answer(core.vote_request(member), now), now)
            else:
                core.call(member, core.vote_request(member), lambda answer, at: self._voted(asked, answer, at))

    def _voted(self, asked: _Round, answer: Response | None, now: int) -> None:
        """Count an answer. The round ends at a leader, at a quorum, or when all have answered, as its latch does."""
        is_vote = isinstance(answer, VoteResponse)
        asked.results.append((answer.vote_result, answer.term) if is_vote else (codes.VOTE_UNKNOWN, -1))  # type: ignore[union-attr]
        quorum = self._core.quorum
        is_over = (
            asked.count(codes.REJECT_ALREADY_HAS_LEADER) > 0
            or asked.count(codes.ACCEPT, codes.REJECT_TERM_NOT_READY) >= quorum
            or len(asked.results) == len(self._core.setup.members)
        )
        if self._round is asked and is_over:
            self._end_round(asked, now)

    def _end_round(self, asked: _Round, now: int) -> None:
        """Decide by the first rule that fits."""
        core = self._core
        self._round = None
        if core.role is not Role.CANDIDATE or core.term != asked.term:
            return
        quorum = core.quorum
        answered = len(asked.results) - asked.count(codes.VOTE_UNKNOWN)
        larger = max((term for result, term in asked.results if result in _LARGER_TERM), default=-1)
        self._must_raise = False
        self._next_at = now + self._random_wait()
        if larger > core.term:
            self.candidate_of(larger, now)
            self._must_raise = True
        elif asked.count(codes.REJECT_ALREADY_HAS_LEADER):
            self._next_at += HAS_LEADER_MS
        elif answered < quorum:
            pass
        elif answered - asked.count(*_LONGER_LOG) < quorum:
            self._next_at += LONGER_LOG_MS
        elif asked.count(codes.ACCEPT) >= quorum:
            core.lead()
        elif asked.count(codes.ACCEPT, codes.REJECT_TERM_NOT_READY) >= quorum:
            self._next_at = now + LOOP_MS
        else:
            self._must_raise = True

    # The voter.

    def answer(self, request: VoteRequest, now: int) -> VoteResponse:
        own_term = self._core.term
        result = self._judge(request, now)
        term = self._core.log.end_term if result == codes.REJECT_TERM_SMALL_THAN_LEDGER else own_term
        return bodies.vote_response(request, result, term)

    def _judge(self, request: VoteRequest, now: int) -> str:
        """The first rule that fits, of 1 to 11."""
        core = self._core
        log = core.log
        candidate = request.leader_id
        is_own = request.local_id == core.self_id
        if candidate is None or candidate not in core.setup.members:
            return codes.REJECT_UNKNOWN_LEADER
        if candidate == core.self_id and not is_own:
            return codes.REJECT_UNEXPECTED_LEADER
        if request.ledger_end_term < log.end_term:
            return codes.REJECT_EXPIRED_LEDGER_TERM
        if request.ledger_end_term == log.end_term and request.ledger_end_index < log.end_index:
            return codes.REJECT_SMALL_LEDGER_END_INDEX
        if request.term < core.term:
            return codes.REJECT_EXPIRED_VOTE_TERM
        if request.term == core.term and core.vote not in (None, candidate):
            return codes.REJECT_ALREADY_HAS_LEADER if core.leader is not None else codes.REJECT_ALREADY_VOTED
        if request.term > core.term:
            self.candidate_of(request.term, now, at_once=True)
            return codes.REJECT_TERM_NOT_READY
        if request.term < log.end_term:
            return codes.REJECT_TERM_SMALL_THAN_LEDGER
        is_as_long = request.ledger_end_term == log.end_term and log.end_index >= request.ledger_end_index
        is_taking = core.self_id in core.setup.preferred and self.taking_term == core.term
        if not is_own and is_taking and is_as_long:
            return codes.REJECT_TAKING_LEADERSHIP
        core.vote_for(candidate)
        return codes.ACCEPT
