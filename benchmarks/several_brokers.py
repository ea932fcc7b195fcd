"""Measure several broker processes on one machine, beside one alone.

    bin/dev/bench-several-brokers [--brokers 2] [--seconds 5] [--rounds 3]

Consumers pull batches of 32 messages of 1 KiB, always the same ones, because that load costs its
generator least (this process; it counts bytes). All brokers have equally many connections. Shown are the rate, the
brokers' share of the machine, and the rate with a core each: messages per CPU second, summed over the brokers.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.curves import TOPIC, Broker, Peer, make_topic, messages, pull, running_broker, send_all

BATCH = 32
CONNECTIONS = 2
WINDOW = 4
STORED = 256


@dataclass(frozen=True)
class Figures:
    """Messages a second, the brokers' CPU seconds in a second, and messages per CPU second, summed over the brokers."""

    rate: float
    cores: float
    rate_with_a_core_each: float


class Puller:
    """A connection that keeps several pulls of the same batch in flight and counts responses by their bytes."""

    def __init__(self, port: int) -> None:
        self._request = pull(0, 0, 0, "several")
        peer = Peer(port)
        peer.sock.sendall(self._request)
        self._answer_bytes = len(whole_frame(peer.sock))
        self.sock = peer.sock
        self._rest = 0
        self._buffer = bytearray(1 << 20)

    def send(self, count: int) -> None:
        self.sock.sendall(self._request * count)

    def receive(self) -> int:
        """Return the number of responses that one read completed."""
        got = self.sock.recv_into(self._buffer)
        if not got:
            raise ConnectionError("the broker closed a connection")
        count, self._rest = divmod(self._rest + got, self._answer_bytes)
        return count


def whole_frame(sock: socket.socket) -> bytes:
    data = sock.recv(4, socket.MSG_WAITALL)
    return data + sock.recv(int.from_bytes(data, "big"), socket.MSG_WAITALL)


def fill(broker: Broker) -> None:
    peer = Peer(broker.port)
    make_topic(peer, 1, TOPIC)
    send_all([peer], STORED, 32, messages(1))


def measure(brokers: list[Broker], seconds: float) -> Figures:
    pullers: dict[int, tuple[Puller, int]] = {}
    for number, broker in enumerate(brokers):
        for _ in range(CONNECTIONS):
            puller = Puller(broker.port)
            pullers[puller.sock.fileno()] = puller, number
    with select.epoll() as poller:
        for fd, (puller, _) in pullers.items():
            poller.register(fd, select.EPOLLIN)
            puller.send(WINDOW)
        drive(poller, pullers, 1.0, len(brokers))
        cpu = [broker.cpu_seconds() for broker in brokers]
        began = time.perf_counter()
        answers = drive(poller, pullers, seconds, len(brokers))
        elapsed = time.perf_counter() - began
        cpu = [broker.cpu_seconds() - before for broker, before in zip(brokers, cpu, strict=True)]
    for puller, _ in pullers.values():
        puller.sock.close()
    each = sum(count * BATCH / used for count, used in zip(answers, cpu, strict=True))
    return Figures(sum(answers) * BATCH / elapsed, sum(cpu) / elapsed, each)


def drive(poller: select.epoll, pullers: dict[int, tuple[Puller, int]], seconds: float, broker_count: int) -> list[int]:
    """Run the load for the given time; each response sends the next pull. Return the responses of each broker."""
    answers = [0] * broker_count
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for fd, _ in poller.poll(1):
            puller, number = pullers[fd]
            came = puller.receive()
            if came:
                answers[number] += came
                puller.send(came)
    return answers


def median(rounds: list[Figures]) -> Figures:
    return Figures(
        statistics.median(each.rate for each in rounds),
        statistics.median(each.cores for each in rounds),
        statistics.median(each.rate_with_a_core_each for each in rounds),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    one: list[Figures] = []
    several: list[Figures] = []
    with ExitStack() as stack:
        brokers = [stack.enter_context(running_broker()) for _ in range(given.brokers)]
        for broker in brokers:
            fill(broker)
        for number in range(given.rounds):
            one.append(measure(brokers[number % len(brokers) :][:1], given.seconds))
            several.append(measure(brokers, given.seconds))
    print(f"machine: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print("| brokers | messages/s | cores used by brokers | messages/s with a core each |\n|---|---|---|---|")
    rows = {"1": median(one), str(given.brokers): median(several)}
    for name, each in rows.items():
        print(f"| {name} | {each.rate:.0f} | {each.cores:.2f} | {each.rate_with_a_core_each:.0f} |")
    alone, together = rows.values()
    print(
        f"| ratio | {together.rate / alone.rate:.2f}x | {together.cores / alone.cores:.2f}x | "
        f"{together.rate_with_a_core_each / alone.rate_with_a_core_each:.2f}x |"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
