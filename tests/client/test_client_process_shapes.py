"""The client in the shapes that servers and task queues give to processes."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from client_cluster import LIMIT_SECONDS, Cluster, fresh

from triomq import ConsumeFromWhere, ConsumeRules, InvalidMessage, TrioMQ
from triomq.blocking import Message, MessageExt, Producer, PushConsumer

CLOSE_SECONDS = ConsumeRules().close_seconds
LIMITS = {"request_timeout_seconds": 60.0, "send_timeout_seconds": 60.0}

OF_WORKER: list[Producer[bytes]] = []


def begin_worker(name_server: str) -> None:
    """Open a producer that nothing closes: workers end by os._exit."""
    OF_WORKER[:] = [Producer[bytes]("worker", name_server=name_server, **LIMITS).start()]


def forward(message: MessageExt[bytes], topic: str) -> tuple[int, str, bytes]:
    return os.getpid(), OF_WORKER[0].send(Message(topic, message.body)).message_id, message.body


def fail(_message: MessageExt[bytes]) -> None:
    OF_WORKER[0].send(Message("Shapes", b""))


def receive_some(cluster: Cluster, topic: str, count: int) -> Sequence[MessageExt[bytes]]:
    with Producer("shapes", name_server=cluster.name_server, send_timeout_seconds=LIMIT_SECONDS) as producer:
        for number in range(count):
            producer.send(Message(topic, str(number).encode()))
    start = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    with PushConsumer(fresh("G"), name_server=cluster.name_server, consume_from=start) as consumer:
        consumer.subscribe(topic)
        found = [consumer.receive(LIMIT_SECONDS) for _ in range(count)]
        return [message for message in found if message is not None]


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_workers_with_a_client_of_their_initializer_take_messages_and_return_errors(
    triomq: Cluster, start: str
) -> None:
    topic = fresh()
    messages = receive_some(triomq, topic, 4)
    with multiprocessing.get_context(start).Pool(2, begin_worker, (triomq.name_server,)) as pool:
        done = [pool.apply_async(forward, (message, topic)).get(60) for message in messages]
        with pytest.raises(InvalidMessage, match="the body is empty"):
            pool.apply_async(fail, (messages[0],)).get(60)
        pool.close()
        pool.join()
    assert [body for _, _, body in done] == [message.body for message in messages]
    assert len({message_id for _, message_id, _ in done} | {message.msg_id for message in messages}) == 8


def test_forked_workers_that_are_recycled_work_beside_a_parent_that_sends(triomq: Cluster) -> None:
    """As Celery's prefork pool with worker_max_tasks_per_child."""
    topic = fresh()
    messages = receive_some(triomq, topic, 6)
    enough, mine = threading.Event(), []
    with Producer("parent", name_server=triomq.name_server, send_timeout_seconds=LIMIT_SECONDS) as producer:

        def send() -> None:
            while not enough.is_set():
                mine.append(producer.send(Message(topic, b"parent")).message_id)

        sending = threading.Thread(target=send)
        sending.start()
        context = multiprocessing.get_context("fork")
        with context.Pool(1, begin_worker, (triomq.name_server,), maxtasksperchild=2) as pool:
            done = [pool.apply_async(forward, (message, topic)).get(60) for message in messages]
            pool.close()
            pool.join()
        enough.set()
        sending.join()
        mine.append(producer.send(Message(topic, b"after")).message_id)
    assert len({pid for pid, _, _ in done}) == 3
    ids = [message_id for _, message_id, _ in done] + mine
    assert len(set(ids)) == len(ids)


def test_workers_of_a_preloaded_application_make_clients_and_end_in_time(triomq: Cluster) -> None:
    """As gunicorn with --preload."""
    script = Path(__file__).with_name("preforked.py")
    # Python 3.12 warns of any fork beside threads; what the client does about it is what this test is for.
    quiet = ["-W", "ignore:This process:DeprecationWarning"]
    command = [sys.executable, *quiet, str(script), triomq.name_server, fresh()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as master:
        assert master.stdout is not None
        said = [json.loads(master.stdout.readline()) for _ in range(3)]
        began = time.monotonic()
        master.send_signal(signal.SIGTERM)
        _, errors = master.communicate(timeout=LIMIT_SECONDS)
    assert (master.returncode, errors) == (0, "")
    assert time.monotonic() - began < CLOSE_SECONDS
    assert sorted("another process, before a fork" in one["said"] for one in said) == [False, True, True]
    ids = [message_id for one in said for message_id in one["ids"]]
    assert len(set(ids)) == len(ids) == 5


def serve(name_server: str, topic: str, answer: Connection) -> None:
    """Run an application in an event loop until SIGTERM, as a worker of uvicorn does."""
    app = TrioMQ[bytes]("shapes", name_server=name_server, request_timeout_seconds=60.0)
    start = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

    @app.consumer(topic, group=f"{topic}G", consume_from=start)
    async def handle(message: MessageExt[bytes]) -> None:
        answer.send((os.getpid(), message.body))

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        async with app.lifespan():
            await app.producer.send(Message(topic, str(os.getpid()).encode()), timeout_seconds=LIMIT_SECONDS)
            answer.send((os.getpid(), b"started"))
            await stop.wait()
        answer.send((os.getpid(), b"stopped"))

    asyncio.run(run())


def test_spawned_workers_run_their_lifespans_and_end_in_time(triomq: Cluster) -> None:
    """As uvicorn with --workers 2."""
    context, topic = multiprocessing.get_context("spawn"), fresh()
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    workers = [context.Process(target=serve, args=(triomq.name_server, topic, sending)) for _, sending in pipes]
    for worker in workers:
        worker.start()
    pids = {worker.pid for worker in workers}
    handled: set[bytes] = set()
    started = 0
    while started < 2 or len(handled) < 2:
        for ready in multiprocessing.connection.wait([receiving for receiving, _ in pipes], LIMIT_SECONDS):
            assert isinstance(ready, Connection)
            _, what = ready.recv()
            started += what == b"started"
            if what != b"started":
                handled.add(what)
    assert handled == {str(pid).encode() for pid in pids}
    began = time.monotonic()
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(LIMIT_SECONDS)
    assert time.monotonic() - began < CLOSE_SECONDS
    assert [worker.exitcode for worker in workers] == [0, 0]
