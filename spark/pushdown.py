"""Push-down of query filters on topic, broker, queue, offset, time and tags.

`Limits` collects them. Conditions on topic, broker name and queue, and those on offset and tags when a broker is read,
are applied exactly, so Spark need not evaluate them again. Others narrow the ranges, and Spark still evaluates them.
Spark passes only conditions of one column and constants, joined by AND: of `a = 1 OR b = 2`, and of functions of a
column, a source learns nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from triomq.protocol.subscription import SUB_ALL

MAX_OFFSET = 2**63 - 1
MAX_TAGS: Final = 100
"""Spark itself evaluates conditions with more tags: every pull carries all of them."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_QUEUE_COLUMNS = {"topic": "topic", "brokerName": "broker", "queueId": "queue", "partition": "queue"}
_OFFSET_COLUMNS = ("queueOffset", "offset")
_TIME_COLUMNS = ("storeTimestamp", "timestamp")
_PHYSICAL_COLUMNS = ("physicalOffset",)
_NEVER_NULL = (*_QUEUE_COLUMNS, *_OFFSET_COLUMNS, *_TIME_COLUMNS, *_PHYSICAL_COLUMNS)


@dataclass(frozen=True, slots=True)
class Limits:
    """Allowed values (None: any) and inclusive bounds. Times in ms."""

    topics: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    queues: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    min_offset: int = 0
    max_offset: int = MAX_OFFSET
    min_ms: int = 0
    max_ms: int = MAX_OFFSET
    min_physical: int = 0
    max_physical: int = MAX_OFFSET

    def allows(self, topic: str, broker: str | None, queue_id: int) -> bool:
        return (
            (self.topics is None or topic in self.topics)
            and (self.brokers is None or broker in self.brokers)
            and (self.queues is None or queue_id in self.queues)
        )


def pushed(
    filters: Iterable[Any],
    limits: Limits,
    *,
    has_broker: bool = True,
    takes_tags: bool = False,
    has_exact_offsets: bool = False,
) -> tuple[Limits, list[Any]]:
    """Return the narrowed limits and the filters that Spark must still evaluate (pyspark.sql.datasource.Filter).
    `has_broker`: the source knows the broker's name; `takes_tags`: it selects messages by `Limits.tags`;
    `has_exact_offsets`: it yields no message outside of the offsets."""
    remaining = []
    for item in filters:
        with_tags = _narrow_tags(limits, item) if takes_tags else None
        narrowed = (with_tags, True) if with_tags is not None else _narrow(limits, item, has_broker)
        if narrowed is None:
            remaining.append(item)
            continue
        limits, is_exact = narrowed
        if not is_exact and not (has_exact_offsets and item.attribute[0] in _OFFSET_COLUMNS):
            remaining.append(item)
    return limits, remaining


def _narrow(limits: Limits, item: Any, has_broker: bool) -> tuple[Limits, bool] | None:
    """Return new limits and whether they express the filter exactly; None when they cannot express it."""
    kind = type(item).__name__
    path: tuple[str, ...] = getattr(item, "attribute", ())
    if len(path) != 1 or (path[0] == "brokerName" and not has_broker):
        return None
    column = path[0]
    if kind == "IsNotNull" and column in _NEVER_NULL:
        return limits, True
    if kind not in ("EqualTo", "In", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"):
        return None
    value = item.value
    if column in _QUEUE_COLUMNS and kind in ("EqualTo", "In"):
        return _narrow_queue(limits, column, frozenset(value) if kind == "In" else frozenset((value,))), True
    if kind == "In" or value is None:
        return None
    if column in _OFFSET_COLUMNS:
        low, high = _interval(kind, value)
        return replace(limits, min_offset=max(limits.min_offset, low), max_offset=min(limits.max_offset, high)), False
    if column in _PHYSICAL_COLUMNS:
        low, high = _interval(kind, value)
        return replace(
            limits, min_physical=max(limits.min_physical, low), max_physical=min(limits.max_physical, high)
        ), False
    if column in _TIME_COLUMNS and isinstance(value, datetime):
        # Stored times are whole ms: bounds are inclusive here, and Spark evaluates the filter again.
        low, high = _interval(kind.replace("Than", "ThanOrEqual").replace("OrEqualOrEqual", "OrEqual"), _to_ms(value))
        return replace(limits, min_ms=max(limits.min_ms, low), max_ms=min(limits.max_ms, high + 1)), False
    return None


def _narrow_tags(limits: Limits, item: Any) -> Limits | None:
    """Return new limits that express a condition on the column `tags` exactly; None when they cannot."""
    kind = type(item).__name__
    if kind not in ("EqualTo", "In") or item.attribute != ("tags",):
        return None
    values = item.value if kind == "In" else (item.value,)
    if len(values) > MAX_TAGS or not all(isinstance(value, str) and _is_plain(value) for value in values):
        return None
    tags = frozenset(values)
    return replace(limits, tags=tags if limits.tags is None else limits.tags & tags)


def _is_plain(tag: str) -> bool:
    """Return whether an expression can name this tag: it is split at "||", and both Java and Python trim its tags."""
    is_trimmed = tag != "" and tag == tag.strip() and tag[0] > " " and tag[-1] > " "
    return is_trimmed and tag != SUB_ALL and "|" not in tag


def _narrow_queue(limits: Limits, column: str, values: frozenset[Any]) -> Limits:
    kind = _QUEUE_COLUMNS[column]
    if kind == "topic":
        return replace(limits, topics=values if limits.topics is None else limits.topics & values)
    if kind == "broker":
        return replace(limits, brokers=values if limits.brokers is None else limits.brokers & values)
    return replace(limits, queues=values if limits.queues is None else limits.queues & values)


def _interval(kind: str, value: int) -> tuple[int, int]:
    if kind == "EqualTo":
        return value, value
    if kind.startswith("Greater"):
        return value + (0 if kind.endswith("OrEqual") else 1), MAX_OFFSET
    return 0, value - (0 if kind.endswith("OrEqual") else 1)


def _to_ms(value: datetime) -> int:
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)
