"""Registration with a Spark session."""

from __future__ import annotations

from typing import Any

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: Any) -> None:
    """Make the formats `rocketmq` and `rocketmq-store` known to a session, with filter push-down switched on for
    Python sources."""
    from triomq.spark.source import PushingRocketMQSource
    from triomq.spark.store_source import PushingStoreSource

    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(PushingRocketMQSource)
    spark.dataSource.register(PushingStoreSource)
