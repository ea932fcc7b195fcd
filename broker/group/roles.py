"""A broker as a member of its group: it becomes what the group has elected it to (DLedgerRoleChangeHandler).

    leader      waits until everything committed is dispatched, counts queue offsets, takes office, commits what older
                leaders left, raises queues to their known ends, writes its tables to the log, reads how transactions
                ended; then SYNC_MASTER with id 0: delayed messages, checks of transactions, sends
    follower    SLAVE with its number + 1: copies the tables of the master each second
    candidate   as a follower; before the first election nothing is registered

Each change is registered at once. What a change must not wait for happens in `role_changed` itself: messages are
refused, and those that wait are answered. The rest is one task, which a further change cancels at any point: nothing in
it is left half done, because the store gives out queue offsets only between `accept` and the next change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog
import trio

from triomq.broker.configuration import Configuration
from triomq.broker.errors import NotReplicated
from triomq.broker.group.log import GroupLog
from triomq.broker.group.table_log import TableLog
from triomq.broker.group.tls import member_tls
from triomq.broker.nameservers.registration import Registration
from triomq.broker.replication.master_tables import MasterTables
from triomq.broker.settings.group import GroupSettings
from triomq.dledger.member.client import GroupClient, GroupFailed
from triomq.dledger.member.group_member import Disk, GroupMember
from triomq.dledger.member.peers import items_in
from triomq.dledger.rules.actions import Role
from triomq.protocol.bodies.route import MASTER_ID
from triomq.protocol.clock import NowMs
from triomq.protocol.outage import Outage
from triomq.remoting.client import open_client
from triomq.remoting.turn import Turn
from triomq.store.config import BrokerRole
from triomq.store.disk.worker_thread import Offload
from triomq.store.errors import StoreError
from triomq.store.message_store import DefaultMessageStore

log = structlog.get_logger("triomq.broker.group")

TABLES_SECONDS: Final = 1.0
"""How often a follower copies the tables of the master: what it lacks at a failover is consumed again."""
LAST_TABLES_SECONDS: Final = 0.25
"""A new leader asks the former one for its tables that long; one that was killed refuses at once."""
SEEK_SECONDS: Final = 10.0
"""After a change followers register each second for that long: the answer names the new master."""

ROOM_SECONDS: Final = 1.0
"""How often a member looks whether its broker has room for messages."""
HAND_OVER_SECONDS: Final = 3.0
_NO_LACK_OF_ROOM: Final = ("role", "closed")
POSITION_SECONDS: Final = 5.0
"""A start reads as much of the log again to bring its tables up to date."""

Task = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class GroupParts:
    """The parts of a broker that its role in the group concerns. `store_host`: the host of its own records. `keep_ends`
    raises queues to what is known of their ends (known_ends.py)."""

    configuration: Configuration
    group: GroupSettings
    made: GroupLog
    store: DefaultMessageStore
    registration: Registration
    master_tables: MasterTables
    turn: Turn
    now_ms: NowMs
    store_host: bytes
    offload: Offload
    table_log: TableLog
    keep_ends: Task
    save_tables: Task


class GroupRoles:
    """See the module's docstring. `as_master` are the tasks that only a master has; `load` reads how transactions
    ended. It implements replication.master_tables.LeaderOfGroup."""

    def __init__(self, parts: GroupParts, *, load: Task, as_master: list[Task]) -> None:
        self._parts = parts
        self._store = parts.store
        self._registration = parts.registration
        self._master_tables = parts.master_tables
        self._load = load
        self._as_master = as_master
        self.table_log = parts.table_log
        self._followed_term = 0
        self.copies_tables = False
        self._changed = trio.Event()
        self._scope = trio.CancelScope()
        self.member: GroupMember | None = None
        self._others: GroupClient
        self._deposed: Callable[[], None] = lambda: None

    def tell(self, *, deposed: Callable[[], None]) -> None:
        """Call this whenever this member does not lead, or does not any more."""
        self._deposed = deposed

    # -- what the member tells (dledger.member.group_member.Owner) ---------------------------------------------------

    def role_changed(self, role: Role, term: int, leader_id: str | None) -> None:
        if role is Role.FOLLOWER:
            self._followed_term = term
            self.copies_tables = False
        if role is not Role.LEADER:
            self.table_log.follow()
            leads = f"{leader_id} leads the group" if leader_id else "no member of the group leads at present"
            self._store.quorum.follow(leads)
            self._deposed()
        self._changed.set()
        self._scope.cancel()

    def committed(self, index: int) -> None:
        self._store.quorum.committed(self._parts.made.ledger.end_of(index))

    def shortened(self, index: int) -> None:
        ledger = self._parts.made.ledger
        if index < 0:
            self._store.quorum.replaced(ledger.begin_pos)
        else:
            self._store.quorum.shortened(ledger.end_of(index))

    def settled(self, ticket: object, code: int, index: int) -> None:
        """Puts wait for the committed end, and have a limit of their own."""

    def failed(self, error: BaseException) -> None:
        self._store.fail("the member of the group", error)

    # -- life --------------------------------------------------------------------------------------------------------

    async def run(self, bind_address: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be a member until cancelled. Raises OSError if the port of dLegerPeers is taken,
        StartError for TLS files that cannot be used."""
        try:
            await self._be_member(bind_address, task_status)
        finally:
            self._leave()

    async def _keep_room_then_leave(self, member: GroupMember) -> None:
        """Leave as soon as the tasks of this member are cancelled. One may complete the deletion of a topic, which
        waits for a quorum and cannot be cancelled."""
        try:
            await self._keep_room(member)
        finally:
            self._leave()

    def _leave(self) -> None:
        """End what waits for a quorum: nobody will say any more what it has."""
        self.table_log.follow()
        self._store.quorum.follow("this broker has left its group")

    async def _be_member(self, bind_address: str, task_status: trio.TaskStatus[None]) -> None:
        tls = member_tls(self._parts.configuration)
        dialing = tls.dialing.current if tls.dialing is not None else None
        async with open_client(tls_context=dialing) as client, trio.open_nursery() as nursery:
            made, setup = self._parts.made, self._parts.group.setup
            self._others = GroupClient(client, setup.group, setup.members)
            member = self.member = GroupMember(
                setup,
                Disk(made.ledger, made.terms, self._parts.offload, syncs=False),
                self._parts.turn,
                client,
                self,
            )
            made.log.propose = member.propose
            made.log.on_synced = member.synced
            self._registration.wait_while(self._is_role_doubtful)
            await nursery.start(member.run, self._parts.group.member_port(bind_address, tls))
            nursery.start_soon(self._keep_role, member)
            nursery.start_soon(self._note_position)
            nursery.start_soon(self._keep_room_then_leave, member)
            task_status.started()

    async def _keep_room(self, member: GroupMember) -> None:
        """Tell the others whether this broker has room for messages. A leader without hands over to one that has."""
        while True:
            await trio.sleep(ROOM_SECONDS)
            refusals = [text for cause, text in self._store.refusals.texts().items() if cause not in _NO_LACK_OF_ROOM]
            member.set_room(not refusals)
            if not refusals or not member.is_leader:
                continue
            able = await self._with_room(member)
            if able and await member.hand_over(HAND_OVER_SECONDS, tuple(able)):
                log.warning("leadership handed over to a member with room", leader=member.leader, reason=refusals[0])

    async def _with_room(self, member: GroupMember) -> list[str]:
        """Return the other members whose brokers take messages, as far as they say."""
        able: list[str] = []

        async def ask(other: str) -> None:
            with suppress(GroupFailed):
                if not (await self._others.metadata(other)).refuses:
                    able.append(other)

        with trio.move_on_after(ROOM_SECONDS):
            async with trio.open_nursery() as nursery:
                for other in member.members:
                    if other != self._parts.group.setup.self_id:
                        nursery.start_soon(ask, other)
        return able

    async def _note_position(self) -> None:
        """Note every five seconds up to which position of the log the files of the tables have everything."""
        outage = Outage()
        while True:
            await trio.sleep(POSITION_SECONDS)
            try:
                await self.table_log.note_position(self._parts.save_tables)
            except OSError as error:
                if outage.failed(trio.current_time()):
                    log.warning("position of the tables in the log not noted", error=str(error))

    async def end(self, are_saved: bool) -> None:
        """Note the position for the last time, if the files of the tables have all changes. Raises OSError."""
        if are_saved:
            await self.table_log.note_position(trio.lowlevel.checkpoint)

    def prefer(self, text: str | None) -> None:
        """Use a changed preferredLeaderId. An unknown member never leads, so it is left out."""
        members = self._parts.group.setup.members
        if self.member is not None:
            self.member.prefer(tuple(each for each in items_in(text) if each in members))

    def _tables_come_by_log(self) -> bool:
        """Return whether the member that leads, or led last, writes its tables to the log."""
        begun = self.table_log.begun
        return begun is not None and begun.term == self._followed_term

    def address_of_master(self) -> str | None:
        """Return where members reach the broker of the member that leads, if it has said so in the log: at the host of
        dLegerPeers. The address that it registers is for clients, and may lead elsewhere from here (containers)."""
        begun = self.table_log.begun
        if begun is None or not self._tables_come_by_log():
            return None
        host, _, _ = self._parts.group.setup.members.get(begun.member, "").rpartition(":")
        return f"{host}:{begun.port}" if host else None

    def lacks_tables(self) -> str | None:
        """Return why this member cannot be the next master without a loss of tables, None if it can."""
        member = self.member
        if member is None or member.is_leader:
            return None
        if self.copies_tables:
            if self._master_tables.are_current:
                return None
            return "the tables of the master were not copied: its address must be reachable from here"
        if self._tables_come_by_log() and self.table_log.is_whole:
            return None
        return "the tables of the group have not arrived whole yet"

    async def hand_over(self) -> None:
        """Let another member lead, before a stop."""
        with suppress(NotReplicated):
            await self.table_log.settled()
        if self.member is not None and not await self.member.hand_over() and len(self._parts.group.setup.members) > 1:
            log.warning("leadership not taken over by another member; the group has no master until one is elected")

    async def hand_over_to(self, wanted: str) -> bool:
        """Let this member lead. Return whether it does."""
        member = self.member
        if member is None:
            return False
        if member.leader != wanted:
            with suppress(NotReplicated):
                await self.table_log.settled()
            await member.hand_over(among=(wanted,))
        return member.leader == wanted

    def is_confirmed(self) -> bool:
        """Return whether this member leads and no other one can have been elected. After a pause of the process (a
        SIGSTOP, a frozen disk) a member believes for a moment that it leads still."""
        return self.member is not None and self.member.is_confirmed

    def _is_role_doubtful(self) -> bool:
        """Return whether another member may be the master already, while this broker's id is a master's."""
        if self._parts.configuration.role.broker_id != MASTER_ID or self.member is None:
            return False
        return not self.member.is_confirmed or self.member.is_handing_over

    # -- roles ---------------------------------------------------------------------------------------------------------

    async def _keep_role(self, member: GroupMember) -> None:
        while True:
            self._changed = trio.Event()
            with trio.CancelScope() as self._scope:
                if member.is_leader:
                    await self._lead(member, member.term)
                elif member.role is Role.FOLLOWER or not self._registration.is_held:
                    await self._follow(member)
            await self._changed.wait()

    def _take(self, role: BrokerRole, broker_id: int) -> None:
        configuration = self._parts.configuration
        configuration.role.take(role, broker_id)
        self._store.change_settings(configuration.store_in_role())

    async def _follow(self, member: GroupMember) -> None:
        self._take(BrokerRole.SLAVE, self._parts.group.number + 1)
        self._registration.release()
        log.info("role of a slave taken", broker_id=self._parts.configuration.role.broker_id)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._seek_master)
            nursery.start_soon(self._ask_the_leader, member)
            nursery.start_soon(self._master_tables.run, self._store, TABLES_SECONDS)

    async def _seek_master(self) -> None:
        """Register, and learn the master's address from the answers."""
        with trio.move_on_after(SEEK_SECONDS):
            while True:
                await self._registration.register_all(force=True)
                await trio.sleep(TABLES_SECONDS)

    async def _ask_the_leader(self, member: GroupMember) -> None:
        """Have the tables copied if the leader is one of RocketMQ's. Those of ours come by the log; until a leader has
        taken office its own may be older than what it has acknowledged before, in a term that a restart has ended."""
        while not self._tables_come_by_log():
            if member.leader is not None:
                with suppress(GroupFailed):
                    self.copies_tables = (await self._others.metadata(member.leader)).refuses is None
                    return
            await trio.sleep(TABLES_SECONDS)

    async def _lead(self, member: GroupMember, term: int) -> None:
        with trio.move_on_after(LAST_TABLES_SECONDS):
            await self._master_tables.sync()  # nothing, if they came by the log
        self._master_tables.master_known(None)
        await self._take_office(member, term)
        self._take(BrokerRole.SYNC_MASTER, 0)
        await self.table_log.lead(term)
        await trio.lowlevel.checkpoint_if_cancelled()  # the role may have changed while the last wait ended
        self._store.quorum.accept()
        await self._load()
        self._registration.release()
        log.info("role of the master taken", term=term)
        async with trio.open_nursery() as nursery:
            for task in (self.table_log.run_as_leader, *self._as_master):
                nursery.start_soon(task)
            await self._registration.register_all(force=True)
            await trio.sleep_forever()

    async def _take_office(self, member: GroupMember, term: int) -> None:
        """Commit what older leaders left: everything in the log is committed, and in the tables, when this returns."""
        store = self._store
        await store.quorum.catch_up()
        store.quorum.lead()
        member.take_office(term)
        if member.must_open_term:
            self._open_term(member)
            try:
                await store.committed.wait_beyond(store.appended_offset - 1)
            except StoreError as error:
                log.info("leadership lost before it began", reason=str(error))
                await trio.sleep_forever()  # until the change of the role that this came from
        await trio.lowlevel.checkpoint_if_cancelled()  # the role may have changed while the last wait ended
        await self._parts.keep_ends()

    def _open_term(self, member: GroupMember) -> None:
        """Commit what older leaders left: with an entry of this term, which no reader sees."""
        ledger = self._parts.made.ledger

        def write(term: int) -> None:
            ledger.append_opening(term, self._parts.now_ms(), self._parts.store_host)

        member.propose(None, write)
