"""The member to which a leader hands its leadership: it waits for the leader's last entry, then asks for votes at once.

At most one request waits. It is answered when this member leads, follows somebody else, has seen a larger term, or
when the time is over.
"""

from __future__ import annotations

from triomq.dledger.rules.actions import Role
from triomq.dledger.rules.core import NEVER, Core
from triomq.dledger.rules.election import Election
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import TransferRequest, TransferResponse


class TakingOver:
    """The transferee's side of LEADERSHIP_TRANSFER."""

    def __init__(self, core: Core, election: Election) -> None:
        self._core = core
        self._election = election
        self._ticket: object | None = None
        self._index = -1
        self._term = -1
        self._deadline = NEVER

    def wake_at(self) -> int:
        return self._deadline

    def request(self, ticket: object, request: TransferRequest, now: int) -> None:
        core = self._core
        if request.transfer_id != core.leader:
            code = codes.INCONSISTENT_LEADER
        elif request.term != core.term:
            code = codes.INCONSISTENT_TERM
        elif self._ticket is not None or core.role is not Role.FOLLOWER or not core.has_room:
            code = codes.TAKE_LEADERSHIP_FAILED
        else:
            self._ticket = ticket
            self._index = request.take_leadership_ledger_index
            self._term = core.term
            self._deadline = now + core.timing.transfer_wait_ms
            return
        core.reply(ticket, TransferResponse(code=code, term=core.term))

    def is_ready(self) -> bool:
        """Return whether this member, still a follower, has the last entry of the leader that hands over."""
        return (
            self._ticket is not None
            and self._core.taking_term < 0
            and (self._core.role, self._core.term) == (Role.FOLLOWER, self._term)
            and self._core.copied_index >= self._index
        )

    def campaign(self, now: int) -> None:
        """Take over: ask for votes in the next term. The member is a candidate already."""
        self._deadline = now + self._core.timing.transfer_ms
        self._core.taking_term = self._core.term + 1
        self._election.campaign(now)

    def settle(self, now: int) -> None:
        """Answer the request if it has its result. The owner calls this in each turn."""
        if self._ticket is None:
            return
        core = self._core
        if core.taking_term < 0:
            if now >= self._deadline or (core.role, core.term) != (Role.FOLLOWER, self._term):
                self._end(codes.TAKE_LEADERSHIP_FAILED)
        elif core.term > core.taking_term:
            self._end(codes.EXPIRED_TERM)
        elif core.role is Role.LEADER:
            self._end(codes.SUCCESS)
        elif core.role is Role.FOLLOWER or now >= self._deadline:
            self._end(codes.TAKE_LEADERSHIP_FAILED)

    def _end(self, code: int) -> None:
        self._core.reply(self._ticket, TransferResponse(code=code, term=self._core.term))
        self._core.taking_term = -1
        self._ticket = None
        self._deadline = NEVER
