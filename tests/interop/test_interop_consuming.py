"""Consumer groups of real clients: sharing and taking over queues, tags, retries and dead letters, ordered consumption,
broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from interop_cluster import Cluster
from interop_driver_set import DriverSet
from interop_drivers import Driver, Running
from interop_processes import wait_until
from interop_texts import assert_ascending, assert_bodies, by_queue, line_of, lines_of, numbered

TAKE_OVER_SECONDS = 15
LOCK_HAND_OVER_SECONDS = 45
"""A Java client that has unconsumed messages of a queue it has to give away keeps the lock for another 20 s."""


class Waves:
    """Sends numbered messages to all queues of a topic repeatedly, and records which consumer got which."""

    def __init__(self, sender: Driver, common: dict[str, Any], directory: Path, queues: int) -> None:
        self.sender = sender
        self.common = common
        self.directory = directory
        self.queues = queues
        self.sent: set[bytes] = set()
        self._numbers = count()

    def send(self) -> set[bytes]:
        wave = numbered(self.directory, self.queues * 2, "wave.txt", f"wave {next(self._numbers)} message")
        self.sender.run("send-lines", **self.common, file=wave, order_by_queue=self.queues)
        bodies = set(lines_of(wave))
        self.sent |= bodies
        return bodies

    def until(
        self,
        consumers: list[Running],
        condition: Callable[[list[set[int]]], bool],
        what: str,
        timeout_seconds: float = TAKE_OVER_SECONDS,
    ) -> None:
        """Send waves until the queues that the consumers saw in one whole wave meet the condition."""

        def shared() -> bool:
            bodies = self.send()
            wait_until(
                lambda: bodies <= {m["body"] for consumer in consumers for m in consumer.messages},
                timeout_seconds,
                f"a wave arrives ({what})",
            )
            return condition([{m["queue"] for m in consumer.messages if m["body"] in bodies} for consumer in consumers])

        wait_until(shared, timeout_seconds, what)


@pytest.mark.parametrize(
    ("first", "second"),
    [("java5", "java4"), ("go", "java4"), ("python", "java4"), ("cpp", "java4")],
    ids=lambda kind: kind,
)
def test_two_consumers_share_queues_and_take_over(
    cluster: Cluster, drivers: DriverSet, tmp_path: Path, first: str, second: str
) -> None:
    topic = cluster.create_topic("Share")
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    group = f"{topic}_group"
    waves = Waves(drivers("java4"), common, tmp_path, 4)
    one = drivers(first).receive(**common, group=group)
    waves.until([one], lambda queues: queues == [{0, 1, 2, 3}], "the only consumer has all queues")
    two = drivers(second).receive(**common, group=group)
    waves.until(
        [one, two],
        lambda queues: len(queues[0]) == len(queues[1]) == 2 and queues[0] | queues[1] == {0, 1, 2, 3},
        "two consumers have two queues each",
    )
    one.stop()
    waves.until([two], lambda queues: queues == [{0, 1, 2, 3}], "the second consumer took over all queues")
    two.stop()
    assert {m["body"] for m in one.messages + two.messages} == waves.sent


def test_a_killed_consumer_is_replaced(cluster: Cluster, drivers: DriverSet, java4: Driver, tmp_path: Path) -> None:
    topic = cluster.create_topic("Killed")
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    waves = Waves(java4, common, tmp_path, 4)
    stays = java4.receive(**common, group=f"{topic}_group")
    doomed_driver = drivers.start("go")
    doomed = doomed_driver.receive(**common, group=f"{topic}_group")
    waves.until([stays, doomed], lambda queues: all(len(q) == 2 for q in queues), "both have queues")
    doomed_driver.kill()
    waves.until([stays], lambda queues: queues == [{0, 1, 2, 3}], "the survivor took over all queues")
    assert {m["body"] for m in stays.messages + doomed.messages} == waves.sent


def test_ordered_consumers_share_and_hand_over_queues_in_order(
    cluster: Cluster, java4: Driver, java5: Driver, go: Driver, tmp_path: Path
) -> None:
    """The second consumer gets half of the locks, and all of them once the first one stops."""
    topic = cluster.create_topic("Ordered")
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    group = f"{topic}_group"
    waves = Waves(go, common, tmp_path, 4)
    one = java4.receive(**common, group=group, mode="orderly")
    waves.until([one], lambda queues: queues == [{0, 1, 2, 3}], "the only consumer has all locks")
    two = java5.receive(**common, group=group, mode="orderly")
    waves.until(
        [one, two],
        lambda queues: len(queues[0]) == len(queues[1]) == 2 and queues[0] | queues[1] == {0, 1, 2, 3},
        "two consumers have two locks each",
        LOCK_HAND_OVER_SECONDS,
    )
    file = numbered(tmp_path, 1200)
    already = len(one.messages), len(two.messages)
    sending = go.begin("send-lines", **common, file=file, order_by_queue=4, pause_ms=1)
    two.wait_messages(already[1] + 100)
    one.stop()  # gives its locks back
    sending.wait_done()
    by_one, by_two = one.messages[already[0] :], two.messages[already[1] :]

    def everything_came() -> bool:
        by_two[:] = two.messages[already[1] :]
        return {line_of(m) for m in by_one + by_two} == set(range(1200))

    two.wait_for(everything_came, "all lines")
    two.stop()
    assert_bodies(lines_of(file), by_one + by_two, duplicates=True)
    for messages in (by_one, by_two):
        for queue, inside in by_queue(messages).items():
            assert_ascending(inside, f"queue {queue} of {inside[0]['id']}")
    assert len(by_queue(by_one)) == 2
    assert len(by_queue(by_two)) == 4


@pytest.mark.parametrize("kind", ["java4", "java5", "go", "python"])
def test_an_ordered_consumer_repeats_a_refused_message_before_the_next(
    cluster: Cluster, drivers: DriverSet, tmp_path: Path, kind: str
) -> None:
    topic = cluster.create_topic("Suspend", queues=1)
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    file = numbered(tmp_path, 4)
    drivers("java4").run("send-lines", **common, file=file)
    repeats = 1 if kind == "go" else 2  # the Go client delivers it once more
    received = drivers(kind).receive(
        **common, group=f"{topic}_group", mode="orderly", refuse="message 1", max_reconsume=repeats, expect=6
    )
    received.wait_done()
    assert [line_of(m) for m in received.messages] == [0, 1, 1, 1, 2, 3]


@pytest.mark.parametrize("kind", ["java4", "go", "java4-binary", "python"])
@pytest.mark.parametrize("expression", ["a || c", "b", "nothing"])
def test_tags_select(cluster: Cluster, drivers: DriverSet, tmp_path: Path, kind: str, expression: str) -> None:
    topic = cluster.create_topic("Tags", queues=2)
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    file = numbered(tmp_path, 60)
    selected = expression.split(" || ")
    wanted = [line for number, line in enumerate(lines_of(file)) if "aébc"[number % 4] in selected]
    received = drivers(kind).receive(**common, group=f"{topic}_group", tags=expression)
    drivers("java4").run("send-lines", **common, file=file, order_by_queue=2, tags="a,é,b,c")
    if not wanted:  # a matching message after all the others shows that those were skipped
        drivers("java4").run("send-lines", **common, file=file, order_by_queue=2, tags=expression)
        wanted = lines_of(file)
    received.wait_messages(len(wanted))
    received.stop()
    assert sorted(m["body"] for m in received.messages) == sorted(wanted)


@pytest.mark.parametrize("kind", ["java4", "java5", "go", "python"])
def test_a_refused_message_comes_again_and_ends_as_a_dead_letter(
    cluster: Cluster, drivers: DriverSet, java4: Driver, tmp_path: Path, kind: str
) -> None:
    topic = cluster.create_topic("Retry", queues=2)
    group = f"{topic}_group"
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    file = numbered(tmp_path, 6)
    if kind != "java5":  # clients that look for the new retry topic only every 20 s
        cluster.create_topic(f"%RETRY%{group}", queues=1, numbered=False)
    received = drivers(kind).receive(**common, group=group, refuse="message 3", max_reconsume=1, retry_delay_level=1)
    sent = java4.run("send-lines", **common, file=file, tags="a")[:-1]
    received.wait_messages(7)
    dead: list[dict[str, Any]] = []

    def is_dead() -> bool:
        if cluster.route(f"%DLQ%{group}") is not None:
            here = {"namesrv": cluster.namesrv_address, "topic": f"%DLQ%{group}"}
            events = java4.run("pull", **here, group="dead_letter_reader")
            dead.extend(event for event in events if event["event"] == "message")
        return bool(dead)

    wait_until(is_dead, 15, "the message is in the dead letter topic")
    received.stop()
    assert sorted(line_of(m) for m in received.messages) == [0, 1, 2, 3, 3, 4, 5]
    refused = [m for m in received.messages if line_of(m) == 3]
    assert [m["reconsume_times"] for m in refused] == [0, 1]
    assert [m["topic"] for m in refused] == [topic, topic]  # clients show the original topic
    origin = next(event for event in sent if event["line"] == 3)
    again = refused[1]["properties"]
    assert again["ORIGIN_MESSAGE_ID"] == origin["offset_msg_id"]
    assert again["RETRY_TOPIC"] == topic
    assert [m["body"] for m in dead] == [lines_of(file)[3]]
    assert dead[0]["topic"] == f"%DLQ%{group}"
    assert dead[0]["tags"] == "a"


def test_a_refused_message_comes_again_to_the_node_client(cluster: Cluster, drivers: DriverSet, tmp_path: Path) -> None:
    """This client counts deliveries itself: after the last one it drops the message, without a dead letter."""
    topic = cluster.create_topic("RetryNode", queues=1)
    group = f"{topic}_group"
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    cluster.create_topic(f"%RETRY%{group}", queues=1, numbered=False)
    received = drivers("node").receive(**common, group=group, refuse="message 1", max_reconsume=1)
    drivers("node").run("send-lines", **common, file=numbered(tmp_path, 3))
    received.wait_messages(4)
    received.stop()
    assert sorted(line_of(m) for m in received.messages) == [0, 1, 1, 2]
    assert [m["reconsume_times"] for m in received.messages if line_of(m) == 1] == [0, 1]


def test_every_broadcast_consumer_gets_every_message(
    cluster: Cluster, drivers: DriverSet, go: Driver, tmp_path: Path
) -> None:
    topic = cluster.create_topic("Broadcast")
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    file = numbered(tmp_path, 40)
    kinds = ("java4", "java5", "go", "node", "python")
    consumers = [drivers(kind).receive(**common, group=f"{topic}_group", mode="broadcast") for kind in kinds]
    go.run("send-lines", **common, file=file)
    for consumer in consumers:
        consumer.wait_messages(40)
        consumer.stop()
        assert_bodies(lines_of(file), consumer.messages)
