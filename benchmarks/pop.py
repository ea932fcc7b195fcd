"""Measure POP: a million messages in flight, and messages that are received and acknowledged one by one.

    bin/dev/bench-pop [--messages 1000000] [--clients 64] [--seconds 10] [--directory DIR]

The messages are sent, the broker is killed (SIGKILL) and started again, and one group receives all of them and
acknowledges none. Then it is killed and started once more. Resident memory that belongs to no file is compared with
that after the first kill. `start` is the time until the broker tells the same group whether there is something to
receive (NOTIFICATION). Exit code 1 for more than 120 MiB per million messages, before the second kill or after it, or a
start with them that takes more than 3 s per million longer than without. Then another group of clients receives one
message at a time and acknowledges it, each client its next one when it has the response.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from benchmarks.boot import frame, free_port, receive
from benchmarks.curves import message
from benchmarks.sync_flush import PROJECT, READY_FRAMES, Sender, cpu_seconds, running

TOPIC = "Pop"
QUEUES = 8
IN_FLIGHT, ONE_BY_ONE = "all-in-flight", "one-by-one"
"""The two groups."""
POP_MESSAGE, ACK_MESSAGE, NOTIFICATION = 200050, 200051, 200054
MOST_AT_ONCE = 32
INVISIBLE_MS = 12 * 3600 * 1000
WARM_UP_SECONDS = 1.0
LIMIT_BYTES = 120 << 20
LIMIT_SECONDS = 3.0
SUCCESS = 0


@dataclass(frozen=True)
class Start:
    """A broker that has started, and what it told the first group after `seconds`."""

    pid: int
    port: int
    seconds: float
    has_message: bool

    @property
    def own_bytes(self) -> int:
        """The resident memory that belongs to no file."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) * 1024


@contextmanager
def broker(home: Path, most: int) -> Iterator[Start]:
    """Run a broker on the store in `home`, without a NameServer, that admits `most` messages in flight."""
    port = free_port()
    lines = [f"listenPort={port}", "brokerIP1=127.0.0.1", "brokerName=broker-a", f"storePathRootDir={home}/store"]
    lines += [f"defaultTopicQueueNums={QUEUES}", f"popMaxInFlight={most}", f"popMaxInFlightOfGroup={most}"]
    lines += ["waitTimeMillsInSendQueue=60000"]  # it may run beside other work
    (home / "broker.conf").write_text("\n".join(lines) + "\n")
    began = time.perf_counter()
    with running([str(PROJECT / "bin" / "mqbroker"), "-c", str(home / "broker.conf")], home) as pid:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            _, fields = ask(connection, frame(NOTIFICATION, queues_of(IN_FLIGHT)))
        yield Start(pid, port, time.perf_counter() - began, fields.get("hasMsg") == "true")


def queues_of(group: str) -> dict[str, str]:
    """Return the fields of a request for all queues, which does not wait."""
    return {"consumerGroup": group, "topic": TOPIC, "queueId": "-1", "pollTime": "0", "bornTime": "0"}


def receive_frame(group: str, most: int) -> bytes:
    fields = {
        **queues_of(group),
        "maxMsgNums": str(most),
        "invisibleTime": str(INVISIBLE_MS),
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
    }
    return frame(POP_MESSAGE, fields)


def ask(connection: socket.socket, request: bytes) -> tuple[int, dict[str, str]]:
    """Send a request. Return code and fields of the response."""
    connection.sendall(request)
    return response(connection)


def response(connection: socket.socket) -> tuple[int, dict[str, str]]:
    (length,) = struct.unpack(">i", receive(connection, 4))
    rest = receive(connection, length)
    header = json.loads(rest[4 : 4 + (struct.unpack(">i", rest[:4])[0] & 0xFFFFFF)])
    return header["code"], header.get("extFields") or {}


def send(port: int, count: int) -> None:
    """Send messages of 128 bytes."""
    frames = cycle([message(QUEUES, b"x" * 128, TOPIC, number) for number in range(READY_FRAMES)])
    sender = Sender(port, frames, 64)
    sent = answered = 0
    while answered < count:
        more = min(count - sent, sender.window - (sent - answered))
        if more:
            sender.send(more)
            sent += more
        answered += len(sender.receive())
    sender.sock.close()


