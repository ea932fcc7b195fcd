"""Members as they are, on simulated hosts in virtual time: the real code above a network in memory and disks that can
fail.

The simulation of whole members (`whole.py`) uses it, and so do the tests of a member (tests/dledger/member_lab.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import trio

from sim.cluster import DiskNode
from sim.determinism import VirtualClock
from sim.disk import Disk, DiskFiles
from sim.network import Host, Network
from sim.trace import Trace
from triomq.dledger.ledger.data_directories import member_directory
from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.ledger.term_files import TermFiles
from triomq.dledger.member.alone import Alone
from triomq.dledger.member.group_member import Disk as MemberDisk
from triomq.dledger.member.group_member import GroupMember
from triomq.dledger.member.hosts import PeerAddresses
from triomq.dledger.member.port import MemberPort
from triomq.dledger.rules.core import Setup
from triomq.dledger.rules.timing import DEFAULT, Timing
from triomq.dledger.wire.bodies import Entry
from triomq.remoting.client import open_client
from triomq.remoting.turn import Turn

PORT = 20_000
INDEX_FILE_BYTES = 32 * 4096


@dataclass(frozen=True)
class Options:
    """What all members of a group are configured with. `is_whole` judges the bodies of entries that a crash may have
    torn."""

    group: str = "sim"
    size: int = 3
    is_sync_flush: bool = False
    serves_clients: bool = True
    addresses: PeerAddresses = field(default_factory=lambda: PeerAddresses("*"))
    preferred: tuple[str, ...] = ()
    timing: Timing = DEFAULT
    file_bytes: int = 64 * 1024
    is_whole: Callable[[Entry], bool] = lambda entry: True


class _Member(GroupMember):
    """A member that can be made to stand still: its rules get no turn, so nothing leaves it and no time passes for it.
    What arrives at it is the network's business."""

    is_paused = False

    def _end_turn(self) -> None:
        if not self.is_paused:
            super()._end_turn()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self._happened()


class MemberNode(DiskNode):
    """One member over all its lives. `member`, `owner` and `ledger` are those of the present one."""

    def __init__(self, group: Group, host: Host, disk: Disk) -> None:
        super().__init__(host, group.trace, group.nursery, disk)
        self._group = group
        self.offload: Callable[..., Awaitable[Any]] = disk.offload
        self.is_serving = False
        self.member: _Member
        self.owner: Alone
        self.ledger: Ledger

    @property
    def directory(self) -> str:
        return member_directory(f"{self.disk.directory}/store", self.name)

    @property
    def is_dead(self) -> bool:
        """Whether what its code still does is that of a process that has ended."""
        return self._files.is_dead

    def open_ledger(self) -> Ledger:
        """Return its ledger, recovered from the disk."""
        options = self._group.options
        self._files = DiskFiles(self.disk)
        ledger = Ledger(
            self._files,
            self.directory,
            options.file_bytes,
            is_whole=options.is_whole,
            index_file_bytes=INDEX_FILE_BYTES,
        )
        ledger.open()
        return ledger

    def unlink(self, path: str) -> None:
        self._files.unlink(path)

    async def _serve(self, task_status: trio.TaskStatus[object]) -> None:
        group = self._group
        self.ledger = self.open_ledger()
        disk = MemberDisk(self.ledger, TermFiles(self._files, self.directory), lambda *call: self.offload(*call))
        try:
            async with open_client() as client:
                owner = self.owner = group.owner_of(self)
                self.member = owner.member = _Member(
                    group.setup_of(self.name),
                    disk,
                    Turn(),
                    client,
                    owner,
                    draw=group.choose.randint,
                    serves_clients=group.options.serves_clients,
                )
                self.is_serving = True
                await self.member.run(MemberPort(PORT, addresses=group.options.addresses), task_status=task_status)
        finally:
            self.is_serving = False
            self.ledger.close()

    def _died(self, how: str) -> None:
        super()._died(how)
        self._files.is_dead = True


class Group:
    """The members of a group, each on its own host, with what lies between them."""

    def __init__(
        self, clock: VirtualClock, nursery: trio.Nursery, directory: Path, choose: Random, options: Options
    ) -> None:
        self.choose = choose
        self.nursery = nursery
        self.options = options
        self.trace = Trace()
        self.network = Network(choose, clock)
        names = [f"n{at}" for at in range(options.size)]
        hosts = {name: self.network.host(name) for name in names}
        self.stranger = self.network.host("stranger")
        self.addresses = {name: f"{host.ip}:{PORT}" for name, host in hosts.items()}
        self.nodes = {name: MemberNode(self, hosts[name], Disk(directory / name, choose)) for name in names}

    def setup_of(self, name: str) -> Setup:
        options = self.options
        return Setup(options.group, name, self.addresses, options.is_sync_flush, options.preferred, options.timing)

    def owner_of(self, node: MemberNode) -> Alone:
        """Make the owner of a member that starts; its ledger is open."""
        return Alone(node.ledger)

    def running(self) -> list[MemberNode]:
        return [node for node in self.nodes.values() if node.is_running]
