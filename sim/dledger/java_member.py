"""One member that follows RocketMQ's rules to the letter, faults included, beside members of ours: see JavaMember."""

from __future__ import annotations

from collections.abc import Callable

from sim.dledger.java_election import JavaElection
from sim.dledger.java_following import JavaFollowing
from sim.dledger.java_leading import LOST_AFTER_MS, JavaLeading
from triomq.dledger.rules.actions import Action, Role, StoreTerm
from triomq.dledger.rules.core import NEVER, Core, Setup
from triomq.dledger.rules.log import Log
from triomq.dledger.wire import bodies, codes
from triomq.dledger.wire.bodies import (
    HeartBeatRequest,
    HeartBeatResponse,
    MetadataRequest,
    MetadataResponse,
    PushRequest,
    Request,
    Response,
    TransferRequest,
    TransferResponse,
    VoteRequest,
)

TRANSFER_WAIT_MS = 1000


class JavaMember:
    """The rules of DLedger 0.3.1.2, with the interface of `triomq.dledger.rules.member.Member`.

    What the checks promise no more, by the known faults of the original (docs/internals/dledger.md):

    D1   A Java leader commits entries of older terms by counting copies. They may be replaced, also at members that
         took over its committed index. Its word makes permanent only what is up to the last entry of its own term.
    D2   A truncation lets the committed index stand, which may lie behind the end then.
    D4   A Java leader with a quorum ignores a larger term. In the end a candidate of a larger term may stay out.
    D6   A leader that is deposed leaves its appends without an answer.
    D24  It counts and answers before it syncs, and a vote is not synced either: it never loses its power.
    D26  In the end a Java follower of a Java leader may be behind: it gets one entry a second.

    D5, D14 and D25 are here, and break nothing. Not made to happen: D3 (a kill before `currterm` has its name lets it
    vote twice, after which nothing is promised), and what the broker above does (D7 to D13). Its requests come once and
    in order from each peer, as a connection brings them: a TRUNCATE that came behind later APPENDs would cut what its
    leader has counted. It takes no APPEND or GET of clients.
    """

    def __init__(
        self,
        setup: Setup,
        log: Log,
        draw: Callable[[int, int], int],
        stored: StoreTerm,
        committed: int,
        now: int,
    ) -> None:
        self._core = Core(setup, log, draw, stored)
        self._core.committed = min(committed, log.end_index) if committed >= log.begin_index else -1
        self._election = JavaElection(self._core, now)
        self._following = JavaFollowing(self._core)
        self._leading: JavaLeading | None = None
        self._heard_at = now
        self._was = Role.CANDIDATE
        self._taking: tuple[object, TransferRequest, int] | None = None  # a transfer to this member, and its deadline

    # What the owner may read.

    @property
    def role(self) -> Role:
        return self._core.role

    @property
    def term(self) -> int:
        return self._core.term

    @property
    def leader(self) -> str | None:
        return self._core.leader

    @property
    def committed(self) -> int:
        return self._core.committed

    @property
    def must_open_term(self) -> bool:
        return False

    @property
    def wake_at(self) -> int:
        core = self._core
        wake = min(self._election.wake_at(), self._following.wake_at())
        if core.role is Role.FOLLOWER:
            wake = min(wake, self._heard_at + LOST_AFTER_MS + 1)
        elif core.role is Role.LEADER and self._leading is not None:
            wake = min(wake, self._leading.wake_at())
        return min(wake, self._taking[2] if self._taking is not None else NEVER)

    # Events.

    def requested(self, ticket: object, request: Request, now: int) -> None:
        core = self._core
        if core.refuse_misdirected(ticket, request):
            pass
        elif isinstance(request, VoteRequest):
            core.reply(ticket, self._election.answer(request, now))
        elif isinstance(request, HeartBeatRequest):
            core.reply(ticket, self._heart_beat(request, now))
        elif isinstance(request, PushRequest):
            self._following.push(ticket, request, now)
        elif isinstance(request, TransferRequest):
            self._transfer(ticket, request, now)
        elif isinstance(request, MetadataRequest):
            core.reply(
                ticket,
                MetadataResponse(group=core.setup.group, leader_id=core.leader, peers=dict(core.setup.members)),
            )
        else:
            core.reply(ticket, bodies.refusal(request, codes.UNSUPPORTED, core.leader))

    def answered(self, call: int, response: Response | None, now: int) -> None:
        self._core.answered(call, response, now)

    def synced(self) -> None:
        """Nothing waits for the disk."""

    def propose(self, ticket: object, write: Callable[[int], None], now: int) -> int:
        refused = self.append_refusal()
        if refused is not None or self._leading is None:
            return codes.NOT_LEADER if refused is None else refused
        return self._leading.propose(ticket, write, now)

    def append_refusal(self) -> int | None:
        if self._core.role is not Role.LEADER or self._leading is None or self._leading.term != self._core.term:
            return codes.NOT_LEADER
        return self._leading.append_refusal()

    def take_office(self, term: int) -> None:
        """The owner is ready to lead. Appends are taken once all that the log holds is committed."""
        if self._core.role is Role.LEADER and self._leading is not None and self._leading.term == term:
            self._leading.take_office()

    def gone(self, peer: str, now: int) -> None:
        """Only heartbeats count."""

    def prefer(self, members: tuple[str, ...]) -> None:
        """The preferred leaders are those of the start."""

    def hand_over(self) -> bool:
        """A stop hands nothing over (D25)."""
        return False

    def turn(self, now: int) -> list[Action]:
        core = self._core
        if core.role is Role.FOLLOWER and now - self._heard_at > LOST_AFTER_MS:
            self._election.candidate_of(core.term, now)
        self._election.tick(now)
        if core.role is Role.LEADER:
            self._lead(now)
        self._was = core.role
        self._following.work(now)
        self._take_over(now)
        actions, core.actions = core.actions, []
        return actions

    def _lead(self, now: int) -> None:
        core = self._core
        if self._leading is None or self._leading.term != core.term:
            if self._leading is not None:
                self._leading.end_term()
            self._leading = JavaLeading(core, self._election, now)
        elif self._was is not Role.LEADER:
            self._leading.begin(now)
        self._leading.work(now)

    # Heartbeats of others, and transfers.

    def _heart_beat(self, request: HeartBeatRequest, now: int) -> HeartBeatResponse:
        core = self._core
        leader = request.leader_id
        if leader is None or leader not in core.setup.members:
            return HeartBeatResponse(code=codes.UNKNOWN_MEMBER)
        if leader == core.self_id:
            return HeartBeatResponse(code=codes.UNEXPECTED_MEMBER)
        if request.term < core.term:
            return HeartBeatResponse(code=codes.EXPIRED_TERM, term=core.term)
        if request.term > core.term:
            self._election.candidate_of(request.term, now, at_once=True)
            return HeartBeatResponse(code=codes.TERM_NOT_READY)
        if core.leader is None:
            core.follow(leader)
        if core.leader != leader:
            return HeartBeatResponse(code=codes.INCONSISTENT_LEADER)
        self._heard_at = now
        return HeartBeatResponse()

    def _transfer(self, ticket: object, request: TransferRequest, now: int) -> None:
        core = self._core
        code = codes.UNEXPECTED_ARGUMENT
        if request.transfer_id == core.self_id:
            if core.role is Role.LEADER and self._leading is not None:
                self._leading.transfer(ticket, request)
                return
            code = codes.NOT_LEADER
        elif request.transferee_id == core.self_id:
            code = codes.SUCCESS
            if request.transfer_id != core.leader:
                code = codes.INCONSISTENT_LEADER
            elif request.term != core.term:
                code = codes.INCONSISTENT_TERM
            elif self._taking is not None:
                code = codes.TAKE_LEADERSHIP_FAILED
            if code == codes.SUCCESS:
                self._taking = (ticket, request, now + TRANSFER_WAIT_MS)
                return
        core.reply(ticket, TransferResponse(code=code, term=core.term))

    def _take_over(self, now: int) -> None:
        """Continue a transfer to this member: wait for the leader's last entry, then become a candidate."""
        if self._taking is None:
            return
        core = self._core
        _, request, deadline = self._taking
        if self._election.taking_term < 0:
            if core.term != request.term or core.role is not Role.FOLLOWER:
                self._end_transfer(codes.INCONSISTENT_TERM)
            elif core.log.end_index >= request.take_leadership_ledger_index:
                self._election.taking_term = core.term + 1
                self._taking = (self._taking[0], request, NEVER)
                self._election.candidate_of(core.term + 1, now, at_once=True)
            elif now >= deadline:
                self._end_transfer(codes.TAKE_LEADERSHIP_FAILED)
        elif core.term > self._election.taking_term:
            self._end_transfer(codes.EXPIRED_TERM)
        elif core.term == self._election.taking_term and core.role is not Role.CANDIDATE:
            is_leader = core.role is Role.LEADER
            self._end_transfer(codes.SUCCESS if is_leader else codes.TAKE_LEADERSHIP_FAILED)

    def _end_transfer(self, code: int) -> None:
        assert self._taking is not None
        self._core.reply(self._taking[0], TransferResponse(code=code, term=self._core.term))
        self._taking = None
        self._election.taking_term = -1
