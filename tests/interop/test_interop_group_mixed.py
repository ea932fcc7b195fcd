"""Groups of Apache's members and ours: leaders of either kind fail, and members are exchanged for the other kind."""

from __future__ import annotations

from pathlib import Path

import trio
from interop_group import TROUBLES, Group, Load, Observer, check_equal, check_promises, observing, running_group

TWO_OF_APACHES = {"n0": "apache", "n1": "apache", "n2": "triomq"}
TWO_OF_OURS = {"n0": "triomq", "n1": "apache", "n2": "triomq"}


async def _fail(group: Group, observer: Observer, load: Load, trouble: str, member: str) -> None:
    """Let a member lead and fail, and wait until clients have got over it."""
    await observer.make_lead(member)
    await load.more(50)
    await TROUBLES[trouble](group, observer, member)
    await load.more(50)


async def test_two_members_of_apaches_and_one_of_ours_keep_their_promises(peer: Path, tmp_path: Path) -> None:
    with running_group(tmp_path, TWO_OF_APACHES, peer, enableBatchPush="true") as group:
        load = Load(group)
        async with observing(group) as observer, load.running():
            await _fail(group, observer, load, "kill", "n2")
            await _fail(group, observer, load, "stop", "n1")
        await check_promises(group, load)
        await check_equal(group)


async def test_members_fail_and_are_exchanged_for_the_other_kind(peer: Path, tmp_path: Path) -> None:
    """A leader's directory is taken over by the other kind after a kill, and taken back after a stop."""
    with running_group(tmp_path, TWO_OF_OURS, peer) as group:
        load = Load(group)
        async with observing(group) as observer, load.running():
            await _fail(group, observer, load, "pause", "n1")
            for end in (group.kill, group.stop):
                await observer.make_lead("n0")
                await load.more(50)
                await trio.to_thread.run_sync(end, "n0")
                await observer.leader()
                await group.exchange_soon("n0")
                await load.more(50)
        await check_promises(group, load)
        await check_equal(group)
        assert group.kinds == TWO_OF_OURS
