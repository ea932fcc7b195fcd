"""A broker's configuration and statistics. Field names and types: RocketMQ 4.9.7, classes of the same names."""

from __future__ import annotations

from triomq.protocol.bounds import StatsName
from triomq.protocol.headers.base import Header


class GetBrokerConfigResponseHeader(Header, frozen=True, kw_only=True):
    """GET_BROKER_CONFIG response."""

    version: str  # DataVersion as JSON


class ViewBrokerStatsDataRequestHeader(Header, frozen=True, kw_only=True):
    """VIEW_BROKER_STATS_DATA request."""

    stats_name: StatsName
    stats_key: StatsName
