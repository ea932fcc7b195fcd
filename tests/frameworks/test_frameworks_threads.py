"""Plain threads and thread pools with triomq.blocking."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest
from framework_checks import BODIES, LIMIT_SECONDS, Traffic, in_time, limit_of

from triomq.blocking import ClientClosed, Message, Producer, PushConsumer


def test_a_pool_sends_and_receives_with_one_client(traffic: Traffic) -> None:
    with (
        PushConsumer(traffic.group, **traffic.consuming) as consumer,
        Producer("pool", **traffic.producing) as producer,
        ThreadPoolExecutor(2 * len(BODIES)) as pool,
    ):
        consumer.subscribe(traffic.topic)

        def take(_: int) -> bytes:
            # Short limits end between messages; they take nothing.
            tries = 0
            while (message := consumer.receive(limit_of(tries))) is None:
                tries += 1
            message.ack()
            return message.body

        taking = pool.map(take, range(len(BODIES)))
        sent = list(pool.map(producer.send, traffic.messages()))
        assert len({result.message_id for result in sent}) == len(BODIES)
        assert Counter(taking) == Counter(BODIES)
    assert traffic.left() == []


def test_a_message_is_settled_by_the_thread_that_works_on_it(traffic: Traffic) -> None:
    traffic.send(*BODIES)
    with in_time(), PushConsumer(traffic.group, **traffic.consuming) as consumer, ThreadPoolExecutor(4) as pool:
        consumer.subscribe(traffic.topic)
        for _ in BODIES:
            message = consumer.receive(LIMIT_SECONDS)
            assert message is not None
            pool.submit(message.ack)
    assert traffic.left() == []


def test_each_thread_has_a_loop_of_its_own_and_closing_ends_all(traffic: Traffic) -> None:
    found: SimpleQueue[bytes] = SimpleQueue()
    ended: SimpleQueue[str] = SimpleQueue()
    consumer = PushConsumer[bytes](traffic.group, **traffic.consuming).start()
    consumer.subscribe(traffic.topic)

    def work() -> None:
        try:
            for message in consumer:
                found.put(message.body)
            ended.put("waiting")
        except ClientClosed:
            ended.put("with a message")

    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    # What a loop holds is settled when it asks for the next message: three further ones are the last in hand.
    traffic.send(*BODIES, b"held", b"held", b"held")
    assert Counter(found.get(timeout=LIMIT_SECONDS) for _ in range(len(BODIES) + 3)) == Counter(
        [*BODIES, b"held", b"held", b"held"]
    )
    with in_time():
        consumer.close()
        for thread in threads:
            thread.join()
    assert {ended.get(timeout=0) for _ in threads} <= {"waiting", "with a message"}
    assert set(traffic.left()) <= {b"held"}


def test_a_producer_of_a_module_is_opened_once_by_the_first_of_many_threads(traffic: Traffic) -> None:
    lock, opened = threading.Lock(), []

    def producer() -> Producer[bytes]:
        with lock:
            if not opened:
                opened.append(Producer[bytes]("module", **traffic.producing).start())
            return opened[0]

    threads = [
        threading.Thread(target=lambda body=body: producer().send(Message(traffic.topic, body))) for body in BODIES
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with in_time():
        producer().close()
    with pytest.raises(ClientClosed):
        opened[0].send(Message(traffic.topic, b"late"))
    assert Counter(traffic.left()) == Counter(BODIES)
