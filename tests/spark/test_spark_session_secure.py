"""Source and sink against a broker that requires TLS and client certificates, and checks every account."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark

OWNER = ("sparkOwner", "secretOfTheOwner")
READER = ("sparkReader", "secretOfTheReader")
TOPIC = "SecureOrders"
KEY_PASSWORD = "secretOfTheKey"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The options of a connection with full permissions."""
    from interop_cluster import Cluster, wait_until
    from interop_guard import certificate, write_accounts

    directory = tmp_path_factory.mktemp("secure")
    write_accounts(directory, OWNER, READER, {TOPIC: "SUB"}, {"SPARK_SOURCE": "SUB"})
    server_key, server = certificate(directory, "server")
    client_key, client = certificate(directory, "client", password=KEY_PASSWORD)
    tls = {"tls.test.mode.enable": "false", "tls.server.keyPath": server_key, "tls.server.certPath": server}
    settings = {
        **{name: str(value) for name, value in tls.items()},
        "tls.server.mode": "enforcing",
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": str(client),
        "aclEnable": "true",
        "rocketmqHome": str(directory),
    }
    cluster = Cluster("triomq", directory / "cluster", settings)
    with (directory / "cluster" / "namesrv" / "namesrv.conf").open("a") as conf:
        conf.writelines(f"{name}={value}\n" for name, value in tls.items())
    try:
        cluster.start()
        wait_until(lambda: cluster.route("TBW102"), 20, "the broker is registered")
        yield {
            "nameServer": cluster.namesrv_address,
            "accessKey": OWNER[0],
            "secretKey": OWNER[1],
            "tls.enable": "true",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": str(server),
            "tls.client.certPath": str(client),
            "tls.client.keyPath": str(client_key),
            "tls.client.keyPassword": KEY_PASSWORD,
            "requestTimeoutMs": "20000",
        }
    finally:
        cluster.stop()


def write(spark: Any, options: dict[str, str], topic: str = TOPIC) -> None:
    rows = spark.range(0, 40, numPartitions=1).selectExpr("cast(id as string) as body")
    rows.write.format("rocketmq").options(**options, topic=topic, writeId="once").mode("append").save()


def test_rows_travel_both_ways_over_tls_with_an_account(spark: Any, secure: dict[str, str], tmp_path: Path) -> None:
    for _ in range(2):  # the second run compares with what is there
        write(spark, secure)
    reader = {**secure, "accessKey": READER[0], "secretKey": READER[1], "subscribe": TOPIC}
    stream = spark.readStream.format("rocketmq").options(**reader, startingOffsets="earliest").load()
    query = (
        stream.selectExpr("body", "'seen' as tags")
        .writeStream.format("rocketmq")
        .options(**secure, topic="SecureCopies", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    table = spark.read.format("rocketmq").options(**secure, subscribe="SecureCopies").load()
    found = [(int(row["body"]), row["tags"]) for row in table.select("body", "tags").collect()]
    assert sorted(found) == [(number, "seen") for number in range(40)]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"secretKey": "wrong"}, r"Check signature failed for accessKey=sparkOwner"),
        ({"accessKey": "nobodyAtAll"}, r"No acl config for nobodyAtAll"),
        ({"accessKey": "", "secretKey": ""}, r"No accessKey is configured"),
        (
            {"accessKey": READER[0], "secretKey": READER[1], "consumerGroup": "Others"},
            r"No default permission",
        ),
        ({"tls.enable": "false"}, r"failed: \w+"),
        ({"tls.client.trustCertPath": ""}, r"CERTIFICATE_VERIFY_FAILED"),
        ({"tls.client.certPath": "", "tls.client.keyPath": ""}, r"failed: \w+"),
    ],
    ids=["secret", "unknown", "none", "group", "plain", "trust", "certificate"],
)
def test_what_is_not_allowed_is_said_in_one_line(secure: dict[str, str], changed: dict[str, str], message: str) -> None:
    """The request is one of a task, without a Spark job for each."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    from triomq.spark.errors import BrokerError
    from triomq.spark.options import source_options
    from triomq.spark.source import BatchReader

    options = {**secure, "subscribe": TOPIC, "retryTimeoutMs": "0", **changed}
    reader = BatchReader(source_options(options, streaming=False), StructType([StructField("body", BinaryType())]))
    with pytest.raises(BrokerError) as raised:
        for part in reader.partitions():
            list(reader.read(part))
    assert re.search(message, str(raised.value)) and "\n" not in str(raised.value)
    assert OWNER[1] not in str(raised.value)


def test_an_account_that_may_not_write_is_told_so(spark: Any, secure: dict[str, str]) -> None:
    options = {**secure, "accessKey": READER[0], "secretKey": READER[1], "retries": "0"}
    with pytest.raises(Exception, match="No default permission"):
        write(spark, options)
