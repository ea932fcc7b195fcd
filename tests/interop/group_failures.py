"""Let the leaders of a group of brokers fail repeatedly while clients send and consume:
`bin/dev/soak-dledger 10 --brokers apache,apache,triomq`.

A round is a kill, a stop, a pause and a transfer for a leader of each kind. In a group of our brokers alone there are
transactions, delayed messages, ordered consumers and commits of offsets as well (group_workloads.py).
"""

from __future__ import annotations

import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import trio
from apache_peer import find_peer
from group_workloads import SETTINGS, Workloads
from interop_driver_set import DriverSet
from interop_group import TROUBLES, Load, check_equal, check_promises, observing, running_group
from interop_group_clients import check_route, other_clients

KINDS = ("triomq", "apache")
LEADER_SECONDS = 120


def soak(rounds: int, kinds: list[str], flush: str) -> None:
    """Run the rounds. Raises AssertionError for a broken promise."""
    members = {f"n{number}": kind for number, kind in enumerate(kinds)}
    with tempfile.TemporaryDirectory(prefix="triomq-group-") as directory:
        drivers = DriverSet(Path(directory) / "drivers")
        try:
            trio.run(_soak, rounds, members, flush, Path(directory), drivers)
        finally:
            for driver in drivers.started:
                driver.kill()


async def _soak(rounds: int, kinds: dict[str, str], flush: str, directory: Path, drivers: DriverSet) -> None:
    leaders = {kind: member for member, kind in kinds.items()}
    java, python = drivers("java4"), drivers("python")
    is_ours = set(leaders) == {"triomq"}
    settings = {"flushDiskType": flush, **(SETTINGS if is_ours else {})}
    with running_group(directory, kinds, find_peer(), **settings) as group:
        load, workloads = Load(group), Workloads(group)
        async with AsyncExitStack() as stack:
            observer = await stack.enter_async_context(observing(group))
            await stack.enter_async_context(load.running())
            await load.more(1)
            if is_ours:
                await stack.enter_async_context(workloads.running())
            async with other_clients(load, directory, java, python) as clients:
                for number in range(rounds):
                    for trouble, fail in TROUBLES.items():
                        for kind, member in leaders.items():
                            await observer.make_lead(member, LEADER_SECONDS)
                            await load.more(50)
                            load.longest_gap = 0.0
                            await fail(group, observer, member)
                            await check_route(group, observer)
                            await load.more(50)
                            await clients.send_on()
                            await clients.read_on()
                            gap = f"no acknowledgement for {load.longest_gap:.1f} s"
                            print(time.strftime("%T"), number, trouble, kind, gap, flush=True)
                            assert not workloads.problems, workloads.problems[:10]
        if is_ours:
            print(workloads.check())
        await check_promises(group, load)
        await check_equal(group)
    print(
        f"{len(load.acknowledged)} acknowledged ({clients.sent} of them to Java), {load.failed} sends failed; nothing"
        " lost, consumers read all, logs equal to the byte"
    )
