"""DLedger groups of brokers under failing members: nothing acknowledged is lost, no queue offset is given twice, and
all members have the same bytes."""

from __future__ import annotations

import signal
from pathlib import Path

import trio
from interop_group import Group, Load, Observer, check_equal, check_promises, observing, running_group

OURS = {"n0": "triomq", "n1": "triomq", "n2": "triomq"}


async def _kill(group: Group, observer: Observer, leader: str) -> None:
    group.kill(leader)
    await observer.leader()
    await group.start_soon(leader)


async def _stop(group: Group, observer: Observer, leader: str) -> None:
    assert await trio.to_thread.run_sync(group.stop, leader) == 0
    await observer.leader()
    await group.start_soon(leader)


async def _pause(group: Group, observer: Observer, leader: str) -> None:
    group.signal(leader, signal.SIGSTOP)
    await observer.leader([member for member in group.running if member != leader])
    group.signal(leader, signal.SIGCONT)


async def _transfer(group: Group, observer: Observer, leader: str) -> None:
    to = next(member for member in group.running if member != leader)
    for _ in range(40):
        if await observer.transfer(leader, to) == 200:
            break
        await trio.sleep(0.2)
    assert await observer.leader([to]) == to


TROUBLES = {"kill": _kill, "stop": _stop, "pause": _pause, "transfer": _transfer}


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
