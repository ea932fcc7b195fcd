"""Hours of a cluster's time pass in milliseconds, with a client that lives in real time."""

from __future__ import annotations

import datetime
import random
import subprocess
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from client_cluster import LIMIT_SECONDS, until_answer

from triomq.broker.embedded import LocalCluster, VirtualClock, run_now_ms
from triomq.client.administer.admin import Admin
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.core.results import ConsumeFromWhere, LocalTransactionState, RetryLater
from triomq.client.facades import blocking
from triomq.client.produce.producer import Message, Producer
from triomq.client.produce.transaction_producer import TransactionProducer
from triomq.protocol.message import MessageExt

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
HOUR = 3600.0
LADDER = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Seconds before each delivery after the first."""


class Heard:
    """Records what a consumer received."""

    def __init__(self) -> None:
        self._changed = trio.Event()
        self.messages: list[MessageExt] = []

    def add(self, message: MessageExt) -> None:
        self.messages.append(message)
        self._changed.set()
        self._changed = trio.Event()

    async def wait(self, count: int) -> None:
        with trio.fail_after(LIMIT_SECONDS):
            while len(self.messages) < count:
                await self._changed.wait()


def assert_pauses(times_ms: Sequence[int], wanted_seconds: Sequence[float]) -> None:
    """Check the cluster's times of events: never early, and late by at most the real time that they took."""
    pauses = [(later - earlier) / 1000 for earlier, later in pairwise(times_ms)]
    assert len(pauses) == len(wanted_seconds)
    for pause, wanted in zip(pauses, wanted_seconds, strict=True):
        assert wanted - 0.5 <= pause < wanted + 10, pauses


async def test_the_retry_ladder_leads_into_the_dead_letter_topic() -> None:
    clock = VirtualClock(patience_seconds=LIMIT_SECONDS)
    heard = Heard()
    async with LocalCluster(clock=clock) as cluster:
        server = cluster.name_server
        async with (
            Producer("p", name_server=server) as producer,
            PushConsumer("g", consume_from=FIRST, name_server=server) as consumer,
            Admin(name_server=server) as admin,
        ):
            await producer.send(Message("Ladder", b"no"))
            sent_ms = clock.now_ms()

            async def refuse(message: MessageExt) -> None:
                heard.add(message)
                raise RetryLater

            consumer.subscribe("Ladder")
            consumer.listen(refuse)
            await consumer.wait_assigned("%RETRY%g")
            await heard.wait(1)
            # The client responds within the time that the clock allows, so one call passes through all retries.
            await clock.advance_until_async(lambda: len(heard.messages) == 17, at_most_seconds=6 * HOUR)

            async def is_dead() -> bool:
                stats = await admin.topic_stats("%DLQ%g")
                return sum(one.max_offset for one in stats.offset_table.values()) == 1

            await until_answer(is_dead)
    assert [message.reconsume_times for message in heard.messages] == list(range(17))
    times_ms = [sent_ms, *(message.store_timestamp for message in heard.messages[1:])]
    assert_pauses(times_ms, LADDER)


async def test_a_delay_of_two_hours_is_kept_to_the_second() -> None:
    clock = VirtualClock()
    heard = Heard()
    async with LocalCluster(clock=clock) as cluster:
        server = cluster.name_server
        async with (
            Producer("p", name_server=server) as producer,
            PushConsumer("g", consume_from=FIRST, name_server=server) as consumer,
        ):
            sent_ms = clock.now_ms()
            for level in (18, 17, 5):
                message = Message("Later", f"{level}".encode())
                message.delay_level = level
                await producer.send(message)

            async def take(message: MessageExt) -> None:
                heard.add(message)

            consumer.subscribe("Later")
            consumer.listen(take)
            await consumer.wait_assigned("%RETRY%g")
            await clock.advance_async(2 * HOUR - 60)
            await heard.wait(2)
            assert {message.body for message in heard.messages} == {b"5", b"17"}
            await clock.advance_async(70)
            await heard.wait(3)
    stored = {int(message.body): message.store_timestamp for message in heard.messages}
    for level, delay_seconds in ((5, 60), (17, HOUR), (18, 2 * HOUR)):
        assert_pauses([sent_ms, stored[level]], [delay_seconds])


async def test_a_transaction_is_asked_for() -> None:
    clock = VirtualClock()
    heard = Heard()
    asked_ms: list[int] = []

    async def unknown(message: Message, argument: object) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW

    async def check(message: MessageExt) -> LocalTransactionState:
        asked_ms.append(message.store_timestamp)  # written again before each query
        return LocalTransactionState.COMMIT_MESSAGE if len(asked_ms) == 3 else LocalTransactionState.UNKNOW

    async with LocalCluster(clock=clock) as cluster:
        server = cluster.name_server
        async with (
            TransactionProducer("tp", unknown, check, name_server=server) as producer,
            PushConsumer("g", consume_from=FIRST, name_server=server) as consumer,
        ):

            async def take(message: MessageExt) -> None:
                heard.add(message)

            consumer.subscribe("Deals")
            consumer.listen(take)
            await producer.send_in_transaction(Message("Deals", b"deal"))
            await clock.advance_until_async(lambda: len(asked_ms) == 3, at_most_seconds=HOUR)
            await heard.wait(1)
            await clock.advance_async(600)
    assert [message.body for message in heard.messages] == [b"deal"]
    assert_pauses(asked_ms[:3], [60, 60])


