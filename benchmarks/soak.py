"""Run clients that come and go for minutes, and check that the broker forgets them.

    bin/dev/bench-soak [--minutes 10] [--clients 200] [--json]

Two hundred clients have short lives against a NameServer and a broker in separate processes. Some send, some consume
and leave cleanly, some hold a pull and vanish during it. Their time-outs are long, because the subject is what is left
behind, not speed. On a machine that is too busy for the clients' own event loop, one life in a thousand may still fail
to connect within three seconds.

The broker's own memory is sampled all the time: its value after all clients have left is compared with the middle
third. Then the broker is queried: no group may have a member, no producer may be known, and no socket may be open that
was not open before. The exit code is 1 if one of these fails. Linux only.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import trio

from benchmarks.watch import MIB, Watch, daemon, free_port, is_flat, open_sockets, own_memory_bytes
from triomq.client.api import Message, MQClientError, Producer, PushConsumer
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.remoting.client import RemotingClient, open_client
from triomq.remoting.config import ClientSettings
from triomq.remoting.errors import RemotingError

TOPICS = 10
GROUPS = 20
PATIENCE_SECONDS = 60.0
LIFE_SECONDS = 180.0
LEAVE_SECONDS = 30.0
SAMPLE_SECONDS = 1.0
KEPT_STORIES = 5
ALLOWED_GROWTH = 0.05
ALLOWED_GROWTH_BYTES = 4 * MIB


@dataclass
class Report:
    """The results. Memory in bytes: before the first client, in the middle third of the run, after all have left."""

    minutes: float
    clients: int
    lives: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    stories: list[str] = field(default_factory=list)
    messages_sent: int = 0
    messages_received: int = 0
    slowest_send_seconds: float = 0.0
    watch: Watch = field(default_factory=lambda: Watch(SAMPLE_SECONDS))
    before_bytes: int = 0
    during_bytes: int = 0
    after_bytes: int = 0
    left_over: list[str] = field(default_factory=list)

    @property
    def is_flat(self) -> bool:
        return is_flat(self.during_bytes, self.after_bytes, growth=ALLOWED_GROWTH, growth_bytes=ALLOWED_GROWTH_BYTES)

    @property
    def is_good(self) -> bool:
        lives, failures = sum(self.lives.values()), sum(self.failures.values())
        return self.is_flat and not self.left_over and lives > 0 and failures * 1000 <= lives

    def text(self) -> str:
        """Return the report as lines."""
        watch = self.watch
        lives = ", ".join(f"{count} {life}" for life, count in sorted(self.lives.items())) or "none"
        lines = [
            f"lives of clients in {self.minutes:g} minutes: {lives}",
            "failed: " + (", ".join(f"{count} x {reason}" for reason, count in self.failures.items()) or "none"),
            *(f"    {story}" for story in self.stories),
            f"messages: {self.messages_sent} sent, {self.messages_received} received; the slowest send took "
            f"{self.slowest_send_seconds:.2f} s, the clients' own event loop was late by {watch.late_seconds:.2f} s",
            f"the broker's own memory: {self.before_bytes / MIB:.1f} MiB before, {self.during_bytes / MIB:.1f} MiB in "
            f"the middle third, at most {max(watch.memory_bytes) / MIB:.1f} MiB, {self.after_bytes / MIB:.1f} MiB "
            "after: " + ("flat" if self.is_flat else "NOT FLAT"),
            f"descriptors: at most {max(watch.descriptors)}; left over: " + ("; ".join(self.left_over) or "nothing"),
        ]
        return "\n".join(lines)


class Soak:
    """The clients of one run."""

    def __init__(self, report: Report, name_server: str, broker: str, seed: int) -> None:
        self.report = report
        self._name_server = name_server
        self._broker = broker
        self._random = random.Random(seed)

    async def client(self, number: int, end: float) -> None:
        """Run one slot of clients: one life after the other until the time is up."""
        lives: dict[str, Callable[[int], Awaitable[None]]] = {
            "producers": self._producer,
            "consumers": self._consumer,
            "dead": self._dead,
        }
        while trio.current_time() < end:
            await trio.sleep(self._random.uniform(0, 4))
            name = self._random.choice(list(lives))
            try:
                with trio.fail_after(LIFE_SECONDS):
                    await lives[name](number)
                self.report.lives[name] = self.report.lives.get(name, 0) + 1
            except* (MQClientError, RemotingError, trio.TooSlowError, OSError) as error:
                self._failed(name, error)

    def _failed(self, name: str, error: BaseException) -> None:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        reason = f"{name}: {type(error).__name__}"
        self.report.failures[reason] = self.report.failures.get(reason, 0) + 1
        if len(self.report.stories) < KEPT_STORIES:
            self.report.stories.append(story(name, error))

    async def make_topics(self) -> None:
        """Create the topics before the run, so that no client waits for one."""
        async with self._new_producer("soak_p0") as producer:
            for number in range(TOPICS):
                await producer.send(Message(f"Soak_{number}", b"first"))

    def _new_producer(self, group: str) -> Producer:
        return Producer(
            group,
            name_server=self._name_server,
            send_timeout_seconds=PATIENCE_SECONDS,
            request_timeout_seconds=PATIENCE_SECONDS,
        )

    def _topic(self) -> str:
        return f"Soak_{self._random.randrange(TOPICS)}"

    async def _producer(self, number: int) -> None:
        async with self._new_producer(f"soak_p{number % GROUPS}") as producer:
            for index in range(self._random.randrange(1, 10)):
                began = trio.current_time()
                await producer.send(Message(self._topic(), b"x" * 200, keys=f"{number}-{index}"))
                slowest = max(self.report.slowest_send_seconds, trio.current_time() - began)
                self.report.slowest_send_seconds = slowest
                self.report.messages_sent += 1
                await trio.sleep(self._random.uniform(0, 0.5))

    async def _consumer(self, number: int) -> None:
        group = number % GROUPS
        async with PushConsumer(
            f"soak_c{group}", name_server=self._name_server, request_timeout_seconds=PATIENCE_SECONDS
        ) as consumer:
            consumer.subscribe(f"Soak_{group % TOPICS}", "*")
            with trio.move_on_after(self._random.uniform(0.5, 4)):
                async for _ in consumer:
                    self.report.messages_received += 1

    async def _dead(self, number: int) -> None:
        """Live as a client that registers, holds a pull, and vanishes without closing."""
        group = f"soak_d{number % GROUPS}"
        async with open_client(ClientSettings(connect_timeout_ms=int(PATIENCE_SECONDS * 1000))) as client:
            await client.invoke(self._broker, heartbeat(group, self._topic(), f"dead@{number}"), PATIENCE_SECONDS)
            with trio.move_on_after(self._random.uniform(0.2, 1)):
                answer = await client.invoke(self._broker, held_pull(group), PATIENCE_SECONDS)
                self.report.left_over.append(f"a pull was not held: {answer.code} {answer.remark}")


def story(life: str, error: BaseException) -> str:
    """Describe which life failed, how, why, and where in the project's code."""
    causes = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < 4:
        causes.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__ or cause.__context__
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    return f"{life}: {' <- '.join(causes)} ({' '.join(places[-4:])})"


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
    """Return a pull of the group's retry topic, which its heartbeat created and which stays empty."""
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
    """Return what the broker still knows of clients that have left."""
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


async def run(report: Report, name_server: str, broker: str, broker_pid: int, seed: int) -> None:
    soak = Soak(report, name_server, broker, seed)
    report.before_bytes = own_memory_bytes(broker_pid)
    sockets_before = open_sockets(broker_pid)
    await soak.make_topics()
    async with trio.open_nursery() as watching:
        watching.start_soon(report.watch.run, broker_pid)
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
    report.during_bytes = report.watch.memory_between(1 / 3, 2 / 3)
    report.after_bytes = own_memory_bytes(broker_pid)


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
            "mappedFileSizeCommitLog": str(64 * MIB),
            # The slots of the newest index file are anonymous memory: 20 MiB by default, touched gradually.
            "maxHashSlotNum": "50000",
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
    else:
        print(report.text())
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
