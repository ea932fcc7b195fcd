"""What all parts of a member's rules share: identity, term, vote, role, the log, calls in flight, actions of the turn.

Theory: `term` and `vote` change only in `raise_term` and `vote_for`, which also ask for their storage. `role` changes
only in `to_candidate`, `follow` and `lead`. A leader always leads a term that it raised itself and for which it asked
afterwards, so no member leads one term twice; that is why index and term name an entry within a group without Java
members. Only one turn at a time runs, and nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from triomq.dledger.rules.actions import (
    Action,
    Committed,
    Drop,
    Reply,
    Role,
    RoleChanged,
    Send,
    Shortened,
    Slowed,
    StoreTerm,
)
from triomq.dledger.rules.log import Log
from triomq.dledger.rules.timing import DEFAULT, Timing
from triomq.dledger.wire import bodies, codes
from triomq.dledger.wire.bodies import (
    Entry,
    HeartBeatRequest,
    PushRequest,
    PushResponse,
    Request,
    Response,
    TransferRequest,
    VoteRequest,
)

Handler: TypeAlias = Callable[[Response | None, int], None]
"""What is done with the answer to a call, and the time; None stands for no answer."""

NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Setup:
    """What a member is configured with. `members` maps ids, its own included, to addresses. With `is_sync_flush` a copy
    counts when it is on the member's disk, otherwise when it is written."""

    group: str
    self_id: str
    members: dict[str, str]
    is_sync_flush: bool = False
    preferred: tuple[str, ...] = ()
    timing: Timing = DEFAULT

    @property
    def peers(self) -> list[str]:
        return [member for member in self.members if member != self.self_id]

    @property
    def quorum(self) -> int:
        return len(self.members) // 2 + 1


