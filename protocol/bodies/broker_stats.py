"""Counters of a broker: VIEW_BROKER_STATS_DATA."""

from __future__ import annotations

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import Int64


class BrokerStatsItem(Body, frozen=True, kw_only=True, gc=False):
    """One counter over one period: `sum`, `tps` per second, `avgpt` per call."""

    avgpt: float = 0.0
    sum: Int64 = 0
    tps: float = 0.0


class BrokerStatsData(Body, frozen=True, kw_only=True):
    """One counter over the last day, hour and minute."""

    stats_day: BrokerStatsItem = BrokerStatsItem()
    stats_hour: BrokerStatsItem = BrokerStatsItem()
    stats_minute: BrokerStatsItem = BrokerStatsItem()
