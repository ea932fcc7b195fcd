"""Found by Spark, which looks for modules called `pyspark_*`: the format `rocketmq-store` without registration."""

from triomq.spark.store_source import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
