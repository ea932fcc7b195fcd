"""RocketMQ topics and store directories in Spark: `triomq.spark.register(spark)`, then the formats `rocketmq` and
`rocketmq-store`. Nothing else is imported before these functions are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def register(spark: Any) -> None:
    """See `triomq.spark.registration.register`."""
    from triomq.spark import registration

    registration.register(spark)


def count(**options: Any) -> int:
    """See `triomq.spark.counting.count`."""
    from triomq.spark import counting

    return counting.count(**options)


def lag(progress: Mapping[str, Any] | None, **options: Any) -> dict[str, dict[str, dict[str, int]]]:
    """See `triomq.spark.stream_lag.lag`."""
    from triomq.spark import stream_lag

    return stream_lag.lag(progress, **options)
