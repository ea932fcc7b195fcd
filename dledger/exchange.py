"""Exchanging members of a group that runs: what comes next, so that no send fails.

`dLegerPeers` is read at a start, so members restart one after the other with the new list. Two lists may each have a
majority, which must have a member in common: one member is added, removed or replaced at a time. The order:

    restart    a follower that stays, with the new list
    transfer   the leadership to it: a leader of the old list could hand over to the member that leaves
    start      the new member, with the new list; wait until it has everything
    restart    the other members that stay
    stop       the member that leaves

`next_step` looks at the runtime information of the brokers only. It does nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from triomq.dledger import status

NEAR_ENTRIES: Final = 500
"""A member that lacks fewer catches up within moments: brokers are asked one after the other, and clients send."""

Infos = Mapping[str, Mapping[str, str]]
"""Id of a member -> the runtime information of its broker, of those that answer."""


@dataclass(frozen=True, slots=True)
class Step:
    """`act` is one of start, restart, transfer, wait, stop, done; `member` is whom it concerns."""

    act: str
    member: str = ""
    text: str = ""


def new_peers(peers: Mapping[str, str], leaving: str | None, coming: tuple[str, str] | None) -> dict[str, str]:
    """Return the new list (id -> address). Raises ValueError for an exchange that is none."""
    if leaving is not None and leaving not in peers:
        raise ValueError(f"{leaving} is no member: there are {', '.join(peers)}")
    if coming is not None and coming[0] in peers:
        raise ValueError(f"{coming[0]} is a member already: a new one needs an id that none had")
    if leaving is None and coming is None:
        raise ValueError("nobody comes and nobody leaves")
    found = {member: address for member, address in peers.items() if member != leaving}
    if coming is not None:
        found[coming[0]] = coming[1]
    if not found:
        raise ValueError("a group needs a member")
    return found


def peers_text(peers: Mapping[str, str]) -> str:
    """Return a list as dLegerPeers has it."""
    return ";".join(f"{member}-{address}" for member, address in peers.items())


def next_step(infos: Infos, wanted: Mapping[str, str], leaving: str | None, coming: str | None) -> Step:
    """Return what comes next, for the new list `wanted`."""
    leaders = [member for member, info in infos.items() if info.get(status.ROLE) == "leader"]
    if len(leaders) != 1:
        return Step("wait", text="until one member leads")
    leader = leaders[0]
    staying = [member for member in wanted if member != coming]
    for member in staying:
        if member not in infos:
            return Step("wait", member, "until it is there")
        if _lag(infos, leader, member) > NEAR_ENTRIES:
            return Step("wait", member, "until it has nearly everything")
    changed = [member for member in staying if _peers(infos[member]) == dict(wanted)]
    others = sorted((member for member in staying if member not in changed), key=lambda member: member == leader)
    if not changed:
        return Step("restart", others[0], "with the new list")
    if leader not in changed:
        return Step("transfer", changed[0])
    if coming is not None and coming not in infos:
        return Step("start", coming, "with the new list and an empty store")
    if coming is not None and _lag(infos, leader, coming) > NEAR_ENTRIES:
        return Step("wait", coming, "until it has nearly everything")
    if others:
        return Step("restart", others[0], "with the new list")
    if leaving is not None and leaving in infos:
        return Step("stop", leaving, "it is no member any more")
    return Step("done")


def _peers(info: Mapping[str, str]) -> dict[str, str]:
    return status.peers_of([info])


def _lag(infos: Infos, leader: str, member: str) -> int:
    end, last = infos[leader].get(status.END, ""), infos[member].get(status.END, "")
    return int(end) - int(last) if end.isdigit() and last.removeprefix("-").isdigit() else NEAR_ENTRIES + 1
