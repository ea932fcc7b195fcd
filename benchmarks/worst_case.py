"""Compute the most that N connections can make a daemon hold, from the constants that bound each stage.

    python -m benchmarks.worst_case [--budget-mib 128] [--connections 10,100,1000]

The stages follow a request: the socket's buffers (of the kernel, outside of the process), the bytes of a frame that is
not complete, requests that wait or run, responses that are not taken, parked pulls, tables. Most of them share the
budget (maxRequestBytes); what a connection may hold beyond it is a constant for each. tests/remoting compares the
model with what real connections hold.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from triomq.protocol.frame import MAX_FRAME_BYTES
from triomq.remoting.connection_settings import DEFAULT_HIGH_WATER_BYTES, TIGHT_HIGH_WATER_BYTES
from triomq.remoting.memory import OVERDRAFT_BYTES, TIGHT_FREE_FRAME_BYTES, MemoryBudget
from triomq.remoting.poller import RECEIVE_BYTES
from triomq.remoting.scheduling.policy import READ_AHEAD_BYTES

MIB = 1 << 20
RESPONSE_BYTES = 256 * 1024
"""The longest usual response, that of a pull; a message that is longer has one of its own size."""
CONNECTION_BYTES = 16 * 1024
"""The objects of a connection, with room to spare."""
KERNEL_BYTES = 6 * MIB + 4 * MIB
"""The largest receive and send buffers that Linux gives a TCP socket by default."""


@dataclass(frozen=True)
class WorstCase:
    """Bytes by stage. `kernel` is not part of the process."""

    tables: int
    frames: int
    held: int
    beyond: int
    turn: int
    kernel: int

    @property
    def process(self) -> int:
        """Return what the process holds at most."""
        return self.tables + self.frames + self.held + self.beyond + self.turn


def worst_case(connections: int, limit_bytes: int, *, table_bytes: int | None = None) -> WorstCase:
    """Return the most that these connections can hold with this budget. `table_bytes`: of the tables; None: all that
    they may take."""
    budget = MemoryBudget(limit_bytes)
    tables = budget.tables.limit_bytes if table_bytes is None else table_bytes
    budget.tables.account("tables").set(tables)
    half = budget.half_bytes
    # While memory is not tight, each connection may hold these; all of them together tip it over.
    free = connections * (DEFAULT_HIGH_WATER_BYTES + RESPONSE_BYTES + READ_AHEAD_BYTES + RECEIVE_BYTES)
    # When it has become tight, each may have one more piece of everything, before the next look closes the stalled.
    tight = CONNECTION_BYTES + TIGHT_HIGH_WATER_BYTES + RESPONSE_BYTES + TIGHT_FREE_FRAME_BYTES + RECEIVE_BYTES
    # The announced sizes of frames with a grant; each may have read one piece more.
    frames = min(half + OVERDRAFT_BYTES, connections * MAX_FRAME_BYTES)
    # One connection at a time is worked for: the read, the frame while it is decoded twice over, its output.
    turn = RECEIVE_BYTES + 2 * MAX_FRAME_BYTES + DEFAULT_HIGH_WATER_BYTES + RESPONSE_BYTES
    return WorstCase(tables, frames, min(half, free), connections * tight, turn, connections * KERNEL_BYTES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget-mib", type=int, default=128)
    parser.add_argument("--connections", default="10,100,1000")
    given = parser.parse_args()
    print("| connections | tables | long frames | the rest | beyond, each has one | one turn | process | kernel |")
    print("|---|---|---|---|---|---|---|---|")
    for connections in map(int, given.connections.split(",")):
        worst = worst_case(connections, given.budget_mib * MIB)
        stages = (worst.tables, worst.frames, worst.held, worst.beyond, worst.turn, worst.process, worst.kernel)
        print(f"| {connections:,} | " + " | ".join(f"{stage / MIB:.0f} MiB" for stage in stages) + " |")


if __name__ == "__main__":
    main()
