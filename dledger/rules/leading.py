"""The leader: appends and their quorum, heartbeats, the committed index, and handing the leadership over.

One object stands for one term. The committed index rises only over an entry of the leader's own term that a quorum
has; entries of older terms are committed with it. Counting copies of older entries alone is not enough: a member that
lacks them may still be elected and replace them.

An append is taken after `take_office` only, that is, when the owner has the queue offsets of the whole log. It is
written when it is taken, and waits in `_waiting` for its quorum, at most 2.5 seconds; its entries stay also when that
time is over. Whatever ends the leadership answers every append that waits: the outcome is unknown, and nobody else will
say it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from triomq.dledger.rules.actions import Role, Settled
from triomq.dledger.rules.core import NEVER, Core
from triomq.dledger.rules.log import LogRefused
from triomq.dledger.rules.pushing import Pusher
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import (
    HeartBeatRequest,
    HeartBeatResponse,
    Response,
    TransferRequest,
    TransferResponse,
)


class _Beat:
    """One heartbeat to all peers."""

    __slots__ = ("at", "codes", "is_done", "open", "repeated")

    def __init__(self, at: int, asked: int) -> None:
        self.at = at
        self.open = asked
        self.codes: dict[str, int] = {}
        self.repeated: set[str] = set()
        self.is_done = False


AFTER_REFUSAL_MS: Final = 30_000
"""How long a leader waits after a preferred member did not take over."""


class Leading:
    """What a leader keeps of its term."""

    def __init__(self, core: Core, now: int) -> None:
        self._core = core
        self._term = core.term
        self._pushers = {peer: Pusher(core, peer) for peer in core.peers}
        self._follows = dict.fromkeys(core.peers, False)  # by the last answer to a heartbeat
        self._last_old = core.log.end_index  # the last entry of an older term
        self._good_at = now
        self._appended_at = -NEVER
        self._next_beat_at = now
        self._next_preferred_at = now + 1000
        self._beat: _Beat | None = None
        self._in_office = False
        self._transferee: str | None = None
        self._waiting: deque[tuple[int, object, int]] = deque()  # index of the last entry, ticket, deadline

    def wake_at(self) -> int:
        wake = min(self._next_beat_at, *(pusher.wake_at() for pusher in self._pushers.values()), NEVER)
        if self._waiting:
            wake = min(wake, self._waiting[0][2])
        return min(wake, self._next_preferred_at) if self._core.setup.preferred else wake

    @property
    def _is_current(self) -> bool:
        return self._core.role is Role.LEADER and self._core.term == self._term

    @property
    def is_handing_over(self) -> bool:
        return self._transferee is not None

    def is_confirmed(self, now: int) -> bool:
        """Return whether nobody else can have been elected: a quorum has answered a heartbeat that was sent so recently
        that none of its members may have given this leader up. A leader whose process stood still leads no longer than
        that, but learns it by its next heartbeat only."""
        return self._is_current and now - self._good_at <= self._core.timing.lost_after_ms

    @property
    def has_older_entries(self) -> bool:
        """Whether entries of older terms are not known to be committed."""
        return self._core.committed < self._last_old

    # Appends.

    def take_office(self) -> None:
        """Take appends from now on."""
        self._in_office = True

    def propose(self, ticket: object, write: Callable[[int], None], now: int) -> int:
        """Take one append, or say why not. A leader whose disk refuses leaves the leadership to others."""
        refused = self.append_refusal()
        if refused is not None:
            return refused
        core = self._core
        try:
            write(self._term)
        except LogRefused:
            core.to_candidate(self._term)
            return codes.DISK_FULL
        self._appended_at = now
        self._waiting.append((core.log.end_index, ticket, now + core.timing.append_wait_ms))
        return codes.SUCCESS

    def append_refusal(self) -> int | None:
        """Return why an append would be refused now, or None."""
        if not self._is_current:
            return codes.NOT_LEADER
        if not self._in_office:
            return codes.LEADER_NOT_READY
        if self._transferee is not None:
            return codes.LEADER_TRANSFERRING
        if len(self._waiting) >= self._core.timing.max_pending:
            return codes.LEADER_PENDING_FULL
        return None

    def pump(self, now: int) -> None:
        is_busy = now - self._appended_at <= self._core.timing.busy_ms
        for pusher in self._pushers.values():
            pusher.pump(now, is_busy=is_busy)

    # Commitment.

    def advance(self) -> None:
        """Raise the committed index to what a quorum has, and settle the appends up to it."""
        core = self._core
        marks = sorted([core.copied_index, *(pusher.watermark for pusher in self._pushers.values())], reverse=True)
        reached = marks[len(marks) // 2]
        if reached > self._last_old:
            core.commit(reached)
        while self._waiting and self._waiting[0][0] <= core.committed:
            index, ticket, _ = self._waiting.popleft()
            core.actions.append(Settled(ticket, codes.SUCCESS, index))

    def close(self) -> None:
        """End the leadership: nobody waits for an answer any longer."""
        for index, ticket, _ in self._waiting:
            self._core.actions.append(Settled(ticket, codes.TERM_CHANGED, index))
        self._waiting.clear()

    # Time.

    def tick(self, now: int) -> None:
        while self._waiting and self._waiting[0][2] <= now:
            index, ticket, _ = self._waiting.popleft()
            self._core.actions.append(Settled(ticket, codes.WAIT_QUORUM_ACK_TIMEOUT, index))
        if now >= self._next_beat_at:
            self._end_beat(now)
        if self._is_current and now >= self._next_preferred_at:
            self._next_preferred_at = now + 1000
            self._prefer(now)

    def _end_beat(self, now: int) -> None:
        """Judge the heartbeat that is over, and send the next one."""
        core = self._core
        if self._beat is not None and not self._beat.is_done:
            found = self._beat.codes.values()
            gone = now - self._good_at > core.timing.lost_after_ms
            if gone or codes.INCONSISTENT_LEADER in found:
                core.to_candidate(self._term)
                return
        if not core.log.can_append:
            core.to_candidate(self._term)
            return
        self._next_beat_at = now + core.timing.heartbeat_ms
        beat = self._beat = _Beat(now, len(core.peers))
        for peer in core.peers:
            self._send_beat(beat, peer)
        self._judge(beat)

    def _send_beat(self, beat: _Beat, peer: str) -> None:
        core = self._core
        request = HeartBeatRequest(
            group=core.setup.group, leader_id=core.self_id, local_id=core.self_id, remote_id=peer, term=self._term
        )
        core.call(peer, request, lambda answer, at: self._beaten(beat, peer, answer))

    def _beaten(self, beat: _Beat, peer: str, answer: Response | None) -> None:
        self._follows[peer] = isinstance(answer, HeartBeatResponse) and answer.code == codes.SUCCESS
        if not self._is_current or not isinstance(answer, HeartBeatResponse):
            return
        if answer.code == codes.EXPIRED_TERM and answer.term > self._term:
            self._core.to_candidate(answer.term)  # also with a quorum: that member would never come back otherwise
            return
        beat.codes[peer] = answer.code
        if answer.code == codes.TERM_NOT_READY and peer not in beat.repeated:
            beat.repeated.add(peer)
            self._send_beat(beat, peer)
        self._judge(beat)

    def _judge(self, beat: _Beat) -> None:
        good = 1 + sum(code == codes.SUCCESS for code in beat.codes.values())
        if good >= self._core.quorum:
            beat.is_done = True
            self._good_at = max(self._good_at, beat.at)

    # Handing over.

    def best_peer(self, among: tuple[str, ...] | None = None) -> str | None:
        """Return the peer with the longest copy that may take over, or None."""
        able = [
            (pusher.watermark, peer)
            for peer, pusher in self._pushers.items()
            if self._follows[peer]
            and self._core.log.end_index - pusher.watermark < self._core.timing.max_behind
            and (among is None or peer in among)
        ]
        return max(able)[1] if able else None

    def _prefer(self, now: int) -> None:
        preferred = self._core.setup.preferred
        if not preferred or self._core.self_id in preferred or self._transferee is not None:
            return
        peer = self.best_peer(preferred)
        if peer is not None:
            self.hand_over_to(peer, None)

    def transfer(self, ticket: object, request: TransferRequest) -> None:
        """Hand the leadership to the member that the request names; its answer is the answer."""
        core = self._core
        code = codes.SUCCESS
        if request.transferee_id not in self._pushers:
            code = codes.UNKNOWN_MEMBER
        elif request.term != self._term:
            code = codes.INCONSISTENT_TERM
        elif core.log.end_index - self._pushers[request.transferee_id].watermark >= core.timing.max_behind:
            code = codes.FALL_BEHIND_TOO_MUCH
        elif self._transferee is not None:
            code = codes.LEADER_TRANSFERRING
        if code != codes.SUCCESS or request.transferee_id is None:
            answer = TransferResponse(code=code, term=self._term)
            core.reply(ticket, answer)
        else:
            self.hand_over_to(request.transferee_id, ticket)

    def hand_over_to(self, peer: str, ticket: object | None) -> None:
        core = self._core
        self._transferee = peer
        core.call(
            peer, core.transfer_request(peer, self._term), lambda answer, at: self._handed_over(ticket, answer, at)
        )

    def _handed_over(self, ticket: object | None, answer: Response | None, now: int) -> None:
        """Pass the answer on. If this member still leads, the transfer failed, and appends are taken again."""
        self._transferee = None
        if ticket is None:  # a preferred member that cannot lead is not asked each second: appends wait meanwhile
            self._next_preferred_at = max(self._next_preferred_at, now + AFTER_REFUSAL_MS)
            return
        if isinstance(answer, TransferResponse):
            self._core.reply(ticket, TransferResponse(code=answer.code, term=answer.term))
        else:
            self._core.reply(ticket, TransferResponse(code=codes.NETWORK_ERROR, term=self._core.term))
