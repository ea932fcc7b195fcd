"""The Java client 5.3.3 in POP mode: the broker assigns its queues, and it acknowledges message by message."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import interop_wire as wire
import pytest
from apache5_peer import jars
from interop_cluster import Cluster
from interop_drivers import Driver, stop_all
from interop_mqadmin import JavaAdmin
from interop_processes import wait_until
from interop_texts import line_of, lines_of, numbered

INVISIBLE_MS = 5000
"""The shortest time that the client accepts: what a killed broker did not hear acknowledged comes again after it."""

GET_TOPIC_STATS_INFO = 202

SetMode = Callable[[str, str, str], None]


@pytest.fixture(scope="module")
def set_mode(
    target: str, fragile_cluster: Cluster, peer: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SetMode]:
    """Set the mode of a topic and a group with the mqadmin of 5.3.3."""
    if target != "triomq":
        pytest.skip("RocketMQ 4.9.7 has no POP")
    admin = JavaAdmin(peer, tmp_path_factory.mktemp("mqadmin5"), class_path=f"{jars()}/*")

    def set_to(topic: str, group: str, mode: str) -> None:
        where = ("-b", fragile_cluster.broker_address, "-n", fragile_cluster.namesrv_address)
        output = admin.run("setConsumeMode", "-t", topic, "-g", group, "-m", mode, *where)
        assert f"set consume mode to {fragile_cluster.broker_address} success" in output, output

    yield set_to
    admin.close()


def consumed(cluster: Cluster, topic: str, group: str) -> int:
    """Return how many messages the group has behind it, from the broker's file."""
    path = cluster.store / "config" / "consumerOffset.json"
    table: dict[str, Any] = json.loads(re.sub(r"([{,]\s*)(-?\d+)\s*:", r'\1"\2":', path.read_text()))
    return sum(table["offsetTable"].get(f"{topic}@{group}", {}).values())


def stored(cluster: Cluster, topic: str) -> int:
    """Return how many messages a topic of four queues has."""
    answer = wire.ask(cluster.broker_address, GET_TOPIC_STATS_INFO, {"topic": topic})
    ends = re.findall(rb'"maxOffset":(\d+)', answer.body)
    assert (answer.code, len(ends)) == (0, 4)
    return sum(map(int, ends))


def make_group(cluster: Cluster, group: str, retries: int) -> None:
    body = json.dumps({"groupName": group, "retryMaxTimes": retries}).encode()
    assert wire.ask(cluster.broker_address, wire.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body).code == 0


def test_a_group_in_pop_mode_loses_nothing_beside_one_that_pulls_when_the_broker_is_killed(
    fragile_cluster: Cluster, set_mode: SetMode, java4: Driver, java5: Driver, tmp_path: Path
) -> None:
    topic = fragile_cluster.create_topic("PopKill")
    common = {"namesrv": fragile_cluster.namesrv_address, "topic": topic}
    set_mode(topic, "pop_kill_group", "POP")
    two = [java5.receive(**common, group="pop_kill_group", pop_invisible_ms=INVISIBLE_MS) for _ in range(2)]
    pulling = java4.receive(**common, group="pop_kill_pull_group")
    many = numbered(tmp_path, 100_000)
    sending = java4.begin("send-lines", **common, file=many, keep_going=True, pause_ms=5)
    for consumer in two:
        consumer.wait_messages(50)
    assert (fragile_cluster.store / "pop").is_dir()
    fragile_cluster.broker.kill()
    told = sending.of("sent")
    sending.wait_event("send_failed")
    fragile_cluster.broker.start()
    sending.wait_event("sent", len(told) + 200, 90)
    sending.stop()
    numbers = {event["line"] for event in sending.of("sent")}

    def received() -> list[dict[str, Any]]:
        return [message for consumer in two for message in consumer.messages]

    wait_until(lambda: numbers <= {line_of(each) for each in received()}, 60, "the group in POP mode has all")
    pulling.wait_for(lambda: numbers <= {line_of(each) for each in pulling.messages}, "the one that pulls has all", 60)
    lines = lines_of(many)
    assert all(message["body"] == lines[line_of(message)] for message in received())
    end = stored(fragile_cluster, topic)
    wait_until(lambda: consumed(fragile_cluster, topic, "pop_kill_group") == end, 30, "all is acknowledged")
    assert len(received()) < 2 * end, "the two clients share the messages"
    stop_all([*two, pulling])


def test_a_message_that_fails_in_pop_mode_comes_again_and_ends_as_a_dead_letter(
    fragile_cluster: Cluster, set_mode: SetMode, java4: Driver, java5: Driver, tmp_path: Path
) -> None:
    topic = fragile_cluster.create_topic("PopRetry", queues=2)
    group = f"{topic}_group"
    make_group(fragile_cluster, group, retries=1)
    set_mode(topic, group, "POP")
    common = {"namesrv": fragile_cluster.namesrv_address, "topic": topic}
    received = java5.receive(**common, group=group, refuse="message 3", pop_invisible_ms=INVISIBLE_MS)
    sent = java4.run("send-lines", **common, file=numbered(tmp_path, 6), tags="a")[:-1]
    received.wait_messages(7)
    dead: list[dict[str, Any]] = []

    def is_dead() -> bool:
        if fragile_cluster.route(f"%DLQ%{group}") is not None:
            here = {"namesrv": fragile_cluster.namesrv_address, "topic": f"%DLQ%{group}"}
            events = java4.run("pull", **here, group="pop_dead_letter_reader")
            dead.extend(event for event in events if event["event"] == "message")
        return bool(dead)

    # Java's client makes the message visible again after 10 s, and then after 30 s.
    wait_until(is_dead, 60, "the message is in the dead letter topic")
    received.stop()
    assert sorted(line_of(message) for message in received.messages) == [0, 1, 2, 3, 3, 4, 5]
    refused = [message for message in received.messages if line_of(message) == 3]
    assert [message["reconsume_times"] for message in refused] == [0, 1]
    assert {message["msg_id"] for message in refused} == {sent[3]["msg_id"]}
    assert [message["body"] for message in dead] == [refused[0]["body"]]
