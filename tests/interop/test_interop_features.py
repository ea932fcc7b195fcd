"""What RocketMQ is chosen for besides sending and receiving: transactions, delays, requests, SQL92, traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from interop_cluster import Cluster
from interop_driver_set import DriverSet
from interop_drivers import Driver
from interop_processes import wait_until
from interop_texts import assert_bodies, line_of, lines_of, numbered


@pytest.mark.parametrize("kind", ["java4", "java5", "go", "cpp"])
def test_transactions_commit_roll_back_and_are_asked_for(
    cluster: Cluster, drivers: DriverSet, java4: Driver, tmp_path: Path, kind: str
) -> None:
    topic = cluster.create_topic("Transaction", queues=2)
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    file = numbered(tmp_path, 8)
    received = java4.receive(**common, group=f"{topic}_group")
    sending = drivers(kind).begin(
        "transaction",
        **common,
        group=f"{topic}_producer",
        file=file,
        decide="commit,rollback,unknown,unknown",
        check="rollback,rollback,commit,rollback",
    )
    sending.wait_event("all_sent")
    assert {event["status"] for event in sending.of("sent")} == {"SEND_OK"}
    received.wait_for(lambda: {line_of(m) for m in received.messages} >= {0, 4}, "the committed ones", 10)
    sending.wait_for(
        lambda: {event["line"] for event in sending.of("checked")} >= {2, 3, 6, 7},
        "the broker asks about the undecided",
    )
    received.wait_messages(4)
    received.stop()
    sending.stop()
    assert sorted(line_of(m) for m in received.messages) == [0, 2, 4, 6]
    for message in received.messages:
        assert message["topic"] == topic
        assert message["body"] == lines_of(file)[line_of(message)]
        assert message["properties"]["PGROUP"] == f"{topic}_producer"


@pytest.mark.parametrize("kind", ["java4", "java5", "go", "node", "python"])
def test_delayed_messages_come_when_they_are_due(
    cluster: Cluster, drivers: DriverSet, tmp_path: Path, kind: str
) -> None:
    topic = cluster.create_topic("Delay")
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    file = numbered(tmp_path, 8)
    received = drivers(kind).receive(**common, group=f"{topic}_group")
    by_queue = {} if kind == "node" else {"order_by_queue": 4}  # that client chooses queues itself
    sent = drivers(kind).run("send-lines", **common, file=file, delay_level=1, tags="a", **by_queue)[:-1]
    assert {event["status"] for event in sent} == {"SEND_OK"}
    received.wait_messages(8)
    received.stop()
    assert_bodies(lines_of(file), received.messages)
    for message in received.messages:
        assert kind == "node" or message["queue"] == line_of(message) % 4
        assert message["tags"] == "a"
        assert 900 <= message["store_ms"] - message["born_ms"] < 5000


@pytest.mark.parametrize(
    ("asks", "answers"), [("java4", "java4"), ("java5", "java4"), ("java4", "java5"), ("java4", "go")]
)
def test_requests_get_their_replies(
    cluster: Cluster, drivers: DriverSet, tmp_path: Path, asks: str, answers: str
) -> None:
    topic = cluster.create_topic("Request")
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    file = numbered(tmp_path, 5)
    answering = drivers(answers).begin("reply", **common, group=f"{topic}_replier", consumer_group=f"{topic}_group")
    answering.wait_event("started")
    replies = drivers(asks).run("request", **common, group=f"{topic}_asker", file=file)[:-1]
    assert [reply["body"] for reply in replies] == [b"re: " + line for line in lines_of(file)]
    # Who asks leaves with the last reply, and may do so before it has confirmed that one.
    answering.wait_event("replied", 4)
    answering.stop()


@pytest.mark.parametrize("kind", ["java4", "java5", "go", "python"])
def test_sql92_selects(cluster: Cluster, drivers: DriverSet, java4: Driver, tmp_path: Path, kind: str) -> None:
    topic = cluster.create_topic("Sql")
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    file = numbered(tmp_path, 40)
    expression = "(line BETWEEN 10 AND 19 OR line = 33) AND TAGS IS NOT NULL AND TAGS <> 'b'"
    received = drivers(kind).receive(**common, group=f"{topic}_group", sql=expression)
    java4.run("send-lines", **common, file=file, tags="a,b")
    wanted = [n for n in (*range(10, 20), 33) if n % 2 == 0]
    received.wait_messages(len(wanted))
    java4.run("send-lines", **common, file=file, tags="a,b")
    received.wait_messages(2 * len(wanted))
    received.stop()
    assert sorted(line_of(m) for m in received.messages) == sorted(wanted * 2)


def test_a_wrong_sql92_expression_is_refused_by_name(cluster: Cluster, java4: Driver) -> None:
    topic = cluster.create_topic("SqlWrong")
    consumer = java4.begin(
        "receive", namesrv=cluster.namesrv_address, topic=topic, group=f"{topic}_group", sql="line > > 5"
    )
    wait_until(lambda: consumer.is_over, 20, "the consumer's start fails")
    assert "CODE: 23" in consumer.events[-1]["error"]  # SUBSCRIPTION_PARSE_FAILED


@pytest.mark.parametrize("kind", ["java4", "go"])
def test_traces_are_messages_too(
    cluster: Cluster, drivers: DriverSet, java4: Driver, tmp_path: Path, kind: str
) -> None:
    topic = cluster.create_topic("Traced", queues=1)
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    # A producer that closes right after its last send may lose that message's trace, hence the pause.
    sent = drivers(kind).run("send-lines", **common, file=numbered(tmp_path, 2), trace=True, pause_ms=500)[:-1]
    received = drivers(kind).receive(**common, group=f"{topic}_group", trace=True)
    received.wait_messages(2)
    trace = {"namesrv": cluster.namesrv_address, "topic": "RMQ_SYS_TRACE_TOPIC"}
    found: list[str] = []

    def is_traced() -> bool:
        looked = java4.begin("query-key", **trace, key=sent[0]["msg_id"])
        wait_until(lambda: looked.is_over, 20, "the query is answered")
        found[:] = [event["body"].decode() for event in looked.messages]
        return any("Pub" in body for body in found) and any("SubAfter" in body for body in found)

    wait_until(is_traced, 20, "both ends are traced")
    received.stop()
    assert any(topic in body for body in found)
