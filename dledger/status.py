"""What operators see of a group: each member with its role, its term and its log.

No request to a member tells all of this, so a broker says it in its runtime information (GET_BROKER_RUNTIME_INFO),
under the keys below. `mqadmin dledger members` and `python -m triomq.dledger members` both show `statuses`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

GROUP: Final = "dledgerGroup"
SELF: Final = "dledgerSelfId"
PEERS: Final = "dledgerPeers"
ROLE: Final = "dledgerRole"
LEADER: Final = "dledgerLeader"
TERM: Final = "dledgerTerm"
BEGIN: Final = "dledgerBeginIndex"
END: Final = "dledgerEndIndex"
COMMITTED: Final = "dledgerCommittedIndex"
LACKS: Final = "dledgerLacks"
"""What a follower lacks to be the next master, beside entries; empty if nothing."""

MOST_DIGITS: Final = 20
"""Of a number, which no member has so high: who says more is not to be believed."""

COLUMNS: Final = {
    "member": "MEMBER",
    "address": "ADDRESS",
    "broker": "BROKER",
    "reachable": "REACHABLE",
    "role": "ROLE",
    "leader": "LEADER",
    "term": "TERM",
    "first": "FIRST",
    "last": "LAST",
    "committed": "COMMITTED",
    "lag": "LAG",
}
"""Name -> heading, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Status:
    """One member. `address` is of its ledger port, `broker` of its broker port. `lag`: entries of the leader that it
    lacks. What is not known is None; of a member without a broker that is everything but `leader` and `role`."""

    member: str
    address: str
    broker: str | None = None
    reachable: bool = False
    role: str | None = None
    leader: str | None = None
    term: int | None = None
    first: int | None = None
    last: int | None = None
    committed: int | None = None
    lag: int | None = None

    def values(self) -> dict[str, str | int | bool | None]:
        """Return every value under its name."""
        return {name: getattr(self, name) for name in COLUMNS}


def statuses(
    members: Mapping[str, str], infos: Mapping[str, Mapping[str, str]], leaders: Mapping[str, str | None]
) -> list[Status]:
    """Return the status of each of `members` (id -> address). `infos`: address of a broker -> its runtime information,
    only of this group. `leaders`: each member whose ledger port answered -> the leader that it names."""
    by_member = {info.get(SELF, ""): (address, info) for address, info in infos.items()}
    ends = [_number(info, END) for info in infos.values() if info.get(ROLE) == "leader"]
    end = max((found for found in ends if found is not None), default=None)
    return [_status(member, at, by_member.get(member), leaders, end) for member, at in members.items()]


def _status(
    member: str,
    address: str,
    found: tuple[str, Mapping[str, str]] | None,
    leaders: Mapping[str, str | None],
    end: int | None,
) -> Status:
    if found is None:
        if member not in leaders:
            return Status(member, address)
        leader = leaders[member]
        role = None if leader is None else "leader" if leader == member else "follower"
        return Status(member, address, reachable=True, role=role, leader=leader)
    broker, info = found
    last = _number(info, END)
    return Status(
        member,
        address,
        broker,
        reachable=True,
        role=info.get(ROLE),
        leader=info.get(LEADER) or None,
        term=_number(info, TERM),
        first=_number(info, BEGIN),
        last=last,
        committed=_number(info, COMMITTED),
        lag=max(0, end - last) if end is not None and last is not None else None,
    )


def groups_of(infos: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Mapping[str, str]]]:
    """Return group -> address of a broker -> its runtime information, of the brokers that are members of one."""
    groups: dict[str, dict[str, Mapping[str, str]]] = {}
    for address, info in infos.items():
        if info.get(GROUP):
            groups.setdefault(info[GROUP], {})[address] = info
    return groups


def peers_of(infos: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return id -> address of the members that brokers of one group name."""
    members: dict[str, str] = {}
    for info in infos:
        for item in filter(None, info.get(PEERS, "").split(";")):
            member, _, address = item.partition("-")
            members.setdefault(member, address)
    return dict(sorted(members.items()))


def _number(info: Mapping[str, str], key: str) -> int | None:
    text = info.get(key, "")
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < MOST_DIGITS else None
