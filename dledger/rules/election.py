"""Votes: how a member becomes leader, and what it answers to others who want to.

A candidate asks in two steps. First it looks round (METADATA): unless a quorum of members, itself included, says that
it follows nobody, the candidate keeps its term and looks again later. A member that was cut off and comes back
therefore deposes nobody. One whose leader's process has ended need not look: there is nobody to depose. Then it raises
its term, votes for itself, makes both durable, and asks for votes. RocketMQ's members answer the first question like
any other, so it needs nothing of them.

Answers to VOTE are RocketMQ's, rule for rule, since its candidates read them.
"""

from __future__ import annotations

from triomq.dledger.rules.actions import Role
from triomq.dledger.rules.core import NEVER, Core
from triomq.dledger.wire import bodies, codes
from triomq.dledger.wire.bodies import MetadataRequest, MetadataResponse, Response, VoteRequest, VoteResponse

_LARGER_TERM = (codes.REJECT_EXPIRED_VOTE_TERM, codes.REJECT_TERM_SMALL_THAN_LEDGER)
_LONGER_LOG = (codes.REJECT_EXPIRED_LEDGER_TERM, codes.REJECT_SMALL_LEDGER_END_INDEX, codes.REJECT_TAKING_LEADERSHIP)


class _Look:
    """One question to all peers whom they follow."""

    __slots__ = ("ends_at", "open", "unled")

    def __init__(self, ends_at: int, asked: int) -> None:
        self.ends_at = ends_at
        self.open = asked
        self.unled = 1


class _Round:
    """One request for votes to all peers. `results` has one for each peer that answered. `repeats_at`: when the request
    is repeated in the same term, once the round is over; `repeats_until`: not later than that."""

    __slots__ = ("ends_at", "number", "open", "repeats_at", "repeats_until", "results", "term")

    def __init__(self, term: int, number: int, ends_at: int, repeats_until: int) -> None:
        self.term = term
        self.number = number
        self.ends_at = ends_at
        self.repeats_at = NEVER
        self.repeats_until = repeats_until
        self.open = 0
        self.results: dict[str, str] = {}

    def count(self, *results: str) -> int:
        return sum(result in results for result in self.results.values())


