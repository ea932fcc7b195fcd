"""How large the tables of routes may become, and what their entries cost."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

TOPIC_COST = 480
ROUTE_COST = 120
BROKER_COST = 1600
"""About the memory of a topic, of its queues at one broker name, and of a broker, which has two entries. Their names
have the longest lengths at most."""


@dataclass(frozen=True, slots=True)
class RouteLimits:
    """Limits of the tables; a registration beyond one is refused as a whole. A route is of a topic at a broker name."""

    topic_count: int = 500_000
    broker_count: int = 20_000
    route_count: int = 2_000_000


def route_cost(broker_name: str, known: Container[str] | None) -> int:
    """Return the memory that a topic at a broker adds; `known` are the brokers that have the topic, if any."""
    if known is None:
        return TOPIC_COST + ROUTE_COST
    return 0 if broker_name in known else ROUTE_COST
