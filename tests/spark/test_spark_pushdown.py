"""Several conditions on one column: together they allow what each of them allows, in any order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from triomq.spark.pushdown import MAX_OFFSET, Limits, pushed

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


@pytest.mark.parametrize(
    ("column", "field", "values"),
    [
        ("topic", "topics", ("T", "U", "V", "W")),
        ("brokerName", "brokers", ("a", "b", "c", "d")),
        ("queueId", "queues", (0, 1, 2, 3)),
        ("partition", "queues", (0, 1, 2, 3)),
        ("tags", "tags", ("x", "y", "z", "zz")),
    ],
)
def test_sets_of_values_of_one_column_are_intersected(column: str, field: str, values: tuple[str | int, ...]) -> None:
    first, second, third, fourth = values
    conditions = (In((column,), (first, second, third)), In((column,), (second, third, fourth)))
    for order in permutations((*conditions, EqualTo((column,), third))):
        limits, left = pushed(order, Limits(), takes_tags=True)
        assert (getattr(limits, field), left) == ({third}, [])
    for order in permutations(conditions):
        assert getattr(pushed(order, Limits(), takes_tags=True)[0], field) == {second, third}
    assert getattr(pushed([*conditions, EqualTo((column,), first)], Limits(), takes_tags=True)[0], field) == set()


@pytest.mark.parametrize(
    ("column", "field"), [("queueOffset", "offset"), ("offset", "offset"), ("physicalOffset", "physical")]
)
def test_bounds_of_one_column_are_the_narrowest(column: str, field: str) -> None:
    conditions: list[Filter] = [
        GreaterThan((column,), 9),
        GreaterThanOrEqual((column,), 7),
        LessThan((column,), 20),
        LessThanOrEqual((column,), 22),
    ]
    for order in permutations(conditions):
        limits, _ = pushed(order, Limits())
        assert (getattr(limits, f"min_{field}"), getattr(limits, f"max_{field}")) == (10, 19)
    limits, _ = pushed([EqualTo((column,), 5), *conditions], Limits())
    assert (getattr(limits, f"min_{field}"), getattr(limits, f"max_{field}")) == (10, 5), "nothing is in both"


def test_bounds_of_times_are_the_narrowest() -> None:
    conditions: list[Filter] = [
        GreaterThan(("storeTimestamp",), NOON),
        GreaterThanOrEqual(("timestamp",), NOON - timedelta(hours=1)),
        LessThan(("storeTimestamp",), NOON + timedelta(hours=1)),
        LessThanOrEqual(("timestamp",), NOON + timedelta(hours=2)),
    ]
    for order in permutations(conditions):
        limits, left = pushed(order, Limits())
        assert limits.min_ms <= NOON_MS + 1, "no message of the next millisecond is left out"
        assert limits.min_ms >= NOON_MS
        assert NOON_MS + 3_600_000 - 1 <= limits.max_ms <= NOON_MS + 3_600_001
        assert left == list(order), "Spark evaluates them again"


def test_a_column_without_a_condition_allows_everything() -> None:
    limits, _ = pushed([EqualTo(("topic",), "T")], Limits())
    assert limits == Limits(topics=frozenset({"T"}))
    assert (limits.max_offset, limits.max_ms) == (MAX_OFFSET, MAX_OFFSET)
    assert [limits.allows(topic, "a", 0) for topic in ("T", "U")] == [True, False]
    limits, _ = pushed([EqualTo(("brokerName",), "a"), EqualTo(("queueId",), 0)], Limits())
    assert [limits.allows("T", *queue) for queue in (("a", 0), ("b", 0), ("a", 1))] == [True, False, False]
