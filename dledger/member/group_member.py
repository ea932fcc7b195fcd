"""One member of a group: binds the rules to the ledger on disk, to the network, and to time.

    member = GroupMember(setup, Disk(ledger, term_files), turn, client, owner)
    await nursery.start(member.run, MemberPort(number))

Requests, answers and appends go to the rules as they come. The end of the event loop's turn (`Turn.before_flush`) ends
theirs: all that a turn appended is one push to each follower, and answers leave with the turn's output. So construct a
member after the hook that appends is registered. A timer brings a turn when the rules have something due.

Theory. Actions are performed in the order in which the rules give them. A `StoreTerm` is written by a thread; until it
is on disk the rest of its turn waits in `_rest`, and the rules are given no further turn. So nothing that follows from
a vote leaves before it, while everything else on the event loop continues. Requests that come meanwhile are taken,
up to a bound; what the rules make of them waits in the rules.

Any exception in the rules or the ledger ends the member: it answers and sends nothing more, and `Owner.failed` hears
why, once. What its disk has is right, so a restart continues.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Protocol

import structlog
import trio

from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.ledger.term_files import TermFiles
from triomq.dledger.member import sense
from triomq.dledger.member.calls import Calls
from triomq.dledger.member.guard import SILENT_SECONDS, PortGuard
from triomq.dledger.member.port import MemberPort
from triomq.dledger.member.requests import Requests, Ticket
from triomq.dledger.member.syncing import Syncing
from triomq.dledger.rules.actions import (
    Action,
    Committed,
    Drop,
    Reply,
    Role,
    RoleChanged,
    Send,
    Settled,
    Shortened,
    Slowed,
    StoreTerm,
)
from triomq.dledger.rules.core import NEVER, Setup
from triomq.dledger.rules.member import Member
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import HeartBeatRequest, Request, Response
from triomq.remoting.client import RemotingClient
from triomq.remoting.config import ServerSettings
from triomq.remoting.connection import Connection
from triomq.remoting.server import TLS_DISABLED, RemotingServer
from triomq.remoting.turn import Turn
from triomq.store.disk.files import TEMPORARY
from triomq.store.disk.worker_thread import Offload

log = structlog.get_logger("triomq.dledger.member")

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
MAX_REQUEST_BYTES: Final = 256 * 1024 * 1024
"""What all peers of the port can make the member hold."""
MAX_HELD: Final = 1000
"""Requests that are taken while a term is being written."""
HAND_OVER_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 1.0


class Owner(Protocol):
    """What a member tells. Plain functions, called in the order of what happened; they may propose and take office."""

    def role_changed(self, role: Role, term: int, leader_id: str | None) -> None:
        """A leader takes appends after `GroupMember.take_office(term)`."""

    def committed(self, index: int) -> None:
        """Everything up to this index may be shown to readers."""

    def shortened(self, index: int) -> None:
        """The log was cut behind this index; -1: nothing of it is left."""

    def settled(self, ticket: object, code: int, index: int) -> None:
        """An append that was taken has its result. `index`: of its last entry."""

    def failed(self, error: BaseException) -> None:
        """The member has ended: its disk, or the member itself, cannot be trusted. Called once."""


@dataclass(frozen=True)
class Disk:
    """What a member keeps: its ledger, which is open, and its term. `offload` runs a blocking function in a thread."""

    ledger: Ledger
    term_files: TermFiles
    offload: Offload = trio.to_thread.run_sync
    syncs: bool = True
    """Whether the member syncs what it has written. Otherwise its owner does, and calls `GroupMember.synced`."""


class GroupMember:
    """See the module's docstring. Construct it in a trio run. `draw(low, high)` returns a random number of that range.
    Raises StoreRefused for a damaged term."""

    def __init__(
        self,
        setup: Setup,
        disk: Disk,
        turn: Turn,
        client: RemotingClient,
        owner: Owner,
        *,
        draw: Callable[[int, int], int] = random.randint,
        serves_clients: bool = False,
    ) -> None:
        """`serves_clients`: whether entries may be appended and read over the wire."""
        self._disk = disk
        self._turn = turn
        self._owner = owner
        ledger = disk.ledger
        if len(setup.members) == 1:
            ledger.keep_no_entries_in_memory()
        stored = StoreTerm(*disk.term_files.load_term())
        self._rules = Member(setup, ledger, draw, stored, ledger.noted_committed, _now_ms())
        self._calls = Calls(client, setup, self._answered, self._furthest_term)
        self._requests = Requests(
            ledger,
            self._requested,
            self._refusal,
            lambda: self._rules.leader,
            furthest_term=self._furthest_term,
            serves_clients=serves_clients,
        )
        self._syncing = Syncing(
            ledger,
            disk.offload,
            is_sync_flush=setup.is_sync_flush,
            syncs=disk.syncs,
            synced=self.synced,
            failed=self._fail,
            committed=lambda: self._rules.committed,
        )
        self._guard: PortGuard | None = None
        self._server: RemotingServer | None = None
        self._nursery: trio.Nursery | None = None
        self._rest: deque[Action] = deque()
        self._is_storing = False
        self._held = 0
        self._failure: BaseException | None = None
        self._is_due = True
        self._wake_at = self._sleeps_until = NEVER
        self._alarm = trio.Event()
        self._role_has_changed = trio.Event()
        self._leaders_connection: Connection | None = None
        turn.before_flush(self._end_turn)

    # What the owner may read and do.

    @property
    def role(self) -> Role:
        return self._rules.role

    @property
    def is_leader(self) -> bool:
        return self._rules.role is Role.LEADER

    @property
    def is_confirmed(self) -> bool:
        """Whether this member leads, and a quorum has said so a moment ago: no other one can have been elected."""
        return self._rules.is_confirmed(_now_ms())

    @property
    def is_handing_over(self) -> bool:
        """Whether this member leads, and has asked another one to take over."""
        return self._rules.is_handing_over

    @property
    def term(self) -> int:
        return self._rules.term

    @property
    def leader(self) -> str | None:
        return self._rules.leader

    @property
    def committed(self) -> int:
        return self._rules.committed

    @property
    def must_open_term(self) -> bool:
        """Whether the owner, taking office, must append an entry that commits those of older terms."""
        return self._rules.must_open_term

    @property
    def connections(self) -> int:
        """The number of connections to the port."""
        return len(self._server.connections) if self._server is not None else 0

    @property
    def refused_connections(self) -> Counter[str]:
        """Why connections were closed when they were accepted -> how many."""
        return self._server.refused_connections if self._server is not None else Counter()

    def append_refusal(self) -> int | None:
        """Return the code with which `propose` would refuse now, or None. It may still return DISK_FULL then."""
        return codes.NOT_LEADER if self._is_stopped else self._rules.append_refusal()

    def propose(self, ticket: object, write: Callable[[int], None]) -> int:
        """Take an append, as `rules.member.Member.propose` does. Return SUCCESS, or why it was not taken."""
        if self._is_stopped:
            return codes.NOT_LEADER
        self._happened()
        code = self._guarded(self._rules.propose, ticket, write, _now_ms())
        return codes.INTERNAL_ERROR if code is None else int(code)

    def take_office(self, term: int) -> None:
        """The owner is ready to lead this term. Without effect if it is over."""
        self._rules.take_office(term)
        self._happened()

    def prefer(self, members: tuple[str, ...]) -> None:
        """Let one of these members lead, if it can (preferredLeaderId)."""
        self._rules.prefer(members)
        self._happened()

    @property
    def members(self) -> dict[str, str]:
        """Return id -> address of all members."""
        return self._rules.members

    def set_room(self, has_room: bool) -> None:
        """Note whether the broker of this member takes messages, as far as its disk goes."""
        self._rules.set_room(has_room)

    def can_take_over(self, peer: str) -> bool:
        """Return whether this member leads and could hand over to `peer`."""
        return self._rules.can_take_over(peer)

    async def hand_over(self, seconds: float = HAND_OVER_SECONDS, among: tuple[str, ...] | None = None) -> bool:
        """Hand the leadership to another member, or to one of these. Return whether somebody else leads; a member that
        does not lead has nothing to hand over, and where nobody can take over, nothing is waited for."""
        if not self.is_leader:
            return True
        with trio.move_on_after(seconds):
            while self.is_leader or self.leader is None:
                if self.is_leader and self.append_refusal() != codes.LEADER_TRANSFERRING:
                    if self._is_stopped or not self._rules.hand_over(among):
                        return False
                    self._happened()
                with trio.move_on_after(RETRY_SECONDS):
                    await self._role_has_changed.wait()
        return not self.is_leader and self.leader is not None

    async def run(self, port: MemberPort, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve on a port until cancelled; `task_status` gets its number. The end of a stop writes the checkpoint.
        After `Owner.failed` it does nothing until it is cancelled. Raises OSError if the port is taken."""
        guard = self._guard = PortGuard(self._rules.members, port.addresses, port.tls)
        settings = ServerSettings(
            bind_address=port.bind_address,
            max_frame_bytes=MAX_FRAME_BYTES,
            max_request_bytes=MAX_REQUEST_BYTES,
            max_connections=guard.places,
            silent_seconds=SILENT_SECONDS,
        )
        tls = port.tls
        server = RemotingServer(
            settings,
            self._turn,
            events=self,
            tls_mode=tls.mode.name if tls is not None else TLS_DISABLED,
            tls_context=tls.accepting.context if tls is not None and tls.accepting is not None else None,
            guard=guard,
        )
        number = server.bind(port.number, self._requests.table)
        self._server = server
        try:
            async with trio.open_nursery() as nursery:
                if tls is not None:
                    nursery.start_soon(tls.watch)
                await nursery.start(guard.hosts.run)
                await nursery.start(server.serve)
                self._nursery = nursery
                nursery.start_soon(self._keep_time)
                nursery.start_soon(self._syncing.run)
                self._happened()
                task_status.started(number)
        finally:
            self._nursery = None
            if self._failure is None:
                self._syncing.note()

    # Connections (remoting.server.ConnectionEvents).

    def connection_opened(self, connection: Connection) -> None:
        pass

    def connection_closed(self, connection: Connection) -> None:
        """Ask the leader's port whether its process has ended, when the connection of its heartbeats has."""
        if self._guard is not None:
            self._guard.closed(connection)
        if connection is not self._leaders_connection:
            return
        self._leaders_connection = None
        if self._nursery is not None and self.role is Role.FOLLOWER and self.leader is not None:
            self._nursery.start_soon(self._look_after, self.leader, self.term)

    async def _look_after(self, leader: str, term: int) -> None:
        if await self._calls.has_ended(leader) and self.term == term and not self._is_stopped:
            log.info("leader's process ended", leader=leader, term=term)
            self._guarded(self._rules.gone, leader, _now_ms())
            self._happened()

    # Events.

    @property
    def _is_stopped(self) -> bool:
        return self._failure is not None or self._nursery is None

    def _happened(self) -> None:
        """End the rules' turn with this turn, or soon."""
        self._is_due = True
        self._turn.wake()

    def _refusal(self) -> str | None:
        if self._failure is not None:
            return f"this member has failed: {self._failure}; restart it"
        if self._nursery is None:
            return "this member stops"
        if self._is_storing:
            self._held += 1
            if self._held > MAX_HELD:
                return "this member waits for its disk"
        return None

    def _requested(self, ticket: Ticket, request: Request) -> None:
        self._guarded(self._rules.requested, ticket, request, _now_ms())
        if self._guard is not None and self._rules.is_of_member(request):
            self._guard.spoke_as(ticket.connection, request.leader_id)
        if isinstance(request, HeartBeatRequest) and (request.leader_id, request.term) == (self.leader, self.term):
            self._leaders_connection = ticket.connection
        self._happened()

    def _answered(self, call: int, response: Response | None) -> None:
        if not self._is_stopped:
            self._guarded(self._rules.answered, call, response, _now_ms())
            self._happened()

    def _furthest_term(self) -> int:
        return sense.furthest_term(self._rules.term, self._disk.ledger.end_index)

    def synced(self) -> None:
        """Note that more of the ledger is on disk."""
        if not self._is_stopped:
            self._guarded(self._rules.synced)
            self._happened()

    def _guarded(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the rules. An exception ends the member: what the rules know may be wrong."""
        try:
            return function(*arguments)
        except Exception as error:
            self._fail(error)
            return None

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            log.critical("member failed", exc_info=error)
            self._failure = error
            self._rest.clear()
            self._owner.failed(error)

    # Turns.

    def _end_turn(self) -> None:
        """The hook: give the rules their turn if anything happened."""
        if not self._is_due or self._is_storing or self._is_stopped:
            return
        self._is_due = False
        self._rest.extend(self._guarded(self._rules.turn, _now_ms()) or ())
        self._perform()
        self._syncing.look()
        self._wake_at = self._rules.wake_at
        if self._is_due or self._wake_at < self._sleeps_until:
            self._alarm.set()

    async def _keep_time(self) -> None:
        """Bring a turn when one is due: at the time of the rules, or for what happened while a turn ended."""
        while True:
            self._sleeps_until = self._wake_at
            with trio.move_on_at(inf if self._wake_at >= NEVER else (self._wake_at + 0.5) / 1000):
                await self._alarm.wait()
            self._alarm = trio.Event()
            if self._is_due or _now_ms() >= self._wake_at:
                self._wake_at = NEVER  # until that turn has ended
                self._happened()
                await trio.sleep(0.001)  # whatever the rules say, the loop stays free for others

    def _perform(self) -> None:
        """Perform actions in their order, up to a StoreTerm: its thread continues with the rest."""
        while self._rest and not self._is_stopped:
            action = self._rest.popleft()
            if isinstance(action, StoreTerm):
                assert self._nursery is not None
                self._is_storing = True
                self._nursery.start_soon(self._store, action)
                return
            self._do(action)

    def _do(self, action: Action) -> None:
        if isinstance(action, Send):
            assert self._nursery is not None
            self._calls.send(action, self._nursery)
        elif isinstance(action, Reply):
            assert isinstance(action.ticket, Ticket)
            action.ticket.answer(action.response)
        elif isinstance(action, Drop):
            assert isinstance(action.ticket, Ticket)
            action.ticket.drop()
        elif isinstance(action, Settled):
            self._owner.settled(action.ticket, action.code, action.index)
        elif isinstance(action, Committed):
            self._owner.committed(action.index)
        elif isinstance(action, Shortened):
            self._owner.shortened(action.index)
        elif isinstance(action, RoleChanged):
            self._change_role(action)
        elif isinstance(action, Slowed):
            text = "elections slowed down to RocketMQ's pace: set dLegerFastElection at all members, or at none"
            log.error(text, without=action.peer)

    def _change_role(self, action: RoleChanged) -> None:
        log.info("role changed", role=action.role.value, term=action.term, leader=action.leader)
        self._role_has_changed.set()
        self._role_has_changed = trio.Event()
        self._owner.role_changed(action.role, action.term, action.leader)

    async def _store(self, action: StoreTerm) -> None:
        """Make term and vote durable, then perform what waits for that. While the disk is full, the member says nothing
        and tries again; the others do without it."""
        while True:
            try:
                await self._disk.offload(self._disk.term_files.save_term, action.term, action.vote)
                break
            except OSError as error:
                if error.errno not in TEMPORARY:
                    self._fail(error)
                    return
                log.error("term not stored at present", error=str(error))
            await trio.sleep(RETRY_SECONDS)
        self._is_storing = False
        self._held = 0
        self._perform()
        self._happened()


def _now_ms() -> int:
    return int(trio.current_time() * 1000)
