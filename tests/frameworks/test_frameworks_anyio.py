"""Programs of anyio, on asyncio with triomq.aio and on trio with triomq: task groups and cancel scopes."""

from __future__ import annotations

from typing import Any

import pytest
from framework_checks import BODIES, LIMIT_SECONDS, Traffic, in_time, limit_of

import triomq
from triomq import aio

anyio = pytest.importorskip("anyio", reason="anyio is not installed: the extra frameworks has it")


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def client(backend: str) -> Any:
    return aio if backend == "asyncio" else triomq


def body_of(message: Any) -> bytes:
    """Settle what `receive` of either client returned, and return its body."""
    message.ack()
    return bytes(getattr(message, "message", message).body)


@pytest.mark.parametrize("scope", ["move_on_after", "fail_after", "cancel"])
def test_a_receive_in_a_scope_that_ends_takes_nothing(traffic: Traffic, backend: str, scope: str) -> None:
    async def take(consumer: Any, seconds: float) -> list[bytes]:
        if scope == "move_on_after":
            with anyio.move_on_after(seconds):
                return [body_of(await consumer.receive())]
        elif scope == "fail_after":
            try:
                with anyio.fail_after(seconds):
                    return [body_of(await consumer.receive())]
            except TimeoutError:
                return []
        else:
            found = []

            async def receive() -> None:
                found.append(body_of(await consumer.receive()))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(receive)
                await anyio.sleep(seconds)
                tasks.cancel_scope.cancel()
            return found
        return []

    async def program() -> list[bytes]:
        found: list[bytes] = []
        module = client(backend)
        async with module.PushConsumer(traffic.group, **traffic.consuming) as consumer:
            consumer.subscribe(traffic.topic)
            async with module.Producer("anyio", **traffic.producing) as producer, anyio.create_task_group() as tasks:

                async def send() -> None:
                    for message in traffic.messages():
                        await producer.send(message)

                tasks.start_soon(send)
                tries = 0
                while len(found) < len(BODIES):
                    found += await take(consumer, limit_of(tries))
                    tries += 1
        return found

    assert anyio.run(program, backend=backend) == BODIES
    assert traffic.left() == []


def test_a_scope_around_the_consumer_stores_what_was_acknowledged(traffic: Traffic, backend: str) -> None:
    """The block is left inside of a scope that is cancelled, where anyio cancels each wait again."""

    async def program() -> list[bytes]:
        found: list[bytes] = []
        with anyio.CancelScope() as scope:
            async with client(backend).PushConsumer(traffic.group, **traffic.consuming) as consumer:
                consumer.subscribe(traffic.topic)
                for _ in BODIES[:6]:
                    found.append(body_of(await consumer.receive()))
                scope.cancel()
                await consumer.receive()
        return found

    traffic.send(*BODIES)
    with in_time():
        assert anyio.run(program, backend=backend) == BODIES[:6]
    assert traffic.left() == BODIES[6:]


def test_a_send_in_a_scope_that_ends_leaves_the_producer_usable(traffic: Traffic, backend: str) -> None:
    async def program() -> None:
        module = client(backend)
        async with module.Producer("anyio", **traffic.producing) as producer:
            for tries in range(40):
                with anyio.move_on_after(0.0001 * tries):
                    await producer.send(triomq.Message(traffic.topic, b"may be stored"))
            with anyio.fail_after(LIMIT_SECONDS):
                for message in traffic.messages():
                    await producer.send(message)

    anyio.run(program, backend=backend)
    assert [body for body in traffic.left() if body != b"may be stored"] == BODIES


def test_a_listener_of_anyio_runs_where_the_program_does(traffic: Traffic, backend: str) -> None:
    async def program() -> list[bytes]:
        module = client(backend)
        giving, taking = anyio.create_memory_object_stream[bytes](len(BODIES))

        async def listen(message: Any) -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(giving.send, message.body)

        rules = triomq.ConsumeRules(concurrency=1)
        async with giving, taking, module.PushConsumer(traffic.group, rules=rules, **traffic.consuming) as consumer:
            consumer.subscribe(traffic.topic)
            consumer.listen(listen)
            with anyio.fail_after(LIMIT_SECONDS):
                return [await taking.receive() for _ in BODIES]

    traffic.send(*BODIES)
    with in_time():
        assert anyio.run(program, backend=backend) == BODIES
    assert traffic.left() == []
