"""Compare the three facades of the Python client, in one process each time, against one broker in a process of its own.

    python -m benchmarks.python_facades [--messages 20000] [--seconds 2] [--rounds 3] [--only send,loop] [--cpu]

    send        one task (thread) that sends messages of 1 KiB one after the other
    send_64     64 tasks (threads) that do
    send_many   every message a request of its own, as many in flight as `send_many` has by itself
    send_batch  100 messages a request
    loop        push consumer, `async for` (`for`)
    receive     push consumer, `receive` and `message.ack()`
    ordered     `async for` over an ordered consumer
    listen      push consumer with a listener: `async def`, in `triomq.blocking` a plain function

The best of the rounds is shown, and the median of the ratios to trio, which is what counts. The three alternate in
every round, so that other load reaches them alike. With `--cpu`: CPU time of this process for each message, user and
system, as the median of the rounds; opening and closing the client do not count.

`--sends N` ends `send` and `send_64` after N messages instead of a time, `--server` names a NameServer that runs
already, and `--facades` some of the three.
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
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

import trio

import triomq
from benchmarks.cpu_watch import Took, Watch
from triomq import aio, blocking
from triomq.broker.embedded import ProcessCluster

QUEUES = 4
BATCH = 100
BODY = b"x" * 1024
BATCH_WAYS = ("send_many", "send_batch")
MODULES: dict[str, Any] = {"trio": triomq, "asyncio": aio, "blocking": blocking}
_numbers = itertools.count()


class Load:
    """What a run needs: where the broker is, and how much to do."""

    def __init__(self, server: str, messages: int, seconds: float, sends: int | None = None) -> None:
        self.server = server
        self.messages = messages
        self.seconds = seconds
        self.sends = sends

    def turns(self, tasks: int) -> Iterable[Any]:
        """Return an iterable with an item for each message that one of this number of tasks sends."""
        if self.sends is not None:
            return range(max(1, self.sends // tasks))
        end = time.perf_counter() + self.seconds
        return iter(lambda: time.perf_counter() < end, False)

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


# Sends.


async def send_awaited(load: Load, facade: Any, topic: str, tasks: int) -> Took:
    sent = 0

    async with facade.Producer("facades", name_server=load.server) as producer:
        await producer.send(triomq.Message(topic, BODY))
        watch = Watch()

        async def work() -> None:
            nonlocal sent
            for _ in load.turns(tasks):
                await producer.send(triomq.Message(topic, BODY))
                sent += 1

        if facade is triomq:
            async with trio.open_nursery() as nursery:
                for _ in range(tasks):
                    nursery.start_soon(work)
        else:
            await asyncio.gather(*(work() for _ in range(tasks)))
        return watch.took(sent)


async def send_together(load: Load, facade: Any, topic: str, way: str) -> Took:
    async with facade.Producer("facades", name_server=load.server) as producer:
        await producer.send(triomq.Message(topic, BODY))
        watch = Watch()
        if way == "send_many":
            await producer.send_many(triomq.Message(topic, BODY) for _ in range(load.wanted))
        else:
            for _ in range(load.messages // BATCH):
                await producer.send_batch([triomq.Message(topic, BODY) for _ in range(BATCH)])
        return watch.took(load.wanted)


def send_together_blocking(load: Load, way: str) -> Took:
    topic = load.topic(filled=False)
    with blocking.Producer("facades", name_server=load.server) as producer:
        producer.send(triomq.Message(topic, BODY))
        watch = Watch()
        if way == "send_many":
            producer.send_many(triomq.Message(topic, BODY) for _ in range(load.wanted))
        else:
            for _ in range(load.messages // BATCH):
                producer.send_batch([triomq.Message(topic, BODY) for _ in range(BATCH)])
        return watch.took(load.wanted)


def send_blocking(load: Load, threads: int) -> Took:
    topic = load.topic(filled=False)
    counts = [0] * threads
    with blocking.Producer("facades", name_server=load.server) as producer:
        producer.send(triomq.Message(topic, BODY))
        watch = Watch()

        def work(nth: int) -> None:
            for _ in load.turns(threads):
                producer.send(triomq.Message(topic, BODY))
                counts[nth] += 1

        running = [threading.Thread(target=work, args=(nth,)) for nth in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return watch.took(sum(counts))


# Receiving.


async def consume_awaited(load: Load, facade: Any, topic: str, way: str) -> Took:
    left = load.wanted
    done = trio.Event() if facade is triomq else asyncio.Event()

    async def one(_: Any) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            done.set()

    async with load.consumer(facade, topic, ordered=way == "ordered") as consumer:
        watch = Watch()
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
        return watch.took(load.wanted)


def consume_blocking(load: Load, topic: str, way: str) -> Took:
    left = itertools.count(1)
    done = threading.Event()

    def one(_: Any) -> None:
        if next(left) >= load.wanted:
            done.set()

    with load.consumer(blocking, topic, ordered=way == "ordered") as consumer:
        watch = Watch()
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
        return watch.took(load.wanted)


WAYS = ["send", "send_64", *BATCH_WAYS, "loop", "receive", "ordered", "listen"]


def measure(load: Load, facade: str, way: str) -> Took:
    tasks = 64 if way == "send_64" else 1
    if facade == "blocking":
        if way in BATCH_WAYS:
            return send_together_blocking(load, way)
        if way.startswith("send"):
            return send_blocking(load, tasks)
        return consume_blocking(load, load.topic(filled=True), way)
    module = MODULES[facade]
    main: Callable[[], Coroutine[Any, Any, Took]]
    if way in BATCH_WAYS:
        main = partial(send_together, load, module, load.topic(filled=False), way)
    elif way.startswith("send"):
        main = partial(send_awaited, load, module, load.topic(filled=False), tasks)
    else:
        main = partial(consume_awaited, load, module, load.topic(filled=True), way)
    return trio.run(main) if facade == "trio" else asyncio.run(main())


def row_of(way: str, rounds: list[dict[str, Took]]) -> dict[str, Any]:
    """Return the figures of one way, by facade: the best rate, the median ratio to the first, the median CPU time."""
    first, *_ = facades = list(rounds[0])
    return {
        "way": way,
        **{one: round(max(took[one].rate for took in rounds)) for one in facades},
        "ratios": {one: statistics.median(took[one].rate / took[first].rate for took in rounds) for one in facades},
        "cpu_us": {one: round(statistics.median(took[one].cpu_us for took in rounds), 1) for one in facades},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--sends", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(WAYS))
    parser.add_argument("--facades", default=",".join(MODULES))
    parser.add_argument("--server")
    parser.add_argument("--cpu", action="store_true", help="show the CPU time of a message instead of rates")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    facades = options.facades.split(",")
    rows = []
    with ExitStack() as stack:
        server = options.server or stack.enter_context(ProcessCluster()).name_server
        load = Load(server, options.messages, options.seconds, options.sends)
        for way in options.only.split(","):
            rounds = [{facade: measure(load, facade, way) for facade in facades} for _ in range(options.rounds)]
            row = row_of(way, rounds)
            rows.append(row)
            if options.cpu:
                shares = "  ".join(f"{one} {row['cpu_us'][one]:>7.1f} us" for one in facades)
            else:
                shares = "  ".join(f"{one} {row[one]:>8.0f}/s ({row['ratios'][one]:.2f})" for one in facades)
            print(f"{way:<10} {shares}", flush=True)
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
