"""Members on simulated hosts in virtual time: the real code above a network in memory and disks that can fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import trio

from sim.cluster import Node
from sim.determinism import VirtualClock, run_seeded
from sim.disk import Disk, DiskFiles
from sim.network import Host, Network
from sim.trace import Trace
from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.ledger.term_files import TermFiles
from triomq.dledger.member.alone import Alone
from triomq.dledger.member.client import GroupClient
from triomq.dledger.member.group_member import Disk as MemberDisk
from triomq.dledger.member.group_member import GroupMember
from triomq.dledger.rules.actions import Role
from triomq.dledger.rules.core import Setup
from triomq.protocol.command import RemotingCommand, new_request
from triomq.remoting.client import RemotingClient, open_client
from triomq.remoting.turn import Turn

GROUP = "lab"
PORT = 20_000
FILE_BYTES = 64 * 1024


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


class MemberNode(Node):
    """One member over all its lives."""

    def __init__(self, lab: MemberLab, host: Host, disk: Disk) -> None:
        super().__init__(host, Trace(), lab.nursery)
        self._lab = lab
        self.disk = disk
        self.offload: Callable[..., Awaitable[Any]] = disk.offload
        self.member: GroupMember
        self.owner: Owner
        self.ledger: Ledger
        self.files: DiskFiles

    @property
    def directory(self) -> str:
        return f"{self.disk.directory}/store/dledger-{self.name}"

    async def _serve(self, task_status: trio.TaskStatus[object]) -> None:
        lab = self._lab
        files = self.files = DiskFiles(self.disk)
        self.ledger = Ledger(files, self.directory, FILE_BYTES, is_whole=lambda entry: True, index_file_bytes=32 * 4096)
        self.ledger.open()
        setup = Setup(GROUP, self.name, lab.addresses, lab.is_sync_flush)
        disk = MemberDisk(self.ledger, TermFiles(files, self.directory), lambda *call: self.offload(*call))
        async with open_client() as client:
            owner = self.owner = Owner(self.ledger)
            self.member = owner.member = GroupMember(
                setup, disk, Turn(), client, owner, draw=lab.choose.randint, takes_appends=lab.takes_appends
            )
            await self.member.run(PORT, task_status=task_status)

    def _died(self, how: str) -> None:
        super()._died(how)
        self.files.is_dead = True
        if how == "power":
            self.disk.power_failed()


class MemberLab:
    """Three members and a stranger's host."""

    def __init__(self, clock: VirtualClock, nursery: trio.Nursery, directory: Path, options: dict[str, bool]) -> None:
        self.choose = Random(1)
        self.nursery = nursery
        self.is_sync_flush = options.get("is_sync_flush", False)
        self.takes_appends = options.get("takes_appends", True)
        self.network = Network(self.choose, clock)
        names = ("n0", "n1", "n2")
        hosts = {name: self.network.host(name) for name in names}
        self.stranger = self.network.host("stranger")
        self.addresses = {name: f"{host.ip}:{PORT}" for name, host in hosts.items()}
        self.nodes = {name: MemberNode(self, hosts[name], Disk(directory / name, self.choose)) for name in names}

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

    def running(self) -> list[MemberNode]:
        return [node for node in self.nodes.values() if node.is_running]

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


Scenario = Callable[[MemberLab, RemotingClient], Awaitable[None]]


def run_lab(directory: Path, scenario: Scenario, **options: bool) -> None:
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
