"""Clients that come and go for minutes: does the broker forget them?

    bin/bench-soak [--minutes 10] [--clients 200] [--json]

Two hundred clients live short lives against a NameServer and a broker that are processes of their own: some send, some
consume and leave in order, some hold a pull and drop dead in the middle of it. The broker's own memory (RssAnon, so
without the mapped files of its store) is looked at all the time; what it has after the first third is compared with
what it has when all clients have left. Then the broker is asked about them: no group may have a member, no producer may
be known, and no socket may be open that was not before. Exit code 1 when something of that is not so. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import trio

from mqclient.api import Message, MQClientError, Producer, PushConsumer
from protocol.codes import RequestCode, ResponseCode
from protocol.command import RemotingCommand, new_request
from remoting.client import RemotingClient, open_client
from remoting.errors import RemotingError

PROJECT = Path(__file__).resolve().parent.parent
TOPICS = 10
GROUPS = 20
BOOT_SECONDS = 30.0
LEAVE_SECONDS = 30.0
WARM_PART = 1 / 3
KEPT_FAILURES = 5
ALLOWED_GROWTH = 0.10
ALLOWED_GROWTH_BYTES = 4 << 20


@dataclass
class Report:
    """What was seen. Memory in bytes. late_seconds: how late the clients' own event loop was at worst; where that comes
    near their time-outs of three seconds, lives fail for want of a processor."""

    minutes: float
    clients: int
    lives: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    failures: int = 0
    first_failures: list[str] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)
    late_seconds: float = 0.0
    warm_bytes: int = 0
    end_bytes: int = 0
    left_over: list[str] = field(default_factory=list)

    @property
    def is_flat(self) -> bool:
        return self.end_bytes <= self.warm_bytes * (1 + ALLOWED_GROWTH) + ALLOWED_GROWTH_BYTES

    @property
    def is_good(self) -> bool:
        return self.is_flat and not self.left_over and self.lives > 0 and self.failures * 100 <= self.lives


def free_port() -> int:
    """One with the ports two below and one above it."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        try:
            for step in (-2, 0, 1):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port + step))
        except OSError:
            continue
        return port


def own_memory_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status says nothing of RssAnon")


def open_sockets(pid: int) -> int:
    found = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += str(entry.readlink()).startswith("socket:")
        except OSError:
            continue  # closed meanwhile
    return found


@contextmanager
def daemon(module: str, lines: dict[str, str], directory: Path) -> Iterator[int]:
    """A daemon that runs until the block ends; its pid. Raises RuntimeError when it does not come up."""
    conf = directory / f"{module}.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    environment = dict(os.environ, PYTHONPATH=str(PROJECT), HOME=str(directory))
    with (directory / f"{module}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, "-c", str(conf)], env=environment, stdout=log, stderr=log, cwd=directory
        )
    try:
        deadline = time.monotonic() + BOOT_SECONDS
        while b"boot success" not in (directory / f"{module}.log").read_bytes():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{module} did not start: {(directory / f'{module}.log').read_text()}")
            select_nothing()
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def select_nothing() -> None:
    """A short wait before the trio run begins."""
    import select

    select.select([], [], [], 0.02)


class Soak:
    """The clients of one run."""

    def __init__(self, report: Report, name_server: str, broker: str, seed: int) -> None:
        self.report = report
        self._name_server = name_server
        self._broker = broker
        self._random = random.Random(seed)

    async def client(self, number: int, end: float) -> None:
        """One place for a client: lives follow each other until the time is over."""
        lives = (self._producer, self._consumer, self._dead)
        while trio.current_time() < end:
            await trio.sleep(self._random.uniform(0, 4))
            life = self._random.choice(lives)
            try:
                with trio.fail_after(60):
                    await life(number)
                self.report.lives += 1
            except* (MQClientError, RemotingError, trio.TooSlowError, OSError) as error:
                self.report.failures += 1
                if len(self.report.first_failures) < KEPT_FAILURES:
                    self.report.first_failures.append(story(life.__name__, error))

    def _topic(self) -> str:
        return f"Soak_{self._random.randrange(TOPICS)}"

    async def _producer(self, number: int) -> None:
        async with Producer(f"soak_p{number % GROUPS}", name_server=self._name_server) as producer:
            for index in range(self._random.randrange(1, 10)):
                await producer.send(Message(self._topic(), b"x" * 200, keys=f"{number}-{index}"))
                self.report.messages_sent += 1
                await trio.sleep(self._random.uniform(0, 0.5))

    async def _consumer(self, number: int) -> None:
        group = number % GROUPS
        async with PushConsumer(f"soak_c{group}", name_server=self._name_server) as consumer:
            consumer.subscribe(f"Soak_{group % TOPICS}", "*")
            with trio.move_on_after(self._random.uniform(0.5, 4)):
                async for _ in consumer:
                    self.report.messages_received += 1

    async def _dead(self, number: int) -> None:
        """A client that says who it is, holds a pull, and is gone without a word."""
        group = f"soak_d{number % GROUPS}"
        async with open_client() as client:
            await client.invoke(self._broker, heartbeat(group, self._topic(), f"dead@{number}"), 10)
            with trio.move_on_after(self._random.uniform(0.2, 1)):
                answer = await client.invoke(self._broker, held_pull(group), 20)
                self.report.left_over.append(f"a pull was not held: {answer.code} {answer.remark}")


