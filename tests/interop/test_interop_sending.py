"""The other ways to send: async, oneway, batch, compressed; and what the broker must not change."""

from __future__ import annotations

from pathlib import Path

import pytest
from interop_cluster import Cluster
from interop_driver_set import DriverSet
from interop_drivers import Driver
from interop_texts import assert_arrival_order, assert_bodies, assert_offsets, by_queue, line_of, lines_of, numbered


@pytest.mark.parametrize(
    ("sender", "receiver"), [("java4", "go"), ("go", "java5"), ("java5", "python"), ("python", "java4")]
)
def test_batches_arrive_as_single_messages(
    cluster: Cluster, drivers: DriverSet, text: Path, sender: str, receiver: str
) -> None:
    topic = cluster.create_topic("Batch")
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    lines = lines_of(text)
    sent = drivers(sender).run("send-lines", **common, file=text, mode="batch", batch_size=50)[:-1]
    assert {event["status"] for event in sent} == {"SEND_OK"}
    received = drivers(receiver).receive(**common, group=f"{topic}_group", expect=len(lines))
    received.wait_done()
    messages = received.messages
    assert_bodies(lines, messages)
    assert_offsets(list(messages))
    if sender != "java5":  # client 5 gives an id to the batch only
        assert len({message["msg_id"] for message in messages}) == len(lines)
    first = {event["line"]: event for event in sent}
    for message in messages:
        batch, place = divmod(line_of(message), 50)
        assert message["queue"] == first[batch * 50]["queue"]
        assert message["queue_offset"] == first[batch * 50]["queue_offset"] + place


@pytest.mark.parametrize("mode", ["async", "oneway"])
@pytest.mark.parametrize("sender", ["java4", "go", "python"])
def test_nothing_is_lost_without_waiting_for_answers(
    cluster: Cluster, drivers: DriverSet, java4: Driver, short_text: Path, sender: str, mode: str
) -> None:
    topic = cluster.create_topic("Async")
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    lines = lines_of(short_text)
    received = java4.receive(**common, group=f"{topic}_group", expect=len(lines), mode="orderly")
    drivers(sender).run("send-lines", **common, file=short_text, mode=mode, order_by_queue=4)
    received.wait_done()
    assert_bodies(lines, received.messages)
    assert {queue: len(messages) for queue, messages in by_queue(received.messages).items()} == {
        queue: len(range(queue, len(lines), 4)) for queue in range(4)
    }
    # With one client thread and one connection TrioMQ keeps the order; Apache's thread pool does not guarantee it.
    if mode == "oneway" and cluster.target == "triomq":
        assert_arrival_order(received.messages)


def test_a_topic_is_made_on_the_first_send(cluster: Cluster, java4: Driver, go: Driver, tmp_path: Path) -> None:
    topic = "AutoCreated"
    file = numbered(tmp_path, 12)
    sent = java4.run("send-lines", namesrv=cluster.namesrv_address, topic=topic, file=file)[:-1]
    assert len({event["queue"] for event in sent}) == 4  # the client's defaultTopicQueueNums
    assert sorted(data["brokerName"] for data in cluster.route(topic)["queueDatas"]) == ["broker-a"]
    assert [data["writeQueueNums"] for data in cluster.route(topic)["queueDatas"]] == [4]
    received = go.receive(namesrv=cluster.namesrv_address, topic=topic, group="auto_group", expect=12)
    received.wait_done()
    assert_bodies(lines_of(file), received.messages)


def test_large_bodies_arrive_compressed_or_not(
    cluster: Cluster, java4: Driver, java5: Driver, go: Driver, tmp_path: Path
) -> None:
    topic = cluster.create_topic("Large", queues=1)
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    file = tmp_path / "large.txt"
    file.write_bytes(b"".join(letter * size + b"\n" for letter, size in [(b"x", 100_000), (b"y", 3_900_000)]))
    lines = lines_of(file)
    for driver, compress_over in [(java4, 1024), (java5, 1024), (java4, 9_000_000), (go, None)]:
        sent = driver.run("send-lines", **common, file=file, compress_over=compress_over, timeout_ms=10_000)
        assert [event["status"] for event in sent[:-1]] == ["SEND_OK"] * 2
    for number, driver in enumerate((java4, go)):
        received = driver.receive(**common, group=f"{topic}_group_{number}", mode="orderly", expect=8)
        received.wait_done()
        assert [message["body"] for message in received.messages] == lines * 4
