"""Measure the CPU time of one message in the Python client, against a broker in a process of its own.

    python benchmarks/python_client.py [--messages 60000] [--size 1024] [--server HOST:PORT] [--only NAME] [--json]

    send_many      every message a request of its own, 256 in flight
    send_batch     100 messages a request
    listen         push consumer, one message a call
    listen_batch   push consumer, up to 32 messages a call
    loop           push consumer, `async for`

CPU time does not depend on what else uses the machine; the rate by the wall clock is shown beside it and includes the
broker. The best of --rounds is shown. `--drivers java4,go` has the drivers of tests/interop send and
receive the same messages on the same broker, for comparison: their CPU time is the whole process's.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import trio

from triomq.broker.embedded import ProcessCluster
from triomq.client.administer.admin import Admin
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.results import ConsumeFromWhere
from triomq.client.produce.producer import Message, Producer
from triomq.protocol.message import MessageExt

ROOT = Path(__file__).resolve().parent.parent
QUEUES = 4
IN_FLIGHT = 256
BATCH = 100


class Runs:
    """The measured runs on one cluster; each has its own topic."""

    def __init__(self, server: str, messages: int, size_bytes: int) -> None:
        self.server = server
        self.messages = messages
        self.body = b"x" * size_bytes
        self._topics = 0

    async def topic(self) -> str:
        self._topics += 1
        name = f"Bench_{os.getpid()}_{self._topics}"
        async with Admin(name_server=self.server) as admin:
            await admin.create_topic(name, read_queues=QUEUES, write_queues=QUEUES)
        return name

    async def send_many(self) -> tuple[float, float]:
        topic = await self.topic()
        async with Producer("bench", name_server=self.server) as producer:
            await producer.send(Message(topic, self.body))
            watch = Watch()
            await producer.send_many((Message(topic, self.body) for _ in range(self.messages)), in_flight=IN_FLIGHT)
            return watch.stop()

    async def send_batch(self) -> tuple[float, float]:
        topic = await self.topic()
        async with Producer("bench", name_server=self.server) as producer:
            await producer.send(Message(topic, self.body))
            watch = Watch()
            await self._fill(producer, topic)
            return watch.stop()

    async def listen(self) -> tuple[float, float]:
        return await self._consume("listen")

    async def listen_batch(self) -> tuple[float, float]:
        return await self._consume("listen_batch")

    async def loop(self) -> tuple[float, float]:
        return await self._consume("loop")

    async def _fill(self, producer: Producer, topic: str) -> None:
        messages = [Message(topic, self.body) for _ in range(BATCH)]
        for _ in range(self.messages // BATCH):
            await producer.send_batch(messages)

    async def _consume(self, way: str) -> tuple[float, float]:
        topic = await self.topic()
        async with Producer("bench", name_server=self.server) as producer:
            await self._fill(producer, topic)
        rules = ConsumeRules(batch_max_size=32 if way == "listen_batch" else 1, max_cached_messages=4000, max_span=8000)
        left = self.messages // BATCH * BATCH
        done = trio.Event()

        async def one(message: MessageExt) -> None:
            several([message])

        async def many(messages: Any) -> None:
            several(messages)

        def several(messages: Any) -> None:
            nonlocal left
            left -= len(messages)
            if left <= 0:
                done.set()

        async with PushConsumer(
            f"{topic}_{way}",
            name_server=self.server,
            rules=rules,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer:
            consumer.subscribe(topic)
            watch = Watch()
            if way == "loop":
                async for message in consumer:
                    several([message])
                    if left <= 0:
                        break
            elif way == "listen":
                consumer.listen(one)
            else:
                consumer.listen_batch(many)
            await done.wait()
            return watch.stop()


class Watch:
    """Measures CPU time of this process and wall-clock time since its construction."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def stop(self) -> tuple[float, float]:
        return time.process_time() - self._cpu, time.perf_counter() - self._wall


def drive(kind: str, server: str, messages: int, size_bytes: int) -> dict[str, tuple[float, float]]:
    """Have a driver of another language send and receive the same messages, after a warm-up with a tenth of them.
    Return the CPU time of its process.
    """
    sys.path[:0] = [str(ROOT / "tests" / "interop"), str(ROOT / "tests" / "shared")]
    driver_command = importlib.import_module("interop_driver_set").driver_command
    driver_class = importlib.import_module("interop_drivers").Driver
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        driver = driver_class(f"bench-{kind}", driver_command(kind), directory)

        def cpu() -> float:
            fields = Path(f"/proc/{driver.child.process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        def lines(name: str, count: int) -> Path:
            path = directory / name
            path.write_bytes(b"".join(b"%07d%b\n" % (n, b"x" * (size_bytes - 7)) for n in range(count)))
            return path

        found: dict[str, tuple[float, float]] = {}
        try:
            for count, name in ((messages // 10, "warm"), (messages, "full")):
                common = {"namesrv": server, "topic": trio.run(Runs(server, 0, 1).topic) + kind + name}
                with_file = {"file": lines(name, count), "mode": "async"}
                began, wall = cpu(), time.perf_counter()
                driver.run("send-lines", **common, **with_file)
                found["send"] = (cpu() - began, time.perf_counter() - wall)
                began, wall = cpu(), time.perf_counter()
                received = driver.receive(**common, group=f"{common['topic']}_g", threads=1)
                received.wait_messages(count, 120)
                found["receive"] = (cpu() - began, time.perf_counter() - wall)
                received.stop()
        finally:
            driver.end()
        return found


def show(name: str, messages: int, cpu: float, wall: float) -> dict[str, object]:
    row = {
        "name": name,
        "cpu_us": round(cpu / messages * 1e6, 1),
        "per_core": round(messages / cpu) if cpu else 0,
        "wall_per_second": round(messages / wall),
    }
    print("{name:<20} {cpu_us:>8} us CPU  {per_core:>9}/s a core  {wall_per_second:>9}/s".format(**row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server")
    parser.add_argument("--only")
    parser.add_argument("--drivers", default="")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with ExitStack() as stack:
        server = options.server or stack.enter_context(ProcessCluster()).name_server
        runs = Runs(server, options.messages, options.size)
        ways: dict[str, Callable[[], Awaitable[tuple[float, float]]]] = {
            "send_many": runs.send_many,
            "send_batch": runs.send_batch,
            "listen": runs.listen,
            "listen_batch": runs.listen_batch,
            "loop": runs.loop,
        }
        for name, run in ways.items():
            if options.only in (None, name):
                cpu, wall = min(trio.run(run) for _ in range(options.rounds))
                rows.append(show(name, options.messages, cpu, wall))
        for kind in filter(None, options.drivers.split(",")):
            for name, (cpu, wall) in drive(kind, server, options.messages, options.size).items():
                rows.append(show(f"{kind} {name}", options.messages, cpu, wall))
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
