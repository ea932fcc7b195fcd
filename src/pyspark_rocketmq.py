"""Found by Spark, which looks for modules called `pyspark_*`: the format `rocketmq` without registration.

Filter push-down is off unless the option pushDownFilters asks for it, since it needs a setting of the session;
`triomq.spark.register(spark)` switches it on.
"""

from triomq.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
