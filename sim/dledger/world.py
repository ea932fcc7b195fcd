"""One seed from start to verdict.

All that happens is an event in one heap: a message arrives, a call is given up, a clock wakes a member, a sync ends, a
client sends, something goes wrong. Events at one moment run in the order in which they were made. A seed therefore does
the same each time, and a run differs from another only by what its `Random` draws.

After `TROUBLE_MS` everything is mended. Then the group must agree within `CALM_MS`: one leader, equal logs, everything
committed everywhere, and no append without an answer.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from random import Random
from typing import Any

from sim.dledger.checks import Checks, Violation
from sim.dledger.java_member import JavaMember
from sim.dledger.network import Network, Weather
from sim.dledger.node import Maker, Node, Ticket
from triomq.dledger.rules.actions import Role, Send
from triomq.dledger.rules.core import Setup
from triomq.dledger.rules.member import Member
from triomq.dledger.rules.timing import DEFAULT, FAST
from triomq.dledger.wire.bodies import Response, TransferRequest

TROUBLE_MS = 30_000
CALM_MS = 60_000
CALL_MS = 3000
TRACE_EVENTS = 60

FAULTS = (
    *("kill", "power", "cut off", "one way", "pair", "mend", "mend", "pause", "weather", "disk", "transfer"),
    *("hand over", "gone", "expire", "crashes"),
)
"""What goes wrong. A seed draws a few of these kinds and uses only them."""


class World:
    """The members of one group, what lies between them, and what they are put through."""

    def __init__(
        self,
        seed: int,
        *,
        faults: tuple[str, ...] = FAULTS,
        makers: tuple[Maker, ...] = (Member,),
        is_traced: bool = False,
    ) -> None:
        self.choose = choose = Random(seed)
        self.now: float = 0
        self.trace: deque[tuple[float, str, object]] | None = deque(maxlen=TRACE_EVENTS) if is_traced else None
        self.counts: Counter[str] = Counter()
        self.checks = Checks(frozenset(f"n{at}" for at, maker in enumerate(makers) if maker is JavaMember))
        self.network = Network(choose, self.counts)
        self.crash_rate = 0.0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._bodies = self._tickets = 0
        self._is_calm = self._has_agreed = False
        self._lines: dict[tuple[str, str], deque[tuple[int, Ticket, Any]]] = defaultdict(deque)
        size = choose.choice((1, 3, 3, 3, 3, 3, 3, 5, 5))
        if len(makers) > 1:
            size = len(makers)
        self.is_sync_flush = choose.random() < 0.6
        self._faults = choose.sample(faults, min(len(faults), choose.randint(2, 5)))
        self._send_every_ms = choose.choice((100, 300, 900))
        self._trouble_every_ms = choose.choice((400, 1500, 4000))
        self.opens_terms = choose.random() < 0.5
        members = {f"n{at}": f"127.0.0.1:{20000 + at}" for at in range(size)}
        preferred = ("n0", "n1")[: choose.choice((0, 0, 0, 1, 2))]
        timing = FAST if seed % 4 == 3 else DEFAULT
        self.nodes = {
            name: Node(
                self,
                Setup("sim", name, members, self.is_sync_flush, preferred, timing),
                choose,
                makers[at % len(makers)],
            )
            for at, name in enumerate(members)
        }

    # Events.

    def at(self, time: float, what: Callable[..., None], *arguments: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (time, self._sequence, what, arguments))

    def later(self, delay_ms: float, node: Node, kind: str, value: int) -> None:
        self.at(self.now + delay_ms, self._node_event, node, kind, node.incarnation, value)

    def wake(self, node: Node, at: float) -> None:
        self.at(at, self._wake, node, node.incarnation, at)

    def note(self, who: str, what: object) -> None:
        if self.trace is not None:
            self.trace.append((self.now, who, what))

    def run(self) -> None:
        """Run the seed. Raises Violation."""
        for node in self.nodes.values():
            self.at(self.choose.random() * 500, self._start, node)
        self.at(1000, self._client)
        self.at(2000, self._trouble)
        self.at(TROUBLE_MS, self._mend_everything)
        self.at(700, self._look)
        end = TROUBLE_MS + CALM_MS
        while not self._has_agreed:
            self.now, _, what, arguments = heapq.heappop(self._heap)
            self.counts["steps"] += 1
            what(*arguments)
            if self.now > end:
                raise Violation(f"the group agrees in the end: {self._state()}")

    def _look(self) -> None:
        self.at(self.now + 1000, self._look)
        for node in self._living():
            node.check_settled()
        self._has_agreed = self._is_calm and self._agree()

    def _living(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_up and not node.is_paused]

    def _node_event(self, node: Node, kind: str, incarnation: int, value: int) -> None:
        if not node.is_up or node.incarnation != incarnation:
            return
        if node.is_paused:
            self.at(self.now + 50, self._node_event, node, kind, incarnation, value)
        elif kind == "sync":
            node.end_sync()
        else:
            node.take_office(value)

    def _wake(self, node: Node, incarnation: int, at: float) -> None:
        if node.is_up and node.incarnation == incarnation and node.wake == at:
            node.wake = -1
            if node.is_paused:
                self.wake(node, self.now + 50)
                node.wake = self.now + 50
            else:
                node.turn()

    # Messages.

    def send(self, source: Node, action: Send) -> None:
        self.at(self.now + CALL_MS, self._give_up, source, source.incarnation, action.call)
        target = self.nodes[action.to]
        ticket = Ticket(source.name, source.incarnation, action.call)
        for delay in self.network.delays(source.name, action.to):
            if target.is_java:  # in order, and once: see JavaMember
                line = self._lines[source.name, target.name]
                line.append((target.incarnation, ticket, action.request))
                self.at(self.now + delay, self._arrive_next, target, line)
                return
            self.at(self.now + delay, self._arrive, target, target.incarnation, ticket, action.request)

    def respond(self, node: Node, ticket: Ticket, response: Response) -> None:
        if ticket.source not in self.nodes:
            return  # an administrator
        source = self.nodes[ticket.source]
        for delay in self.network.delays(node.name, ticket.source):
            self.at(self.now + delay, self._return, source, ticket.incarnation, ticket.call, response)

    def _arrive_next(self, target: Node, line: deque[tuple[int, Ticket, Any]]) -> None:
        if target.is_paused:
            self.at(self.now + 50, self._arrive_next, target, line)
        else:
            self._arrive(target, *line.popleft())

    def _arrive(self, target: Node, incarnation: int, ticket: Ticket, request: Any) -> None:
        if not target.is_up or target.incarnation != incarnation:
            if ticket.source in self.nodes:
                source = self.nodes[ticket.source]
                self._return(source, ticket.incarnation, ticket.call, None)
        elif target.is_paused:
            self.at(self.now + 50, self._arrive, target, incarnation, ticket, request)
        else:
            self.note(target.name, request)
            target.request(ticket, request)

    def _return(self, source: Node, incarnation: int, call: int, response: Response | None) -> None:
        if not source.is_up or source.incarnation != incarnation:
            return
        if source.is_paused:
            self.at(self.now + 50, self._return, source, incarnation, call, response)
        else:
            source.answer(call, response)

    def _give_up(self, source: Node, incarnation: int, call: int) -> None:
        self._return(source, incarnation, call, None)

    # Clients.

    def next_ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def next_body(self, queue: str, offset: int) -> bytes:
        self._bodies += 1
        return f"{queue}:{offset}:{self._bodies}".encode()

    def _client(self) -> None:
        if self.now < TROUBLE_MS:
            self.at(self.now + self.choose.random() * 2 * self._send_every_ms, self._client)
        leaders = [node for node in self._living() if node.member.role is Role.LEADER]
        if leaders:
            self.choose.choice(leaders).propose(self.choose.choice((1, 1, 1, 2, 5)))

    # Trouble.

    def _start(self, node: Node) -> None:
        if not node.is_up:
            node.wake = -1
            node.start()

    def crash(self, node: Node, *, may_lose: bool = True) -> None:
        """End a process. With SYNC_FLUSH it may be a power failure, which takes what was not synced."""
        is_power_loss = may_lose and self.is_sync_flush and self.choose.random() < 0.7 and not node.is_java  # D24
        self.counts["power failures" if is_power_loss else "kills"] += 1
        self.note(node.name, "loses its power" if is_power_loss else "is killed")
        node.stop(is_power_loss=is_power_loss)
        self.at(self.now + self.choose.choice((50, 2000, 9000)), self._start, node)

    def _trouble(self) -> None:
        if self.now >= TROUBLE_MS:
            return
        self.at(self.now + self.choose.random() * 2 * self._trouble_every_ms, self._trouble)
        kind = self.choose.choice(self._faults)
        living = self._living()
        if living:
            self.note("world", kind)
            self._do(kind, self.choose.choice(living))

    def _do(self, kind: str, node: Node) -> None:
        choose = self.choose
        others = [name for name in self.nodes if name != node.name]
        self.counts[kind] += 1
        if kind in ("kill", "power"):
            self.crash(node, may_lose=kind == "power")
        elif kind == "cut off":
            for name in others:
                self.network.cut(node.name, name)
                self.network.cut(name, node.name)
        elif kind == "one way" and others:
            for name in choose.sample(others, choose.randint(1, len(others))):
                self.network.cut(*choose.choice(((node.name, name), (name, node.name))))
        elif kind == "pair" and others:
            name = choose.choice(others)
            self.network.cut(node.name, name)
            self.network.cut(name, node.name)
        elif kind == "mend":
            self.network.cuts.clear()
        elif kind == "pause":
            node.is_paused = True
            self.at(self.now + choose.choice((500, 4000, 9000)), self._resume, node)
        elif kind == "weather":
            bad = choose.choice((0.0, 0.02, 0.2))
            double, late = choose.choice((0.0, bad)), choose.choice((0.0, bad))
            self.network.weather = Weather(bad, double, late, choose.choice((3, 40, 400)))
        elif kind == "disk":
            node.log.is_refusing = True
            self.at(self.now + choose.choice((500, 5000)), self._mend_disk, node)
        else:
            self._do_to_leader(kind, node, others)

    def _do_to_leader(self, kind: str, node: Node, others: list[str]) -> None:
        choose = self.choose
        if kind == "transfer" and others:
            request = TransferRequest(
                group="sim",
                local_id="admin",
                remote_id=node.name,
                term=node.member.term,
                transfer_id=node.name,
                transferee_id=choose.choice(others),
            )
            node.request(Ticket("admin", 0, 0), request)
        elif kind == "hand over":
            node.member.hand_over()
            node.turn()
        elif kind == "gone" and others:
            node.member.gone(choose.choice(others), node.now())
            node.turn()
        elif kind == "expire" and len(node.log.entries) > 20 and node.member.committed > node.log.begin_index + 10:
            limit = min(node.member.committed, node.log.synced_index) - node.log.begin_index
            node.log.expire(max(0, min(10, limit)))
        elif kind == "crashes":
            self.crash_rate = choose.choice((0.0, 0.002, 0.01))

    def _resume(self, node: Node) -> None:
        node.is_paused = False
        node.turn()

    def _mend_disk(self, node: Node) -> None:
        node.log.is_refusing = False

    def _mend_everything(self) -> None:
        self._is_calm = True
        self.crash_rate = 0.0
        self.network.heal()
        for node in self.nodes.values():
            node.is_paused = False
            node.log.is_refusing = False
            self.at(self.now + 10, self._start, node)
        self.at(self.now + 100, self._last_append)

    def _last_append(self) -> None:
        """Send until it is over: what an earlier leader left is committed with an entry of the present one."""
        self.at(self.now + 2000, self._last_append)
        self._client()

    def _agree(self) -> bool:
        nodes = self._living()
        leaders = [node for node in nodes if node.member.role is Role.LEADER and node.in_office]
        if len(nodes) != len(self.nodes) or len(leaders) != 1 or any(node.log.is_refusing for node in nodes):
            return False
        leader = leaders[0]
        end = leader.log.end_index
        if leader.is_java:
            nodes = [node for node in nodes if not self._is_left_behind(node, leader)]
            if len(nodes) < leader.setup.quorum:
                return False
        return end >= 0 and all(
            node.log.end_index == end
            and node.log.entry(end).is_same(leader.log.entry(end))
            and node.member.leader == leader.name
            and (node.member.committed == end or (node.is_java and node.member.committed > end))  # D2
            for node in nodes
        )

    def _is_left_behind(self, node: Node, leader: Node) -> bool:
        """Whether a Java leader leaves a member out: one of a larger term (D4), a Java follower that crawls (D26)."""
        if node.member.term > leader.member.term:
            self.counts["left out"] += 1
            return True
        log = node.log
        is_behind = leader.log.begin_index <= log.end_index < leader.log.end_index
        return node.is_java and is_behind and leader.log.entry(log.end_index).is_same(log.entry(log.end_index))

    def _state(self) -> str:
        return "; ".join(
            f"{node.name} {node.member.role.value} of {node.member.leader} in term {node.member.term},"
            f" entries {node.log.begin_index}..{node.log.end_index}, committed {node.member.committed}"
            for node in self.nodes.values()
        )


def with_java(seed: int, count: int) -> tuple[Maker, ...]:
    """Return the makers of a group of three, `count` of them members by RocketMQ's rules; the seed says which."""
    makers: list[Maker] = [JavaMember] * count + [Member] * (3 - count)
    return tuple(makers[(at + seed) % 3] for at in range(3))


def run_seed(seed: int, *, is_traced: bool = False, **options: Any) -> tuple[str | None, World]:
    """Run one seed. Return what is wrong, None if nothing is, and the world as it was then."""
    world = World(seed, is_traced=is_traced, **options)
    try:
        world.run()
    except (Violation, AssertionError) as error:
        return f"{type(error).__name__}: {error}", world
    return None, world
