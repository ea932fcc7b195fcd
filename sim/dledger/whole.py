"""One seed with whole members: rules, ledger on a disk, remoting over a network, all in virtual time.

What a member reports to its owner, and what its ledger holds after each change, is checked as in `world.py`. After
`TROUBLE_SECONDS` everything is mended. Then the group must agree within `CALM_SECONDS`, and what a fresh recovery reads
from the disks must be what the members had.

What only the rules alone are put through: messages that are doubled or lost without their connection, and clocks that
run too fast or too slow.
"""

from __future__ import annotations

import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, MutableMapping
from pathlib import Path
from random import Random
from typing import Any

import structlog
import trio

from sim.cluster import in_words
from sim.determinism import VirtualClock, run_seeded
from sim.dledger.checks import Checks, Violation
from sim.dledger.disk import slot_of
from sim.dledger.hosts import Group, MemberNode, Options
from sim.dledger.mirror import Mirror
from sim.dledger.whole_trouble import WHOLE_FAULTS, Trouble
from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.ledger.records import TERM_TOPIC, is_whole_record
from triomq.dledger.member.alone import Alone
from triomq.dledger.rules.actions import Role
from triomq.dledger.rules.timing import DEFAULT, FAST
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import Entry
from triomq.protocol.address import HostPort

TROUBLE_SECONDS = 20.0
CALM_SECONDS = 60.0
ANSWER_SECONDS = 5.0
"""An append has its result after that long, if its member can do anything at all."""
IN_MEMORY = Path("/dev/shm")


def body_of(queue: str, offset: int, name: str) -> bytes:
    """Return a body that tells when a crash has torn it: see `is_whole`."""
    text = f"{queue}:{offset}:{name}:".encode()
    return text + b"%08x" % zlib.crc32(text)


def is_whole(entry: Entry) -> bool:
    """Return whether a body is one of this simulation, to the last byte. A record does not tell damage of its topic;
    the one that opens a term is the only record here."""
    if TERM_TOPIC in entry.body:
        return is_whole_record(entry)
    return entry.body[-8:] == b"%08x" % zlib.crc32(entry.body[:-8])


class CheckedOwner(Alone):
    """What one life of a member reports. A process that has ended reports nothing any more."""

    def __init__(self, whole: Whole, node: MemberNode) -> None:
        super().__init__(node.ledger)
        self._whole = whole
        self._node = node
        self._next_offsets: dict[str, int] = {}
        self.in_office = False
        self.has_failed = False
        self.open: dict[int, tuple[list[bytes], float]] = {}
        """For each append that was taken: its bodies, and when."""

    def role_changed(self, role: Role, term: int, leader_id: str | None) -> None:
        whole, node = self._whole, self._node
        self.in_office = False
        if node.is_dead:
            return
        whole.trace.add(f"{node.name} {role.value} of {leader_id} in term {term}")
        if role is Role.LEADER:
            whole.counts["leaders"] += 1
            whole.check(whole.checks.leads, node.name, term, whole.mirrors[node.name])
            whole.nursery.start_soon(self._enter_office, term)

    async def _enter_office(self, term: int) -> None:
        """Take office a moment later, as a broker does: it has queue offsets to count first."""
        await trio.sleep(self._whole.choose.random() * 0.1)
        member = self.member
        assert member is not None
        if self._node.is_dead or (member.role, member.term) != (Role.LEADER, term):
            return
        mirror = self._whole.mirrors[self._node.name]
        # Queues of a store know their ends also when their entries have expired.
        self._next_offsets = dict(self._whole.committed_ends)
        for index in range(max(0, mirror.begin_index), mirror.end_index + 1):
            if TERM_TOPIC not in mirror.entry(index).body:
                queue, offset = slot_of(mirror.entry(index))
                self._next_offsets[queue] = offset + 1
        with self._node.host.entered():
            member.take_office(term)
            self.in_office = True
            if member.must_open_term:
                member.propose(None, self._open_term)

    def _open_term(self, term: int) -> None:
        host = HostPort(self._node.host.ip, 0).packed
        self._node.ledger.append_opening(term, int(trio.current_time() * 1000), host)

    def append(self, count: int) -> None:
        """Append entries together. They get their queue offsets when they are taken, as in a store."""
        whole, node, member = self._whole, self._node, self.member
        assert member is not None
        bodies: list[bytes] = []

        def write(term: int) -> None:
            offsets = dict(self._next_offsets)
            for queue in whole.choose.choices("AB", k=count):
                offset = offsets.get(queue, 0)
                offsets[queue] = offset + 1
                bodies.append(body_of(queue, offset, whole.next_name()))
            node.ledger.append(term, bodies)
            self._next_offsets = offsets

        refusal = member.append_refusal()
        ticket = whole.next_ticket()
        with node.host.entered():
            code = member.propose(ticket, write)
        if node.is_dead:
            return
        if code == codes.SUCCESS:
            self.open[ticket] = (bodies, trio.current_time())
        else:
            whole.counts[f"settled {code}"] += 1
        if code not in ((codes.SUCCESS, codes.DISK_FULL) if refusal is None else (refusal,)):
            whole.violated(f"a refusal is known before: {node.name} said {refusal}, then {code}")

    def settled(self, ticket: object, code: int, index: int) -> None:
        whole = self._whole
        if self._node.is_dead or not isinstance(ticket, int):
            return
        bodies, _ = self.open.pop(ticket)
        whole.counts[f"settled {code}"] += 1
        if code == codes.SUCCESS:
            whole.trace.add(f"{self._node.name} acknowledges up to {index}")
            for at, body in enumerate(bodies, index - len(bodies) + 1):
                whole.check(whole.checks.acknowledge, self._node.name, at, body)

    def committed(self, index: int) -> None:
        whole, node = self._whole, self._node
        if not node.is_dead and self.member is not None:
            whole.trace.add(f"{node.name} has committed {index}")
            whole.check(whole.checks.committed, node.name, index, self.member.term, whole.mirrors[node.name])
            whole.note_ends(whole.mirrors[node.name], index)

    def failed(self, error: BaseException) -> None:
        self.has_failed = True
        if not self._node.is_dead and not self._node.disk.is_failing:
            self._whole.violated(f"members live: {self._node.name} failed of {in_words(error)}")


