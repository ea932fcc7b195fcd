"""Groups that elect their master: whether enough members are there, and agree about who the members are."""

from __future__ import annotations

from triomq.admin.diagnosis import CRITICAL, WARNING, Finding
from triomq.dledger import status
from triomq.protocol.findings import no_master

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Tables = Mapping[int, Mapping[str, str]]


def is_group(tables: Tables) -> bool:
    """Return whether a broker of TrioMQ's says in its runtime information that it is a member of a group."""
    return any(table.get(status.GROUP) for table in tables.values())


def examine_members(name: str, addresses: Mapping[int, str], tables: Tables) -> Iterator[Finding]:
    """Examine the group of one broker name. `addresses` are those of its registered brokers, by broker id; `tables` has
    the runtime information of those that respond, in which RocketMQ's say nothing about their group."""
    infos = {addresses[number]: table for number, table in tables.items() if table.get(status.GROUP)}
    group = next(iter(infos.values()))[status.GROUP]
    members = status.statuses(status.peers_of(infos.values()), infos, {})
    missing = len(members) - len(tables)
    if missing > 0:
        yield _missing(group, members, missing, is_known=len(infos) == len(tables))
    for info in infos.values():
        if info.get(status.LACKS):
            yield Finding(
                WARNING,
                "dledger-tables",
                name,
                f"{info.get(status.SELF)} of the group {group} lacks tables: {info[status.LACKS]}",
                "if it becomes the master, topics are missing and groups consume again",
                "look into its log; the hosts of dLegerPeers must be reachable with the port of the brokers, too",
            )
    if 0 not in tables:
        yield no_master(name, group)
    if len({info.get(status.PEERS) for info in infos.values()}) > 1:
        yield Finding(
            WARNING,
            "dledger-peers",
            name,
            f"members of the group {group} have different dLegerPeers",
            "majorities of two lists need not have a member in common, and could elect a master each",
            "write the same dLegerPeers into broker.conf of all members, and restart them one after the other",
        )


def _missing(group: str, members: list[status.Status], missing: int, *, is_known: bool) -> Finding:
    """`is_known`: whether the status of each member says whether it is there."""
    away = ", ".join(member.member for member in members if not member.reachable) if is_known else f"{missing}"
    has_majority = 2 * (len(members) - missing) > len(members)
    return Finding(
        WARNING if has_majority else CRITICAL,
        "dledger-member-away",
        group,
        f"{away} of the {len(members)} members of the group {group} {'is' if missing == 1 else 'are'} not there",
        "a majority must be there: one more that fails may end the service"
        if has_majority
        else "without a majority of its members the group refuses messages",
        f"start their brokers; `mqadmin dledger members {group}` shows where they belong",
    )
