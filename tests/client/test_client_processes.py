"""Clients and their errors across processes."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import pytest
from client_cluster import Cluster

from triomq import (
    BrokerRefused,
    DeadLetter,
    MQClientError,
    NameServersUnreachable,
    NoRoute,
    OperationTimeout,
    RetryLater,
    SendFailed,
)
from triomq.blocking import Message, Producer

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
