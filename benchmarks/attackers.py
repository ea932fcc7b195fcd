"""Hostile clients, for benchmarks/under_attack.py, which runs each in a process of its own.

    python -m benchmarks.attackers NAME PORT SECONDS

Each shows on standard output "ready" when it has begun.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from benchmarks.curves import Peer, frame
from triomq.protocol.codes import RequestCode

MIB = 1 << 20
TOPIC = "Attacked"
GROUP = "attackers"

SQL_TERMS = 900
WINDOW = 4
MOST_UNSENT_BYTES = 1 << 20
EMPTY_MESSAGE: Final = struct.pack(">iiiiih", 22, 0, 0, 0, 0, 0)
"""Size, magic number, checksum, flag, length of the body, length of the properties."""


@dataclass
class Stream:
    """One connection that sends the frames of `source` one after another. With `is_reading` it takes what comes, and
    has at most a few requests without a response."""

    source: Iterator[bytes]
    is_reading: bool
    sock: socket.socket = field(init=False)
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))


class Flood:
    """Connections to one port. One that the daemon closes is opened again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: dict[int, Stream] = {}
        self._poll = select.epoll()

    def add(self, source: Iterator[bytes], *, is_reading: bool) -> None:
        self._open(Stream(source, is_reading))

    def _open(self, stream: Stream) -> None:
        stream.sock = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        stream.sock.setblocking(False)
        stream.unsent = memoryview(b"")
        self._streams[stream.sock.fileno()] = stream
        events = select.EPOLLOUT | (select.EPOLLIN if stream.is_reading else 0)
        self._poll.register(stream.sock.fileno(), events)

    def run(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for fd, events in self._poll.poll(0.1):
                stream = self._streams[fd]
                try:
                    self._serve(stream, events)
                except OSError:
                    del self._streams[fd]
                    stream.sock.close()
                    try:
                        self._open(stream)
                    except OSError:
                        time.sleep(0.05)

    def _serve(self, stream: Stream, events: int) -> None:
        if events & select.EPOLLIN and not stream.sock.recv(1 << 20):
            raise ConnectionError("closed")
        if events & (select.EPOLLHUP | select.EPOLLERR):
            raise ConnectionError("closed")
        if not events & select.EPOLLOUT:
            return
        if not stream.unsent:
            data = next(stream.source, None)
            if data is None:
                self._poll.modify(stream.sock.fileno(), select.EPOLLIN if stream.is_reading else 0)
                return
            stream.unsent = memoryview(data)
        try:
            sent = stream.sock.send(stream.unsent[:MOST_UNSENT_BYTES])
        except BlockingIOError:
            return
        stream.unsent = stream.unsent[sent:]


def pull_fields(**changes: Any) -> dict[str, str]:
    fields = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    return {name: str(value) for name, value in {**fields, **changes}.items()}


def padded(number: int, length: int, prefix: str) -> str:
    return f"{prefix}{number:0{length - len(prefix)}d}"


# What the attackers send, request after request.


def heartbeats_of_new_groups() -> Iterator[bytes]:
    """Heartbeats with new consumer groups, of which each makes a retry topic."""
    for number in count():
        groups = [
            {
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "consumeType": "CONSUME_PASSIVELY",
                "groupName": padded(number * 1000 + each, 100, "g"),
                "messageModel": "CLUSTERING",
                "subscriptionDataSet": [],
                "unitMode": False,
            }
            for each in range(1000)
        ]
        yield heartbeat(groups, [])


def heartbeats_of_subscriptions() -> Iterator[bytes]:
    """Heartbeats with 10,000 subscriptions of long names to 10 new groups."""
    for number in count():
        groups = [
            {
                "groupName": padded(number * 10 + each, 100, "s"),
                "subscriptionDataSet": [
                    {"subString": "*", "topic": padded(topic, 100, f"t{number}-{each}-"), "subVersion": 1}
                    for topic in range(1000)
                ],
            }
            for each in range(10)
        ]
        yield heartbeat(groups, [])


def heartbeats_of_producers() -> Iterator[bytes]:
    for number in count():
        yield heartbeat([], [{"groupName": padded(number * 1000 + each, 100, "p")} for each in range(1000)])


def heartbeat(consumers: list[dict[str, Any]], producers: list[dict[str, Any]]) -> bytes:
    body = {"clientID": "attacker", "consumerDataSet": consumers, "producerDataSet": producers}
    return frame(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())


def large_heartbeats() -> Iterator[bytes]:
    groups = [{"groupName": f"group-{number}", "subscriptionDataSet": []} for number in range(20_000)]
    while True:
        yield heartbeat(groups, [])


def silence() -> Iterator[bytes]:
    yield from ()


def long_polls() -> Iterator[bytes]:
    pull = frame(RequestCode.PULL_MESSAGE, pull_fields(queueId=1, sysFlag=6, suspendTimeoutMillis=30_000))
    for _ in range(120):
        yield pull * 1000


def unread_pulls() -> Iterator[bytes]:
    while True:
        yield frame(RequestCode.PULL_MESSAGE, pull_fields()) * 3000


def half_frames() -> Iterator[bytes]:
    yield (15 * MIB).to_bytes(4, "big") + bytes(14 * MIB)


def offsets_of_long_names() -> Iterator[bytes]:
    for number in count():
        fields = {"topic": TOPIC, "queueId": "0", "commitOffset": "1"}
        yield b"".join(
            frame(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "consumerGroup": padded(number * 100 + i, 120, "o")})
            for i in range(100)
        )


