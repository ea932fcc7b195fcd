"""Servers to test the client against, and what tests do with any of them.

Some effects follow the response. A topic created by its first send reaches the NameServer one-way. Apache's broker
fills its consume queues in another thread and handles one-way requests in other pools than the rest. So tests wait for
the effects that they rely on: `send_all` returns when consumers can find the messages; `until` and `until_answer` poll.
"""

from __future__ import annotations

import subprocess
import threading
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import trio

from triomq.client.administer.admin import Admin
from triomq.client.api import Message, MessageQueue, NoRoute, Producer, SendResult
from triomq.protocol.trace_records import FIELD_END, LINE_END

LIMIT_SECONDS = 60
LOOK_SECONDS = 0.02

BROKER_SETTINGS = (
    # Requests that wait for a slow machine are not refused.
    "waitTimeMillsInSendQueue=60000",
    "waitTimeMillsInPullQueue=60000",
    "waitTimeMillsInHeartbeatQueue=60000",
    "waitTimeMillsInTransactionQueue=60000",
    "osPageCacheBusyTimeOutMills=60000",
    "enablePropertyFilter=true",
    "traceTopicEnable=true",
    "transactionTimeOut=1000",
    "transactionCheckInterval=2000",
    "messageDelayLevel=1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s",
)


@dataclass(frozen=True)
class Cluster:
    """A running NameServer and broker."""

    name_server: str
    broker: str
    is_apache: bool = False


def fresh(prefix: str = "T") -> str:
    """Return an unused name."""
    return f"{prefix}_{uuid.uuid4().hex[:10]}"


async def until(condition: Callable[[], bool]) -> None:
    """Poll until the condition holds."""
    with trio.fail_after(LIMIT_SECONDS):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(LOOK_SECONDS)


async def until_answer(ask: Callable[[], Awaitable[object]]) -> None:
    """Poll a call until its result fits; meanwhile the route of a topic may be unknown."""
    with trio.fail_after(LIMIT_SECONDS):
        while True:
            with suppress(NoRoute):
                if await ask():
                    return
            await trio.sleep(LOOK_SECONDS)


async def until_registered(cluster: Cluster) -> None:
    """Wait until producers find the broker: it may report its start a moment before the name server lists it."""
    async with Admin(name_server=cluster.name_server, timeout_seconds=LIMIT_SECONDS) as admin:
        await until_answer(partial(admin.route, "TBW102"))


async def send_all(cluster: Cluster, topic: str, bodies: Sequence[bytes], **options: str) -> list[MessageQueue]:
    """Send messages one after the other (`options` are those of Message). Return their queues once consumers can find
    all.
    """
    async with Producer(fresh("P"), name_server=cluster.name_server, send_timeout_seconds=LIMIT_SECONDS) as producer:
        results = [await producer.send(Message(topic, body, **options)) for body in bodies]
    await until_findable(cluster, topic, results)
    return [result.queue for result in results]


async def make_topic(cluster: Cluster) -> str:
    """Return an empty topic that the NameServer knows.

    A consumer that subscribes to a topic which its first message creates may skip that message: for an empty queue a
    broker of 5.x has no offset of the group, and asked for the end a moment later, it may count the message.
    """
    topic = fresh()
    async with Admin(name_server=cluster.name_server, timeout_seconds=LIMIT_SECONDS) as admin:
        await admin.create_topic(topic)
        await until_answer(partial(admin.route, topic))
    return topic


async def until_findable(cluster: Cluster, topic: str, results: Sequence[SendResult]) -> None:
    """Wait until the name server knows the topic and the consume queues hold the messages."""
    async with Admin(name_server=cluster.name_server, timeout_seconds=LIMIT_SECONDS) as admin:
        await until_answer(partial(_are_findable, admin, topic, results))


async def _are_findable(admin: Admin, topic: str, results: Sequence[SendResult]) -> bool:
    stats = (await admin.topic_stats(topic)).offset_table
    ends = {queue: one.max_offset for queue, one in stats.items()}
    return all(ends.get(result.queue, 0) > result.queue_offset for result in results)


class Daemon:
    """A process that prints a line once it is ready."""

    def __init__(self, *command: str, environment: Mapping[str, str] | None = None) -> None:
        self.lines: deque[str] = deque(maxlen=200)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if "boot success" in line:
                break
        else:
            self.process.wait()
            raise RuntimeError(f"{command[0]} did not start:\n{''.join(self.lines)}")
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)

    def stop(self) -> None:
        """Kill it: a real broker takes seconds to stop, and its store is not needed."""
        self.process.kill()
        self.process.wait()


def trace_lines(body: str) -> list[list[str]]:
    """Return the fields of each line of a trace message."""
    return [part.split(FIELD_END) for part in body.split(LINE_END) if part]
