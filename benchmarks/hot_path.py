"""Measure the CPU time of one message in the broker, without network and scheduler: fixed runs in one process.

    bin/dev/bench-hot-path [--only NAME] [--rounds 5] [--quick] [--steps] [--json]

Ready-made frames go into the connections of a whole broker (all parts, its store in a temporary directory), in turns
like those that the poller makes; responses are discarded. The figure is the best of some rounds, in microseconds
of CPU time for a message, and as a ratio to a loop of plain Python that ran before and after it, so that machines,
and noisy moments of one machine, can be compared.

`--steps` measures no time but counts the instructions that Python executes and the C functions it calls per message.
They are the same on every machine; tests/test_speed_guard.py compares them with its limits.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any, Protocol, TypeVar

import structlog
import trio

from benchmarks.hot_path_peers import Dropped, TlsPeer, name_server_table
from benchmarks.hot_path_roads import (
    DELAY_LEVEL,
    GROUP,
    QUEUES,
    ROUTED_TOPICS,
    STORED_FOR_PULLS,
    TAGS,
    TOPIC,
    WORKLOADS,
    Turns,
    Workload,
    ack_frame,
    commit_frame,
    in_turns,
    reads,
    receive_frame,
    send_frame,
    topic_name,
    waiting_pull_frames,
)
from triomq.broker.assembly.processors import register
from triomq.broker.assembly.serving import Serving, build_serving
from triomq.broker.assembly.tables import Surroundings, build_tables
from triomq.broker.configuration import Configuration
from triomq.broker.extensions import Extensions
from triomq.broker.views.own_totals import TotalsProcessor
from triomq.daemon.clock import system_now_ms
from triomq.daemon.monotonic_clock import MonotonicClock
from triomq.daemon.run import settle_memory
from triomq.protocol.address import HostPort
from triomq.protocol.command import JSON
from triomq.protocol.speedups import running_build
from triomq.protocol.system_topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from triomq.remoting.client import open_client
from triomq.remoting.config import ClientSettings
from triomq.remoting.connection import Connection
from triomq.remoting.connection_settings import ConnectionSettings
from triomq.remoting.poller import Poller
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.turn import Turn
from triomq.store.delay import DelayLevels
from triomq.store.disk.files import Files

T = TypeVar("T")


@dataclass(frozen=True)
class Measured:
    """CPU time of one message in us, and as a multiple of one step of the calibration loop."""

    workload: Workload
    microseconds: float
    ratio: float


class Meter(Protocol):
    """Measures what runs inside of its `with` blocks."""

    def __enter__(self) -> object: ...
    def __exit__(self, *exception: object) -> None: ...


class CpuTime:
    """CPU seconds of this process inside of the `with` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> CpuTime:
        self.seconds -= time.process_time()
        return self

    def __exit__(self, *exception: object) -> None:
        self.seconds += time.process_time()


class SkippingClock:
    """The system's clock, ahead by what was skipped."""

    def __init__(self) -> None:
        self._skipped_ms = 0

    def now_ms(self) -> int:
        return system_now_ms() + self._skipped_ms

    def skip(self, milliseconds: int) -> None:
        self._skipped_ms += milliseconds


class Steps:
    """Count what runs inside of the `with` blocks: instructions of Python functions, and calls of C functions."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Steps:
        # Python 3.12 reports single steps only if a frame asks for them when tracing begins.
        sys._getframe().f_trace_opcodes = True
        sys.setprofile(self._called)
        sys.settrace(self._entered)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.settrace(None)
        sys.setprofile(None)

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Callable[[FrameType, str, Any], Any]:
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._executed

    def _executed(self, frame: FrameType, event: str, argument: Any) -> Callable[[FrameType, str, Any], Any]:
        self.count += event == "opcode"
        return self._executed

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        self.count += event == "c_call"


def calibration_seconds(steps: int = 40_000) -> float:
    """Return the CPU time of a loop with the mix of operations that the broker's code has."""
    table: dict[str, int] = {}
    began = time.process_time()
    for step in range(steps):
        text = f"{step & 255}:{step}"
        key, _, value = text.partition(":")
        data = value.encode()
        table[key] = int.from_bytes(data[:2], "big") + len(data) + table.get(key, 0)
    return time.process_time() - began