def sql_pulls() -> Iterator[bytes]:
    for number in count():
        expression = " OR ".join(f"a{number}_{term} = {term}" for term in range(SQL_TERMS))
        yield frame(RequestCode.PULL_MESSAGE, pull_fields(expressionType="SQL92", subscription=expression))


def time_spans() -> Iterator[bytes]:
    while True:
        yield frame(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "TBW102", "group": GROUP})


def queue_locks() -> Iterator[bytes]:
    queues = [{"brokerName": "b", "queueId": number, "topic": TOPIC} for number in range(100_000)]
    body = json.dumps({"clientId": "attacker", "consumerGroup": GROUP, "mqSet": queues}).encode()
    while True:
        yield frame(RequestCode.LOCK_BATCH_MQ, {}, body)


def empty_batches() -> Iterator[bytes]:
    body = EMPTY_MESSAGE * 150_000
    values = (GROUP, TOPIC, "TBW102", "8", "0", "0", "0", "0", "")
    fields = {**dict(zip("abcdefghi", values, strict=True)), "m": "true"}
    while True:
        yield frame(RequestCode.SEND_BATCH_MESSAGE, fields, body)


def registrations() -> Iterator[bytes]:
    """Registrations of new brokers with 20,000 topics each."""
    for number in count():
        topics = {
            name: {"order": False, "perm": 6, "readQueueNums": 8, "topicName": name, "writeQueueNums": 8}
            for name in (padded(each, 100, f"r{number}-") for each in range(20_000))
        }
        body = {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": {"counter": number, "timestamp": 1},
                "topicConfigTable": topics,
            },
        }
        fields = {
            "brokerAddr": f"10.0.0.1:{number}",
            "brokerId": "0",
            "brokerName": f"broker-{number}",
            "clusterName": "c",
            "haServerAddr": "10.0.0.1:1",
            "compressed": "false",
            "bodyCrc32": "0",
        }
        yield frame(RequestCode.REGISTER_BROKER, fields, json.dumps(body).encode())


def unread_routes() -> Iterator[bytes]:
    """Questions for the list of all topics, after a registration of 20,000."""
    yield next(registrations())
    while True:
        yield frame(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}) * 1000


def kv_entries() -> Iterator[bytes]:
    for number in count():
        fields = {"namespace": "n" * 1000, "key": padded(number, 1000, "k"), "value": "v" * 60_000}
        yield frame(RequestCode.PUT_KV_CONFIG, fields)


def kv_values_of_megabytes() -> Iterator[bytes]:
    for number in count():
        yield frame(RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": f"k{number}", "value": "v" * (8 * MIB)})


@dataclass(frozen=True)
class Attack:
    """`connections` send what `requests` yields. `is_reading`: they take the responses. `distance`: of the port."""

    title: str
    requests: Callable[[], Iterator[bytes]]
    connections: int
    is_reading: bool = True
    distance: int = 0


BROKER = {
    "groups": Attack("heartbeats of new groups", heartbeats_of_new_groups, 4),
    "subscriptions": Attack("heartbeats of many subscriptions", heartbeats_of_subscriptions, 4),
    "producers": Attack("heartbeats of new producer groups", heartbeats_of_producers, 4),
    "silent": Attack("silent connections", silence, 2000),
    "polls": Attack("120,000 long polls on one connection", long_polls, 1),
    "unread": Attack("pulls whose responses are not read", unread_pulls, 4, is_reading=False),
    "unread64": Attack("the same on 64 connections", unread_pulls, 64, is_reading=False),
    "halves": Attack("64 half frames of 15 MiB", half_frames, 64, is_reading=False),
    "offsets": Attack("offsets of groups with long names", offsets_of_long_names, 4),
    "sql": Attack("pulls with SQL92 of 900 terms, each new", sql_pulls, 1),
    "heartbeats": Attack("heartbeats of 20,000 groups", large_heartbeats, 1),
    "spans": Attack("QUERY_CONSUME_TIME_SPAN", time_spans, 1),
    "locks": Attack("LOCK_BATCH_MQ of 100,000 queues", queue_locks, 1),
    "batches": Attack("batches of 150,000 empty messages", empty_batches, 1),
    "strangers": Attack("64 strangers on the HA port", silence, 64, distance=1),
}
NAMESRV = {
    "registrations": Attack("registrations of 20,000 new topics", registrations, 2),
    "silent": Attack("silent connections", silence, 2000),
    "unread": Attack("topic lists that are not read", unread_routes, 8, is_reading=False),
    "halves": Attack("64 half frames of 15 MiB", half_frames, 64, is_reading=False),
    "kv": Attack("new key-value entries of 60 KB", kv_entries, 4),
    "kv8": Attack("key-value entries of 8 MiB", kv_values_of_megabytes, 8),
}
DAEMONS = {"broker": BROKER, "namesrv": NAMESRV}


def prepare(port: int) -> None:
    """Store in a broker what the attackers pull: 64 messages of 200 KB."""
    peer = Peer(port)
    values = (GROUP, TOPIC, "TBW102", "8", "0", "0", "0", "0", "")
    for _ in range(64):
        peer.ask(RequestCode.SEND_MESSAGE_V2, dict(zip("abcdefghi", values, strict=True)), bytes(200_000))


def main() -> int:
    daemon, name, port, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    # Attackers run on other machines. Here they must not take a processor from the daemon, not even for a tick.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    attack = DAEMONS[daemon][name]
    flood = Flood(port + attack.distance)
    for _ in range(attack.connections):
        flood.add(attack.requests(), is_reading=attack.is_reading)
    print("ready", flush=True)
    flood.run(seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
