"""Compare the three facades of the Python client, in one process each time, against one broker in a process of its own.

    python benchmarks/python_facades.py [--messages 20000] [--seconds 2] [--rounds 3] [--only send,loop] [--json]

    send        one task (thread) that sends messages of 1 KiB one after the other
    send_64     64 tasks (threads) that do
    loop        push consumer, `async for` (`for`)
    receive     push consumer, `receive` and `message.ack()`
    ordered     `async for` over an ordered consumer
    listen      push consumer with a listener: `async def`, in `triomq.blocking` a plain function

The best of the rounds is shown, and the median of the ratios to trio, which is what counts. The three alternate in
every round, so that other load reaches them alike.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import trio

import triomq
from triomq import aio, blocking
from triomq.broker.embedded import ProcessCluster

QUEUES = 4
BATCH = 100
BODY = b"x" * 1024
MODULES: dict[str, Any] = {"trio": triomq, "asyncio": aio, "blocking": blocking}
_numbers = itertools.count()


class Load:
    """What a run needs: where the broker is, and how much to do."""

    def __init__(self, server: str, messages: int, seconds: float) -> None:
        self.server = server
        self.messages = messages
        self.seconds = seconds

    def topic(self, *, filled: bool) -> str:
        name = f"Facades_{os.getpid()}_{next(_numbers)}"
        with blocking.Admin(name_server=self.server) as admin:
            admin.create_topic(name, read_queues=QUEUES, write_queues=QUEUES)
        if filled:
            with blocking.Producer("fill", name_server=self.server) as producer:
                for _ in range(self.messages // BATCH):
                    producer.send_batch([triomq.Message(name, BODY) for _ in range(BATCH)])
        return name

    def consumer(self, facade: Any, topic: str, *, ordered: bool = False) -> Any:
        made = facade.PushConsumer(
            f"{topic}_g",
            name_server=self.server,
            ordered=ordered,
            rules=triomq.ConsumeRules(max_cached_messages=4000, max_span=8000),
            consume_from=triomq.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        made.subscribe(topic)
        return made

    @property
    def wanted(self) -> int:
        return self.messages // BATCH * BATCH


# Sends: a number a second.


async def send_awaited(load: Load, facade: Any, topic: str, tasks: int) -> float:
    sent = 0

    async with facade.Producer("facades", name_server=load.server) as producer:
        await producer.send(triomq.Message(topic, BODY))
        end = time.perf_counter() + load.seconds

        async def work() -> None:
            nonlocal sent
            while time.perf_counter() < end:
                await producer.send(triomq.Message(topic, BODY))
                sent += 1

        if facade is triomq:
            async with trio.open_nursery() as nursery:
                for _ in range(tasks):
                    nursery.start_soon(work)
        else:
            await asyncio.gather(*(work() for _ in range(tasks)))
    return sent / load.seconds


def send_blocking(load: Load, threads: int) -> float:
    topic = load.topic(filled=False)
    counts = [0] * threads
    with blocking.Producer("facades", name_server=load.server) as producer:
        producer.send(triomq.Message(topic, BODY))
        end = time.perf_counter() + load.seconds

        def work(nth: int) -> None:
            while time.perf_counter() < end:
                producer.send(triomq.Message(topic, BODY))
                counts[nth] += 1

        running = [threading.Thread(target=work, args=(nth,)) for nth in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    return sum(counts) / load.seconds


# Receiving.


async def consume_awaited(load: Load, facade: Any, topic: str, way: str) -> float:
    left = load.wanted
    done = trio.Event() if facade is triomq else asyncio.Event()

    async def one(_: Any) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            done.set()

    async with load.consumer(facade, topic, ordered=way == "ordered") as consumer:
        began = time.perf_counter()
        if way == "listen":
            consumer.listen(one)
            await done.wait()
        elif way == "receive":
            while left > 0:
                received = await consumer.receive()
                received.ack()
                left -= 1
        else:
            async for _ in consumer:
                left -= 1
                if left <= 0:
                    break
        return load.wanted / (time.perf_counter() - began)


def consume_blocking(load: Load, topic: str, way: str) -> float:
    left = itertools.count(1)
    done = threading.Event()

    def one(_: Any) -> None:
        if next(left) >= load.wanted:
            done.set()

    with load.consumer(blocking, topic, ordered=way == "ordered") as consumer:
        began = time.perf_counter()
        if way == "listen":
            consumer.listen(one)
            done.wait()
        elif way == "receive":
            for _ in range(load.wanted):
                consumer.receive().ack()
        else:
            for _ in consumer:
                if next(left) >= load.wanted:
                    break
        return load.wanted / (time.perf_counter() - began)


WAYS = ["send", "send_64", "loop", "receive", "ordered", "listen"]


def measure(load: Load, facade: str, way: str) -> float:
    tasks = 64 if way == "send_64" else 1
    if facade == "blocking":
        if way.startswith("send"):
            return send_blocking(load, tasks)
        return consume_blocking(load, load.topic(filled=True), way)
    if way.startswith("send"):
        main: Callable[[], Coroutine[Any, Any, float]] = partial(
            send_awaited, load, MODULES[facade], load.topic(filled=False), tasks
        )
    else:
        main = partial(consume_awaited, load, MODULES[facade], load.topic(filled=True), way)
    return trio.run(main) if facade == "trio" else asyncio.run(main())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(WAYS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with ProcessCluster() as cluster:
        load = Load(cluster.name_server, options.messages, options.seconds)
        for way in options.only.split(","):
            rounds = [{facade: measure(load, facade, way) for facade in MODULES} for _ in range(options.rounds)]
            best = {facade: max(rates[facade] for rates in rounds) for facade in MODULES}
            ratios = {one: statistics.median(rates[one] / rates["trio"] for rates in rounds) for one in MODULES}
            rows.append({"way": way, **{facade: round(rate) for facade, rate in best.items()}, "ratios": ratios})
            shares = "  ".join(f"{facade} {rate:>8.0f}/s ({ratios[facade]:.2f})" for facade, rate in best.items())
            print(f"{way:<8} {shares}", flush=True)
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