class Whole(Group):
    """The members of one group, and what is known of them."""

    def __init__(
        self,
        seed: int,
        clock: VirtualClock,
        nursery: trio.Nursery,
        directory: Path,
        kinds: tuple[str, ...] = WHOLE_FAULTS,
    ) -> None:
        choose = Random(seed)
        options = Options(
            size=choose.choice((1, 3, 3, 3, 3, 5)),
            is_sync_flush=choose.random() < 0.7,
            serves_clients=False,
            preferred=("n0", "n1")[: choose.choice((0, 0, 0, 1, 2))],
            timing=FAST if seed % 4 == 3 else DEFAULT,
            file_bytes=choose.choice((4096, 16 * 1024, 64 * 1024)),
            is_whole=is_whole,
        )
        super().__init__(clock, nursery, directory, choose, options)
        self.counts: Counter[str] = Counter()
        self.checks = Checks()
        self.mirrors = {name: Mirror() for name in self.nodes}
        self.problem: str | None = None
        self.over = trio.Event()
        self.is_calm = False
        self.seconds = 0.0
        self._floors: dict[str, int] = dict.fromkeys(self.nodes, -1)
        self._names = self._tickets = 0
        self.committed_ends: dict[str, int] = {}
        self._noted_index = -1
        self._trouble = Trouble(self, kinds, self.counts, self.ended)

    # Verdicts.

    def violated(self, text: str) -> None:
        """Note the first violation, which ends the run."""
        if self.problem is None:
            self.trace.add(text)
            self.problem = text
            self.over.set()

    def check(self, rule: Callable[..., None], *arguments: Any) -> None:
        """Check a rule inside of a member's code, which must not see that it is violated."""
        try:
            rule(*arguments)
        except (Violation, AssertionError) as error:
            self.violated(f"{type(error).__name__}: {error}")

    # What members do.

    def note_ends(self, mirror: Mirror, committed: int) -> None:
        """Note the queue offsets that come next after what a member has committed."""
        for index in range(max(self._noted_index + 1, mirror.begin_index), committed + 1):
            if TERM_TOPIC not in mirror.entry(index).body:
                queue, offset = slot_of(mirror.entry(index))
                self.committed_ends[queue] = offset + 1
        self._noted_index = max(self._noted_index, committed)

    def owner_of(self, node: MemberNode) -> CheckedOwner:
        """See Group: look at what the new life has found on its disk, then follow it."""
        ledger, mirror = node.ledger, self.mirrors[node.name]
        floor = self._floors[node.name]
        kept = [mirror.entry(index) for index in range(max(0, mirror.begin_index), min(floor, mirror.end_index) + 1)]
        mirror.removed = []
        mirror.follow(ledger)
        lost = [entry.index for entry in kept if entry.index >= mirror.begin_index and not mirror.has(entry)]
        if lost:
            self.violated(f"what is on disk stays: {node.name} lost {lost[0]} to {lost[-1]}")
        mirror.removed = []  # a copy that did not count may be lost
        self.checks.restarted(node.name, ledger.noted_committed)
        self.check(self.checks.changed, node.name, mirror)
        ledger.on_changed = lambda: self._changed(node, ledger)
        self.trace.add(f"{node.name} begins with {ledger.begin_index}..{ledger.end_index} of term {ledger.end_term}")
        return CheckedOwner(self, node)

    def _changed(self, node: MemberNode, ledger: Ledger) -> None:
        if not node.is_dead:
            mirror = self.mirrors[node.name]
            mirror.follow(ledger)
            self.check(self.checks.changed, node.name, mirror)

    def ended(self, node: MemberNode, *, loses: bool) -> None:
        """Note which entries the next life of a member must find. Called when a process has ended."""
        mirror = self.mirrors[node.name]
        self._floors[node.name] = min(node.ledger.synced_index, mirror.end_index) if loses else mirror.end_index

    def owners(self) -> list[CheckedOwner]:
        """Return the owners of all members that can do something."""
        able = [node for node in self.nodes.values() if node.is_serving and not node.member.is_paused]
        return [node.owner for node in able if isinstance(node.owner, CheckedOwner) and not node.is_dead]

    def next_ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def next_name(self) -> str:
        self._names += 1
        return f"{self._names}:{'.' * self.choose.choice((0, 0, 60, 300, 900))}"

    # The run.

    async def run(self) -> None:
        trouble = self._trouble
        for node in self.nodes.values():
            self.nursery.start_soon(trouble.start, node, self.choose.random() * 0.5)
        self.nursery.start_soon(self._send)
        self.nursery.start_soon(self._look)
        self.nursery.start_soon(trouble.run)
        with trio.move_on_after(TROUBLE_SECONDS):
            await self.over.wait()
        if self.problem is None:
            await trouble.mend()
            self.is_calm = True
            with trio.move_on_after(CALM_SECONDS):
                while self.problem is None and not self._agree():
                    await trio.sleep(0.1)
            if not self._agree():
                self.violated(f"the group agrees in the end: {self._state()}")
        await self._end()

    async def _end(self) -> None:
        """End all, and compare what their disks hold with what they had."""
        self.seconds = trio.current_time()
        for node in self.nodes.values():
            await node.stop()
            if node.failure is not None:
                self.violated(f"no program ends by itself: {node.name} {node.failure}")
        for node in self.nodes.values() if self.problem is None else ():
            mirror = self.mirrors[node.name]
            ledger = node.open_ledger()
            found = [ledger.entry(index) for index in range(ledger.begin_index, ledger.end_index + 1)]
            ledger.close()
            # An expired file may be back after a power failure.
            found = [entry for entry in found if entry.index >= mirror.begin_index]
            if len(found) != mirror.end_index - mirror.begin_index + 1 or not all(map(mirror.has, found)):
                self.violated(f"the disk has the log: {node.name} has {len(found)} entries on its disk")

    async def _send(self) -> None:
        pause = self.choose.choice((0.05, 0.2, 0.6))
        while True:
            await trio.sleep(2.0 if self.is_calm else self.choose.random() * 2 * pause)
            leaders = [owner for owner in self.owners() if owner.member is not None and owner.in_office]
            if leaders:
                self.choose.choice(leaders).append(self.choose.choice((1, 1, 1, 2, 5, 20)))

    async def _look(self) -> None:
        """Look for appends without a result: also a second later, since a member may just have come out of a pause."""
        seen: set[int] = set()
        while True:
            await trio.sleep(1)
            late: set[int] = set()
            for node in self.nodes.values():
                is_able = not (node.disk.is_full or node.disk.is_slow or node.disk.is_failing)
                if node.is_serving and is_able and not node.member.is_paused and isinstance(node.owner, CheckedOwner):
                    for ticket, (bodies, since) in node.owner.open.items():
                        if since < trio.current_time() - ANSWER_SECONDS and not node.owner.has_failed:
                            late.add(ticket)
                            if ticket in seen:
                                self.violated(f"appends are answered: {node.name} left {bodies} without an answer")
            seen = late

    def _agree(self) -> bool:
        owners = self.owners()
        leaders = [owner for owner in owners if owner.in_office and owner.member and owner.member.role is Role.LEADER]
        if len(owners) != len(self.nodes) or len(leaders) != 1 or any(owner.has_failed for owner in owners):
            return False
        ends = {mirror.end_index for mirror in self.mirrors.values()}
        ends |= {node.member.committed for node in self.nodes.values()}
        last = {mirror.entry(mirror.end_index).body for mirror in self.mirrors.values() if mirror.end_index >= 0}
        return len(ends) == 1 and len(last) == 1 and len({node.member.leader for node in self.nodes.values()}) == 1

    def _state(self) -> str:
        return "; ".join(
            f"{node.name} {node.member.role.value} of {node.member.leader} in term {node.member.term}, entries"
            f" {node.ledger.begin_index}..{node.ledger.end_index}, committed {node.member.committed}"
            if node.is_serving
            else f"{node.name} does not run"
            for node in self.nodes.values()
        )


def _drop(logger: object, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    raise structlog.DropEvent


def run_whole(seed: int, *, faults: tuple[str, ...] = WHOLE_FAULTS) -> tuple[str | None, Whole]:
    """Run one seed. Return what is wrong, None if nothing is, and the group as it was then."""
    where = IN_MEMORY if IN_MEMORY.is_dir() else None
    directory = Path(tempfile.mkdtemp(prefix="triomq-sim-", dir=where))
    groups: list[Whole] = []

    async def main(clock: VirtualClock) -> None:
        async with trio.open_nursery() as nursery:
            group = Whole(seed, clock, nursery, directory, faults)
            groups.append(group)
            with group.stranger.entered():  # nothing reaches the real network
                await group.run()
            nursery.cancel_scope.cancel()

    before = structlog.get_config()
    structlog.configure(processors=[_drop])
    try:
        run_seeded(main, seed)
    finally:
        structlog.configure(**before)
        shutil.rmtree(directory, ignore_errors=True)
    return groups[0].problem, groups[0]
