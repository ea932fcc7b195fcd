"""Each line of real texts, from one client to another: nothing lost, nothing changed, in order within each queue."""

from __future__ import annotations

from pathlib import Path

import pytest
from interop_cluster import Cluster
from interop_driver_set import DriverSet
from interop_texts import (
    assert_arrival_order,
    assert_bodies,
    assert_offsets,
    assert_same_as_sent,
    by_queue,
    line_of,
    lines_of,
)

PAIRS = [
    ("java4", "go", "push"),
    ("go", "java4", "orderly"),
    ("java5", "java4", "push"),
    ("java4", "java5", "orderly"),
    ("java4-binary", "java4-binary", "push"),
    ("java4", "java4", "lite"),
    ("python", "java4", "push"),
    ("java4", "python", "push"),
    ("python", "python", "orderly"),
]


@pytest.mark.parametrize(("sender", "receiver", "mode"), PAIRS, ids=[f"{s}-to-{r}-{m}" for s, r, m in PAIRS])
def test_each_line_arrives_unchanged_and_in_order(
    cluster: Cluster, drivers: DriverSet, text: Path, sender: str, receiver: str, mode: str
) -> None:
    topic = cluster.create_topic("Lines")
    to_all = {"namesrv": cluster.namesrv_address, "topic": topic}
    lines = lines_of(text)
    producer, consumer = drivers(sender), drivers(receiver)
    received = consumer.receive(**to_all, group=f"{topic}_group", mode=mode)
    sent = producer.run("send-lines", **to_all, file=text, order_by_queue=4, tags="a,b,c", keys="row")[:-1]
    messages = received.wait_messages(len(lines))
    received.stop()
    messages = received.messages
    assert_bodies(lines, messages)
    assert_offsets(list(messages))
    if mode == "orderly":
        assert_arrival_order(messages)
    assert_same_as_sent(sent, messages)
    assert set(by_queue(messages)) == {0, 1, 2, 3}
    for message in messages:
        assert message["keys"] == f"row-{line_of(message)}"
        assert message["tags"] == "abc"[line_of(message) % 3]
        assert message["reconsume_times"] == 0


@pytest.mark.parametrize(("sender", "receiver"), [("node", "java4"), ("java4", "node")])
def test_node_clients_take_part(
    cluster: Cluster, drivers: DriverSet, short_text: Path, sender: str, receiver: str
) -> None:
    """The Node client chooses queues itself and consumes one message at a time."""
    topic = cluster.create_topic("Node", queues=2)
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    lines = lines_of(short_text)
    received = drivers(receiver).receive(**common, group=f"{topic}_group", tags="a || b")
    drivers(sender).run("send-lines", **common, file=short_text, tags="a,b", keys="row")
    received.wait_messages(len(lines))
    received.stop()
    assert_bodies(lines, received.messages)
    assert_offsets(list(received.messages))
    for message in received.messages:
        assert message["keys"] == f"row-{line_of(message)}"
        assert message["tags"] == "ab"[line_of(message) % 2]


@pytest.mark.parametrize(("sender", "receiver", "mode"), [("cpp", "java4", "orderly"), ("go", "cpp", "orderly")])
def test_cpp_clients_take_part(
    cluster: Cluster, drivers: DriverSet, tmp_path: Path, text: Path, sender: str, receiver: str, mode: str
) -> None:
    """The C++ client takes bodies as C strings and does not report the queue that it chose."""
    topic = cluster.create_topic("Cpp")
    to_all = {"namesrv": cluster.namesrv_address, "topic": topic}
    lines = [line for line in lines_of(text) if b"\0" not in line]
    file = tmp_path / "lines.txt"
    file.write_bytes(b"".join(lines))
    received = drivers(receiver).receive(**to_all, group=f"{topic}_group", mode=mode, tags="a || b")
    sent = drivers(sender).run("send-lines", **to_all, file=file, order_by_queue=4, tags="a,b", keys="row")[:-1]
    received.wait_messages(len(lines))
    received.stop()
    messages = received.messages
    assert_bodies(lines, messages)
    assert_arrival_order(messages)
    assert_offsets(list(messages))
    told = {event["line"]: (event["status"], event["queue_offset"], event["msg_id"]) for event in sent}
    for message in messages:
        number = line_of(message)
        assert told[number] == ("SEND_OK", message["queue_offset"], message["msg_id"])
        assert message["keys"] == f"row-{number}"
        assert message["tags"] == "ab"[number % 2]
