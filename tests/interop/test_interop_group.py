"""DLedger groups of brokers under failing members: nothing acknowledged is lost, no queue offset is given twice, and
all members have the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from interop_group import TROUBLES, Group, Load, check_equal, check_promises, observing, running_group
from interop_group_expiry import EXPIRY, check_ends_survive

OURS = {"n0": "triomq", "n1": "triomq", "n2": "triomq"}
FIVE = {**OURS, "n3": "triomq", "n4": "triomq"}
SENDERS = 4


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


async def test_a_group_of_five_goes_on_without_two_members_and_waits_without_three(tmp_path: Path) -> None:
    with running_group(tmp_path, FIVE, dLegerFastElection="true") as group:
        load = Load(group)
        async with observing(group) as observer, load.running(SENDERS):
            await load.more(50)
            killed = [await observer.leader()]
            group.kill(killed[0])
            await load.more(50)
            killed.append(await observer.leader())
            group.kill(killed[1])
            await load.more(50)
            leader = await observer.leader()
            killed.append(next(member for member in group.running if member != leader))
            group.kill(killed[2])
            with pytest.raises(AssertionError, match="messages acknowledged in 3 s"):
                await load.more(SENDERS + 1, seconds=3)  # each sender may have one that three members have already
            for member in killed:
                await group.start_soon(member)
            await load.more(50)
        await check_promises(group, load)
        await check_equal(group)


async def test_a_group_with_sync_flush_keeps_its_promises_when_its_leader_is_killed(tmp_path: Path) -> None:
    with running_group(tmp_path, OURS, flushDiskType="SYNC_FLUSH") as group:
        load = Load(group)
        async with observing(group) as observer, load.running():
            for _ in range(2):
                await load.more(50)
                await TROUBLES["kill"](group, observer, await observer.leader())
            await load.more(50)
        await check_promises(group, load)
        await check_equal(group)


async def test_a_member_that_came_back_empty_leads_and_gives_no_queue_offset_twice(tmp_path: Path) -> None:
    """Also of queues whose messages had all expired before it was filled."""
    with running_group(tmp_path, OURS, **EXPIRY) as group:
        async with observing(group) as observer:
            await check_ends_survive(group, observer, "n0", "n1")


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
async def test_a_group_that_grew_from_copies_of_a_plain_store_keeps_all_promises_when_its_leaders_are_killed(
    tmp_path: Path, is_killed: bool
) -> None:
    """The first leader is killed before the group has a message of its own."""
    group = Group(tmp_path, OURS)
    load = Load(group)
    try:
        group.start_plain("n0")
        async with load.running():
            await load.more(200)
        if is_killed:
            group.kill("n0")
        else:
            assert group.stop("n0") == 0
        group.copy_store("n0")
        group.start_members()
        async with observing(group) as observer:
            await TROUBLES["kill"](group, observer, await observer.leader())
            async with load.running():
                for _ in range(2):
                    await load.more(50)
                    await TROUBLES["kill"](group, observer, await observer.leader())
                await load.more(50)
        await check_promises(group, load)
        await check_equal(group)
    finally:
        group.end()
