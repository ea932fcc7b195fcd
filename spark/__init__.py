"""RocketMQ topics and store directories in Spark: `triomq.spark.register(spark)`, then the formats `rocketmq` and
`rocketmq-store`. Nothing else is imported before that call."""

from __future__ import annotations

from typing import Any


def register(spark: Any) -> None:
    """See `triomq.spark.registration.register`."""
    from triomq.spark import registration

    registration.register(spark)
