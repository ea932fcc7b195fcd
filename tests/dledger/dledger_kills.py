"""Kill the members of a group repeatedly while clients append: bin/dev/soak-dledger [ROUNDS] [--flush SYNC_FLUSH].

At the end every member must have all that was acknowledged, and the logs must be equal to the byte.

With --brokers apache,apache,triomq the members are brokers, Apache's or ours. In each round a leader of each kind is
killed, stopped, paused and asked to hand over, while clients in Python and Java send and consume.

With --partitions nobody is killed: the leader and a follower are cut off, in both directions and in one, by the routes
of network namespaces.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import trio
from dledger_partitions import go_inside, members_on_hosts, partition_rounds
from dledger_processes import Members, check, kill_rounds
from group_failures import KINDS, soak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", nargs="?", type=int, default=100)
    parser.add_argument("--flush", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), default="ASYNC_FLUSH")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--brokers", type=_kinds, help="the kinds of the members, with commas: triomq or apache")
    parser.add_argument("--partitions", action="store_true", help="cut members off instead of killing them")
    parser.add_argument("--fast", action="store_true", help="with dLegerFastElection: partitions are shorter, too")
    given = parser.parse_args()
    if given.brokers:
        soak(given.rounds, given.brokers, given.flush)
        return 0
    if given.partitions:
        try:
            go_inside()
        except OSError as error:
            print(f"soak-dledger cannot make partitions here: {error}", file=sys.stderr)
            return 2
    began = time.monotonic()
    print(f"{given.rounds} rounds, {given.flush}, seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="triomq-dledger-") as directory:
        if given.partitions:
            members, hosts = members_on_hosts(Path(directory), given.flush, is_fast=given.fast)
            run = partial(partition_rounds, members, hosts, given.rounds)
        else:
            members = Members(Path(directory), given.flush, is_fast=given.fast)
            run = partial(kill_rounds, members, given.rounds, given.seed)
        try:
            load = trio.run(run)
            codes = members.stop()
        finally:
            members.end()
        entries = check(members, load.acknowledged)
    print(
        f"{len(load.acknowledged)} acknowledged, {load.refused} refused, {entries} entries, equal at all members; the"
        f" longest time without an acknowledgement {load.longest_gap:.1f} s; exit codes {codes}; "
        f"{time.monotonic() - began:.0f} s"
    )
    return 0 if set(codes.values()) == {0} else 1


def _kinds(text: str) -> list[str]:
    kinds = text.split(",")
    if not set(kinds) <= set(KINDS):
        raise argparse.ArgumentTypeError(f"{text!r}: each member is one of {', '.join(KINDS)}")
    return kinds


if __name__ == "__main__":
    sys.exit(main())
