"""Measure how cost and memory grow with connections, queues, body sizes, waiting polls, groups and log length.

    bin/dev/bench-curves [--only NAME]

Each curve starts a broker of its own as a process, changes one number, and shows what a message costs the broker in CPU
time (user and system, of the process) and what its memory is. The load comes from this process, so latencies
mean nothing here and are not shown. A whole run takes minutes and, for moments, hundreds of megabytes of disk.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import trio

from benchmarks import store_directory
from benchmarks.boot import free_port
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import JSON, RemotingCommand
from triomq.protocol.frame import FrameDecoder, encode_frame
from triomq.protocol.record import encode_blank
from triomq.store.config import StoreSettings
from triomq.store.message_store import DefaultMessageStore

PROJECT = Path(__file__).resolve().parent.parent
TOPIC = "Curves"
GIVE_UP_SECONDS = 120.0
PER_ADDRESS = 4000
MOST_CONNECTIONS = 15_000
"""What 20,000 descriptors allow, of which a broker keeps a part for its files."""
QUEUES = 4
ENOUGH_BYTES = 64 << 20
MESSAGES_A_FILE = 640
QUEUES_OF_A_TOPIC = 10_000
GROUPS_OF_A_TOPIC = 10


class Broker:
    """A broker process."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, boot_seconds: float) -> None:
        self.port = port
        self.boot_seconds = boot_seconds
        self._process = process

    def cpu_seconds(self) -> float:
        """Return user and system time of all its threads."""
        threads = Path(f"/proc/{self._process.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    def anonymous_bytes(self) -> int:
        """Return the anonymous memory of the process, without mapped files."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) * 1024


@contextmanager
def running_broker(prepare: Callable[[Path], None] | None = None, **settings: str) -> Iterator[Broker]:
    """Run a broker; `prepare` fills the store directory first."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="curves-") as home:
        if prepare is not None:
            prepare(Path(home, "store"))
        values = {"listenPort": port, "brokerIP1": "127.0.0.1", "storePathRootDir": f"{home}/store"}
        # Nothing is refused while the file system makes a hundred thousand files.
        values |= {f"waitTimeMillsIn{name}Queue": 60_000 for name in ("Send", "Pull", "Heartbeat")}
        values |= {"osPageCacheBusyTimeOutMills": 60_000} | settings
        config = Path(home) / "broker.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        began = time.monotonic()
        process = subprocess.Popen(
            [str(PROJECT / "bin" / "mqbroker"), "-c", str(config)],
            env={**os.environ, "HOME": home, "TRIOMQ_LOG_DIR": f"{home}/logs"},
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if b"boot success" in line:
                    break
            yield Broker(process, port, time.monotonic() - began)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(GIVE_UP_SECONDS)


class Peer:
    """One connection of a client, from the loopback address 127.0.0.`host`. It ignores requests from the broker."""

    def __init__(self, port: int, host: int = 1) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), source_address=(f"127.0.0.{host}", 0))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder()
        self.answers: list[RemotingCommand] = []

    def receive(self) -> int:
        """Read once and return the number of responses received. Raises RuntimeError for a refusal."""
        data = self.sock.recv(1 << 20)
        if not data:
            raise ConnectionError("the broker closed a connection")
        self.answers = [command for command in self._decoder.feed(data) if command.is_response]
        for answer in self.answers:
            if answer.code != ResponseCode.SUCCESS:
                raise RuntimeError(f"refused: {answer}")
        return len(self.answers)

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        self.sock.sendall(frame(code, fields, body))
        while not self.receive():
            pass
        return self.answers[0]


Make = Callable[[int], bytes]
"""The frame of a request by its number."""


def frame(code: int, fields: dict[str, str] | None, body: bytes = b"") -> bytes:
    return encode_frame(RemotingCommand(code, opaque=1, body=body, serialize_type=JSON, ext_fields=fields))


