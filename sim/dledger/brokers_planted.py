"""Bugs that are put into whole brokers on purpose: into how their tables go through the log of the group."""

from __future__ import annotations

from typing import Any

from sim.dledger.planted import Bug
from triomq.broker.group.table_log import TableLog


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


BROKER_BUGS = {
    "acknowledges_before_the_quorum": Bug(
        TableLog, "settled", _acknowledges_before_the_quorum, ("cut off", "kill", "mend")
    ),
    "keeps_changes_to_itself": Bug(TableLog, "take", _keeps_changes_to_itself, ("kill", "stop", "hand over")),
    "reads_no_log_at_a_start": Bug(TableLog, "load", _reads_no_log_at_a_start, ("kill", "write"), seed=1),
}
