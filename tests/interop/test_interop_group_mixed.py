"""Groups of Apache's members and ours: leaders of either kind fail, and members are exchanged for the other kind, while
producers and consumers of either kind run."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from interop_driver_set import DriverSet
from interop_group import TOPIC, TROUBLES, Group, Load, Observer, check_equal, check_promises, observing, running_group
from interop_group_clients import OtherClients, check_route, other_clients
from interop_group_expiry import EXPIRY, check_ends_survive

from triomq import Message, MQClientError, Producer

TWO_OF_APACHES = {"n0": "apache", "n1": "apache", "n2": "triomq"}
TWO_OF_OURS = {"n0": "triomq", "n1": "apache", "n2": "triomq"}
THREE_OF_OURS = dict.fromkeys(("n0", "n1", "n2"), "triomq")
ALONE = b"nobody else has this"


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


async def _append_alone(group: Group, observer: Observer, leader: str) -> None:
    """Let a leader append what no other member gets, and end all members without warning."""
    await observer.make_lead(leader)
    async with Producer("group-alone", name_server=group.name_server, retries=0) as producer:
        await producer.send(Message(TOPIC, b"of all"))
        for member in set(group.running) - {leader}:
            group.kill(member)

        async def _send() -> None:
            with pytest.raises(MQClientError):
                await producer.send(Message(TOPIC, ALONE * 20), timeout_seconds=2)

        async with trio.open_nursery() as sends:
            for _ in range(20):
                sends.start_soon(_send)
    assert group.has_text(leader, ALONE)
    group.kill(leader)


async def test_a_member_of_apaches_opens_the_ledger_from_which_ours_has_cut_what_nobody_else_got(
    peer: Path, tmp_path: Path
) -> None:
    """It is killed, too, before the other one takes its place."""
    with running_group(tmp_path, THREE_OF_OURS, peer) as group:
        load = Load(group)
        async with observing(group) as observer:
            async with load.running():
                await load.more(100)
            await _append_alone(group, observer, "n0")
            for member in ("n1", "n2"):
                await group.start_soon(member)
            async with load.running():
                await load.more(100)
                await group.start_soon("n0")
                with trio.fail_after(20):
                    while group.has_text("n0", ALONE):  # noqa: ASYNC110 (another process)
                        await trio.sleep(0.02)
                await load.more(50)
                await trio.to_thread.run_sync(group.kill, "n0")
                await group.exchange_soon("n0")
                await observer.make_lead("n0")
                await load.more(50)
        await check_promises(group, load)
        await check_equal(group)
        assert not any(group.has_text(member, ALONE) for member in group.kinds)


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


async def test_a_member_of_ours_learns_ends_of_queues_from_a_leader_of_apaches(peer: Path, tmp_path: Path) -> None:
    """It came back empty when the messages of these queues had expired."""
    with running_group(tmp_path, TWO_OF_OURS, peer, **EXPIRY) as group:
        async with observing(group) as observer:
            await check_ends_survive(group, observer, "n1", "n0")
