"""Programs of trio: nurseries, cancel scopes, and a program that Ctrl-C ends."""

from __future__ import annotations

import signal

import pytest
import trio
from framework_checks import BODIES, Traffic, in_time, limit_of

from triomq import Producer, PushConsumer


@pytest.mark.parametrize("fails", [False, True])
def test_a_receive_in_a_scope_that_ends_takes_nothing(traffic: Traffic, fails: bool) -> None:
    async def take(consumer: PushConsumer[bytes], seconds: float) -> list[bytes]:
        try:
            with trio.fail_after(seconds) if fails else trio.move_on_after(seconds):
                delivery = await consumer.receive()
                delivery.ack()
                return [delivery.message.body]
        except trio.TooSlowError:
            pass
        return []

    async def program() -> list[bytes]:
        found: list[bytes] = []
        async with PushConsumer(traffic.group, **traffic.consuming) as consumer, trio.open_nursery() as nursery:
            consumer.subscribe(traffic.topic)

            async def send() -> None:
                async with Producer("trio", **traffic.producing) as producer:
                    await producer.send_many(traffic.messages(), in_flight=1)

            nursery.start_soon(send)
            tries = 0
            while len(found) < len(BODIES):
                found += await take(consumer, limit_of(tries))
                tries += 1
        return found

    with in_time():
        assert trio.run(program) == BODIES
    assert traffic.left() == []


def test_a_nursery_that_is_cancelled_around_a_loop_leaves_its_message_alone(traffic: Traffic) -> None:
    found: list[bytes] = []

    async def program() -> None:
        async with trio.open_nursery() as nursery:

            async def consume() -> None:
                async with PushConsumer(traffic.group, **traffic.consuming) as consumer:
                    consumer.subscribe(traffic.topic)
                    async for message in consumer:
                        found.append(message.body)
                        if message.body == BODIES[5]:
                            nursery.cancel_scope.cancel()
                            await trio.sleep_forever()

            nursery.start_soon(consume)

    traffic.send(*BODIES)
    with in_time():
        trio.run(program)
    assert found == BODIES[:6]
    assert traffic.left() == BODIES[5:]


def test_ctrl_c_stores_what_was_acknowledged(traffic: Traffic) -> None:
    async def program() -> None:
        async with PushConsumer(traffic.group, **traffic.consuming) as consumer:
            consumer.subscribe(traffic.topic)
            for _ in BODIES[:4]:
                (await consumer.receive()).ack()
            signal.raise_signal(signal.SIGINT)
            await trio.sleep_forever()

    traffic.send(*BODIES)
    with in_time(), pytest.raises(BaseException) as caught:
        trio.run(program)
    error = caught.value
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, KeyboardInterrupt)
    assert traffic.left() == BODIES[4:]
