"""Orders from a producer to tables, an archive, another cluster and a report: the whole pipeline in one program.

python examples/pipeline/run.py [FOLDER]

It needs Java 17 and the extras `spark` and `tables`. Two clusters run inside of it; with clusters of your own only
the addresses differ. FOLDER (by default a temporary one) gets what is made, with report.html and revenue.svg.
"""

import json
import random
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import triomq.spark
from triomq.blocking import Admin, Message, Producer
from triomq.broker.embedded import LocalCluster
from triomq.spark.jobs import main as mqpipeline
from triomq.spark.jobs.report import lines

COUNT = 3000
ORDER = "id long, product string, amount double, at timestamp"
MINUTE = "minute timestamp, product string, revenue double, orders long"


def send_orders(name_server: str) -> int:
    """Send orders of half an hour, and a few that are no orders. Return how many are good."""
    rng = random.Random(1)
    with Producer("shop", name_server=name_server) as producer:
        for first in range(0, COUNT, 100):
            orders = []
            for number in range(first, first + 100):
                minute, second = divmod(number * 30 * 60 // COUNT, 60)
                order = {"id": number, "product": rng.choice(["tea", "coffee", "cake"]), "amount": rng.randint(1, 50)}
                body = json.dumps({**order, "at": f"2026-03-02T12:{minute:02}:{second:02}Z"})
                orders.append(Message("Orders", b"?" if number % 500 == 7 else body.encode(), keys=f"order-{number}"))
            producer.send_batch(orders)
    return COUNT - COUNT // 500


def orders_of(rows: DataFrame) -> DataFrame:
    """Clean: return the bodies that are orders, as columns."""
    order = F.from_json(F.decode("body", "UTF-8"), ORDER)
    return rows.select(order.alias("order")).where("order.id is not null").select("order.*")


def add_up(spark: SparkSession, name_server: str, folder: Path) -> None:
    """Read the topic as a stream, add up revenue by minute and product, and write that to the topic Revenue."""
    source = {"nameServer": name_server, "subscribe": "Orders", "startingOffsets": "earliest"}
    orders = spark.readStream.format("rocketmq").options(**source).load()
    minutes = (
        orders_of(orders)
        .withWatermark("at", "1 minute")
        .groupBy(F.window("at", "1 minute").alias("window"), "product")
        .agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))
        .select(F.col("window.start").alias("minute"), "product", "revenue", "orders")
    )
    out = minutes.select(
        F.to_json(F.struct("*")).alias("body"),
        F.col("product").alias("tags"),
        F.concat_ws("-", F.date_format("minute", "HH:mm"), "product").alias("keys"),
    )
    query = (
        out.writeStream.format("rocketmq")
        .options(nameServer=name_server, topic="Revenue", checkpointLocation=f"{folder}/checkpoint")
        .outputMode("append")  # a minute is written when it is over
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def job(*words: str) -> None:
    """Run a job of `mqpipeline`, as on the command line."""
    print("$ mqpipeline", *words)
    code = mqpipeline.run([*words, "--quiet"])
    if code:
        sys.exit(f"mqpipeline {words[0]} ended with {code}")


def contents(spark: SparkSession, name_server: str, topic: str) -> list[tuple[str, bytes]]:
    """Return keys and bodies of all messages of a topic, sorted."""
    rows = spark.read.format("rocketmq").options(nameServer=name_server, subscribe=topic).load()
    return sorted((row["keys"], bytes(row["body"])) for row in rows.select("keys", "body").collect())


def draw_revenue(spark: SparkSession, name_server: str, folder: Path) -> None:
    """Draw the topic Revenue, one line a product."""
    rows = spark.read.format("rocketmq").options(nameServer=name_server, subscribe="Revenue").load()
    minutes = rows.select(F.from_json(F.decode("body", "UTF-8"), MINUTE).alias("m")).select("m.*").orderBy("minute")
    series: dict[str, list[tuple[float, float]]] = {}
    for row in minutes.collect():
        series.setdefault(row["product"], []).append((row["minute"].timestamp(), row["revenue"]))
    drawing = lines(series, "revenue a minute, UTC").replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    (folder / "revenue.svg").write_text(drawing, "utf-8")


def run(spark: SparkSession, folder: Path) -> None:
    """Run everything in a folder that is empty."""
    triomq.spark.register(spark)
    with LocalCluster(cluster_name="shop") as shop, LocalCluster(cluster_name="backup") as backup:
        for cluster, topics in ((shop, ["Orders", "Revenue"]), (backup, ["Orders"])):
            with Admin(name_server=cluster.name_server) as admin:
                for topic in topics:
                    admin.create_topic(topic, read_queues=2, write_queues=2)
        good = send_orders(shop.name_server)
        print(f"{COUNT} messages sent, {good} of them orders")
        add_up(spark, shop.name_server, folder)
        revenue = contents(spark, shop.name_server, "Revenue")
        print(f"{len(revenue)} rows of revenue by minute and product")
        draw_revenue(spark, shop.name_server, folder)
        here = ("-n", shop.name_server)
        table = ("--to", f"{folder}/orders", "--format", "delta", "--value", "json", "--once")
        job("table", *here, "--topic", "Orders", *table)
        rows = len(spark.read.parquet(f"{folder}/orders").collect())  # Delta's files, as nothing was ever removed
        print(f"{rows} rows in the table")
        job("archive", *here, "--topics", "Orders", "--to", f"{folder}/archive")
        job("replay", "-n", backup.name_server, "--from", f"{folder}/archive")
        same = contents(spark, shop.name_server, "Orders") == contents(spark, backup.name_server, "Orders")
        print("both clusters have the same orders" if same else "the clusters differ")
        job("quality", *here, "--html", f"{folder}/report.html")
        if not same or rows != good:
            sys.exit(1)
    print(f"{folder}/report.html and {folder}/revenue.svg are for your browser")


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="pipeline-"))
    folder.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR")
    run(builder.getOrCreate(), folder.absolute())


if __name__ == "__main__":
    main()
