"""Members on simulated hosts in virtual time: the real code above a network in memory and disks that can fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import trio

from sim.determinism import VirtualClock, run_seeded
from sim.dledger.hosts import PORT, Group, MemberNode, Options
from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.member.alone import Alone
from triomq.dledger.member.client import GroupClient
from triomq.dledger.rules.actions import Role
from triomq.protocol.command import RemotingCommand, new_request
from triomq.remoting.client import RemotingClient, open_client

__all__ = ["GROUP", "PORT", "MemberLab", "ask", "group_client", "reports_of", "run_lab"]

GROUP = "lab"


class Owner(Alone):
    """Keeps what its member reports."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.told: list[tuple[object, ...]] = []
        self.errors: list[BaseException] = []

    def settled(self, ticket: object, code: int, index: int) -> None:
        self.told.append((ticket, code, index))

    def failed(self, error: BaseException) -> None:
        self.errors.append(error)


class MemberLab(Group):
    """Three members and a stranger's host."""

    def __init__(self, clock: VirtualClock, nursery: trio.Nursery, directory: Path, options: dict[str, Any]) -> None:
        super().__init__(clock, nursery, directory, Random(1), Options(GROUP, **options))

    def owner_of(self, node: MemberNode) -> Owner:
        return Owner(node.ledger)

    async def start(self) -> MemberNode:
        """Start all. Return the leader, once the others follow it."""
        for node in self.nodes.values():
            await node.start()
        return await self.leader()

    async def leader(self, seconds: float = 30, without: MemberNode | None = None) -> MemberNode:
        """Return the member that leads, once a second one follows it; not the one that is left out."""
        with trio.fail_after(seconds):
            while True:
                for node in [node for node in self.running() if node is not without]:
                    followers = [other for other in self.running() if other.member.leader == node.name]
                    if node.member.role is Role.LEADER and len(followers) > 1:
                        return node
                await trio.sleep(0.01)

    async def agree(self, seconds: float = 30) -> int:
        """Wait until all that run have committed all that the leader has. Return its last index."""
        ends: set[int] = set()
        with trio.fail_after(seconds):
            while True:
                ends = {node.ledger.end_index for node in self.running()}
                ends |= {node.member.committed for node in self.running()}
                if len(ends) == 1:
                    return ends.pop()
                await trio.sleep(0.01)


def reports_of(node: MemberNode) -> Owner:
    """Return what the present life of a member has reported."""
    assert isinstance(node.owner, Owner)
    return node.owner


Scenario = Callable[[MemberLab, RemotingClient], Awaitable[None]]


def run_lab(directory: Path, scenario: Scenario, **options: Any) -> None:
    """Run a scenario with a client on the stranger's host."""

    async def main(clock: VirtualClock) -> None:
        async with trio.open_nursery() as nursery:
            lab = MemberLab(clock, nursery, directory, options)
            with lab.stranger.entered():
                async with open_client() as client:
                    await scenario(lab, client)
            for node in lab.running():
                await node.kill()
            assert {node.failure for node in lab.nodes.values()} == {None}

    run_seeded(main, 1)


async def ask(client: RemotingClient, address: str, code: int, body: bytes) -> RemotingCommand:
    return await client.invoke(address, new_request(code, body=body), 3.0)


def group_client(lab: MemberLab, client: RemotingClient) -> GroupClient:
    return GroupClient(client, GROUP, lab.addresses)
