"""What goes wrong for whole members: processes, hosts, disks and the network between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import trio

from sim.dledger.hosts import Group, MemberNode
from sim.network import Host
from triomq.dledger.member.client import GroupClient, GroupFailed
from triomq.remoting.client import open_client

WHOLE_FAULTS = (
    *("kill", "power", "write", "stop", "cut off", "one way", "pair", "mend", "mend", "reset", "lag", "pause"),
    *("full", "failing", "slow", "transfer", "expire"),
)
"""What goes wrong. A seed draws a few of these kinds and uses only them."""
_OF_NODES = ("kill", "power", "write", "stop", "failing")
_LOSE = ("power", "failing")
"""What takes bytes that are not synced: with SYNC_FLUSH only, because nothing is promised otherwise."""


class Ended(Protocol):
    """Called when a process has ended; `loses`: what it did not sync is gone."""

    def __call__(self, node: MemberNode, /, *, loses: bool) -> None: ...


class Trouble:
    """Puts a group through its faults, and counts them."""

    def __init__(self, group: Group, kinds: tuple[str, ...], counts: Counter[str], ended: Ended) -> None:
        choose = group.choose
        able = [kind for kind in kinds if group.options.is_sync_flush or kind not in _LOSE]
        self._group = group
        self._counts = counts
        self._ended = ended
        self._kinds = choose.sample(able, min(len(able), choose.randint(3, 6)))
        self._pause_seconds = choose.choice((0.3, 1.0, 3.0))
        self._busy: set[str] = set()
        self._cuts: set[tuple[Host, Host]] = set()
        self._paused: set[str] = set()
        self._is_over = False
        self._has_ended = trio.Event()

    async def run(self) -> None:
        """Do one thing after the other until `mend`."""
        choose = self._group.choose
        await trio.sleep(2)
        async with trio.open_nursery() as nursery:
            while not self._is_over:
                node = choose.choice(list(self._group.nodes.values()))
                kind = choose.choice(self._kinds)
                if node.is_serving and node.name not in self._busy:
                    self._group.trace.add(f"{kind} at {node.name}")
                    self._counts[kind] += 1
                    if not self._do_to_network(kind, node):
                        nursery.start_soon(self._do, kind, node)
                await trio.sleep(choose.random() * 2 * self._pause_seconds)
        self._has_ended.set()

    def _do_to_network(self, kind: str, node: MemberNode) -> bool:
        """Do what lasts until it is mended. Return False if it is another kind of trouble."""
        choose, nodes = self._group.choose, self._group.nodes
        others = [other.host for other in nodes.values() if other is not node]
        if kind == "mend":
            self._cuts = set()
        elif kind not in ("cut off", "one way", "pair", "reset"):
            return False
        elif others and kind == "reset":
            self._group.network.reset(node.host, choose.choice(others))
        elif others and kind == "one way":
            for other in choose.sample(others, choose.randint(1, len(others))):
                self._cuts.add(choose.choice(((node.host, other), (other, node.host))))
        elif others:
            for other in others if kind == "cut off" else [choose.choice(others)]:
                self._cuts |= {(node.host, other), (other, node.host)}
        self._cut()
        return True

    def _cut(self) -> None:
        """Cut what is cut at present, and all links of members that stand still."""
        hosts = [*(node.host for node in self._group.nodes.values()), self._group.stranger]
        still = [node.host for node in self._group.nodes.values() if node.name in self._paused]
        held = {pair for one in still for other in hosts if one is not other for pair in ((one, other), (other, one))}
        self._group.network.cut_only(self._cuts | held)

    async def _do(self, kind: str, node: MemberNode) -> None:
        self._busy.add(node.name)
        try:
            await self._act(kind, node)
        finally:
            self._busy.discard(node.name)

    async def _act(self, kind: str, node: MemberNode) -> None:
        choose = self._group.choose
        if kind in _OF_NODES:
            await self._end_and_start(kind, node)
        elif kind == "lag":
            node.host.lag_seconds = 0.5
            await trio.sleep(choose.choice((1, 4)))
            node.host.lag_seconds = 0.0
        elif kind == "pause":
            await self._pause(node, choose.choice((0.5, 4.0, 9.0)))
        elif kind in ("full", "slow"):
            setattr(node.disk, f"is_{kind}", True)
            await trio.sleep(choose.choice((0.5, 5)))
            setattr(node.disk, f"is_{kind}", False)
        elif kind == "transfer":
            await self._transfer(choose.choice(list(self._group.nodes)))
        elif kind == "expire":
            self._expire(node)

    async def _end_and_start(self, kind: str, node: MemberNode) -> None:
        """End a process in one way or another, and start it again. A failing disk is replaced by one that works, whose
        memory has forgotten what was not synced."""
        choose = self._group.choose
        is_power = kind in _LOSE
        if kind == "write":
            is_power = self._group.options.is_sync_flush and choose.random() < 0.7
            await node.crash_within_a_write(choose.randrange(20), power=is_power)
        elif kind == "stop":
            await node.member.hand_over()
            await node.stop()
        elif kind == "failing":
            node.disk.is_failing = True
            await trio.sleep(choose.choice((0.5, 4)))
            await node.kill(as_if="power")
            node.disk.is_failing = False
            node.disk.evict()
        else:
            ends: dict[str, Callable[[], Awaitable[None]]] = {"kill": node.kill, "power": node.lose_power}
            await ends[kind]()
        self._counts["power failures" if is_power else "kills"] += kind != "stop"
        self._ended(node, loses=is_power)
        await self.start(node, choose.choice((0.05, 2, 9)))

    async def start(self, node: MemberNode, after: float) -> None:
        """Start a member, and again if its disk did not let it."""
        await trio.sleep(after)
        await node.start()
        while not node.is_running and not self._is_over and node.failure is None:
            await trio.sleep(1)
            await node.start()

    async def _pause(self, node: MemberNode, seconds: float) -> None:
        """Let a process stand still."""
        self._paused.add(node.name)
        self._cut()
        node.member.pause()
        try:
            await trio.sleep(seconds)
        finally:
            self._paused.discard(node.name)
            self._cut()
            node.member.resume()

    async def _transfer(self, to: str) -> None:
        group = self._group
        with group.stranger.entered():
            async with open_client() as client:
                with suppress(GroupFailed):
                    await GroupClient(client, group.options.group, group.addresses).transfer(to)

    def _expire(self, node: MemberNode) -> None:
        """Remove the oldest data file of a member, if a later one has something that is committed and on disk."""
        ledger = node.ledger
        safe = min(node.member.committed, ledger.synced_index)
        if len(ledger.data.files) > 1 and safe >= 0 and ledger.end_of(safe) > ledger.data.files[1].start:
            file = ledger.detach_first()
            node.unlink(file.path)

    async def mend(self) -> None:
        """Let pauses and cuts end, let everything work again, and start what does not run."""
        group = self._group
        self._is_over = True
        await self._has_ended.wait()
        self._cuts = set()
        self._cut()
        group.network.heal_all()
        for node in group.nodes.values():
            group.nursery.start_soon(self.start, node, 0.01)