def receive_all(port: int, count: int) -> float:
    """Receive that many messages of the first group. Return the messages a second."""
    began, received, request = time.perf_counter(), 0, receive_frame(IN_FLIGHT, MOST_AT_ONCE)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while received < count:
            code, fields = ask(connection, request)
            if code != SUCCESS:
                raise RuntimeError(f"{code} after {received} of {count} messages")
            received += sum(part.count(",") + 1 for part in fields["msgOffsetInfo"].split(";"))
    return received / (time.perf_counter() - began)


def acknowledgement(fields: dict[str, str]) -> bytes:
    """Return the acknowledgement of the only message of a response."""
    _, queue_id, queue_offset = fields["msgOffsetInfo"].split(" ")
    start = fields["startOffsetInfo"].rpartition(" ")[2]
    parts = [start, fields["popTime"], fields["invisibleTime"], fields["reviveQid"], "0", "broker-a"]
    return frame(
        ACK_MESSAGE,
        {
            "consumerGroup": ONE_BY_ONE,
            "topic": TOPIC,
            "queueId": queue_id,
            "offset": queue_offset,
            "extraInfo": " ".join([*parts, queue_id, queue_offset]),
        },
    )


def acknowledge_each(start: Start, clients: int, seconds: float) -> tuple[float, float]:
    """Receive and acknowledge one message at a time. Return messages a second, and per second of the broker's CPU."""
    request = receive_frame(ONE_BY_ONE, 1)
    connections = {}
    with select.epoll() as poller:
        for _ in range(clients):
            connection = socket.create_connection(("127.0.0.1", start.port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connections[connection.fileno()] = connection
            poller.register(connection.fileno(), select.EPOLLIN)
            connection.sendall(request)
        done, began, cpu = 0, time.perf_counter(), cpu_seconds(start.pid)
        warm_until, until = began + WARM_UP_SECONDS, began + WARM_UP_SECONDS + seconds
        while time.perf_counter() < until:
            for fd, _ in poller.poll(1):
                code, fields = response(connections[fd])
                if code != SUCCESS:
                    raise RuntimeError(f"{code} after {done} messages: send more of them")
                done += not fields
                connections[fd].sendall(acknowledgement(fields) if fields else request)
            if warm_until and time.perf_counter() >= warm_until:
                done, began, cpu, warm_until = 0, time.perf_counter(), cpu_seconds(start.pid), 0.0
        elapsed, cpu = time.perf_counter() - began, cpu_seconds(start.pid) - cpu
    for connection in connections.values():
        connection.close()
    return done / elapsed, done / max(cpu, 0.01)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    count, most = given.messages, given.messages + 1_000_000
    with tempfile.TemporaryDirectory(prefix="pop-", dir=given.directory) as name:
        home = Path(name)
        with broker(home, most) as start:
            send(start.port, count)
            os.kill(start.pid, signal.SIGKILL)
        with broker(home, most) as before:
            bytes_before = before.own_bytes
            rate = receive_all(before.port, count)
            bytes_received = before.own_bytes
            os.kill(before.pid, signal.SIGKILL)
        with broker(home, most) as after:
            bytes_after = after.own_bytes
            if after.has_message:
                raise RuntimeError("after the kill there are messages to receive")
            one_by_one = acknowledge_each(after, given.clients, given.seconds)
    print(f"received, {MOST_AT_ONCE} at once: {rate:,.0f} a second")
    running_bytes, started_bytes = bytes_received - bytes_before, bytes_after - bytes_before
    print(f"in flight: {count:,}, memory {running_bytes / 2**20:.0f} MiB more than before")
    print(f"after a kill and a start: {started_bytes / 2**20:.0f} MiB more than before")
    print(f"start after a kill: {before.seconds:.2f} s without them, {after.seconds:.2f} s with them")
    print(f"received and acknowledged one by one: {one_by_one[0]:,.0f} a second, {one_by_one[1]:,.0f} per CPU second")
    more_seconds = after.seconds - before.seconds
    share = max(1.0, count / 1_000_000)
    return int(max(running_bytes, started_bytes) > LIMIT_BYTES * share or more_seconds > LIMIT_SECONDS * share)


if __name__ == "__main__":
    sys.exit(main())
