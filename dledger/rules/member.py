"""One member of a group as a state machine: events in, actions out.

    member = Member(setup, log, random.randint, StoreTerm(term, vote), committed, now)
    member.requested(ticket, request, now)         any number of events
    for action in member.turn(now): ...            then the end of the turn: what to do, in this order

There is no clock, socket or disk here. `now` is the member's own monotonic time in milliseconds; the owner calls `turn`
at `wake_at` at the latest. Everything that one turn takes is one write of the log and one push to each follower.
docs/internals/dledger.md has the rules in words, and what differs from RocketMQ's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from triomq.dledger.rules.actions import Action, Reply, Role, Settled, StoreTerm
from triomq.dledger.rules.core import Core, Setup
from triomq.dledger.rules.election import Election
from triomq.dledger.rules.following import Following
from triomq.dledger.rules.leading import Leading
from triomq.dledger.rules.log import Log
from triomq.dledger.rules.taking_over import TakingOver
from triomq.dledger.wire import bodies, codes
from triomq.dledger.wire.bodies import (
    AppendRequest,
    AppendResponse,
    GetRequest,
    GetResponse,
    HeartBeatRequest,
    MetadataRequest,
    MetadataResponse,
    PushRequest,
    Request,
    Response,
    TransferRequest,
    VoteRequest,
)


class _AppendTicket:
    """An append that came over the wire: its result is the answer to that request."""

    __slots__ = ("request", "ticket")

    def __init__(self, ticket: object, request: AppendRequest) -> None:
        self.ticket = ticket
        self.request = request


class Member:
    """The rules of one member from its start to its end. `draw(low, high)` returns a random number of that range."""

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
        self._election = Election(self._core, now)
        self._following = Following(self._core)
        self._taking_over = TakingOver(self._core, self._election)
        self._leading: Leading | None = None
        self._was = (Role.CANDIDATE, self._core.term)

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
    def members(self) -> dict[str, str]:
        return self._core.setup.members

    @property
    def committed(self) -> int:
        return self._core.committed

    @property
    def must_open_term(self) -> bool:
        """Whether this member leads, and has entries of older terms that only an entry of its own commits. Its owner
        then appends one when it takes office."""
        return self._leading is not None and self._leading.has_older_entries

    @property
    def wake_at(self) -> int:
        """When the next `turn` is due without any other event."""
        wake = min(self._election.wake_at(), self._following.wake_at(), self._taking_over.wake_at())
        return min(wake, self._leading.wake_at()) if self._leading is not None else wake

    # Events.

    def requested(self, ticket: object, request: Request, now: int) -> None:
        """Take a request of a peer or a client. Its answer is an action of this turn or of a later one."""
        core = self._core
        if core.refuse_misdirected(ticket, request):
            pass
        elif isinstance(request, VoteRequest):
            core.reply(ticket, self._election.answer(request, now))
        elif isinstance(request, HeartBeatRequest):
            core.reply(ticket, self._following.heart_beat(request, now))
        elif isinstance(request, PushRequest):
            self._following.push(ticket, request, now)
        elif isinstance(request, TransferRequest):
            self._transfer(ticket, request, now)
        else:
            self._serve(ticket, request, now)
        self._follow_role(now)

    def is_of_member(self, request: Request) -> bool:
        """Return whether a request says that another member of this group sent it."""
        return self._core.is_of_member(request)

    def answered(self, call: int, response: Response | None, now: int) -> None:
        """Take the answer to a call; None if there is none."""
        self._core.answered(call, response, now)
        self._follow_role(now)

    def synced(self) -> None:
        """The log's synced index has risen."""
        self._following.synced()

    def propose(self, ticket: object, write: Callable[[int], None], now: int) -> int:
        """Take one append. Return SUCCESS, or why it was not taken: then nothing is written, and nothing follows.

        `write(term)` is called when the append is taken. It appends any number of entries of this term to the log with
        one call, or raises LogRefused. An action `Settled` of this turn or of a later one has the result for all of
        them: SUCCESS when the last one is committed."""
        if self._leading is None:
            return codes.NOT_LEADER
        code = self._leading.propose(ticket, write, now)
        self._follow_role(now)
        return code

    def append_refusal(self) -> int | None:
        """Return the code with which an append would be refused now, or None. The disk is not asked."""
        return codes.NOT_LEADER if self._leading is None else self._leading.append_refusal()

    def is_confirmed(self, now: int) -> bool:
        """Return whether this member leads, and a quorum has said so a moment ago (`Leading.is_confirmed`)."""
        return self._leading is not None and self._leading.is_confirmed(now)

    @property
    def is_handing_over(self) -> bool:
        """Whether this member leads, and has asked another one to take over."""
        return self._leading is not None and self._leading.is_handing_over

    def take_office(self, term: int) -> None:
        """The owner is ready to lead: it has derived from the whole log what an append needs."""
        if self._leading is not None and self._core.term == term:
            self._leading.take_office()

    def gone(self, peer: str, now: int) -> None:
        """The peer's process is known to have ended: its port refuses connections. Nobody is asked whom
        he follows then, since RocketMQ's members would name that leader for six more seconds."""
        if self._core.role is Role.FOLLOWER and self._core.leader == peer:
            self._core.to_candidate(self._core.term)
            self._follow_role(now)
            self._election.begin(self._core.draw(0, self._core.timing.first_wait_ms), now, is_gone=True)

    def prefer(self, members: tuple[str, ...]) -> None:
        """Let one of these members lead, if it can (preferredLeaderId)."""
        self._core.setup = replace(self._core.setup, preferred=members)

    def set_room(self, has_room: bool) -> None:
        """Note whether the broker of this member takes messages, as far as its disk goes."""
        self._core.has_room = has_room

    def can_take_over(self, peer: str) -> bool:
        """Return whether this member leads, and a follower is there and has nearly everything."""
        return self._leading is not None and self._leading.best_peer((peer,)) is not None

    def hand_over(self, among: tuple[str, ...] | None = None) -> bool:
        """Hand the leadership to the follower with the longest copy, of all or of these. Return whether there is one
        that can take it."""
        peer = self._leading.best_peer(among) if self._leading is not None else None
        if self._leading is None or peer is None:
            return False
        self._leading.hand_over_to(peer, None)
        return True

    def turn(self, now: int) -> list[Action]:
        """End the turn: do what is due, and return what the owner must do, in this order."""
        if self._following.has_lost_leader(now):
            self._core.to_candidate(self._core.term)
            self._follow_role(now)
            self._election.begin(self._core.draw(0, self._core.timing.first_wait_ms), now)
        self._election.tick(now)
        self._following.tick(now)
        self._follow_role(now)
        if self._taking_over.is_ready():
            self._core.to_candidate(self._core.term)
            self._follow_role(now)
            self._taking_over.campaign(now)
            self._follow_role(now)
        self._taking_over.settle(now)
        if self._leading is not None:
            self._leading.tick(now)
            self._follow_role(now)
        if self._leading is not None:
            self._leading.advance()
            self._leading.pump(now)
        actions, self._core.actions = self._core.actions, []
        return actions if not any(isinstance(action, Settled) for action in actions) else _with_answers(actions)

    # Transitions.

    def _follow_role(self, now: int) -> None:
        """Bring the parts into agreement with the role and the term."""
        core = self._core
        is_now = (core.role, core.term)
        if is_now == self._was:
            return
        role, _ = self._was
        self._was = is_now
        if self._leading is not None:
            self._leading.close()
            self._leading = None
        if role is Role.FOLLOWER:
            self._following.leave()
        if core.role is Role.LEADER:
            self._leading = Leading(core, now)
        elif core.role is Role.FOLLOWER:
            self._election.stop()
        elif role is not Role.CANDIDATE:
            self._election.begin(self._election.random_wait(), now)

    # Requests that only read, and transfers.

    def _transfer(self, ticket: object, request: TransferRequest, now: int) -> None:
        core = self._core
        if request.transfer_id == core.self_id:
            if self._leading is None:
                core.reply(ticket, bodies.refusal(request, codes.NOT_LEADER, core.leader))
            else:
                self._leading.transfer(ticket, request)
        elif request.transferee_id == core.self_id:
            self._taking_over.request(ticket, request, now)
        else:
            core.reply(ticket, bodies.refusal(request, codes.UNEXPECTED_ARGUMENT, core.leader))

    def _serve(self, ticket: object, request: AppendRequest | GetRequest | MetadataRequest, now: int) -> None:
        core = self._core
        if isinstance(request, MetadataRequest):
            found = MetadataResponse(
                group=core.setup.group,
                heart_beat_ms=core.own_heart_beat_ms,
                leader_id=core.leader,
                peers=dict(core.setup.members),
                refuses=not core.has_room,
            )
            core.reply(ticket, found)
        elif self._leading is None:
            core.reply(ticket, bodies.refusal(request, codes.NOT_LEADER, core.leader))
        elif isinstance(request, AppendRequest):
            self._append(ticket, request, self._leading, now)
        elif 0 <= core.log.begin_index <= request.begin_index <= core.log.end_index:
            entry = core.log.entry(request.begin_index)
            core.reply(ticket, GetResponse(entries=[entry], group=core.setup.group))
        else:
            core.reply(ticket, bodies.refusal(request, codes.INDEX_OUT_OF_RANGE, core.leader))

    def _append(self, ticket: object, request: AppendRequest, leading: Leading, now: int) -> None:
        core = self._core
        body = request.body or b""
        code = leading.propose(_AppendTicket(ticket, request), lambda term: core.log.append(term, [body]), now)
        if code != codes.SUCCESS:
            core.reply(ticket, AppendResponse(code=code, group=request.group))


def _with_answers(actions: list[Action]) -> list[Action]:
    """Turn the results of appends that came over the wire into answers."""
    found: list[Action] = []
    for action in actions:
        if isinstance(action, Settled) and isinstance(action.ticket, _AppendTicket):
            asked = action.ticket
            response = AppendResponse(code=action.code, group=asked.request.group, index=action.index)
            found.append(Reply(asked.ticket, response))
        else:
            found.append(action)
    return found
