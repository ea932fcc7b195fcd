"""The blocking and the asyncio facade: the same core, from threads and from an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from client_cluster import LIMIT_SECONDS, Cluster, fresh

from triomq import Admin, Client, ClientConfig, LitePullConsumer, Producer, PullConsumer, PushConsumer
from triomq.client.core.errors import ClientClosed, ConfigurationError, NoRoute, OperationTimeout
from triomq.client.core.results import LocalTransactionState, PullStatus, SendStatus
from triomq.client.facades import aio, blocking, portal
from triomq.protocol.message import Message, MessageExt


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run an asyncio program in its own thread, since the test may be inside a trio run."""
    asyncio.run(asyncio.wait_for(main, LIMIT_SECONDS))


def test_blocking_send_and_loop(triomq: Cluster) -> None:
    topic = fresh()
    with blocking.Producer(fresh("P"), name_server=triomq.name_server) as producer:
        assert producer.send(Message(topic, b"1")).status is SendStatus.SEND_OK
        assert len(producer.send_batch([Message(topic, b"2"), Message(topic, b"3")])) == 1
        producer.send_oneway(Message(topic, b"4"))
        assert len(producer.queues(topic)) == 4
    with blocking.PushConsumer(fresh("G"), name_server=triomq.name_server) as consumer:
        consumer.subscribe(topic)
        bodies = set()
        for message in consumer:
            bodies.add(message.body)
            if len(bodies) == 4:
                consumer.ack()
                break
        assert bodies == {b"1", b"2", b"3", b"4"}
        assert consumer.receive(timeout_seconds=0.05) is None
        assert consumer.assigned_queues
    assert portal._shared is None
    assert not [thread for thread in threading.enumerate() if thread.name == "triomq-client"]


def test_blocking_listeners_may_send(triomq: Cluster) -> None:
    topic, answers = fresh(), fresh()
    done = threading.Event()
    with (
        blocking.Producer(fresh("P"), name_server=triomq.name_server) as producer,
        blocking.PushConsumer(fresh("G"), name_server=triomq.name_server) as consumer,
        blocking.PushConsumer(fresh("G"), name_server=triomq.name_server) as listening,
    ):

        def forward(message: MessageExt) -> None:
            assert threading.current_thread().name != "triomq-client"
            producer.send(Message(answers, message.body))

        consumer.subscribe(topic)
        consumer.listen(forward)
        listening.subscribe(answers)
        listening.listen(lambda message: done.set())
        producer.send(Message(topic, b"m"))
        assert done.wait(LIMIT_SECONDS)


def test_blocking_pull_and_poll_and_admin(triomq: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    with blocking.Admin(name_server=triomq.name_server) as admin:
        assert admin.create_topic(topic, read_queues=1, write_queues=1) == [triomq.broker]
        assert topic in admin.topics()
        assert admin.topic_config(triomq.broker, topic).read_queue_nums == 1
        with pytest.raises(NoRoute):
            admin.route("NoSuchTopic")
        with pytest.raises(AttributeError):
            _ = admin.no_such_method  # type: ignore[attr-defined]
    with blocking.Producer(fresh("P"), name_server=triomq.name_server) as producer:
        queue = producer.send(Message(topic, b"m")).queue
    with blocking.PullConsumer(group, name_server=triomq.name_server) as puller:
        result = puller.pull(queue, "*", 0, wait=True)
        assert (result.status, result.messages[0].body) == (PullStatus.FOUND, b"m")
        puller.update_offset(queue, 1)
    with blocking.LitePullConsumer(group, name_server=triomq.name_server) as poller:
        poller.assign([queue])
        assert poller.committed(queue) == 1
        poller.seek(queue, 0)
        assert [message.body for message in poller.poll(LIMIT_SECONDS)] == [b"m"]


def test_a_closed_face_says_so(triomq: Cluster) -> None:
    producer = blocking.Producer(fresh("P"), name_server=triomq.name_server)
    with pytest.raises(ClientClosed, match="start"):
        producer.send(Message("T", b"b"))
    producer.start()
    producer.close()
    producer.close()
    with pytest.raises(ClientClosed):
        producer.send(Message("T", b"b"))


def test_blocking_transactions(triomq: Cluster) -> None:
    topic = fresh()
    threads = []

    def execute(message: Message, argument: str) -> LocalTransactionState:
        threads.append(threading.current_thread().name)
        return LocalTransactionState[argument]

    with blocking.TransactionProducer(
        fresh("P"), execute, lambda message: LocalTransactionState.UNKNOW, name_server=triomq.name_server
    ) as producer:
        assert producer.send_in_transaction(Message(topic, b"no"), "ROLLBACK_MESSAGE").state.name == "ROLLBACK_MESSAGE"
        assert producer.send_in_transaction(Message(topic, b"yes"), "COMMIT_MESSAGE").state.name == "COMMIT_MESSAGE"
    with blocking.PushConsumer(fresh("G"), name_server=triomq.name_server) as consumer:
        consumer.subscribe(topic)
        assert next(consumer).body == b"yes"
    assert "triomq-client" not in threads


def test_asyncio_send_and_loop(triomq: Cluster) -> None:
    async def main() -> None:
        topic = fresh()
        async with aio.Producer(fresh("P"), name_server=triomq.name_server) as producer:
            results = await asyncio.gather(*(producer.send(Message(topic, b"%d" % number)) for number in range(20)))
            assert {result.status for result in results} == {SendStatus.SEND_OK}
        async with aio.PushConsumer(fresh("G"), name_server=triomq.name_server) as consumer:
            consumer.subscribe(topic)
            bodies = set()
            async for message in consumer:
                bodies.add(message.body)
                if len(bodies) == 20:
                    consumer.ack()
                    break
            # A cancelled receive loses nothing.
            for _ in range(20):
                waiting = asyncio.create_task(consumer.receive())
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            async with aio.Producer(fresh("P"), name_server=triomq.name_server) as producer:
                await producer.send(Message(topic, b"after"))
            assert (await consumer.receive()).body == b"after"

    run(main())


def test_asyncio_listeners_run_in_their_loop(triomq: Cluster) -> None:
    async def main() -> None:
        topic = fresh()
        loop = asyncio.get_running_loop()
        seen: asyncio.Queue[MessageExt] = asyncio.Queue()
        times: list[int] = []

        async def handle(message: MessageExt) -> None:
            assert asyncio.get_running_loop() is loop
            times.append(message.reconsume_times)
            if len(times) == 1:
                raise RuntimeError("try again")
            await seen.put(message)

        async with (
            aio.Producer(fresh("P"), name_server=triomq.name_server) as producer,
            aio.PushConsumer(fresh("G"), name_server=triomq.name_server) as consumer,
        ):
            consumer.subscribe(topic)
            consumer.listen(handle)
            await producer.send(Message(topic, b"m"))
            assert (await seen.get()).body == b"m"
            assert times == [0, 1]

    run(main())


def test_asyncio_errors_and_cancellation(triomq: Cluster) -> None:
    async def main() -> None:
        async with aio.Producer(fresh("P"), name_server=triomq.name_server) as producer:
            with pytest.raises(OperationTimeout):
                await producer.send(Message(fresh(), b"b"), timeout_seconds=0)
        with pytest.raises(ClientClosed):
            await producer.send(Message("T", b"b"))

        class Own(Exception):
            pass

        with pytest.raises(Own):
            async with aio.LitePullConsumer(fresh("G"), name_server=triomq.name_server) as consumer:
                consumer.subscribe(fresh())
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.poll(60), 0.05)
                raise Own
        async with aio.Admin(name_server=triomq.name_server) as admin:
            assert triomq.broker in (await admin.clusters())["DefaultCluster"]["broker-a"].values()
            assert await admin.addresses() == [triomq.broker]

    run(main())


