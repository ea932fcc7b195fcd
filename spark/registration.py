"""Registration with a Spark session."""

from __future__ import annotations

import os
import sys
from typing import Any

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_WORKER_PYTHON = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def register(spark: Any) -> None:
    """Register the formats `rocketmq` and `rocketmq-store` with a session, and let their option pushDownFilters
    work: Spark disables filter push-down for Python sources by default."""
    from triomq.spark.source import RocketMQSource
    from triomq.spark.store_source import StoreSource

    spark.conf.set(PUSHDOWN, "true")
    use_this_python(spark)
    spark.dataSource.register(RocketMQSource)
    spark.dataSource.register(StoreSource)


def context_of(spark: Any) -> Any:
    """Return the SparkContext of a session; None for one of Spark Connect, which has no JVM in this process."""
    return getattr(spark, "sparkContext", None)


def use_this_python(spark: Any) -> None:
    """Make the workers of a local session run this interpreter when nothing else is configured.

    Without PYSPARK_PYTHON Spark starts the first `python3` on the PATH, where triomq is not installed when the program
    runs in a virtual environment that is not activated. On a cluster the path of this interpreter means nothing, so the
    session is left alone there.
    """
    if any(name in os.environ for name in _WORKER_PYTHON):
        return
    context = context_of(spark)
    if context is None:  # the server of Spark Connect chooses
        return
    if context.master.partition("[")[0] == "local" and not context.getConf().contains("spark.pyspark.python"):
        context.pythonExec = sys.executable
