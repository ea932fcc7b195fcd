"""A table of the topic Orders, and a topic with what is large in it."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SERVER = {"nameServer": os.environ["NAME_SERVER"]}


@dp.table
def orders() -> DataFrame:
    source = {**SERVER, "subscribe": "Orders", "startingOffsets": "earliest"}
    rows = SparkSession.active().readStream.format("rocketmq").options(**source).load()
    return rows.select("keys", F.decode("body", "UTF-8").alias("text"))


dp.create_sink("large_orders", "rocketmq", {**SERVER, "topic": "LargeOrders"})


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    amount = F.get_json_object("text", "$.amount").cast("double")
    rows = SparkSession.active().readStream.table("orders")
    return rows.where(amount >= 40).select(F.col("text").alias("body"), "keys")
