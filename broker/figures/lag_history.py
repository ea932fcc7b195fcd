"""The backlog of consumer groups in the last hour (a point a minute) and day (a point each ten minutes), for its
page.

`MOST_GROUPS` groups of users have a past; others get one when one of these is gone. It is kept from the start of the
broker, since nobody can ask for the past later; it takes at most 204 numbers a group, 400 KiB in all. Only `run`
changes it, one group after another, with other tasks in between.
"""

from __future__ import annotations

from typing import Final

import trio

from triomq.broker.assembly.serving import Serving
from triomq.broker.figures.snapshot import Snapshot
from triomq.dashboard.history import Ring
from triomq.protocol.system_topics import is_system_group

MOST_GROUPS: Final = 256
SAMPLE_SECONDS: Final = 60
HOUR_POINTS: Final = 60
DAY_POINTS: Final = 144
SAMPLES_OF_A_DAY_POINT: Final = 10


def snapshot_now(serving: Serving) -> Snapshot:
    """Return what computes the figures of single groups and topics."""
    tables = serving.tables
    return Snapshot(
        tables.metadata,
        tables.store.reading,
        tables.stats.next_offset,
        serving.pop.figures,
        now_ms=tables.now_ms,
        limit=0,
        ages={},
    )


class LagHistory:
    """See the module's docstring."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._metadata = serving.tables.metadata
        self._hours: dict[str, Ring] = {}
        self._days: dict[str, Ring] = {}
        self._samples = 0

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await trio.sleep(SAMPLE_SECONDS)
            await self.sample()

    async def sample(self) -> None:
        """Take one sample now."""
        snapshot = snapshot_now(self._serving)
        self._samples += 1
        names = dict.fromkeys(
            group
            for group in [*self._metadata.offsets.groups(), *[one.name for one in self._metadata.consumers.groups()]]
            if not is_system_group(group)
        )
        for group in [known for known in self._hours if known not in names]:
            del self._hours[group]
            self._days.pop(group, None)
        for group in names:
            if group not in self._hours and len(self._hours) >= MOST_GROUPS:
                continue
            self._add(group, snapshot)
            await trio.lowlevel.checkpoint()

    def _add(self, group: str, snapshot: Snapshot) -> None:
        pairs = [snapshot.pair(group, topic) for topic in snapshot.topics_of(group)]
        lag = sum([pair.lag for pair in pairs if pair is not None and not pair.is_broadcasting])
        self._hours.setdefault(group, Ring(HOUR_POINTS, 1)).add([lag])
        if self._samples % SAMPLES_OF_A_DAY_POINT == 0:
            self._days.setdefault(group, Ring(DAY_POINTS, 1)).add([lag])

    def hour(self, group: str) -> list[float]:
        """Return the points of a group, oldest first."""
        ring = self._hours.get(group)
        return ring.column(0) if ring is not None else []

    def day(self, group: str) -> list[float]:
        """Return the points of a group, oldest first."""
        ring = self._days.get(group)
        return ring.column(0) if ring is not None else []