def test_files_go_at_four_in_the_morning(tmp_path: Path) -> None:
    clock = VirtualClock(datetime.datetime(2024, 5, 1, 12, 0))
    settings = {"mappedFileSizeCommitLog": "65536", "fileReservedTime": "24"}
    with (
        LocalCluster(clock=clock, store=tmp_path, settings=settings) as cluster,
        blocking.Producer("p", name_server=cluster.name_server) as producer,
    ):

        def files() -> list[str]:
            return sorted(path.name for path in (tmp_path / "commitlog").iterdir() if path.stat().st_blocks)

        def fill() -> None:
            for _ in range(10):
                producer.send(Message("Old", random.randbytes(30_000)))

        fill()
        before = files()
        assert len(before) > 3
        clock.advance_to(datetime.time(3, 59))
        fill()
        clock.advance_to(datetime.time(4, 30))
        assert files()[0] == before[0], "16 hours old"
        clock.advance_to(datetime.time(3, 59))
        assert files()[0] == before[0], "the hour has not come"
        clock.advance(120)
        assert clock.now < datetime.datetime(2024, 5, 3, 4, 2)
        left = files()
        assert left
        assert not set(left) & set(before[:-1]), "40 hours old"
        clock.advance(24 * HOUR)
        assert len([name for name in files() if name in left]) <= 2, "what came later goes a day later"


async def test_live_clients_survive_jumps_and_the_broker_stays_registered() -> None:
    clock = VirtualClock()
    async with LocalCluster(clock=clock) as cluster:
        server = cluster.name_server
        async with (
            Producer("p", name_server=server) as producer,
            Admin(name_server=server) as admin,
            PushConsumer("g", ordered=True, name_server=server) as consumer,
        ):
            await admin.create_topic("Days")
            consumer.subscribe("Days")
            await consumer.wait_assigned("Days")
            await producer.send(Message("Days", b"0"))
            messages = aiter(consumer)
            with trio.fail_after(LIMIT_SECONDS):
                assert (await anext(messages)).body == b"0"
            queues = await consumer.wait_assigned("Days")
            broker = producer.client.routes.master("broker-a")
            assert broker is not None
            remoting = producer.client._remoting
            assert remoting is not None
            connection = remoting.connection(broker)
            for day in range(1, 4):
                await clock.advance_async(24 * HOUR)
                await producer.send(Message("Days", b"%d" % day))
                with trio.fail_after(LIMIT_SECONDS):
                    assert (await anext(messages)).body == b"%d" % day
            await producer.client.update_route("Days")
            assert remoting.connection(broker) is connection
            assert await consumer.wait_assigned("Days") == queues


def test_a_clock_without_a_cluster_just_jumps() -> None:
    clock = VirtualClock(datetime.datetime(2024, 5, 1, 12, 0))
    clock.advance(60)
    assert datetime.datetime(2024, 5, 1, 12, 1) <= clock.now < datetime.datetime(2024, 5, 1, 12, 2)
    with pytest.raises(ValueError, match="has passed"):
        clock.advance_to(datetime.datetime(2024, 5, 1, 12, 0))


def test_what_never_happens_is_given_up() -> None:
    clock = VirtualClock()
    with LocalCluster(clock=clock), pytest.raises(TimeoutError, match="3600"):
        clock.advance_until(lambda: False, at_most_seconds=3600)


async def test_client_and_cluster_in_one_run_with_a_mock_clock(autojump_clock: trio.testing.MockClock) -> None:
    autojump_clock.autojump_threshold = 0.02  # sockets and the store's threads are outside of the clock's view
    now_ms = run_now_ms()
    async with LocalCluster(now_ms=now_ms) as cluster:
        server = cluster.name_server
        async with (
            Producer("p", name_server=server, now_ms=now_ms) as producer,
            PushConsumer("g", consume_from=FIRST, name_server=server, now_ms=now_ms) as consumer,
        ):
            consumer.subscribe("Mock")
            message = Message("Mock", b"later")
            message.delay_level = 6
            began = trio.current_time()  # the clock may jump while the response is on its way
            await producer.send(message)
            async for got in consumer:
                assert got.body == b"later"
                break
            assert 119 < trio.current_time() - began < 125


def test_a_cluster_prints_nothing_in_somebodys_program(tmp_path: Path) -> None:
    """Nor does a client whose broker disappears: both log to `logging`."""
    program = tmp_path / "program.py"
    program.write_text(
        "import logging, socket, structlog, trio\n"
        "logging.basicConfig(filename='log.txt', level=logging.INFO)\n"
        "from triomq.broker.embedded import LocalCluster\n"
        "from triomq import Message, blocking\n"
        "from triomq.remoting.connection import log\n"
        "with LocalCluster() as cluster, blocking.Producer('p', name_server=cluster.name_server) as producer:\n"
        "    producer.send(Message('T', b'x'))\n"
        "    log.warning('of a connection', remote='r')\n"
        "    structlog.get_logger().info('mine')\n"
        "log.warning('after the cluster', remote='r')\n"
        "structlog.get_logger().info('mine, too')\n"
    )
    result = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")},
    )
    assert [line.rstrip().endswith(("mine", "mine, too")) for line in result.stdout.splitlines()] == [True, True]
    assert result.stderr == ""
    logged = (tmp_path / "log.txt").read_text()
    started, closed = "INFO:triomq.broker:broker started", "WARNING:triomq.remoting.connection:after"
    for text in (started, "of a connection [remote='r']", closed):
        assert text in logged


def test_the_thread_of_a_cluster_ends(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with LocalCluster(clock=VirtualClock(), store=tmp_path):
        assert any(thread.name == "triomq-cluster" for thread in set(threading.enumerate()) - before)
    assert not any(thread.name == "triomq-cluster" for thread in set(threading.enumerate()) - before)
