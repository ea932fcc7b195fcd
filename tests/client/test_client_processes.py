"""Clients and their errors across processes."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection

import pytest
import trio
from client_cluster import Cluster, fresh

from triomq import (
    BrokerRefused,
    ConsumeFromWhere,
    DeadLetter,
    MQClientError,
    NameServersUnreachable,
    NoRoute,
    OperationTimeout,
    RetryLater,
    SendFailed,
)
from triomq import Producer as TrioProducer
from triomq.blocking import Message, MessageExt, Producer, PushConsumer

ERRORS = [
    SendFailed("T", ["broker-a: x"]),
    BrokerRefused(2, "busy", address="a:1", action="sending"),
    NoRoute("T", ["a:1"], "why"),
    NameServersUnreachable({"a:1": "refused"}),
    OperationTimeout("x"),
    RetryLater(3),
    DeadLetter("why"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling_and_copying(error: Exception) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def send(name_server: str, text: str) -> str:
    with Producer("child", name_server=name_server) as producer:
        result = producer.send(Message("Processes", text.encode()), timeout_seconds=10)
    return f"{result.message_id} {producer._core.client.client_id}"


def fail() -> None:
    raise NameServersUnreachable({"a:1": "refused"})


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_workers_send_with_ids_of_their_own_and_raise_what_they_raised(triomq: Cluster, start: str) -> None:
    with Producer("parent", name_server=triomq.name_server) as producer:
        mine = producer.send(Message("Processes", b"parent"), timeout_seconds=30)
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(start)) as pool:
            texts = [pool.submit(send, triomq.name_server, str(number)).result(60) for number in range(3)]
            with pytest.raises(MQClientError, match="refused"):
                pool.submit(fail).result(60)
        assert producer.send(Message("Processes", b"again"), timeout_seconds=30).queue
    ids = [part for text in texts for part in text.split()] + [mine.message_id, producer._core.client.client_id]
    assert len(set(ids)) == len(ids)


OPEN: list[Producer[bytes]] = []


def use_inherited() -> list[str]:
    said = []
    for act in (
        lambda: OPEN[0].send(Message("Processes", b"m")),
        lambda: OPEN[0].close(),
        lambda: OPEN[1].start(),
    ):
        try:
            act()
        except MQClientError as error:
            said.append(str(error))
    return said


def test_an_inherited_client_raises_at_once_whether_it_was_open_or_not(triomq: Cluster) -> None:
    with Producer("parent", name_server=triomq.name_server) as producer:
        OPEN[:] = [producer, Producer("later", name_server=triomq.name_server)]
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
            said = pool.submit(use_inherited).result(60)
        OPEN.clear()
        assert len(said) == 3
        assert all("another process, before a fork" in text for text in said)
        assert producer.send(Message("Processes", b"m"), timeout_seconds=30).queue


HELD: list[tuple[PushConsumer[bytes], MessageExt[bytes]]] = []


def settle_inherited() -> list[str]:
    consumer, message = HELD[0]
    said = []
    for act in (message.ack, message.retry_later, consumer.ack, consumer.receive, lambda: next(iter(consumer))):
        try:
            act()
        except MQClientError as error:
            said.append(str(error))
    return said


def test_an_inherited_message_cannot_be_settled_and_says_so_at_once(triomq: Cluster) -> None:
    topic = fresh()
    with Producer("parent", name_server=triomq.name_server) as producer:
        producer.send(Message(topic, b"m"), timeout_seconds=30)
    start = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    with PushConsumer(fresh("G"), name_server=triomq.name_server, consume_from=start) as consumer:
        consumer.subscribe(topic)
        message = consumer.receive(60)
        assert message is not None
        HELD[:] = [(consumer, message)]
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
            said = pool.submit(settle_inherited).result(60)
        HELD.clear()
        assert len(said) == 5
        assert all("another process, before a fork" in text for text in said)
        message.ack()


async def ask(producer: TrioProducer[bytes]) -> str:
    try:
        await producer.queues("Processes")
        await producer.send(Message("Processes", b"m"))
    except MQClientError as error:
        return str(error)
    return "no error"


def ask_in_child(producer: TrioProducer[bytes], answer: Connection) -> None:
    answer.send(trio.run(ask, producer))


async def test_a_trio_client_that_was_open_at_a_fork_raises_in_the_child(triomq: Cluster) -> None:
    receiving, sending = multiprocessing.Pipe(duplex=False)
    async with TrioProducer("parent", name_server=triomq.name_server) as producer:
        await producer.send(Message("Processes", b"m"), timeout_seconds=30)
        child = multiprocessing.get_context("fork").Process(target=ask_in_child, args=(producer, sending))
        await trio.to_thread.run_sync(child.start)
        assert "another process, before a fork" in await trio.to_thread.run_sync(receiving.recv)
        await trio.to_thread.run_sync(child.join)
        await producer.send(Message("Processes", b"m"), timeout_seconds=30)
