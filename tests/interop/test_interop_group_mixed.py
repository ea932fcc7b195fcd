"""Groups of Apache's members and ours: leaders of either kind fail, and members are exchanged for the other kind, while
producers and consumers of either kind run."""

from __future__ import annotations

from pathlib import Path

import trio
from interop_driver_set import DriverSet
from interop_group import TROUBLES, Group, Load, Observer, check_equal, check_promises, observing, running_group
from interop_group_clients import OtherClients, check_route, other_clients

TWO_OF_APACHES = {"n0": "apache", "n1": "apache", "n2": "triomq"}
TWO_OF_OURS = {"n0": "triomq", "n1": "apache", "n2": "triomq"}


async def _get_over(group: Group, observer: Observer, load: Load, clients: OtherClients) -> None:
    """Wait until producers have got over a failure by themselves. At the end, consumers must have read everything."""
    await check_route(group, observer)
    await load.more(50)
    await clients.send_on()


async def _fail(group: Group, observer: Observer, load: Load, clients: OtherClients, trouble: str, member: str) -> None:
    """Let a member lead and fail, and wait until clients have got over it."""
    await observer.make_lead(member)
    await load.more(50)
    await TROUBLES[trouble](group, observer, member)
    await _get_over(group, observer, load, clients)


async def test_two_members_of_apaches_and_one_of_ours_keep_their_promises(
    peer: Path, drivers: DriverSet, tmp_path: Path
) -> None:
    java, python = drivers("java4"), drivers("python")
    with running_group(tmp_path, TWO_OF_APACHES, peer, enableBatchPush="true") as group:
        load = Load(group)
        async with observing(group) as observer, load.running():
            await load.more(1)
            async with other_clients(load, tmp_path, java, python) as clients:
                await _fail(group, observer, load, clients, "kill", "n2")
                await _fail(group, observer, load, clients, "stop", "n1")
                await clients.change_consumers()
        await check_promises(group, load)
        await check_equal(group)


async def test_members_fail_and_are_exchanged_for_the_other_kind(
    peer: Path, drivers: DriverSet, tmp_path: Path
) -> None:
    """A leader's directory is taken over by the other kind after a kill, and taken back after a stop."""
    java, python = drivers("java4"), drivers("python")
    with running_group(tmp_path, TWO_OF_OURS, peer) as group:
        load = Load(group)
        async with observing(group) as observer, load.running():
            await load.more(1)
            async with other_clients(load, tmp_path, java, python) as clients:
                await _fail(group, observer, load, clients, "pause", "n1")
                for end in (group.kill, group.stop):
                    await observer.make_lead("n0")
                    await load.more(50)
                    await trio.to_thread.run_sync(end, "n0")
                    await observer.leader()
                    await group.exchange_soon("n0")
                    await _get_over(group, observer, load, clients)
                await clients.change_consumers()
        await check_promises(group, load)
        await check_equal(group)
        assert group.kinds == TWO_OF_OURS
