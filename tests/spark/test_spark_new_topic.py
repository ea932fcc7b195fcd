"""The sink and a topic that does not exist yet, at two brokers: each creates its queues when the first row arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of a cluster with the brokers broker-a and broker-b, both of which create topics on demand."""
    from free_ports import free_port
    from interop_cluster import Daemon, running_cluster
    from interop_processes import wait_until

    from triomq.spark.cluster import Cluster
    from triomq.spark.options import ConnectionOptions

    directory = tmp_path_factory.mktemp("two-brokers")
    with running_cluster("triomq", directory) as cluster:
        first = directory / "broker" / "broker.conf"
        home = directory / "broker-b"
        home.mkdir()
        lines = [line for line in first.read_text().splitlines() if not line.startswith(("listenPort", "storePath"))]
        lines = [line.replace("brokerName=broker-a", "brokerName=broker-b") for line in lines]
        port = free_port()
        lines += [
            f"listenPort={port}",
            f"storePathRootDir={home / 'store'}",
            f"storePathCommitLog={home / 'store' / 'commitlog'}",
        ]
        (home / "broker.conf").write_text("\n".join(lines) + "\n")
        argv = [argument.replace(str(first), str(home / "broker.conf")) for argument in cluster.broker.argv]
        second = Daemon(argv, home, f"127.0.0.1:{port}")
        second.start()
        try:
            with Cluster(ConnectionOptions((cluster.namesrv_address,))) as brokers:
                wait_until(lambda: set(brokers.brokers()) == {"broker-a", "broker-b"}, 35, "both are registered")
            yield cluster.namesrv_address
        finally:
            second.stop()


class FakeTask:
    """The part of Spark's TaskContext that the sink uses."""

    def __init__(self, partition_id: int, batch_id: int) -> None:
        self.partition_id = partition_id
        self.batch_id = batch_id

    def partitionId(self) -> int:
        return self.partition_id

    def attemptNumber(self) -> int:
        return 0

    def getLocalProperty(self, name: str) -> str:
        return {"streaming.sql.batchId": str(self.batch_id), "sql.streaming.queryId": "query"}[name]


Write = Callable[[str, dict[int, list[bytes]], int], Any]


@pytest.fixture
def write(name_server: str, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Run the tasks of one micro-batch in turn, given the bodies of each partition. Return the writer and the reports
    of its tasks.
    """
    from triomq.spark import sink
    from triomq.spark.options import sink_options

    def run(topic: str, partitions: dict[int, list[bytes]], batch_id: int) -> Any:
        given = {"nameServer": name_server, "topic": topic, "retryTimeoutMs": "3000"}
        writer = sink.StreamWriter(sink_options(given), {"body": 0})
        reports = []
        for partition_id, bodies in partitions.items():
            task = FakeTask(partition_id, batch_id)
            monkeypatch.setattr(sink, "TaskContext", SimpleNamespace(get=lambda task=task: task))
            column = SimpleNamespace(to_pylist=lambda bodies=bodies: bodies)
            batch = SimpleNamespace(num_rows=len(bodies), column=lambda at, column=column: column)
            reports.append(writer.write(iter([batch])))
        return writer, reports

    return run


def wait_until_stored(name_server: str, topic: str, expected: list[bytes]) -> None:
    """Wait: a broker responds to the message that creates a topic before the name server knows the topic."""
    from interop_processes import wait_until
    from plain_rows import topic_rows

    from triomq.spark.errors import OptionError

    def bodies() -> list[bytes]:
        try:
            rows = topic_rows(SimpleNamespace(namesrv_address=name_server), {"body": "binary"}, subscribe=topic)
        except OptionError:
            return []  # no route yet
        return sorted(row["body"] for row in rows)

    wait_until(lambda: bodies() == expected, 10, f"{topic} holds {expected}")


def test_a_batch_whose_rows_all_went_to_one_broker_can_be_committed(name_server: str, write: Write) -> None:
    """Partition 4 begins at the second broker; the first one never receives a message of the topic."""
    writer, reports = write("OneSided", {4: [b"row"]}, 0)
    writer.commit(reports, 0)
    writer, reports = write("OneSided", {4: [b"next"]}, 1)
    writer.commit(reports, 1)
    wait_until_stored(name_server, "OneSided", [b"next", b"row"])


def test_a_task_creates_the_topic_at_the_broker_that_the_task_before_left_out(name_server: str, write: Write) -> None:
    """While the second task runs, the route of the topic names only the broker of the first task."""
    from interop_processes import wait_until

    from triomq.spark.cluster import Cluster
    from triomq.spark.options import ConnectionOptions
    from triomq.spark.outgoing import OutgoingMessage
    from triomq.spark.sending import Sender

    def message(body: bytes, broker_name: str) -> OutgoingMessage:
        return OutgoingMessage("BothSides", body, b"", 0, broker_name, None, 0, "")

    with Cluster(ConnectionOptions((name_server,), retry_timeout_ms=3000)) as early:
        sender = Sender(early, "g", batch_bytes=1024, retries=0, now_ms=lambda: 1, stored=None)
        sender.queues("BothSides")
        write("BothSides", {4: [b"at b"]}, 0)
        wait_until(lambda: early.find_route("BothSides") is not None, 10, "broker-b has registered the topic")
        sender.add(message(b"at a", "broker-a"))
        sender.flush()
    wait_until_stored(name_server, "BothSides", [b"at a", b"at b"])


def test_a_batch_that_is_run_again_finds_its_rows_in_a_topic_it_created(name_server: str, write: Write) -> None:
    """The first attempt created the topic at one broker, so only the beginnings that it stored show that its rows are
    its own. The second attempt has one row more.
    """
    write("Again", {4: [b"one", b"two"]}, 0)
    writer, reports = write("Again", {4: [b"one", b"two", b"three"]}, 0)
    assert [(report.sent, report.skipped) for report in reports] == [(1, 2)]
    writer.commit(reports, 0)
    wait_until_stored(name_server, "Again", [b"one", b"three", b"two"])