class Election:
    """The candidate's side and the voter's. At most one look or one round is in progress; `_next_at` is the time of the
    next look while there is neither; `_unled_term` is a
    term whose leader is known to be gone, so that no look is needed."""

    def __init__(self, core: Core, now: int) -> None:
        self._core = core
        self._look: _Look | None = None
        self._round: _Round | None = None
        self._unled_term = -1
        self._next_at = now + core.draw(0, core.timing.first_wait_ms)

    # The candidate.

    def begin(self, wait_ms: int, now: int, *, is_gone: bool = False) -> None:
        """Be a candidate from now on, which looks round after a wait; if the leader's process is gone, it asks for
        votes without a look."""
        self._look = self._round = None
        self._unled_term = self._core.term if is_gone else -1
        self._next_at = now + wait_ms

    def stop(self) -> None:
        """Be no candidate: there is a leader."""
        self._look = self._round = None

    def random_wait(self) -> int:
        timing = self._core.timing
        return self._core.draw(timing.vote_wait_low_ms, timing.vote_wait_high_ms)

    def wake_at(self) -> int:
        if self._core.role is not Role.CANDIDATE:
            return NEVER
        if self._round is not None:
            return min(self._round.ends_at, self._round.repeats_at)
        return self._look.ends_at if self._look is not None else self._next_at

    def tick(self, now: int) -> None:
        if self._core.role is not Role.CANDIDATE or now < self.wake_at():
            return
        if self._round is not None:
            if now >= self._round.repeats_at:
                self._ask(now, self._round)
            else:
                self._end_round(self._round, now)
        elif self._look is not None:
            self.begin(self.random_wait(), now)
        else:
            self._look_round(now)

    def _look_round(self, now: int) -> None:
        core = self._core
        if not core.log.can_append:
            self.begin(core.timing.lost_after_ms, now)
            return
        if self._unled_term == core.term:
            self.campaign(now)
            return
        look = self._look = _Look(now + core.timing.look_ms, len(core.peers))
        if look.unled >= core.quorum:
            self.campaign(now)
            return
        for peer in core.peers:
            request = MetadataRequest(group=core.setup.group, local_id=core.self_id, remote_id=peer)
            core.call(peer, request, lambda answer, at, peer=peer: self._looked(look, peer, answer, at))  # type: ignore[misc]

    def _looked(self, look: _Look, peer: str, answer: Response | None, now: int) -> None:
        if isinstance(answer, MetadataResponse) and answer.code == codes.SUCCESS:
            self._core.meet(peer, answer.heart_beat_ms)
        if self._look is not look or self._core.role is not Role.CANDIDATE:
            return
        look.open -= 1
        if isinstance(answer, MetadataResponse) and answer.code == codes.SUCCESS:
            look.unled += answer.leader_id in (None, self._core.self_id)
        if look.unled >= self._core.quorum:
            self.campaign(now)
        elif look.open == 0:
            self.begin(self.random_wait(), now)

    def campaign(self, now: int) -> None:
        """Ask for votes in the next term, without a look round."""
        self._core.raise_term(self._core.term + 1, self._core.self_id)
        self._ask(now)

    def _ask(self, now: int, before: _Round | None = None) -> None:
        """Begin a round; `before` is that of which it is a repetition."""
        core = self._core
        self._look = None
        timing = core.timing
        ends_at = now + timing.vote_round_ms + core.draw(0, timing.vote_wait_high_ms)
        number = before.number + 1 if before is not None else 1
        until = before.repeats_until if before is not None else now + timing.vote_round_ms + timing.vote_wait_high_ms
        asked = self._round = _Round(core.term, number, ends_at, until)
        asked.results[core.self_id] = codes.ACCEPT
        asked.open = len(core.peers)
        for peer in core.peers:
            core.call(peer, core.vote_request(peer), lambda answer, at, peer=peer: self._voted(asked, peer, answer, at))  # type: ignore[misc]
        self._win_if_elected(asked)

    def _voted(self, asked: _Round, peer: str, answer: Response | None, now: int) -> None:
        core = self._core
        if self._round is not asked or core.role is not Role.CANDIDATE or core.term != asked.term:
            return
        asked.open -= 1
        if isinstance(answer, VoteResponse):
            asked.results[peer] = answer.vote_result
            if answer.vote_result in _LARGER_TERM and answer.term > core.term:
                core.to_candidate(answer.term)
                self.begin(self.random_wait(), now)
                return
        if self._win_if_elected(asked):
            return
        if asked.open == 0 or asked.count(codes.ACCEPT, codes.REJECT_TERM_NOT_READY) >= core.quorum:
            self._end_round(asked, now)  # a silent member must not hold up those that are ready now

    def _win_if_elected(self, asked: _Round) -> bool:
        if asked.count(codes.ACCEPT) < self._core.quorum:
            return False
        self.stop()
        self._core.lead()
        return True

    def _end_round(self, asked: _Round, now: int) -> None:
        """Decide what follows a round without a result.

        Members that are about to raise their term are asked again in this one. RocketMQ's may need three seconds for
        that: while they wait for votes themselves, and one of the members they asked is silent."""
        core = self._core
        ready_soon = asked.count(codes.ACCEPT, codes.REJECT_TERM_NOT_READY) >= core.quorum
        if ready_soon and asked.number < core.timing.max_immediate_rounds:
            self._ask(now, asked)
            return
        if ready_soon and now < asked.repeats_until:
            asked.repeats_at = min(asked.repeats_at, now + core.timing.vote_repeat_ms)
            return
        longer = asked.count(*_LONGER_LOG)
        answered = len(asked.results) - asked.count(codes.VOTE_UNKNOWN)
        others_first = answered >= core.quorum > answered - longer
        self.begin(self.random_wait() + (core.timing.longer_log_wait_ms if others_first else 0), now)

    # The voter.

    def answer(self, request: VoteRequest, now: int) -> VoteResponse:
        """Return the answer to VOTE: the first rule that fits."""
        own_term = self._core.term
        result = self._judge(request, now)
        term = self._core.log.end_term if result == codes.REJECT_TERM_SMALL_THAN_LEDGER else own_term
        return bodies.vote_response(request, result, term)

    def _judge(self, request: VoteRequest, now: int) -> str:
        core = self._core
        candidate = request.leader_id
        if candidate is None or candidate not in core.setup.members:
            return codes.REJECT_UNKNOWN_LEADER
        if candidate == core.self_id:
            return codes.REJECT_UNEXPECTED_LEADER
        if request.ledger_end_term < core.log.end_term:
            return codes.REJECT_EXPIRED_LEDGER_TERM
        if request.ledger_end_term == core.log.end_term and request.ledger_end_index < core.log.end_index:
            return codes.REJECT_SMALL_LEDGER_END_INDEX
        if request.term < core.term:
            return codes.REJECT_EXPIRED_VOTE_TERM
        if request.term == core.term and core.vote not in (None, candidate):
            return codes.REJECT_ALREADY_HAS_LEADER if core.leader is not None else codes.REJECT_ALREADY_VOTED
        if request.term > core.term:
            core.to_candidate(request.term)
            self.begin(self.random_wait(), now)
            return codes.REJECT_TERM_NOT_READY
        if request.term < core.log.end_term:
            return codes.REJECT_TERM_SMALL_THAN_LEDGER
        if self._is_taking_over(request):
            return codes.REJECT_TAKING_LEADERSHIP
        core.vote_for(candidate)
        if core.role is Role.CANDIDATE:
            self.begin(self.random_wait(), now)
        return codes.ACCEPT

    def _is_taking_over(self, request: VoteRequest) -> bool:
        """Whether the leadership of this term was handed to this member, whose log is as long as the candidate's."""
        log = self._core.log
        is_as_long = request.ledger_end_term == log.end_term and log.end_index >= request.ledger_end_index
        return self._core.taking_term == request.term and is_as_long
