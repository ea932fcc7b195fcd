"""Unmodified clients of other languages against a cluster whose clock the test controls."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from interop_driver_set import DriverSet
from interop_drivers import Running
from interop_processes import wait_until
from interop_texts import numbered

from triomq.broker.embedded import LocalCluster, VirtualClock
from triomq.client.core.errors import MQClientError, NoRoute
from triomq.client.facades import blocking

HOUR_SECONDS = 3600
LADDER_SECONDS = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


@pytest.fixture
def clock(target: str) -> VirtualClock:
    if target != "triomq":
        pytest.skip("only TrioMQ takes a clock")
    return VirtualClock(patience_seconds=30)


@pytest.fixture
def virtual(clock: VirtualClock) -> Iterator[LocalCluster]:
    with LocalCluster(clock=clock) as cluster:
        yield cluster


def known_group(name_server: str, topic: str, group: str) -> None:
    """Return a group whose retry topic is in the routes: Java clients look at their start, and then much later."""
    with (
        blocking.Admin(name_server=name_server) as admin,
        blocking.PushConsumer(group, name_server=name_server) as consumer,
    ):
        admin.create_topic(topic, read_queues=2, write_queues=2)
        consumer.subscribe(topic)
        consumer.wait_assigned(f"%RETRY%{group}")


def wait_ready(name_server: str, group: str, received: Running) -> None:
    """Wait until the member holds its retry queue."""
    client_id = received.of("started")[0].get("client_id")
    if client_id is None:
        return  # this client takes it immediately
    with blocking.Admin(name_server=name_server) as admin:

        def holds_retry_queue() -> bool:
            try:
                info = admin.consumer_running_info(group, client_id)
            except MQClientError:
                return False  # the broker does not know it yet
            return any(queue.topic.startswith("%RETRY%") for queue in info.mq_table)

        wait_until(holds_retry_queue, 30, "the member holds its retry queue")


@pytest.mark.parametrize("kind", ["java4", "java5", "go"])
def test_the_retry_ladder(
    virtual: LocalCluster, clock: VirtualClock, drivers: DriverSet, tmp_path: Path, kind: str
) -> None:
    group = "VirtualLadderGroup"
    common = {"namesrv": virtual.name_server, "topic": "VirtualLadder"}
    known_group(virtual.name_server, "VirtualLadder", group)
    received = drivers(kind).receive(**common, group=group, refuse="message")
    drivers(kind).run("send-lines", **common, file=numbered(tmp_path, 1))
    received.wait_messages(1)
    refused = clock.now_ms() / 1000
    wait_ready(virtual.name_server, group, received)
    began = time.monotonic()
    clock.advance_until(lambda: len(received.messages) >= 17, at_most_seconds=48 * HOUR_SECONDS)
    elapsed = time.monotonic() - began
    times = [message["store_ms"] / 1000 for message in received.messages]
    # The first one waited until the member was ready: it was refused between its storage and the member's event.
    assert times[1] - times[0] >= LADDER_SECONDS[0] - 0.5
    assert times[1] - refused < LADDER_SECONDS[0] + 10
    pauses = [after - before for before, after in pairwise(times[1:])]
    assert len(pauses) == len(LADDER_SECONDS) - 1
    for pause, wanted in zip(pauses, LADDER_SECONDS[1:], strict=True):
        assert wanted - 0.5 <= pause < wanted + 10, pauses
    with blocking.Admin(name_server=virtual.name_server) as admin:

        def is_dead() -> bool:
            try:
                dead = admin.topic_stats(f"%DLQ%{group}").offset_table
            except NoRoute:
                return False
            return sum(one.max_offset for one in dead.values()) == 1

        # The member reports a message before it refuses it, so it must not be stopped earlier.
        wait_until(is_dead, 30, "the message is in the dead letter topic")
    received.stop()
    print(f"{kind}: the ladder took {elapsed:.2f} s")


@pytest.mark.parametrize("kind", ["java4", "java5", "go"])
def test_a_delay_of_two_hours(
    virtual: LocalCluster, clock: VirtualClock, drivers: DriverSet, tmp_path: Path, kind: str
) -> None:
    common = {"namesrv": virtual.name_server, "topic": "VirtualDelay"}
    known_group(virtual.name_server, "VirtualDelay", "VirtualDelayGroup")
    received = drivers(kind).receive(**common, group="VirtualDelayGroup")
    drivers(kind).run("send-lines", **common, file=numbered(tmp_path, 3), delay_level=18)
    clock.advance(2 * HOUR_SECONDS - 60)
    assert received.messages == []
    clock.advance_until(lambda: len(received.messages) >= 3, at_most_seconds=600)
    received.stop()
    for message in received.messages:
        assert 2 * HOUR_SECONDS - 1 <= (message["store_ms"] - message["born_ms"]) / 1000 < 2 * HOUR_SECONDS + 30
