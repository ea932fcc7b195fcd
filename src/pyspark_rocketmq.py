"""Found by Spark, which looks for modules called `pyspark_*`: the format `rocketmq` without registration.

The option pushDownFilters needs a setting of the session, which `triomq.spark.register(spark)` makes.
"""

from triomq.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
