"""Leadership: `dLegerLeader` in the configuration of a member of a group. It says who leads, and a change hands over.

    mqadmin config get dLegerLeader            n0
    mqadmin dledger transfer RaftNode00 n2     the leader takes dLegerLeader=n2, and responds when n2 leads

It is not a setting: no file has it.
"""

from __future__ import annotations

from typing import Final

from triomq.broker.group.roles import GroupRoles
from triomq.dledger import handover
from triomq.dledger.member.group_member import GroupMember
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused
from triomq.protocol.settings import SettingError

KEY: Final = handover.KEY


class Leadership:
    """A KeptValue of ConfigurationUpdate, which makes one change at a time."""

    def __init__(self, group: GroupRoles) -> None:
        self._group = group
        self._wanted: str | None = None

    @property
    def _member(self) -> GroupMember:
        if self._group.member is None:
            raise SettingError("update", KEY, "this broker has not joined its group yet")
        return self._group.member

    def text(self) -> str:
        """Return the member that is about to lead, or leads."""
        member = self._group.member
        return self._wanted or (member.leader if member is not None else None) or ""

    def check(self, text: str) -> None:
        """See KeptValue."""
        member = self._member
        if text not in member.members:
            raise SettingError("update", KEY, f"{text!r} is no member: there are {', '.join(member.members)}")
        if not member.is_leader:
            raise SettingError("update", KEY, f"only the leader hands over, and that is {member.leader or 'nobody'}")
        if text != member.leader and not member.can_take_over(text):
            raise SettingError(
                "update", KEY, f"{text} is not there, or lacks too many entries: mqadmin dledger members"
            )

    def change(self, text: str) -> None:
        """See KeptValue."""
        self._wanted = text

    async def wait_saved(self) -> None:
        """Hand over, and return when the wanted member leads. Raises RequestRefused."""
        wanted, self._wanted = self._wanted, None
        if wanted is None or not await self._group.hand_over_to(wanted):
            leads = self._member.leader or "nobody"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{wanted} does not lead: {leads} does; look at its log")
