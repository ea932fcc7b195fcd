"""Unmodified Java and Go clients at both ends of a Spark stream, over TrioMQ's broker and over Apache's."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LINES = 60


@pytest.fixture(params=["triomq", "apache"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A cluster of each kind; TrioMQ's is the one that all tests share."""
    from apache_peer import find_peer
    from interop_cluster import running_cluster

    if request.param == "triomq":
        yield request.getfixturevalue("cluster")
        return
    if find_peer() is None:
        pytest.skip("Apache's daemons: no Java or no Maven")
    with running_cluster("apache", tmp_path / "apache") as running:
        yield running


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Driver processes of the real clients."""
    from interop_builds import ToolMissing, go_driver, java_class_path, need_java
    from interop_drivers import Driver

    directory = tmp_path_factory.mktemp("clients")
    try:
        java = [
            need_java(),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dfile.encoding=UTF-8",
            "-cp",
            java_class_path("client4"),
            "interop.Main",
            "serve",
        ]
        go = [str(go_driver()), "serve"]
    except ToolMissing as missing:
        pytest.skip(f"real clients: {missing}")
    drivers = {"java": Driver("java", java, directory), "go": Driver("go", go, directory)}
    yield drivers
    for driver in drivers.values():
        driver.end(signal.SIGKILL)


def test_java_and_go_feed_spark_and_java_receives(
    spark: Any, served: Any, clients: dict[str, Any], tmp_path: Path
) -> None:
    source, target = served.create_topic("ClientsFrom", 4), served.create_topic("ClientsTo", 4)
    sent: dict[str, bytes] = {}
    for name, driver in clients.items():
        file = tmp_path / f"{name}.txt"
        file.write_text("".join(f"{name} line {number}: ξ {'x' * number}\n" for number in range(LINES)))
        lines = file.read_bytes().splitlines(keepends=True)
        sent |= {f"{name}-{number}": line for number, line in enumerate(lines)}
        told = driver.run(
            "send-lines", namesrv=served.namesrv_address, topic=source, file=file, keys=name, tags="even,odd"
        )
        assert {event["status"] for event in told[:-1]} == {"SEND_OK"}

    options = {"nameServer": served.namesrv_address, "subscribe": source}
    batch = spark.read.format("rocketmq").options(**options).load().select("keys", "body", "tags", "brokerName")
    rows = batch.collect()
    assert {row["keys"]: bytes(row["body"]) for row in rows} == sent and len(rows) == len(sent)
    assert {row["tags"] for row in rows} == {"even", "odd"} and {row["brokerName"] for row in rows} == {"broker-a"}
    odd = spark.read.format("rocketmq").options(**options, filter="odd").load()
    assert odd.count() == LINES

    received = clients["java"].receive(namesrv=served.namesrv_address, topic=target, group=f"{target}_group")
    stream = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest").load()
    query = (
        stream.selectExpr("body", "keys", "tags", "map('python', '🐍', 'from', brokerName) as properties")
        .writeStream.format("rocketmq")
        .options(nameServer=served.namesrv_address, topic=target, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    received.wait_messages(len(sent))
    received.stop()
    assert {event["keys"]: event["body"] for event in received.messages} == sent
    assert len(received.messages) == len(sent)
    for event in received.messages:
        number = int(event["keys"].rpartition("-")[2])
        assert event["tags"] == ("even", "odd")[number % 2]
        assert (event["properties"]["python"], event["properties"]["from"]) == ("🐍", "broker-a")