def story(life: str, error: BaseException) -> str:
    """Which life failed, how, what was the cause of it, and where in the project's own code."""
    causes = []
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    cause: BaseException | None = error
    while cause is not None and len(causes) < 4:
        causes.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__ or cause.__context__
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    return f"{life.strip('_')}: {' <- '.join(causes)} ({' '.join(places[-4:])})"


def heartbeat(group: str, topic: str, client_id: str) -> RemotingCommand:
    subscription = {"topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{"classFilterMode": False, "tagsSet": [], "codeSet": [], **subscription}],
        "unitMode": False,
    }
    data = {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": [{"groupName": group}]}
    return new_request(RequestCode.HEART_BEAT, ext_fields={}, body=json.dumps(data).encode())


def held_pull(group: str) -> RemotingCommand:
    """A pull of the group's retry topic, which its heartbeat made and where nothing ever comes."""
    fields = {
        "consumerGroup": group,
        "topic": f"%RETRY%{group}",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return new_request(RequestCode.PULL_MESSAGE, ext_fields=fields)


async def left_over(client: RemotingClient, broker: str) -> list[str]:
    """What the broker still knows of clients that are gone."""
    found: list[str] = []
    for kind in "cd":
        for number in range(GROUPS):
            group = f"soak_{kind}{number}"
            fields = {"consumerGroup": group}
            answer = await client.invoke(
                broker, new_request(RequestCode.GET_CONSUMER_CONNECTION_LIST, ext_fields=fields), 10
            )
            if answer.code != ResponseCode.CONSUMER_NOT_ONLINE:
                found.append(f"consumer group {group} has members")
    answer = await client.invoke(broker, new_request(RequestCode.GET_ALL_PRODUCER_INFO, ext_fields={}), 10)
    if answer.code != ResponseCode.SUCCESS or b"soak_" in answer.body:
        found.append(f"producers: {answer.code} {answer.body[:200]!r}")
    return found


async def watch(report: Report, pid: int) -> None:
    while True:
        report.memory_bytes.append(own_memory_bytes(pid))
        due = trio.current_time() + 1
        await trio.sleep_until(due)
        report.late_seconds = max(report.late_seconds, trio.current_time() - due)


async def run(report: Report, name_server: str, broker: str, broker_pid: int, seed: int) -> None:
    soak = Soak(report, name_server, broker, seed)
    sockets_before = open_sockets(broker_pid)
    async with trio.open_nursery() as watching:
        watching.start_soon(watch, report, broker_pid)
        end = trio.current_time() + report.minutes * 60
        async with trio.open_nursery() as clients:
            for number in range(report.clients):
                clients.start_soon(soak.client, number, end)
        watching.cancel_scope.cancel()
    known = ["the broker was not asked"]
    async with open_client() as client:
        with trio.move_on_after(LEAVE_SECONDS):
            while True:
                known = await left_over(client, broker)
                if not known:
                    break
                await trio.sleep(0.5)
        report.left_over += known
    for _ in range(int(LEAVE_SECONDS * 10)):
        if open_sockets(broker_pid) <= sockets_before:
            break
        await trio.sleep(0.1)
    if open_sockets(broker_pid) > sockets_before:
        report.left_over.append(f"{open_sockets(broker_pid) - sockets_before} sockets of clients are open")
    first = int(len(report.memory_bytes) * WARM_PART)
    warm = report.memory_bytes[first : max(first + 1, 2 * first)]
    report.warm_bytes = int(statistics.median(warm))
    report.end_bytes = own_memory_bytes(broker_pid)


def soak(minutes: float, clients: int, *, seed: int = 1) -> Report:
    """Run the daemons and the clients."""
    report = Report(minutes, clients)
    with tempfile.TemporaryDirectory(prefix="triomq-soak-") as name:
        directory = Path(name)
        name_server = f"127.0.0.1:{free_port()}"
        port = free_port()
        broker = {
            "listenPort": str(port),
            "brokerIP1": "127.0.0.1",
            "brokerName": "broker-a",
            "namesrvAddr": name_server,
            "storePathRootDir": str(directory / "store"),
            "mappedFileSizeCommitLog": str(64 << 20),
            "autoCreateTopicEnable": "true",
        }
        with (
            daemon("namesrv", {"listenPort": name_server.rpartition(":")[2]}, directory),
            daemon("broker", broker, directory) as pid,
        ):
            trio.run(run, report, name_server, f"127.0.0.1:{port}", pid, seed)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description="Clients that come and go, and what the broker keeps of them.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not 0 < options.minutes <= 24 * 60 or not 0 < options.clients <= 2000:
        parser.error("--minutes up to a day, --clients up to 2000")
    report = soak(options.minutes, options.clients, seed=options.seed)
    if options.json:
        print(json.dumps({**asdict(report), "is_flat": report.is_flat, "is_good": report.is_good}))
        return 0 if report.is_good else 1
    print(f"{report.lives} client lives in {report.minutes:g} minutes, {report.failures} of them failed")
    for failure in report.first_failures:
        print(f"    {failure}")
    print(f"the clients' own event loop was late by {report.late_seconds:.1f} s at worst")
    print(f"{report.messages_sent} messages sent, {report.messages_received} received")
    mib = 1 << 20
    print(
        f"the broker's own memory: {report.warm_bytes / mib:.1f} MiB after warm-up, at most "
        f"{max(report.memory_bytes) / mib:.1f} MiB, {report.end_bytes / mib:.1f} MiB at the end: "
        + ("flat" if report.is_flat else "NOT FLAT")
    )
    print("left over: " + ("; ".join(report.left_over) or "nothing"))
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
