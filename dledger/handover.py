"""Handing the leadership to a member: whom `mqadmin dledger transfer` and the dashboard ask, and what they know before.

The leader decides: it refuses a member that is not there or lacks too many entries (broker/group/leadership.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from triomq.dledger import status

KEY: Final = "dLegerLeader"
"""The key in the configuration of a leader that a change hands over with."""


class NoHandover(Exception):
    """There is nobody to ask, or nobody to hand over to. The text says why."""


@dataclass(frozen=True, slots=True)
class Handover:
    """`address` is that of the broker of `leader`, which leads in `term`. `lag`: entries that `member` lacks, None if
    it does not say; `lacks`: what else it lacks, "" if nothing."""

    leader: str
    address: str
    term: int | None
    member: str
    lag: int | None
    lacks: str

    @property
    def body(self) -> bytes:
        """Return the body of UPDATE_BROKER_CONFIG, which the leader answers when the member leads."""
        return f"{KEY}={self.member}\n".encode()


def plan(infos: Mapping[str, Mapping[str, str]], member: str) -> Handover:
    """Return what a handover to a member would be. `infos`: address of a broker -> its runtime information, of one
    group. Of two that say that they lead, the one with the later term does. Raises NoHandover."""
    peers = status.peers_of(infos.values())
    if member not in peers:
        raise NoHandover(f"{member!r} is no member: there are {', '.join(peers)}")
    found = {one.member: one for one in status.statuses(peers, infos, {})}
    leaders = [one for one in found.values() if one.role == "leader" and one.broker is not None]
    if not leaders:
        raise NoHandover("no member leads at present: see mqadmin dledger members")
    leader = max(leaders, key=lambda one: one.term or 0)
    target = found[member]
    lacks = infos[target.broker].get(status.LACKS, "") if target.broker is not None else ""
    return Handover(leader.member, leader.broker or "", leader.term, member, target.lag, lacks)
