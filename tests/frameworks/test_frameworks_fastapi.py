"""FastAPI: an application in its lifespan, clients of its own, plain endpoints, and a server that is stopped."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal
from urllib.request import Request, urlopen

import pytest
from framework_checks import BODIES, LIMIT_SECONDS, Traffic, in_time, limit_of

from triomq import TrioMQ, aio, blocking
from triomq.serializers import Json

pytest.importorskip("fastapi", reason="FastAPI is not installed: the extra frameworks has it")
pytest.importorskip("httpx2", reason="httpx2 is not installed: the extra frameworks has it")

from fastapi import BackgroundTasks, FastAPI, Response
from fastapi.testclient import TestClient

SOURCES = Path(__file__).resolve().parents[2] / "src"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_application_lives_in_the_lifespan(traffic: Traffic, backend: Literal["asyncio", "trio"]) -> None:
    app = TrioMQ[int]("shop", serializer=Json(int), name_server=traffic.name_server, send_timeout_seconds=LIMIT_SECONDS)
    api = FastAPI(lifespan=app.lifespan)
    billed: SimpleQueue[int] = SimpleQueue()

    @app.consumer(traffic.topic, group=traffic.group, consume_from=traffic.consuming["consume_from"])
    async def bill(value: int) -> None:
        billed.put(value)

    @api.post("/orders/{number}")
    async def order(number: int, later: BackgroundTasks) -> str:
        later.add_task(app.producer.send_value, traffic.topic, -number)
        return (await app.producer.send_value(traffic.topic, number)).message_id

    for _ in range(2):  # the application may be opened again
        with in_time(), TestClient(api, backend=backend) as client:
            assert len({client.post(f"/orders/{number}").json() for number in range(1, 6)}) == 5
            found = Counter(billed.get(timeout=LIMIT_SECONDS) for _ in range(10))
            assert found == Counter([*range(1, 6), *range(-5, 0)])
    assert traffic.left() == []


def test_an_endpoint_that_waits_for_messages_may_give_up(traffic: Traffic) -> None:
    consumer = aio.PushConsumer[bytes](traffic.group, **traffic.consuming)
    consumer.subscribe(traffic.topic)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with consumer:
            yield

    api = FastAPI(lifespan=lifespan)

    @api.get("/next")
    async def next_message(seconds: float) -> Response:
        try:
            async with asyncio.timeout(seconds):
                message = await consumer.receive()
        except TimeoutError:
            return Response(status_code=204)
        message.ack()
        return Response(message.body)

    found = []
    with TestClient(api) as client:
        traffic.send(*BODIES)
        tries = 0
        while len(found) < len(BODIES):
            response = client.get("/next", params={"seconds": limit_of(tries)})
            found += [response.content] if response.status_code == 200 else []
            tries += 1
    assert found == BODIES
    assert traffic.left() == []


def test_plain_endpoints_send_with_a_blocking_producer(traffic: Traffic) -> None:
    """FastAPI runs them in threads. The producer is opened in a thread, since it would block the loop."""
    producer = blocking.Producer("shop", serializer=Json(int), **traffic.producing)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(producer.start)
        yield
        await asyncio.to_thread(producer.close)

    api = FastAPI(lifespan=lifespan)

    @api.post("/orders/{number}")
    def order(number: int) -> str:
        return producer.send_value(traffic.topic, number).message_id

    with in_time(), TestClient(api) as client, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda number: client.post(f"/orders/{number}").status_code, range(12)))
    assert answers == [200] * 12
    assert Counter(traffic.left()) == Counter(BODIES)


def ask(url: str, method: str = "GET") -> Any:
    with urlopen(Request(url, method=method), timeout=LIMIT_SECONDS) as response:
        return json.load(response)


def test_uvicorn_that_is_stopped_stores_what_was_consumed(traffic: Traffic) -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: the extra frameworks has it")

    names = {"NAME_SERVER": traffic.name_server, "TOPIC": traffic.topic, "GROUP": traffic.group}
    environment = {
        **os.environ,
        **{f"SERVICE_{name}": value for name, value in names.items()},
        "PYTHONPATH": os.pathsep.join([str(SOURCES), str(Path(__file__).parent)]),
        "PYTHONWARNINGS": "default::RuntimeWarning,default::ResourceWarning",
    }
    command = [sys.executable, "-m", "uvicorn", "service_of_fastapi:api", "--port", "0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        said = ""
        try:
            while (found := re.search(r"running on (http://\S+)", said)) is None:
                line = server.stderr.readline()
                assert line, said
                said += line
            url = found[1]
            assert len({ask(f"{url}/orders/{number}", "POST")["message"] for number in range(5)}) == 5
            assert sorted(ask(f"{url}/billed") for _ in range(5)) == [0, 1, 2, 3, 4]
        finally:
            server.send_signal(signal.SIGTERM)
        with in_time():
            said += server.communicate(timeout=LIMIT_SECONDS)[1]
    assert "Application shutdown complete" in said
    assert "Warning" not in said and "Traceback" not in said, said
    assert traffic.left() == []
