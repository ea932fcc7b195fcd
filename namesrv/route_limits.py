"""How large the tables of routes may become, and what their entries cost."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

TOPIC_COST = 350
QUEUE_DATA_COST = 120
BROKER_COST = 1600
"""About the memory of a topic beside its name, of its queues at one broker, and of a broker: it has two entries, and
its names and addresses have their longest lengths at most."""


@dataclass(frozen=True, slots=True)
class RouteLimits:
    """Limits of the tables; a registration beyond one is refused as a whole."""

    topic_count: int = 500_000
    broker_count: int = 20_000


def route_cost(topic: str, broker_name: str, known: Container[str] | None) -> int:
    """Return the memory that a topic at a broker adds; `known` are the brokers that have the topic, if any."""
    if known is None:
        return TOPIC_COST + len(topic) + QUEUE_DATA_COST
    return 0 if broker_name in known else QUEUE_DATA_COST
