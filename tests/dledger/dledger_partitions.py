"""Partitions of a group whose members are processes in network namespaces of their own: `bin/dev/soak-dledger 10
--partitions`. Clients reach all members throughout.

The program runs itself again as the router of its own namespaces, and everything ends with that process.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import trio
from chaos_network import Host, enter, way_in
from dledger_processes import AGREE_SECONDS, Load, Members, agree, appending

from triomq.dledger.member.client import GroupClient

INSIDE = "TRIOMQ_SOAK_INSIDE"
PORT = 20_911
CUT_SECONDS = {False: 7.5, True: 1.5}
"""At least, by whether elections are fast: longer than the time after which a follower gives its leader up."""

PAUSE_SECONDS = 0.01
"""Most of the time passes in waiting for elections: the clients need not fill the disk meanwhile."""

Cut = Callable[[Host, list[Host]], None]
"""Takes the host of the member that is cut off, and the others."""


def go_inside() -> None:
    """Run this program again in namespaces of its own, unless it runs there. Raises OSError if that is refused."""
    if INSIDE in os.environ:
        enter()
        return
    words = way_in()
    os.environ[INSIDE] = "1"
    os.execvp(words[0], [*words, "--", sys.executable, *sys.argv])


def members_on_hosts(directory: Path, flush: str, *, is_fast: bool) -> tuple[Members, dict[str, Host]]:
    """Return the members of a group, which do not run yet, and the host of each."""
    hosts = {f"n{at}": Host(f"n{at}", at + 2) for at in range(3)}
    addresses = {member: f"{host.address}:{PORT}" for member, host in hosts.items()}
    inside = {member: host.inside for member, host in hosts.items()}
    return Members(directory, flush, addresses, inside, is_fast=is_fast), hosts


async def partition_rounds(members: Members, hosts: dict[str, Host], rounds: int) -> Load:
    """Cut members off while clients append, mend it, and let the group continue. Return what was acknowledged, with
    every log as long as the leader's."""
    longest = 0.0
    async with appending(members, "partitions", PAUSE_SECONDS) as (group, load):
        for number in range(rounds):
            for what, cut in CUTS.items():
                load.longest_gap = 0.0
                await _partition(group, load, hosts, what, cut, CUT_SECONDS[members.is_fast])
                longest = max(longest, load.longest_gap)
                print(time.strftime("%T"), number, what, f"no acknowledgement for {load.longest_gap:.1f} s", flush=True)
    load.longest_gap = longest
    await agree(members, load)
    return load


async def _partition(
    group: GroupClient, load: Load, hosts: dict[str, Host], what: str, cut: Cut, seconds: float
) -> None:
    leader = await group.find_leader(AGREE_SECONDS)
    alone = leader if what.startswith("leader") else next(member for member in hosts if member != leader)
    cut(hosts[alone], [host for member, host in hosts.items() if member != alone])
    try:
        async with trio.open_nursery() as both:
            both.start_soon(load.wait, 50)
            both.start_soon(trio.sleep, seconds)
    finally:
        for host in hosts.values():
            host.mend()
    await load.wait(50)


def _both_ways(alone: Host, others: list[Host]) -> None:
    for other in others:
        alone.cut("both", other)


def _out(alone: Host, others: list[Host]) -> None:
    for other in others:
        alone.cut_way_to(other)


def _in(alone: Host, others: list[Host]) -> None:
    for other in others:
        other.cut_way_to(alone)


CUTS = {
    f"{who}, {way}": cut
    for who in ("leader", "follower")
    for way, cut in (("both ways", _both_ways), ("what it sends", _out), ("what it gets", _in))
}
