"""How large the tables of routes may become, and what their entries cost."""

from __future__ import annotations

from dataclasses import dataclass

TOPIC_COST = 300
ROUTE_COST = 200
BROKER_COST = 1600
"""About the memory of a topic without its name, of its queues at one broker name, and of a broker, which has two
entries, with names of the longest lengths."""


@dataclass(frozen=True, slots=True)
class RouteLimits:
    """Limits of the tables; a registration beyond one is refused as a whole. A route is of a topic at a broker name."""

    topic_count: int = 500_000
    broker_count: int = 20_000
    route_count: int = 2_000_000
