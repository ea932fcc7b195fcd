"""What a leader does by RocketMQ's rules: appends, heartbeats, commitment by counting copies, and transfers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from sim.dledger.java_election import JavaElection
from sim.dledger.java_following import raise_committed
from sim.dledger.java_pusher import JavaPusher
from triomq.dledger.rules.actions import Role, Settled
from triomq.dledger.rules.core import NEVER, Core
from triomq.dledger.rules.log import LogRefused
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import HeartBeatRequest, HeartBeatResponse, Response, TransferRequest, TransferResponse

BEAT_MS = 2000
LOST_AFTER_MS = 6000
BEAT_WAIT_MS = 2000
LOOP_MS = 10
APPEND_WAIT_MS = 2500
MAX_BEHIND = 1000
MAX_PENDING = 10_000


class _Beat:
    def __init__(self, at: int) -> None:
        self.at = at
        self.answers: dict[str, HeartBeatResponse | None] = {}

    def count(self, *found: int) -> int:
        return 1 + sum(answer is not None and answer.code in found for answer in self.answers.values())


class JavaLeading:
    """What a member keeps of the term in which it leads, or led last: it may lead it again."""

    def __init__(self, core: Core, election: JavaElection, now: int) -> None:
        self._core = core
        self._election = election
        self.term = core.term
        self._pushers = {peer: JavaPusher(core, peer) for peer in core.peers}
        self._own_mark = core.log.end_index
        self._waiting: deque[tuple[int, object, int]] = deque()  # index, ticket, deadline
        self._transferee: str | None = None
        self._office_asked = self._in_office = False
        self.begin(now)

    def begin(self, now: int) -> None:
        """Lead: for the first time in this term, or again."""
        self._beat: _Beat | None = None
        self._follows: set[str] = set()
        self._good_at = -NEVER
        self._next_beat_at = self._next_second_at = now
        self._office_asked = self._in_office = False
        self._transferee = None

    def wake_at(self) -> int:
        wake = min(self._next_beat_at, self._next_second_at, *(pusher.wake_at() for pusher in self._pushers.values()))
        if self._beat is not None:
            wake = min(wake, self._beat.at + BEAT_WAIT_MS)
        return wake

    # Appends.

    def take_office(self) -> None:
        self._office_asked = True

    def append_refusal(self) -> int | None:
        core = self._core
        if core.role is not Role.LEADER:
            return codes.NOT_LEADER
        if not self._in_office:
            return codes.LEADER_NOT_READY
        if self._transferee is not None:
            return codes.LEADER_TRANSFERRING
        return codes.LEADER_PENDING_FULL if len(self._waiting) >= MAX_PENDING else None

    def propose(self, ticket: object, write: Callable[[int], None], now: int) -> int:
        refused = self.append_refusal()
        if refused is not None:
            return refused
        try:
            write(self.term)
        except LogRefused:
            return codes.DISK_FULL  # it still leads (D14)
        self._own_mark = self._core.log.end_index
        self._waiting.append((self._own_mark, ticket, now + APPEND_WAIT_MS))
        return codes.SUCCESS

    def end_term(self) -> None:
        """Answer what waited, now that this member leads a later term. One that does not lead answers nothing (D6)."""
        for index, ticket, _ in self._waiting:
            self._core.actions.append(Settled(ticket, codes.TERM_CHANGED, index))
        self._waiting.clear()

    def work(self, now: int) -> None:
        """One pass: heartbeats, the committed index, pushes."""
        core = self._core
        if self._beat is not None and now >= self._beat.at + BEAT_WAIT_MS:
            self._end_beat(self._beat, now)
        if core.role is Role.LEADER and self._beat is None and now >= self._next_beat_at:
            self._send_beats(now)
        if core.role is not Role.LEADER:
            return
        if now >= self._next_second_at:
            self._next_second_at = now + 1000
            self._each_second(now)
        marks = sorted([self._own_mark, *(pusher.watermark for pusher in self._pushers.values())], reverse=True)
        raise_committed(core, marks[len(marks) // 2])
        while self._waiting and self._waiting[0][0] <= core.committed:
            index, ticket, _ = self._waiting.popleft()
            core.actions.append(Settled(ticket, codes.SUCCESS, index))
        if self._office_asked and core.committed == core.log.end_index:
            self._in_office = True
        for pusher in self._pushers.values():
            pusher.pump(now)

    def _each_second(self, now: int) -> None:
        core = self._core
        self._own_mark = core.log.end_index
        while self._waiting and self._waiting[0][2] <= now:
            index, ticket, _ = self._waiting.popleft()
            core.actions.append(Settled(ticket, codes.WAIT_QUORUM_ACK_TIMEOUT, index))
        preferred = core.setup.preferred
        if preferred and core.self_id not in preferred and self._transferee is None:
            able = [(self._behind(peer), peer) for peer in preferred if peer in self._follows]
            if able and min(able)[0] < MAX_BEHIND:
                self._hand_over_to(min(able)[1], None)

    def _behind(self, peer: str) -> int:
        return self._core.log.end_index - self._pushers[peer].watermark

    # Heartbeats.

    def _send_beats(self, now: int) -> None:
        core = self._core
        beat = self._beat = _Beat(now)
        self._next_beat_at = now + BEAT_MS
        for peer in core.peers:
            request = HeartBeatRequest(
                group=core.setup.group, leader_id=core.self_id, local_id=core.self_id, remote_id=peer, term=self.term
            )
            core.call(peer, request, lambda answer, at, peer=peer: self._beaten(beat, peer, answer, at))  # type: ignore[misc]
        if not core.peers:
            self._end_beat(beat, now)

    def _beaten(self, beat: _Beat, peer: str, answer: Response | None, now: int) -> None:
        found = beat.answers[peer] = answer if isinstance(answer, HeartBeatResponse) else None
        if found is not None and found.code == codes.SUCCESS:
            self._follows.add(peer)
        else:
            self._follows.discard(peer)
        is_over = beat.count(codes.SUCCESS, codes.TERM_NOT_READY) >= self._core.quorum or len(beat.answers) == len(
            self._core.peers
        )
        if self._beat is beat and is_over:
            self._end_beat(beat, now)

    def _end_beat(self, beat: _Beat, now: int) -> None:
        """Judge a round of heartbeats. A larger term is ignored as long as there is a quorum (D4)."""
        core = self._core
        self._beat = None
        if core.role is not Role.LEADER or core.term != self.term:
            return
        answers = [answer for answer in beat.answers.values() if answer is not None]
        larger = max((answer.term for answer in answers if answer.code == codes.EXPIRED_TERM), default=-1)
        if beat.count(codes.SUCCESS) >= core.quorum:
            self._good_at = now
        elif beat.count(codes.SUCCESS, codes.TERM_NOT_READY) >= core.quorum:
            self._next_beat_at = now + LOOP_MS
        elif larger > core.term:
            self._election.candidate_of(larger, now)
        elif any(answer.code == codes.INCONSISTENT_LEADER for answer in answers) or now - self._good_at > LOST_AFTER_MS:
            self._election.candidate_of(core.term, now)

    # Transfers.

    def transfer(self, ticket: object, request: TransferRequest) -> None:
        peer = request.transferee_id
        code = codes.SUCCESS
        if peer is None or peer not in self._pushers:
            code = codes.UNKNOWN_MEMBER
        elif request.term != self.term:
            code = codes.INCONSISTENT_TERM
        elif self._behind(peer) >= MAX_BEHIND:
            code = codes.FALL_BEHIND_TOO_MUCH
        elif self._transferee is not None:
            code = codes.LEADER_TRANSFERRING
        if peer is None or code != codes.SUCCESS:
            self._core.reply(ticket, TransferResponse(code=code, term=self.term))
        else:
            self._hand_over_to(peer, ticket)

    def _hand_over_to(self, peer: str, ticket: object | None) -> None:
        core = self._core
        self._transferee = peer
        core.call(peer, core.transfer_request(peer, self.term), lambda answer, at: self._handed_over(ticket, answer))

    def _handed_over(self, ticket: object | None, answer: Response | None) -> None:
        self._transferee = None
        if ticket is not None:
            is_transfer = isinstance(answer, TransferResponse)
            code = answer.code if is_transfer and answer is not None else codes.NETWORK_ERROR
            self._core.reply(ticket, TransferResponse(code=code, term=self._core.term))
