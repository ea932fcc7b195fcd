"""An application says when its consumers have their queues, and no virtual clock jumps past those that have none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio
from client_cluster import LIMIT_SECONDS, Cluster, fresh
from client_fakes import NAME_SERVER, FakeCluster
from trio.testing import MockClock

from triomq import Admin, ClientClosed, ConsumeFromWhere, OperationTimeout, PushConsumer, TrioMQ, blocking
from triomq.broker.embedded import virtual_clock
from triomq.remoting.virtual_time import Watched
from triomq.testing import LocalCluster, VirtualClock

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
HOUR = 3600.0


@pytest.mark.parametrize("in_asyncio", [True, False])
def test_a_handler_that_refuses_is_tried_17_times_in_one_advance(in_asyncio: bool) -> None:
    clock, tries = VirtualClock(patience_seconds=LIMIT_SECONDS), []
    with LocalCluster(clock=clock) as cluster:
        app = TrioMQ("p", name_server=cluster.name_server)

        @app.consumer("Orders", group="g")
        async def refuse(value: bytes) -> None:
            tries.append(value)
            raise RuntimeError("no")

        def pass_time() -> None:
            clock.advance_until(lambda: len(tries) == 17, at_most_seconds=6 * HOUR)

        async def main(in_thread: Any) -> None:
            async with app:
                await app.producer.send_value("Orders", b"17")
                await in_thread(pass_time)

        if in_asyncio:
            asyncio.run(main(asyncio.to_thread))
        else:
            trio.run(main, trio.to_thread.run_sync)
    assert tries == [b"17"] * 17


async def test_an_application_in_virtual_time_opens_with_its_queues() -> None:
    async with LocalCluster(clock=VirtualClock()) as cluster:
        async with Admin(name_server=cluster.name_server) as admin:
            await admin.create_topic("Orders", read_queues=3, write_queues=3)
        app = TrioMQ("p", name_server=cluster.name_server)
        app.consumer("Orders", group="g")(print)
        app.consumer("Absent", group="h")(print)
        with trio.fail_after(LIMIT_SECONDS):
            async with app:
                held = [consumer.assigned_queues for _, consumer in app._members._members]
                with pytest.raises(OperationTimeout, match=r"'h'\) has no queues of .*Absent"):
                    await app.ready(0.05)
    assert {queue.topic for queue in held[0]} == {"Orders", "%RETRY%g"}


def test_a_clock_waits_for_a_consumer_whose_topic_has_just_come() -> None:
    """The consumer looks for its topic each second of real time; a jump without it would lose the whole hour."""
    clock = VirtualClock()
    with LocalCluster(clock=clock) as cluster, blocking.Producer("p", name_server=cluster.name_server) as producer:
        with blocking.PushConsumer("g", name_server=cluster.name_server) as consumer:
            consumer.subscribe("Orders")
            consumer.subscribe("Absent")
            producer.send(blocking.Message("Orders", b"17"))
            clock.advance(1)
            assert {queue.topic for queue in consumer.assigned_queues} == {"Orders", "%RETRY%g"}
            with pytest.raises(TimeoutError, match=r"not true within 60 s .*; g has no queues of Absent$"):
                clock.advance_until(lambda: False, at_most_seconds=60)
        with pytest.raises(TimeoutError, match=r"not true within 60 s .*>$"):
            clock.advance_until(lambda: False, at_most_seconds=60)


def test_a_clock_names_the_consumers_that_it_waited_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_clock, "CONSUMERS_SECONDS", 0.05)
    monkeypatch.setattr(PushConsumer, "topics_without_queues", lambda self: ["Orders"])
    clock = VirtualClock()
    with LocalCluster(clock=clock) as cluster:
        with blocking.Producer("p", name_server=cluster.name_server) as producer:
            producer.send(blocking.Message("Orders", b"17"))
        before = clock.now_ms()
        with (
            blocking.PushConsumer("g", name_server=cluster.name_server),
            pytest.raises(
                TimeoutError, match=r"does not jump past .* for 0.05 s: g has no queues of Orders. In a trio"
            ),
        ):
            clock.advance(HOUR)
        assert clock.now_ms() - before < HOUR * 1000 / 2
        clock.advance(HOUR)


async def test_ready_waits_for_each_consumer_and_its_retry_topic(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    app = TrioMQ("p", name_server=NAME_SERVER)
    app.consumer("T", group="G")(print)
    app.consumer("U", group="H")(print)
    with pytest.raises(ClientClosed, match="the application 'p' does not run"):
        await app.ready()
    fakes.broker.slow_seconds = 2
    async with app:
        await app.ready()
        (one, other) = [consumer for _, consumer in app._members._members]
        assert {queue.topic for queue in one.assigned_queues} == {"T", "%RETRY%G"}
        assert {queue.topic for queue in other.assigned_queues} == {"U", "%RETRY%H"}


async def test_what_is_not_ready_is_named(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    app = TrioMQ("p", name_server=NAME_SERVER)
    app.consumer("T", group="G")(print)

    @app.consumer("Absent", group="H")
    async def bill(value: bytes) -> None: ...

    wanted = r"^not ready after 7 s: .*bill \(group 'H'\) has no queues of Absent. A topic that does not exist has none"
    async with app:
        began = trio.current_time()
        with pytest.raises(OperationTimeout, match=wanted):
            await app.ready(timeout_seconds=7)
        assert trio.current_time() - began == pytest.approx(7, abs=0.1)


def test_an_asyncio_application_is_ready_in_real_time(triomq: Cluster) -> None:
    topic, group, got = fresh(), fresh("G"), []
    with blocking.Producer(fresh("P"), name_server=triomq.name_server) as producer:
        producer.send(blocking.Message(topic, b"before"))
    app = TrioMQ(fresh("P"), name_server=triomq.name_server)

    @app.consumer(topic, group=group, consume_from=FIRST)
    async def handle(value: bytes) -> None:
        got.append(value)

    async def main() -> None:
        async with app:
            await app.ready(timeout_seconds=LIMIT_SECONDS)
            assert {queue.topic for _, one in app._members._members for queue in one.assigned_queues} >= {topic}

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))


@pytest.mark.parametrize("kind", ["subscribe", "assign"])
def test_a_clock_asks_a_lite_pull_consumer_for_the_queues_that_it_reads(kind: str) -> None:
    """Queues that are assigned by hand are no share of the topic, so no share is waited for."""
    clock = VirtualClock()
    with LocalCluster(clock=clock) as cluster, blocking.Producer("p", name_server=cluster.name_server) as producer:
        queue = producer.send(blocking.Message("Orders", b"17")).queue
        with blocking.LitePullConsumer("g", name_server=cluster.name_server) as consumer:
            if kind == "assign":
                consumer.assign([queue])
            else:
                consumer.subscribe("Orders")
            clock.advance(1)
            assert queue in consumer.assignment


def test_a_consumer_in_a_cluster_with_another_clock_is_not_watched() -> None:
    watched = Watched(lambda topic: True)
    assert (watched.waiting(), watched.without_queues()) == ([], [])
    clock = VirtualClock()
    with (
        LocalCluster() as real,
        LocalCluster(clock=clock),
        blocking.PushConsumer("g", name_server=real.name_server) as consumer,
    ):
        consumer.subscribe("Absent")
        with pytest.raises(TimeoutError, match=r"not true within 60 s .*>$"):
            clock.advance_until(lambda: False, at_most_seconds=60)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", "U", "%RETRY%G", "%RETRY%H")
