"""A member without a broker: its entries are any bytes that clients append over the wire. For tests and soak runs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import trio

from triomq.daemon.errors import StartError, listen_error
from triomq.dledger.ledger.data_directories import member_directory
from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.ledger.term_files import TermFiles
from triomq.dledger.member.group_member import Disk, GroupMember
from triomq.dledger.member.hosts import PeerAddresses
from triomq.dledger.member.peers import port_of
from triomq.dledger.member.port import MemberPort
from triomq.dledger.rules.actions import Role
from triomq.dledger.rules.core import Setup
from triomq.protocol.address import HostPort
from triomq.remoting.client import open_client
from triomq.remoting.link_tls import LinkTls
from triomq.remoting.turn import Turn
from triomq.store.disk.files import Files
from triomq.store.errors import StoreError


@dataclass(frozen=True)
class Options:
    """What a member alone is started with. `data_file_bytes`: mappedFileSizeCommitLog, the same at all members."""

    setup: Setup
    store: str
    data_file_bytes: int = 1024 * 1024 * 1024
    addresses: PeerAddresses = field(default_factory=PeerAddresses)
    tls: LinkTls | None = None


class Alone:
    """The owner of such a member. It takes office at once: there are no queue offsets to rebuild."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.member: GroupMember | None = None
        self.error: BaseException | None = None
        self.is_asked_to_end = trio.Event()

    def role_changed(self, role: Role, term: int, leader_id: str | None) -> None:
        member = self.member
        if role is Role.LEADER and member is not None:
            member.take_office(term)
            if member.must_open_term:
                member.propose(None, self._open_term)

    def _open_term(self, term: int) -> None:
        self._ledger.append_opening(term, int(time.time() * 1000), HostPort("127.0.0.1", 0).packed)

    def committed(self, index: int) -> None:
        pass

    def shortened(self, index: int) -> None:
        pass

    def settled(self, ticket: object, code: int, index: int) -> None:
        pass

    def failed(self, error: BaseException) -> None:
        self.error = error
        self.is_asked_to_end.set()


async def serve(options: Options, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
    """Run a member until cancelled; `task_status` gets a line that says where. A leader hands over first. Raises
    StartError if it cannot start, and what ended the member."""
    files = Files()
    directory = member_directory(options.store, options.setup.self_id)
    files.make_lasting_directories(directory)
    lock = files.create(f"{directory}/lock", 4)
    try:
        if not files.lock(lock):
            raise StartError(f"{directory} is in use by another process; stop that one or choose another --store")
        ledger = Ledger(files, directory, options.data_file_bytes, is_whole=lambda entry: True)
        try:
            ledger.open()
            await _live(options, Disk(ledger, TermFiles(files, directory)), task_status)
        except StoreError as error:
            raise StartError(str(error)) from error
        finally:
            ledger.close()
    finally:
        files.close(lock)


async def _live(options: Options, disk: Disk, task_status: trio.TaskStatus[str]) -> None:
    setup = options.setup
    owner = Alone(disk.ledger)
    dialing = options.tls.dialing.current if options.tls is not None and options.tls.dialing is not None else None
    async with trio.open_nursery() as watching:
        watching.start_soon(_tell_cancelled, owner.is_asked_to_end)
        with trio.CancelScope(shield=True):  # it hands over before its connections close
            async with open_client(tls_context=dialing) as client, trio.open_nursery() as nursery:
                member = owner.member = GroupMember(setup, disk, Turn(), client, owner, serves_clients=True)
                await _start(member, options, nursery)
                task_status.started(f"The member {setup.self_id} of {setup.group} serves {_address(setup)}")
                await owner.is_asked_to_end.wait()
                await member.hand_over()
                nursery.cancel_scope.cancel()
        watching.cancel_scope.cancel()
    if owner.error is not None:
        raise owner.error


async def _start(member: GroupMember, options: Options, nursery: trio.Nursery) -> None:
    try:
        port = MemberPort(port_of(_address(options.setup)), addresses=options.addresses, tls=options.tls)
        await nursery.start(member.run, port)
    except OSError as error:
        raise listen_error("", port_of(_address(options.setup)), error, key="--peers") from error


def _address(setup: Setup) -> str:
    return setup.members[setup.self_id]


async def _tell_cancelled(asked: trio.Event) -> None:
    try:
        await trio.sleep_forever()
    finally:
        asked.set()