def message(queues: int, body: bytes, topic: str, number: int) -> bytes:
    text = f"UNIQ_KEY\x01{time.perf_counter_ns():032X}\x02KEYS\x01k{number}\x02WAIT\x01true\x02TAGS\x01t\x02"
    queue_id, born = str(number % queues), str(time.time_ns() // 1_000_000)
    values = ("curves", topic, "TBW102", "8", queue_id, "0", born, "0", text)
    return frame(RequestCode.SEND_MESSAGE_V2, dict(zip("abcdefghi", values, strict=True)), body)


def messages(queues: int, size_bytes: int = 1024, topic: str = TOPIC) -> Make:
    return partial(message, queues, b"x" * size_bytes, topic)


def message_to_any(topics: int, queues: int, number: int) -> bytes:
    """Return a message to the queues of all topics in turn."""
    return message(queues, b"x" * 1024, f"{TOPIC}-{number % topics}", number // topics)


def pull(queue_id: int, queue_offset: int, hold_ms: int, group: str, topic: str = TOPIC) -> bytes:
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "maxMsgNums": "32",
        "sysFlag": "6" if hold_ms else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(hold_ms),
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return frame(RequestCode.PULL_MESSAGE, fields)


def make_topic(peer: Peer, queues: int, topic: str = TOPIC) -> None:
    peer.sock.sendall(new_topic(queues, topic))
    while not peer.receive():
        pass


def new_topic(queues: int, topic: str) -> bytes:
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
    fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    return frame(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


def send_all(peers: Sequence[Peer], count: int, window: int, make: Make) -> None:
    """Send `count` requests over these connections, each with up to `window` in flight; wait for the last response."""
    sent = 0
    for peer in peers:
        first = range(sent, min(sent + window, count))
        peer.sock.sendall(b"".join(map(make, first)))
        sent += len(first)
    wait_for(peers, count, sent, make)


def wait_for(peers: Sequence[Peer], count: int, sent: int = 0, make: Make | None = None) -> None:
    """Wait for `count` responses on these connections in total; with `make`, each response sends one more request."""
    by_fd = {peer.sock.fileno(): peer for peer in peers}
    deadline = time.monotonic() + GIVE_UP_SECONDS
    answered = 0
    with select.epoll() as poller:
        for fd in by_fd:
            poller.register(fd, select.EPOLLIN)
        while answered < count:
            for fd, _ in poller.poll(1):
                came = by_fd[fd].receive()
                answered += came
                if make is not None and sent < count:
                    more = range(sent, min(sent + came, count))
                    by_fd[fd].sock.sendall(b"".join(map(make, more)))
                    sent += len(more)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{answered} of {count} answers after {GIVE_UP_SECONDS:g} s")


def microseconds_each(broker: Broker, count: int, work: Callable[..., None], *arguments: Any) -> float:
    """Return the broker's CPU time per item while `work` handles `count` items."""
    began = broker.cpu_seconds()
    work(*arguments)
    return (broker.cpu_seconds() - began) / count * 1e6


def cost_of_sends(broker: Broker, peers: Sequence[Peer], count: int, window: int, make: Make) -> float:
    return microseconds_each(broker, count, send_all, peers, count, window, make)


def connections() -> None:
    """Connections send a message, wait for its response, and send the next."""
    row("connections", "us a message", "anonymous MiB", "each idle connection")
    make = messages(4)
    with running_broker() as broker:
        peers = [Peer(broker.port) for _ in range(10)]
        make_topic(peers[0], 4)
        send_all(peers, 8000, 64, make)
        for count in (1, 10, 100, 300, 1000, MOST_CONNECTIONS):
            before, new = broker.anonymous_bytes(), max(0, count - len(peers))
            peers += [Peer(broker.port, 1 + number // PER_ADDRESS) for number in range(len(peers), len(peers) + new)]
            peers[-1].ask(RequestCode.GET_BROKER_RUNTIME_INFO, {})
            idle = kib((broker.anonymous_bytes() - before) / new) if new else ""
            cost = cost_of_sends(broker, peers[:count], max(8000, 2 * count), 1, make)
            row(count, f"{cost:.1f}", mib(broker), idle)


def queues() -> None:
    """Messages go to all queues in turn; a topic has at most 10,000. Then the broker stops and starts again."""
    row("queues", "us a message", "us the first of a queue", "anonymous MiB", "boot s")
    for count in (1, 10, 100, 1000, 10_000, 100_000):
        topics = max(1, count // QUEUES_OF_A_TOPIC)
        make = partial(message_to_any, topics, count // topics)
        with tempfile.TemporaryDirectory(prefix="curves-") as root:
            with running_broker(storePathRootDir=root) as broker:
                peers = [Peer(broker.port) for _ in range(4)]
                for number in range(topics):
                    make_topic(peers[0], count // topics, f"{TOPIC}-{number}")
                first = cost_of_sends(broker, peers, count, 64, make)
                cost = cost_of_sends(broker, peers, 20_000, 64, make)
                memory = mib(broker)
            with running_broker(storePathRootDir=root) as broker:
                row(count, f"{cost:.1f}", f"{first:.1f}", memory, f"{broker.boot_seconds:.2f}")


def bodies() -> None:
    """Four connections have four messages in flight each."""
    row("body bytes", "us a message", "us a MiB", "anonymous MiB")
    for size in (100, 1024, 10_240, 102_400, 1 << 20):
        with running_broker() as broker:
            peers = [Peer(broker.port) for _ in range(4)]
            make = messages(4, size)
            count = max(64, min(8000, ENOUGH_BYTES // size))
            send_all(peers, 64, 4, make)
            cost = cost_of_sends(broker, peers, count, 4, make)
            row(size, f"{cost:.1f}", f"{cost * (1 << 20) / size:.0f}", mib(broker))


def park(pullers: Sequence[Peer], count: int, queue_count: int) -> None:
    """Park pulls, a hundred on each connection. Return when the broker holds all of them: a connection's requests
    are handled in order."""
    for number in range(count):
        pullers[number // 100].sock.sendall(pull(number % queue_count, 1, 110_000, f"group-{number % 100}"))
    for puller in pullers:
        puller.ask(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})


def wake(sender: Peer, pullers: Sequence[Peer], count: int, queue_count: int) -> None:
    """Send one message to each queue, so that all pulls complete."""
    send_all([sender], queue_count, 64, messages(queue_count))
    wait_for(pullers, count)


def polls() -> None:
    """Park pulls, each on its own queue or all on one, then wake them."""
    row("waiting polls", "on queues", "us to wait", "each waiting poll", "us a send beside", "us a poll that is woken")
    for count in (100, 1000, 10_000):
        for queue_count in (1, count):
            with running_broker() as broker:
                sender = Peer(broker.port)
                make_topic(sender, queue_count)
                make_topic(sender, 4, "Beside")
                pullers = [Peer(broker.port) for _ in range(count // 100)]
                send_all([sender], queue_count, 64, messages(queue_count))
                send_all([sender], 4000, 64, messages(4, topic="Beside"))
                before = broker.anonymous_bytes()
                parked = microseconds_each(broker, count, park, pullers, count, queue_count)
                each = (broker.anonymous_bytes() - before) / count
                beside = cost_of_sends(broker, [sender], 8000, 64, messages(4, topic="Beside"))
                woken = microseconds_each(broker, count, wake, sender, pullers, count, queue_count)
                row(count, queue_count, f"{parked:.1f}", kib(each), f"{beside:.1f}", f"{woken:.1f}")


def groups() -> None:
    """Each group has a member that sends heartbeats, pulls and commits offsets."""
    row("groups", "us a heartbeat", "us a pull", "us an offset", "each group")
    for count in (1, 10, 100, 1000):
        with running_broker() as broker:
            peers = [Peer(broker.port) for _ in range(4)]
            make_topic(peers[0], 4)
            send_all(peers, 2000, 8, messages(4, 100))
            before = broker.anonymous_bytes()
            send_all(peers, count, 1, partial(heartbeat, count))
            each = (broker.anonymous_bytes() - before) / count
            beats = cost_of_sends(broker, peers, 2000, 8, partial(heartbeat, count))
            pulls = cost_of_sends(broker, peers, 4000, 8, partial(pull_of, count))
            offsets = cost_of_sends(broker, peers, 4000, 8, partial(offset_of, count))
            row(count, f"{beats:.1f}", f"{pulls:.1f}", f"{offsets:.1f}", kib(each))


def topics() -> None:
    """Ten groups of each topic, each of which commits an offset; half of the messages are pulled. Then the broker stops
    and starts again."""
    row("topics", "us to make one", "us a message", "us an offset", "us a pull", "anonymous MiB", "boot s")
    for count in (10, 100, 1000, 10_000):
        with tempfile.TemporaryDirectory(prefix="curves-") as root:
            with running_broker(storePathRootDir=root) as broker:
                peers = [Peer(broker.port) for _ in range(4)]
                make = partial(message_to_any, count, 1)
                made = cost_of_sends(broker, peers, count, 64, lambda number: new_topic(1, f"{TOPIC}-{number}"))
                send_all(peers, count, 8, make)
                sends = cost_of_sends(broker, peers, 8000, 8, make)
                offsets = cost_of_sends(broker, peers, GROUPS_OF_A_TOPIC * count, 8, partial(offset_in, count))
                pulls = cost_of_sends(broker, peers, 4000, 8, partial(pull_in, count))
                memory = mib(broker)
            with running_broker(storePathRootDir=root) as broker:
                costs = [f"{cost:.1f}" for cost in (made, sends, offsets, pulls)]
                row(count, *costs, memory, f"{broker.boot_seconds:.2f}")


def stores() -> None:
    """Log files of 1 GiB, each with a few messages at its start and a hole after them: the cost of length."""
    row("GiB of log", "boot s", "anonymous MiB", "us a send", "us a pull", "us a pull all over", "us a search by time")
    for gib in (1, 10, 100, 1024):
        with running_broker(partial(sparse_store, gib)) as broker:
            peers = [Peer(broker.port) for _ in range(4)]
            anonymous = mib(broker)
            make_topic(peers[0], QUEUES)
            oldest = peers[0].ask(RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": TOPIC, "queueId": "0"})
            begin_ms = int((oldest.ext_fields or {})["timestamp"])
            send_all(peers, 2000, 8, messages(QUEUES))
            sends = cost_of_sends(broker, peers, 8000, 8, messages(QUEUES))
            stored = gib * MESSAGES_A_FILE // QUEUES
            near = cost_of_sends(broker, peers, 4000, 8, partial(pull_at, stored, 1))
            spread = cost_of_sends(broker, peers, 4000, 8, partial(pull_at, stored, 7919))
            searches = cost_of_sends(broker, peers, 4000, 8, partial(search, begin_ms))
            costs = [f"{cost:.1f}" for cost in (sends, near, spread, searches)]
            row(gib, f"{broker.boot_seconds:.2f}", anonymous, *costs)


def sparse_store(gib: int, root: Path) -> None:
    """Make a closed store directory of `gib` log files of 1 GiB, most of each a hole after a blank record."""

    async def make() -> None:
        store = DefaultMessageStore(StoreSettings(store_path_root_dir=str(root)), now_ms=store_directory.now_ms)
        await store.load()
        log = store.contents.log
        body = b"x" * 1024
        for file in range(gib):
            for number in range(file * MESSAGES_A_FILE, (file + 1) * MESSAGES_A_FILE):
                store.append(store_directory.message(TOPIC, number % QUEUES, body, number))
            if file + 1 < gib:
                room = log.next_file_start(log.next_offset) - log.next_offset
                log.tail += encode_blank(room)
                log.next_offset += room
            store.commit()
        await store.close()

    trio.run(make)


def pull_at(stored: int, step: int, number: int) -> bytes:
    """Read messages of a queue in sequence, or, with a large step, from all parts of it."""
    return pull(number % QUEUES, number // QUEUES * step % (stored - 32), 0, "curves")


def search(time_ms: int, number: int) -> bytes:
    fields = {"topic": TOPIC, "queueId": str(number % QUEUES), "timestamp": str(time_ms + number % 1000)}
    return frame(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)


def pull_of(groups: int, number: int) -> bytes:
    return pull(number % 4, 0, 0, f"group-{number % groups}")


def offset_of(groups: int, number: int) -> bytes:
    fields = {"consumerGroup": f"group-{number % groups}", "topic": TOPIC, "queueId": str(number % 4)}
    return frame(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": "1"})


def offset_in(topics: int, number: int) -> bytes:
    group = f"group-{number % topics}-{number // topics % GROUPS_OF_A_TOPIC}"
    fields = {"consumerGroup": group, "topic": f"{TOPIC}-{number % topics}", "queueId": "0", "commitOffset": "1"}
    return frame(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


def pull_in(topics: int, number: int) -> bytes:
    return pull(0, 0, 0, f"group-{number % topics}-0", f"{TOPIC}-{number % topics}")


def heartbeat(groups: int, number: int) -> bytes:
    group = f"group-{number % groups}"
    subscription = {"topic": TOPIC, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 0}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [subscription],
        "unitMode": False,
    }
    body = json.dumps({"clientID": f"{group}@1", "producerDataSet": [], "consumerDataSet": [consumer]}).encode()
    return frame(RequestCode.HEART_BEAT, None, body)


def kib(size_bytes: float) -> str:
    return f"{size_bytes / 1024:.1f} KiB"


def mib(broker: Broker) -> str:
    return f"{broker.anonymous_bytes() / (1 << 20):.1f}"


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)
    if isinstance(cells[0], str):
        print("|" + "---|" * len(cells), flush=True)


CURVES: dict[str, Callable[[], None]] = {
    "connections": connections,
    "queues": queues,
    "bodies": bodies,
    "polls": polls,
    "groups": groups,
    "topics": topics,
    "stores": stores,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="How cost and memory of the broker grow.")
    parser.add_argument("--only", default="", help="curves whose name contains this")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for name, curve in CURVES.items():
        if options.only in name:
            print(f"\n{name}\n")
            curve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
