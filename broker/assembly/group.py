"""A broker as a member of a DLedger group (enableDLegerCommitLog): its parts, and what its runtime information says.

`dledger.status` has the keys of the runtime information.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from triomq.broker.assembly.tables import Tables, kept, save_tables
from triomq.broker.configuration_update import KeptValue
from triomq.broker.group import leadership
from triomq.broker.group.known_ends import KnownEnds
from triomq.broker.group.log import GroupStore
from triomq.broker.group.roles import GroupParts, GroupRoles, Task
from triomq.broker.group.table_log import TableLog
from triomq.broker.nameservers.registration import Registration
from triomq.broker.replication.master_tables import MasterTables
from triomq.broker.settings.group import GroupSettings
from triomq.broker.tables.logged import LoggedTable
from triomq.broker.topic_deletion import TopicDeletion
from triomq.broker.transactions.interfaces import TransactionStore
from triomq.dledger import status
from triomq.protocol.address import HostPort


def build_group(
    tables: Tables,
    settings: GroupSettings,
    store: GroupStore,
    registration: Registration,
    master_tables: MasterTables,
    transactions: TransactionStore,
    as_master: Iterable[Task],
    address: HostPort,
) -> GroupRoles:
    """Return the roles that the broker takes in its group. `as_master` are the tasks that only a master has; `address`
    is the broker's own."""
    metadata = tables.metadata

    async def load() -> None:
        tables.queue_locks.renew_all()
        await transactions.load()
        await TopicDeletion(metadata.topics, metadata.offsets, tables.store).complete()

    parts = GroupParts(
        tables.configuration,
        settings,
        store.made,
        tables.store,
        registration,
        master_tables,
        tables.surroundings.turn,
        tables.now_ms,
        address.packed,
        tables.surroundings.in_thread,
        _table_log(tables, settings.setup.self_id, address.port),
        KnownEnds(tables.store, metadata.topics, metadata.offsets, tables.delay_offsets).keep,
        partial(save_tables, tables),
    )
    return GroupRoles(parts, load=load, as_master=list(as_master))


def _table_log(tables: Tables, member: str, port: int) -> TableLog:
    logged: dict[str, LoggedTable] = {
        "topics": tables.metadata.topics,
        "groups": tables.metadata.groups,
        "offsets": tables.metadata.offsets,
        "delays": tables.delay_offsets,
        "quotas": tables.quota_overrides,
        "locks": tables.queue_locks,
        "modes": tables.request_modes,
    }
    file, wake = kept(tables.surroundings, "tableLog.json"), tables.surroundings.turn.wake
    return TableLog(tables.store, logged, file, wake, member=member, port=port)


def leadership_of(group: GroupRoles) -> dict[str, KeptValue]:
    """Return the value of the configuration that hands the leadership over, by its key."""
    return {leadership.KEY: leadership.Leadership(group)}


def group_values(settings: GroupSettings, store: GroupStore, group: GroupRoles) -> dict[str, str]:
    """Return what the runtime information says about the member, key -> text; nothing before it has joined."""
    member = group.member
    if member is None:
        return {}
    setup, ledger = settings.setup, store.made.ledger
    return {
        status.GROUP: setup.group,
        status.SELF: setup.self_id,
        status.PEERS: ";".join(f"{peer}-{address}" for peer, address in setup.members.items()),
        status.ROLE: member.role.value.lower(),
        status.LEADER: member.leader or "",
        status.TERM: str(member.term),
        status.BEGIN: str(ledger.begin_index),
        status.END: str(ledger.end_index),
        status.COMMITTED: str(member.committed),
        status.LACKS: group.lacks_tables() or "",
    }