class HotPath:
    """A broker whose connections the benchmark feeds."""

    def __init__(
        self, serving: Serving, clock: SkippingClock, turn: Turn, table: ProcessorTable, nursery: trio.Nursery
    ) -> None:
        self._tables = serving.tables
        self._delivery = serving.delivery
        self._clock = clock
        self._turn = turn
        self._table = table
        self._nursery = nursery
        self._name_server = name_server_table(ROUTED_TOPICS)
        self._poller = Poller(turn)
        self._connections: list[Connection] = []
        self._to_name_server: list[Connection] = []
        self._tls_peers: list[TlsPeer] = []
        self._transports: list[Dropped] = []
        self._received = 0
        self._receivers = 0

    def connect(self, workload: Workload) -> None:
        """Open the connections that this workload has, and are not there yet."""
        while len(self._peers(workload)) < workload.connections:
            if workload.is_tls:
                self._tls_peers.append(TlsPeer(self._poller, self._connection(self._table)))
            elif workload.kind == "route":
                self._to_name_server.append(self._dropping(self._name_server))
            else:
                self._connections.append(self._dropping(self._table))

    def _peers(self, workload: Workload) -> Sequence[Connection | TlsPeer]:
        if workload.is_tls:
            return self._tls_peers
        return self._to_name_server if workload.kind == "route" else self._connections

    def _dropping(self, table: ProcessorTable) -> Connection:
        connection = self._connection(table)
        transport = Dropped()
        connection.transport = transport
        self._transports.append(transport)
        return connection

    def _connection(self, table: ProcessorTable) -> Connection:
        number = len(self._connections) + len(self._tls_peers) + len(self._to_name_server)
        return Connection(
            table,
            self._turn,
            self._nursery,
            HostPort("127.0.0.1", 40_000 + number),
            HostPort("127.0.0.1", 10_911),
            ConnectionSettings(max_frame_bytes=1 << 24, max_unanswered=1000),
        )

    def run(self, workload: Workload, meter: Meter) -> None:
        """Let one round of a workload go through the broker; `meter` is entered for what is measured."""
        if workload.kind == "transaction":
            self._run_transactions(workload, meter)
        elif workload.kind == "receive":
            self._run_receives(workload, meter)
        elif workload.kind == "delivery":
            self._feed(reads(workload))
            levels = DelayLevels(self._tables.configuration.store.message_delay_level)
            self._clock.skip(2 * levels.delay_ms(DELAY_LEVEL))
            with meter:
                while self._is_delivery_behind():
                    self._delivery.deliver(DELAY_LEVEL)
        elif workload.kind == "long poll":
            turns = self._long_polls(workload)
            with meter:
                self._feed(turns)
        else:
            turns = reads(workload)
            peers = self._peers(workload)
            if workload.is_tls:
                turns = [
                    [peer.encrypted(data) for peer, data in zip(self._tls_peers, each, strict=False)] for each in turns
                ]
            with meter:
                self._feed(turns, peers)

    def _feed(self, turns: Turns, peers: Sequence[Connection | TlsPeer] | None = None) -> None:
        turn, connections = self._turn, peers or self._connections
        for data_of_connections in turns:
            turn.begin()
            for connection, data in zip(connections, data_of_connections, strict=False):
                self._received += connection.receive(data)
            turn.end()

    def _is_delivery_behind(self) -> bool:
        next_offset, end = self._delivery.progress().get(DELAY_LEVEL, (0, 1))
        return next_offset < end

    def _run_transactions(self, workload: Workload, meter: Meter) -> None:
        reading = self._tables.store.reading
        halves = reading.max_offset(TRANS_HALF_TOPIC, 0)
        turns = reads(workload)
        with meter:
            self._feed(turns)
        entries = reading.queue_entries(TRANS_HALF_TOPIC, 0, halves, workload.requests)
        ends = [
            commit_frame(workload, number, halves + number, physical_offset)
            for number, (physical_offset, _, _) in enumerate(entries)
        ]
        turns = in_turns(workload, ends)
        with meter:
            self._feed(turns)

    def _run_receives(self, workload: Workload, meter: Meter) -> None:
        self._receivers += 1
        group = f"{GROUP}-{self._receivers}"
        receives = in_turns(workload, [receive_frame(workload, group, number) for number in range(workload.requests)])
        for receives_of_turn in receives:
            for transport in self._transports:
                transport.kept = []
            with meter:
                self._feed([receives_of_turn])
            responses = [response for transport in self._transports for response in transport.responses()]
            acks = in_turns(workload, [ack_frame(workload, group, response) for response in responses])
            with meter:
                self._feed(acks)

    def _long_polls(self, workload: Workload) -> Turns:
        """The pulls at the end of a queue, then the message that ends their wait, and so on."""
        ends = [self._tables.store.reading.max_offset(TOPIC, queue_id) for queue_id in range(QUEUES)]
        turns: Turns = []
        for number in range(workload.requests // workload.connections):
            pulls = waiting_pull_frames(workload, number, ends[number % QUEUES] + number // QUEUES)
            turns += [pulls, [send_frame(workload, number)]]
        return turns

    def taken_bytes(self) -> int:
        return sum(transport.taken_bytes for transport in self._transports)

    def messages(self, workload: Workload) -> int:
        """Return how many messages a workload of this kind has moved since the start, or how many of its
        requests were answered without an error."""
        if workload.kind in ("pull", "long poll"):
            return self._tables.stats.get_total
        if workload.kind in ("heartbeat", "route"):
            return self._received - sum(self._table.errors.values()) - sum(self._name_server.errors.values())
        if workload.kind == "receive":
            groups = [f"{GROUP}-{number + 1}" for number in range(self._receivers)]
            return sum(sum(self._tables.metadata.offsets.queues(group, TOPIC).values()) for group in groups)
        reading = self._tables.store.reading
        if workload.kind == "delayed":
            return reading.max_offset(SCHEDULE_TOPIC, DELAY_LEVEL - 1)
        topics = [topic_name(workload, number) for number in range(workload.topics)]
        return sum(reading.max_offset(topic, queue) for topic in topics for queue in range(QUEUES))


def measure(path: HotPath, workload: Workload, rounds: int) -> Measured:
    """Return the best round. Raises RuntimeError when messages are missing."""
    path.connect(workload)
    messages = workload.requests * workload.batch
    calibration = float("inf")
    path.run(replace(workload, requests=max(workload.requests // 4, 1)), CpuTime())
    before = path.messages(workload)
    times = []
    for _ in range(rounds):
        gc.collect()
        calibration = min(calibration, calibration_seconds())
        times.append(CpuTime())
        path.run(workload, times[-1])
    _check_count(workload, path.messages(workload) - before, rounds)
    seconds = min(each.seconds for each in times)
    return Measured(workload, seconds / messages * 1e6, seconds / messages / (calibration / 40_000))


def count_steps(path: HotPath, workload: Workload) -> float:
    """Return the steps per message of a turn other than the first. Raises RuntimeError when messages are missing."""
    path.connect(workload)
    few = replace(workload, requests=2 * workload.connections * workload.window)
    path.run(few, CpuTime())
    before = path.messages(workload)
    steps = Steps()
    path.run(few, steps)
    _check_count(few, path.messages(workload) - before, 1)
    return steps.count / (few.requests * few.batch)


def _check_count(workload: Workload, counted: int, rounds: int) -> None:
    expected = workload.requests * workload.batch * rounds
    if counted != expected:
        raise RuntimeError(f"{workload.name}: {counted} messages instead of {expected}")


async def for_each(workloads: tuple[Workload, ...], look: Callable[[HotPath, Workload], T], root: str) -> list[T]:
    """Call `look` for each workload, in a broker with its store in `root`; return the results."""
    values = {
        "brokerIP1": "127.0.0.1",
        "listenPort": "10911",
        "storePathRootDir": root,
        "mappedFileSizeCommitLog": str(1 << 30),
        "enablePropertyFilter": "true",
        # A stalled machine must cost time, not messages.
        "brokerFastFailureEnable": "false",
        "osPageCacheBusyTimeOutMills": "600000",
    }
    configuration = Configuration.from_values(values)
    turn = Turn()
    turn.scheduler.turn_seconds = math.inf  # here, too: every turn handles everything
    table = ProcessorTable()
    clock = SkippingClock()
    tables = build_tables(Surroundings(configuration, turn, clock.now_ms, Files(), None, Extensions()))
    await tables.store.load()
    try:
        async with open_client(ClientSettings()) as client, trio.open_nursery() as nursery:
            serving = build_serving(tables, 10_911, client)
            await serving.prepare()
            register(serving, table, ProcessorTable(), lambda: TotalsProcessor(serving))
            path = HotPath(serving, clock, turn, table, nursery)
            if any(workload.kind in ("pull", "receive") for workload in workloads):
                stored = Workload("", "send", JSON, 4, 64, requests=STORED_FOR_PULLS, tags=TAGS)
                path.connect(stored)
                path.run(stored, CpuTime())
            settle_memory()
            return [look(path, workload) for workload in workloads]
    finally:
        gc.unfreeze()
        await tables.store.close()


def run(workloads: tuple[Workload, ...], look: Callable[[HotPath, Workload], T]) -> list[T]:
    """`for_each` in a store of its own."""
    import logging

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory(prefix="hot-path-") as root:
        return trio.run(for_each, workloads, look, root, clock=MonotonicClock())


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU time of one message on its way through the broker.")
    parser.add_argument("--only", action="append", default=[], help="workloads whose name contains this (repeatable)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a quarter of the requests: less exact")
    parser.add_argument("--steps", action="store_true", help="count what is executed, measure no time")
    parser.add_argument("--json", action="store_true", help="name -> [microseconds, ratio], or name -> steps")
    options = parser.parse_args()
    chosen = [each for each in WORKLOADS if not options.only or any(part in each.name for part in options.only)]
    if options.quick:
        chosen = [replace(each, requests=each.requests // 4) for each in chosen]
    if options.steps:
        steps = dict(zip([each.name for each in chosen], run(tuple(chosen), count_steps), strict=True))
        print(json.dumps(steps) if options.json else "\n".join(f"{name:<20} {steps[name]:8.1f}" for name in steps))
        return 0
    results = run(tuple(chosen), partial(measure, rounds=options.rounds))
    if options.json:
        print(json.dumps({each.workload.name: [each.microseconds, each.ratio] for each in results}))
        return 0
    print(running_build())
    for each in results:
        print(f"{each.workload.name:<20} {each.microseconds:8.2f} us  {each.ratio:8.2f} x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
