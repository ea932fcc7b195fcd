"""Bugs that are put into whole brokers on purpose: into how their tables go through the log of the group."""

from __future__ import annotations

from typing import Any

import trio

from sim import wrong
from sim.dledger.brokers import BROKER_FAULTS
from sim.dledger.planted import Bug
from triomq.broker.group.roles import GroupRoles
from triomq.broker.group.table_log import TableLog
from triomq.broker.pop.in_flight import InFlight
from triomq.broker.processors.ack import AckProcessor


def _acknowledges_before_the_quorum(original: Any) -> Any:
    async def settled(self: TableLog) -> None:
        self.write()

    return settled


def _keeps_changes_to_itself(original: Any) -> Any:
    def take(self: TableLog, body: bytes) -> None:
        return

    return take


def _reads_no_log_at_a_start(original: Any) -> Any:
    async def load(self: TableLog) -> None:
        self.is_whole = True

    return load


def _copies_tables_from_every_leader(original: Any) -> Any:
    async def ask(self: GroupRoles, member: object) -> None:
        self.copies_tables = not self._tables_come_by_log()

    return ask


def _accepts_before_its_tables(original: Any) -> Any:
    async def lead(self: TableLog, term: int) -> None:
        with trio.move_on_after(0):
            await original(self, term)

    return lead


BROKER_BUGS = {
    "acknowledges_before_the_quorum": Bug(
        TableLog, "settled", _acknowledges_before_the_quorum, ("cut off", "kill", "mend")
    ),
    "keeps_changes_to_itself": Bug(TableLog, "take", _keeps_changes_to_itself, ("kill", "stop", "hand over")),
    "reads_no_log_at_a_start": Bug(TableLog, "load", _reads_no_log_at_a_start, ("kill", "write"), seed=8),
    "copies_tables_from_every_leader": Bug(
        GroupRoles, "_ask_the_leader", _copies_tables_from_every_leader, BROKER_FAULTS, seed=235
    ),
    "accepts_before_its_tables": Bug(TableLog, "lead", _accepts_before_its_tables, ("hand over",), seed=69),
}


def _commits_what_is_in_flight(original: Any) -> Any:
    def oldest(self: InFlight) -> int:
        return self.next_offset

    return oldest


RECEIVER_BUGS = {
    "done_before_the_quorum": Bug(AckProcessor, "_when_durable", wrong.at_once, ("cut off", "kill", "mend"), seed=15),
    "commits_what_is_in_flight": Bug(InFlight, "oldest", _commits_what_is_in_flight, ("kill", "hand over")),
}
"""Bugs of POP."""