class Core:
    """The state that the parts share."""

    def __init__(self, setup: Setup, log: Log, draw: Callable[[int, int], int], stored: StoreTerm) -> None:
        self.setup = setup
        self.timing = setup.timing
        self.self_id = setup.self_id
        self.peers = setup.peers
        self.quorum = setup.quorum
        self.log = log
        self.draw = draw
        self.term = stored.term
        self.vote = stored.vote
        self.role = Role.CANDIDATE
        self.leader: str | None = None
        self.committed = -1
        self.has_room = True
        """Whether the broker of this member takes messages, as far as its disk goes: if not, it does not take over."""
        self.taking_term = -1  # the term in which this member takes over the leadership that was handed to it
        self.actions: list[Action] = []
        self._calls: dict[int, Handler] = {}
        self._next_call = 0

    # Messages.

    def call(self, to: str, request: Request, handler: Handler) -> None:
        self._next_call += 1
        self._calls[self._next_call] = handler
        self.actions.append(Send(self._next_call, to, request))

    def answered(self, call: int, response: Response | None, now: int) -> None:
        handler = self._calls.pop(call, None)
        if handler is not None:
            handler(response, now)

    def reply(self, ticket: object, response: Response) -> None:
        self.actions.append(Reply(ticket, response))

    def drop(self, ticket: object) -> None:
        self.actions.append(Drop(ticket))

    def refuse_misdirected(self, ticket: object, request: Request) -> bool:
        """Answer a request for another member or another group, or in the name of another one. Return whether it was
        one."""
        if request.remote_id != self.self_id:
            code = codes.UNKNOWN_MEMBER
        elif request.group != self.setup.group:
            code = codes.UNKNOWN_GROUP
        elif isinstance(request, VoteRequest | HeartBeatRequest | PushRequest) and not self._is_from_itself(request):
            code = codes.UNKNOWN_MEMBER
        else:
            return False
        self.reply(ticket, bodies.refusal(request, code, self.leader))
        return True

    def _is_from_itself(self, request: Request) -> bool:
        """Whether a request that only a candidate or a leader makes comes from that one. RocketMQ's name both."""
        return request.local_id is None or request.local_id == request.leader_id

    def is_of_member(self, request: Request) -> bool:
        """Return whether a request that was not misdirected says that another member of this group sent it."""
        return (
            isinstance(request, VoteRequest | HeartBeatRequest | PushRequest)
            and request.leader_id in self.setup.members
            and request.leader_id != self.self_id
            and (request.remote_id, request.group) == (self.self_id, self.setup.group)
            and self._is_from_itself(request)
        )

    def reply_push(self, ticket: object, request: PushRequest, code: int) -> None:
        entries = request.entries
        response = PushResponse(
            begin_index=self.log.begin_index,
            code=code,
            count=len(entries),
            end_index=self.log.end_index,
            group=request.group,
            index=entries[0].index if entries else None,
            term=request.term,
        )
        self.reply(ticket, response)

    def vote_request(self, peer: str) -> VoteRequest:
        """Return the request for a vote in the present term."""
        return VoteRequest(
            group=self.setup.group,
            leader_id=self.self_id,
            ledger_end_index=self.log.end_index,
            ledger_end_term=self.log.end_term,
            local_id=self.self_id,
            remote_id=peer,
            term=self.term,
        )

    def transfer_request(self, peer: str, term: int) -> TransferRequest:
        """Return the request that hands the leadership of a term to a peer, once that has all entries."""
        return TransferRequest(
            group=self.setup.group,
            leader_id=self.self_id,
            local_id=self.self_id,
            remote_id=peer,
            take_leadership_ledger_index=self.log.end_index,
            term=term,
            transfer_id=self.self_id,
            transferee_id=peer,
        )

    # Term and vote.

    def raise_term(self, term: int, vote: str | None = None) -> None:
        assert term > self.term
        self.term = term
        self.vote = vote
        self.actions.append(StoreTerm(term, vote))

    def vote_for(self, candidate: str) -> None:
        if self.vote != candidate:
            self.vote = candidate
            self.actions.append(StoreTerm(self.term, candidate))

    # Role.

    def to_candidate(self, term: int) -> None:
        """Follow and lead nobody, in a term that is at least the present one."""
        if term > self.term:
            self.raise_term(term)
        self._become(Role.CANDIDATE, None)

    def follow(self, leader: str) -> None:
        self._become(Role.FOLLOWER, leader)

    def lead(self) -> None:
        self._become(Role.LEADER, self.self_id)

    def _become(self, role: Role, leader: str | None) -> None:
        if (role, leader) != (self.role, self.leader):
            self.role = role
            self.leader = leader
            self.actions.append(RoleChanged(role, self.term, leader))

    # The times.

    @property
    def own_heart_beat_ms(self) -> int | None:
        """The time between heartbeats, as METADATA tells it; None for RocketMQ's."""
        beat = self.timing.heartbeat_ms
        return beat if beat != DEFAULT.heartbeat_ms else None

    def meet(self, peer: str, heart_beat_ms: int | None) -> None:
        """Use RocketMQ's times, if a peer has others than this member."""
        if heart_beat_ms != self.own_heart_beat_ms and self.own_heart_beat_ms is not None:
            self.timing = DEFAULT
            self.actions.append(Slowed(peer))

    # The log.

    def has(self, entry: Entry) -> bool:
        """Return whether the log has this entry at its index."""
        log = self.log
        return 0 <= log.begin_index <= entry.index <= log.end_index and log.entry(entry.index).is_same(entry)

    @property
    def copied_index(self) -> int:
        """The last index of which this member has a copy that counts."""
        return self.log.synced_index if self.setup.is_sync_flush else self.log.end_index

    def commit(self, index: int) -> None:
        """Raise the committed index, at most to the end of the log."""
        index = min(index, self.log.end_index)
        if index > self.committed:
            self.committed = index
            self.actions.append(Committed(index))

    def shorten(self, end_index: int) -> None:
        """Cut the log behind an index; the committed index never stays behind the end. Raises LogRefused."""
        self.log.cut(end_index)
        self.committed = min(self.committed, end_index)
        self.actions.append(Shortened(end_index))

    def reset(self, entry: Entry) -> None:
        """Begin the log with an entry of the leader, with which it has nothing in common. Raises LogRefused."""
        self.log.reset(entry)
        self.committed = min(self.committed, entry.index - 1)
        self.actions.append(Shortened(-1))
