"""Let the first message of each key pass, and drop what comes with the same key within a day: a stream with state.

python examples/pipeline/distinct.py

Producers that try again send messages twice. `transformWithState` keeps one value for each key, which Spark forgets a
day later, so the state has a bound. It needs Java 17, the extra `spark`, and pandas (Spark's own demand).
"""

import tempfile
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import triomq.spark
from triomq.blocking import Message, Producer
from triomq.broker.embedded import LocalCluster

DAY_MS = 24 * 60 * 60 * 1000
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class First(StatefulProcessor):
    """Yields the first row of each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "at long", ttlDurationMs=DAY_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        if not self._seen.exists():
            self._seen.update((timerValues.getCurrentProcessingTimeInMs(),))
            yield next(rows)

    def close(self) -> None:
        """Spark closes the state."""


def distinct(spark: SparkSession, name_server: str, folder: str) -> None:
    """Read the topic Payments as far as it goes now, and send what is new to the topic PaymentsOnce."""
    payments = (
        spark.readStream.format("rocketmq")
        .options(nameServer=name_server, subscribe="Payments", startingOffsets="earliest")
        .load()
        .select("keys", "body")
    )
    once = payments.groupBy("keys").transformWithState(
        First(), outputStructType="keys string, body binary", outputMode="Append", timeMode="ProcessingTime"
    )
    query = (
        once.writeStream.format("rocketmq")
        .options(nameServer=name_server, topic="PaymentsOnce", checkpointLocation=folder)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def run(spark: SparkSession, folder: str) -> None:
    """Send payments, some of them twice, also between two runs of the stream."""
    triomq.spark.register(spark)
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    # State that is forgotten by the clock asks for batches without rows, and availableNow would have no end.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    with LocalCluster() as cluster, Producer("bank", name_server=cluster.name_server) as producer:
        for numbers in ([1, 2, 3, 2], [3, 4, 1]):
            producer.send_batch([Message("Payments", b"%d" % number, keys=f"payment-{number}") for number in numbers])
            distinct(spark, cluster.name_server, folder)
        where = {"nameServer": cluster.name_server, "subscribe": "PaymentsOnce"}
        rows = spark.read.format("rocketmq").options(**where).load().select("keys").collect()
        print("7 payments sent; passed on:", ", ".join(sorted(row["keys"] for row in rows)))


def main() -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    with tempfile.TemporaryDirectory(prefix="distinct-") as folder:
        run(builder.getOrCreate(), folder)


if __name__ == "__main__":
    main()
