"""DLedger groups of brokers under failing members: nothing acknowledged is lost, no queue offset is given twice, and
all members have the same bytes."""

from __future__ import annotations

from pathlib import Path

from interop_group import TROUBLES, Load, check_equal, check_promises, observing, running_group

OURS = {"n0": "triomq", "n1": "triomq", "n2": "triomq"}


async def test_a_group_of_ours_keeps_its_promises_while_its_leaders_fail(tmp_path: Path) -> None:
    with running_group(tmp_path, OURS) as group:
        load = Load(group)
        async with observing(group) as observer, load.running():
            await load.more(50)
            for trouble in ("kill", "transfer", "stop", "pause"):
                leader = await observer.leader()
                await TROUBLES[trouble](group, observer, leader)
                await load.more(100)
        await check_promises(group, load)
        await check_equal(group)
