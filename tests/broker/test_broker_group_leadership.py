"""dLegerLeader: the key with which a leader is asked to hand over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from triomq.broker.group.leadership import Leadership
from triomq.protocol.errors import RequestRefused
from triomq.protocol.settings import SettingError


class Group:
    """Roles of a member that leads, and whose transferee does not take over."""

    def __init__(self) -> None:
        self.member = SimpleNamespace(
            leader="n0", members=["n0", "n1", "n2"], is_leader=True, can_take_over=lambda peer: peer == "n1"
        )
        self.asked: list[str] = []

    async def hand_over_to(self, member: str) -> bool:
        self.asked.append(member)
        return False


async def test_who_did_not_take_over_is_not_shown_as_the_leader() -> None:
    group = Group()
    leadership = Leadership(cast(Any, group))
    leadership.change("n1")
    assert leadership.text() == "n1"
    with pytest.raises(RequestRefused, match="n1 does not lead: n0 does"):
        await leadership.wait_saved()
    assert group.asked == ["n1"]
    assert leadership.text() == "n0"


def test_a_leader_is_asked_for_a_member_that_can_take_over_or_for_itself() -> None:
    group = Group()
    leadership = Leadership(cast(Any, group))
    leadership.check("n0")  # it leads already, so nothing changes
    leadership.check("n1")
    with pytest.raises(SettingError, match="n2 is not there, or lacks too many entries"):
        leadership.check("n2")
    with pytest.raises(SettingError, match="'n3' is no member"):
        leadership.check("n3")
    group.member.is_leader = False
    with pytest.raises(SettingError, match="only the leader hands over, and that is n0"):
        leadership.check("n0")
