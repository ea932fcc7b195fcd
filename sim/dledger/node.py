"""A member's process: its clock, its log, and the actions that its rules ask for.

A process may end between any two actions of a turn; what follows is then not done. Its clock begins anywhere and runs
up to a tenth too fast or too slow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Protocol, TypeAlias

from sim.dledger.checks import Checks, Violation
from sim.dledger.disk import MemoryLog
from sim.dledger.java_member import JavaMember
from triomq.dledger.rules.actions import (
    Action,
    Committed,
    Reply,
    Role,
    RoleChanged,
    Send,
    Settled,
    Shortened,
    StoreTerm,
)
from triomq.dledger.rules.core import Setup
from triomq.dledger.rules.member import Member
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import Request, Response

OFFICE_MS = 30


Maker: TypeAlias = Callable[..., Member] | Callable[..., JavaMember]


class Ticket:
    """A request of another member that waits for its answer."""

    __slots__ = ("call", "incarnation", "source")

    def __init__(self, source: str, incarnation: int, call: int) -> None:
        self.source = source
        self.incarnation = incarnation
        self.call = call


class Outside(Protocol):
    """What lies around a member: time, the network, clients, and the checks. Times are simulated milliseconds."""

    counts: Counter[str]
    checks: Checks
    crash_rate: float
    """How often a process ends before one of its actions, 0 to 1."""
    opens_terms: bool
    """Whether a leader appends an entry as soon as it has taken its office."""

    @property
    def now(self) -> float: ...

    def note(self, who: str, what: object) -> None:
        """Add an action to the trace, if there is one."""

    def later(self, delay_ms: float, node: Node, kind: str, value: int) -> None:
        """Let an event come to a node, unless its process has ended by then."""

    def wake(self, node: Node, at: float) -> None:
        """Let the node have a turn at this time."""

    def send(self, source: Node, action: Send) -> None:
        """Send a request to another member."""

    def respond(self, node: Node, ticket: Ticket, response: Response) -> None:
        """Send a response back."""

    def crash(self, node: Node) -> None:
        """End the process of a node, and start it again later."""

    def next_ticket(self) -> int:
        """Return the name of another append."""

    def next_body(self, queue: str, offset: int) -> bytes:
        """Return the body of another entry."""


class Node:
    """One member over all its lives."""

    def __init__(self, outside: Outside, setup: Setup, choose: Random, make: Maker) -> None:
        self._outside = outside
        self._choose = choose
        self._group = Random(setup.self_id)  # of its own, so that a seed stays what it was
        self._make = make
        self.setup = setup
        self.name = setup.self_id
        self.log = MemoryLog(choose)
        self.rate = choose.uniform(0.9, 1.1)
        self.shift = choose.randrange(1_000_000)
        self.incarnation = 0
        self.is_up = False
        self.is_paused = False
        self._stored = StoreTerm(0, None)
        self._saved_committed = -1
        self._open: dict[object, tuple[list[bytes], int]] = {}  # the bodies of an append, and when it was taken
        self._calls: set[int] = set()
        self._next_offsets: dict[str, int] = {}
        self.wake: float = -1
        self.in_office = False
        self.member: Member | JavaMember

    @property
    def is_java(self) -> bool:
        return self._make is JavaMember

    def now(self) -> int:
        return int(self._outside.now * self.rate) + self.shift

    def start(self) -> None:
        self.is_up = True
        self.is_paused = False
        self.incarnation += 1
        committed = min(self._saved_committed, self.log.end_index)
        self.member = self._make(self.setup, self.log, self._choose.randint, self._stored, committed, self.now())
        self._outside.checks.restarted(self.name, self.member.committed)
        self._outside.checks.changed(self.name, self.log)
        self.turn()

    def stop(self, *, is_power_loss: bool) -> None:
        self.is_up = False
        self.in_office = False
        self._open.clear()
        self._calls.clear()
        self.log.stop(is_power_loss=is_power_loss)
        self.log.is_refusing = False

    # Events.

    def request(self, ticket: Ticket, request: Request) -> None:
        self.member.requested(ticket, request, self.now())
        self.turn()

    def answer(self, call: int, response: Response | None) -> None:
        if call in self._calls:
            self._calls.remove(call)
            self.member.answered(call, response, self.now())
            self.turn()

    def end_sync(self) -> None:
        self.log.end_sync()
        self.member.synced()
        self.turn()

    def take_office(self, term: int) -> None:
        if self.member.role is Role.LEADER and self.member.term == term:
            self.member.take_office(term)
            self.in_office = True
            self._next_offsets = dict(self.log.counts)
            if self._outside.opens_terms and self.member.must_open_term:
                self.propose(1)  # commits the entries of older terms without waiting for a client

    def propose(self, count: int) -> None:
        """Append that many entries in one turn: each by itself, or some together."""
        queues = [self._choose.choice("AB") for _ in range(count)]
        while queues:
            together = self._group.choice((1, len(queues)))
            self._append(queues[:together])
            del queues[:together]
        self.turn()

    def _append(self, queues: list[str]) -> None:
        """Append entries together. They get their queue offsets when they are taken, as in a store."""
        bodies: list[bytes] = []
        ticket = self._outside.next_ticket()
        refusal = self.member.append_refusal()
        code = self.member.propose(ticket, lambda term: self._write(term, queues, bodies), self.now())
        if code == codes.SUCCESS:
            self._open[ticket] = (bodies, self.now())
        else:
            self._outside.counts[f"settled {code}"] += 1
        expected = (codes.SUCCESS, codes.DISK_FULL) if refusal is None else (refusal,)
        if code not in expected:
            raise Violation(f"a refusal is known before: {self.name} said {refusal}, then {code}")

    def _write(self, term: int, queues: list[str], bodies: list[bytes]) -> None:
        offsets = dict(self._next_offsets)
        for queue in queues:
            offset = offsets.get(queue, 0)
            offsets[queue] = offset + 1
            bodies.append(self._outside.next_body(queue, offset))
        self.log.append(term, bodies)
        self._next_offsets = offsets

    # Actions.

    def turn(self) -> None:
        if not self.is_up:
            return
        outside = self._outside
        actions = self.member.turn(self.now())
        for action in actions:
            if outside.crash_rate and self._choose.random() < outside.crash_rate:
                outside.checks.changed(self.name, self.log)
                outside.crash(self)
                return
            self._perform(action)
        self._check_log()
        if self.member.committed > self.log.end_index and not self.is_java:  # D2
            raise Violation(f"committed is in the log: {self.name} has {self.log.end_index}")
        if self.member.committed > self._saved_committed and self._choose.random() < 0.05:
            self._saved_committed = self.member.committed
        if self.log.needs_sync:
            self.log.begin_sync()
            outside.later(self._choose.randint(1, 12), self, "sync", self.incarnation)
        self._schedule()

    def _perform(self, action: Action) -> None:
        outside = self._outside
        outside.note(self.name, action)
        if isinstance(action, Send):
            self._calls.add(action.call)
            outside.send(self, action)
        elif isinstance(action, Reply):
            if isinstance(action.ticket, Ticket):
                outside.respond(self, action.ticket, action.response)
        elif isinstance(action, StoreTerm):
            self._stored = action
        elif isinstance(action, RoleChanged):
            self._change_role(action)
        elif isinstance(action, Committed):
            self._check_log()
            outside.checks.committed(self.name, action.index, self.member.term, self.log)
        elif isinstance(action, Shortened):
            self._saved_committed = min(self._saved_committed, action.index)
        elif isinstance(action, Settled):
            self._settle(action)

    def _change_role(self, action: RoleChanged) -> None:
        outside = self._outside
        self.in_office = False
        if action.role is Role.LEADER:
            outside.counts["leaders"] += 1
            outside.counts["Java leaders"] += self.is_java
            self._check_log()
            outside.checks.leads(self.name, action.term, self.log)
            outside.later(OFFICE_MS, self, "office", action.term)

    def _check_log(self) -> None:
        if self.log.added or self.log.removed:
            self._outside.checks.changed(self.name, self.log)

    def _settle(self, action: Settled) -> None:
        bodies, _ = self._open.pop(action.ticket)
        self._outside.counts[f"settled {action.code}"] += 1
        if action.code == codes.SUCCESS:
            self._check_log()
            first = action.index - len(bodies) + 1
            for index, body in enumerate(bodies, first):
                self._outside.checks.acknowledge(self.name, index, body)

    def check_settled(self) -> None:
        """Every append has its result in time."""
        if self.is_java:
            return  # D6
        late = self.now() - self.setup.timing.append_wait_ms - 100
        for bodies, since in self._open.values():
            if since < late:
                raise Violation(f"appends are answered: {self.name} left {bodies} without an answer")

    def _schedule(self) -> None:
        at = max((self.member.wake_at - self.shift + 0.01) / self.rate, self._outside.now + 0.1)
        if at != self.wake and at < 1e12:
            self.wake = at
            self._outside.wake(self, at)
