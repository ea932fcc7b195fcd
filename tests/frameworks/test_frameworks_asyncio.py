"""Programs of asyncio alone, in its own loop and in uvloop: time limits, cancellation, task groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from framework_checks import BODIES, Traffic, in_time, limit_of

from triomq.aio import Producer, PushConsumer

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return what runs a program in each kind of loop."""
    if request.param == "asyncio":
        return asyncio.run
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed: the extra frameworks has it")

    def run_in_uvloop(program: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(program)

    return run_in_uvloop


async def by_timeout(consumer: PushConsumer[bytes], seconds: float) -> bytes | None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            message = await consumer.receive()
            message.ack()
            return message.body
    return None


async def by_wait_for(consumer: PushConsumer[bytes], seconds: float) -> bytes | None:
    with suppress(TimeoutError):
        message = await asyncio.wait_for(consumer.receive(), seconds)
        message.ack()
        return message.body
    return None


async def by_cancelling(consumer: PushConsumer[bytes], seconds: float) -> bytes | None:
    asking = asyncio.ensure_future(consumer.receive())
    done, _ = await asyncio.wait([asking], timeout=seconds)
    if not done:
        asking.cancel()
    # Who cancels a task may find that it had ended.
    with suppress(asyncio.CancelledError):
        message = await asking
        message.ack()
        return message.body
    return None


@pytest.mark.parametrize("take", [by_timeout, by_wait_for, by_cancelling])
def test_a_receive_that_ends_by_time_or_cancellation_takes_nothing(traffic: Traffic, run: Run, take: Any) -> None:
    async def program() -> list[bytes]:
        found: list[bytes] = []
        async with PushConsumer(traffic.group, **traffic.consuming) as consumer:
            consumer.subscribe(traffic.topic)
            async with Producer("asyncio", **traffic.producing) as producer, asyncio.TaskGroup() as tasks:
                tasks.create_task(producer.send_many(traffic.messages(), in_flight=1))
                tries = 0
                while len(found) < len(BODIES):
                    taken = await take(consumer, limit_of(tries))
                    tries += 1
                    found += [] if taken is None else [taken]
            with in_time():
                await consumer.__aexit__(None, None, None)
        return found

    assert run(program()) == BODIES
    assert traffic.left() == []


def test_a_loop_whose_task_is_cancelled_leaves_its_message_alone(traffic: Traffic, run: Run) -> None:
    async def program() -> list[bytes]:
        found: list[bytes] = []
        holding = asyncio.Event()

        async def consume() -> None:
            async with PushConsumer(traffic.group, **traffic.consuming) as consumer:
                consumer.subscribe(traffic.topic)
                async for message in consumer:
                    found.append(message.body)
                    if message.body == BODIES[5]:
                        holding.set()
                        await asyncio.Event().wait()

        async with Producer("asyncio", **traffic.producing) as producer:
            await producer.send_many(traffic.messages(), in_flight=1)
        consuming = asyncio.create_task(consume())
        await holding.wait()
        consuming.cancel()
        with in_time(), pytest.raises(asyncio.CancelledError):
            await consuming
        return found

    assert run(program()) == BODIES[:6]
    assert traffic.left() == BODIES[5:]


def test_a_failing_task_group_closes_clients_and_a_program_that_ends_leaves_nothing(traffic: Traffic, run: Run) -> None:
    async def program() -> None:
        async with (
            PushConsumer(traffic.group, **traffic.consuming) as consumer,
            Producer("asyncio", **traffic.producing) as producer,
        ):
            consumer.subscribe(traffic.topic)
            await producer.send_many(traffic.messages(), in_flight=1)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(asyncio.Event().wait())
                for _ in BODIES[:3]:
                    (await consumer.receive()).ack()
                for _ in BODIES[3:]:
                    tasks.create_task(consumer.receive())
                tasks.create_task(consumer.receive())  # waits, since there is no further message
                await asyncio.sleep(0)
                raise ConnectionError("no database")

    with in_time(), pytest.raises(ExceptionGroup) as caught:
        run(program())
    assert caught.group_contains(ConnectionError)
    assert traffic.left() == BODIES[3:]


def test_ctrl_c_in_asyncio_run_closes_what_is_open(traffic: Traffic, run: Run) -> None:
    """asyncio.run cancels the program at the first interrupt."""
    import signal

    async def program() -> None:
        async with PushConsumer(traffic.group, **traffic.consuming) as consumer:
            consumer.subscribe(traffic.topic)
            (await consumer.receive()).ack()
            asyncio.get_running_loop().call_later(0.05, signal.raise_signal, signal.SIGINT)
            for _ in BODIES:
                await asyncio.sleep(60)

    traffic.send(*BODIES)
    with in_time(), pytest.raises(KeyboardInterrupt):
        run(program())
    assert traffic.left() == BODIES[1:]
