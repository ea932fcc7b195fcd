"""How large the tables of routes may become, and what their entries cost."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

_HEAD_BYTES = 50
_WIDEST_BYTES = 8
"""A character outside of ASCII takes up to four bytes, and as many in the UTF-8 text that Python keeps beside it."""

TOPIC_COST = 300
ROUTE_COST = 200
BROKER_COST = 500
"""About the memory of a topic without its name, of its queues at one broker name, and of each entry of a broker (its
name, its registration, its id at that name, its cluster) without the texts."""


class RouteLimits(Struct, frozen=True):
    """Limits of what is listed at once and sent whole; a registration beyond one is refused as a whole. Everything
    else has the bound of the memory of all tables."""

    topic_count: int = 500_000
    broker_count: int = 20_000


def texts_bytes(texts: Iterable[str]) -> int:
    """Return about the memory of texts: always the same for the same texts. What `sys.getsizeof` says of one grows when
    it is encoded, so an account that adds it before and subtracts it after would drift."""
    return sum([_HEAD_BYTES + len(text) * (1 if text.isascii() else _WIDEST_BYTES) for text in texts])