def test_an_asyncio_object_that_is_cancelled_while_it_opens_leaves_no_thread_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, go_on, given_back = threading.Event(), threading.Event(), threading.Event()
    acquire, release = portal.acquire, portal.release

    def slow_acquire() -> portal.Portal:
        asked.set()
        assert go_on.wait(LIMIT_SECONDS)
        return acquire()

    def told_release(used: portal.Portal) -> None:
        release(used)
        given_back.set()

    monkeypatch.setattr(portal, "acquire", slow_acquire)
    monkeypatch.setattr(portal, "release", told_release)

    async def main() -> None:
        opening = asyncio.create_task(aio.Producer(fresh("P"), name_server="127.0.0.1:1").__aenter__())
        await asyncio.to_thread(asked.wait, LIMIT_SECONDS)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        go_on.set()
        assert await asyncio.to_thread(given_back.wait, LIMIT_SECONDS)

    run(main())
    assert portal._shared is None


def test_an_asyncio_object_that_is_cancelled_while_it_connects_is_not_left_open(triomq: Cluster) -> None:
    async def main() -> None:
        for _ in range(10):
            opening = asyncio.create_task(aio.Producer(fresh("P"), name_server=triomq.name_server).__aenter__())
            await asyncio.sleep(0)
            while portal._shared is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            assert portal._shared is None

    run(main())


def test_trio_classes_say_which_ones_asyncio_programs_use() -> None:
    async def main() -> None:
        for made in (
            Producer("p", name_server="127.0.0.1:1"),
            PushConsumer("g", name_server="127.0.0.1:1"),
            PullConsumer("g", name_server="127.0.0.1:1"),
            LitePullConsumer("g", name_server="127.0.0.1:1"),
            Admin(name_server="127.0.0.1:1"),
            Client(ClientConfig(name_server="127.0.0.1:1")),
        ):
            with pytest.raises(ConfigurationError, match=r"runs on trio.*triomq\.aio"):
                await made.__aenter__()

    run(main())


async def test_asyncio_classes_say_what_to_use_outside_of_asyncio() -> None:
    consumer = aio.PushConsumer("g", name_server="127.0.0.1:1")
    with pytest.raises(ConfigurationError, match=r"triomq\.aio\.PushConsumer.*asyncio.*triomq\.PushConsumer.*trio"):
        await consumer.__aenter__()
    assert portal._shared is None


def test_blocking_classes_warn_inside_an_event_loop(triomq: Cluster) -> None:
    async def main() -> None:
        with (
            pytest.warns(RuntimeWarning, match=r"blocks the event loop.*triomq\.aio\.Producer") as caught,
            blocking.Producer(fresh("P"), name_server=triomq.name_server),
        ):
            assert caught[0].filename == __file__

    run(main())


def test_a_consumer_without_a_subscription_does_not_wait_for_ever(triomq: Cluster) -> None:
    with blocking.PushConsumer(fresh("G"), name_server=triomq.name_server) as consumer:
        with pytest.raises(ConfigurationError, match="nothing is subscribed"):
            next(consumer)
        with pytest.raises(ConfigurationError, match="nothing is subscribed"):
            consumer.wait_assigned("T")
    with (
        blocking.LitePullConsumer(fresh("G"), name_server=triomq.name_server) as poller,
        pytest.raises(ConfigurationError, match="nothing is subscribed"),
    ):
        poller.poll()
