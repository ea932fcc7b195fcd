"""Measure the CPU time of one message in the broker, without network and scheduler: fixed runs in one process.

    bin/bench-hot-path [--only NAME] [--rounds 5] [--quick] [--steps] [--json]

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
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any, TypeVar

import structlog
import trio

from triomq.broker.assembly.processors import register
from triomq.broker.assembly.serving import build_serving
from triomq.broker.assembly.tables import Surroundings, Tables, build_tables
from triomq.broker.configuration import Configuration
from triomq.broker.extensions import Extensions
from triomq.daemon.clock import system_now_ms
from triomq.daemon.run import settle_memory
from triomq.protocol.address import HostPort
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import JSON, ROCKETMQ, RemotingCommand
from triomq.protocol.frame import encode_frame
from triomq.protocol.speedups import running_build
from triomq.remoting.client import open_client
from triomq.remoting.config import ClientSettings
from triomq.remoting.connection import Connection
from triomq.remoting.connection_settings import ConnectionSettings
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.turn import Turn
from triomq.store.disk.files import Files

T = TypeVar("T")

TOPIC = "HotPath"
GROUP = "hot-path"
QUEUES = 4
STORED_FOR_PULLS = 16_384
TAGS = 10
SQL = "k = 3 AND region IN ('eu', 'us')"


class Dropped:
    """A transport that discards everything at once and counts the bytes."""

    def __init__(self) -> None:
        self.taken_bytes = 0

    def write(self, data: bytes) -> None:
        self.taken_bytes += len(data)

    def pause_reading(self) -> None:
        raise RuntimeError("nothing here is ever full")

    def resume_reading(self) -> None:
        raise RuntimeError("nothing here is ever full")

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Workload:
    """`connections` bring `window` requests each with one read, all in one turn. Sends have as many `tags`, and values
    of the property k; pulls get one message of that number."""

    name: str
    kind: str
    serialize_type: int
    connections: int
    window: int
    body_bytes: int = 1024
    batch: int = 1
    requests: int = 8192
    tags: int = 0
    subscription: str = "*"
    expression_type: str = "TAG"


WORKLOADS = (
    Workload("send json 4x64", "send", JSON, 4, 64),
    Workload("send binary 4x64", "send", ROCKETMQ, 4, 64),
    Workload("send json 64x1", "send", JSON, 64, 1),
    Workload("send binary 128 B", "send", ROCKETMQ, 4, 64, body_bytes=128),
    Workload("pull batch 32", "pull", JSON, 4, 1, batch=32, requests=512),
    Workload("pull batch 1", "pull", JSON, 4, 1, requests=4096),
    Workload("pull tag 1 of 10", "pull", JSON, 4, 1, batch=32, requests=512, tags=TAGS, subscription="t3"),
    Workload(
        "pull SQL92 1 of 10",
        "pull",
        JSON,
        4,
        1,
        batch=32,
        requests=256,
        tags=TAGS,
        subscription=SQL,
        expression_type="SQL92",
    ),
)


@dataclass(frozen=True)
class Measured:
    """CPU time of one message in us, and as a multiple of one step of the calibration loop."""

    workload: Workload
    microseconds: float
    ratio: float


class Steps:
    """Count what runs inside of the `with` block: instructions of Python functions, and calls of C functions."""

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


def send_frame(workload: Workload, number: int) -> bytes:
    text = f"UNIQ_KEY\x01{number % 4:016X}{number:016X}\x02KEYS\x01k{number}\x02WAIT\x01true\x02TAGS\x01t"
    if workload.tags:
        tag = number // QUEUES % workload.tags
        text += f"{tag}\x02k\x01{tag}\x02region\x01eu"
    text += "\x02"
    queue, born = str(number % QUEUES), str(1_700_000_000_000 + number)
    values = (GROUP, TOPIC, "TBW102", str(QUEUES), queue, "0", born, "0", text)
    fields = {**dict(zip("abcdefghi", values, strict=True)), "j": "0", "k": "false", "m": "false"}
    return _frame(workload, RequestCode.SEND_MESSAGE_V2, number, fields, b"x" * workload.body_bytes)


def pull_frame(workload: Workload, number: int) -> bytes:
    looked_at = workload.batch * max(1, workload.tags)
    stored = STORED_FOR_PULLS // QUEUES // looked_at * looked_at
    fields = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": str(number % QUEUES),
        "queueOffset": str(number // QUEUES * looked_at % stored),
        "maxMsgNums": str(workload.batch),
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": workload.subscription,
        "subVersion": "0",
        "expressionType": workload.expression_type,
    }
    return _frame(workload, RequestCode.PULL_MESSAGE, number, fields, b"")


def _frame(workload: Workload, code: int, number: int, fields: dict[str, str], body: bytes) -> bytes:
    return encode_frame(
        RemotingCommand(
            code, opaque=number, body=body, serialize_type=workload.serialize_type, ext_fields=fields, language=0
        )
    )


def reads(workload: Workload) -> list[list[bytes]]:
    """Yield, turn by turn, the bytes that each connection's read returns."""
    make = send_frame if workload.kind == "send" else pull_frame
    frames = [make(workload, number) for number in range(workload.requests)]
    turn = workload.connections * workload.window
    return [
        [b"".join(frames[at : at + workload.window]) for at in range(begin, begin + turn, workload.window)]
        for begin in range(0, len(frames), turn)
    ]


class HotPath:
    """A broker whose connections the benchmark feeds."""

    def __init__(self, tables: Tables, turn: Turn, table: ProcessorTable, nursery: trio.Nursery) -> None:
        self._tables = tables
        self._turn = turn
        self._table = table
        self._nursery = nursery
        self._connections: list[Connection] = []
        self._transports: list[Dropped] = []

    def connect(self, count: int) -> None:
        while len(self._connections) < count:
            connection = Connection(
                self._table,
                self._turn,
                self._nursery,
                HostPort("127.0.0.1", 40_000 + len(self._connections)),
                HostPort("127.0.0.1", 10_911),
                ConnectionSettings(max_frame_bytes=1 << 24, max_unanswered=1000),
            )
            transport = Dropped()
            connection.transport = transport
            self._connections.append(connection)
            self._transports.append(transport)

    def run(self, turns: list[list[bytes]]) -> float:
        """Return the CPU seconds of these turns."""
        turn, connections = self._turn, self._connections
        began = time.process_time()
        for data_of_connections in turns:
            turn.begin()
            for connection, data in zip(connections, data_of_connections, strict=False):
                connection.receive(data)
            turn.end()
        return time.process_time() - began

    def taken_bytes(self) -> int:
        return sum(transport.taken_bytes for transport in self._transports)

    def messages(self) -> tuple[int, int]:
        """Return the numbers of messages put and got since the start."""
        return self._tables.stats.put_total, self._tables.stats.get_total


def measure(path: HotPath, workload: Workload, rounds: int) -> Measured:
    """Return the best round. Raises RuntimeError when messages are missing."""
    path.connect(workload.connections)
    turns = reads(workload)
    messages = workload.requests * workload.batch
    before = path.messages()
    seconds = calibration = float("inf")
    path.run(turns[: len(turns) // 4 + 1])
    warm = path.messages()
    for _ in range(rounds):
        gc.collect()
        calibration = min(calibration, calibration_seconds())
        seconds = min(seconds, path.run(turns))
    after = path.messages()
    counted = (after[0] - warm[0]) if workload.kind == "send" else (after[1] - warm[1])
    if counted != messages * rounds or before == after:
        raise RuntimeError(f"{workload.name}: {counted} messages instead of {messages * rounds}")
    return Measured(workload, seconds / messages * 1e6, seconds / messages / (calibration / 40_000))


def count_steps(path: HotPath, workload: Workload) -> float:
    """Return the steps per message of a turn other than the first."""
    path.connect(workload.connections)
    turns = reads(replace(workload, requests=2 * workload.connections * workload.window))
    path.run(turns)
    before = sum(path.messages())
    with Steps() as steps:
        path.run(turns)
    return steps.count / (sum(path.messages()) - before)


async def for_each(workloads: tuple[Workload, ...], look: Callable[[HotPath, Workload], T], root: str) -> list[T]:
    """Call `look` for each workload, in a broker with its store in `root`; return the results."""
    values = {
        "brokerIP1": "127.0.0.1",
        "listenPort": "10911",
        "storePathRootDir": root,
        "mappedFileSizeCommitLog": str(1 << 30),
        "enablePropertyFilter": "true",
        "brokerFastFailureEnable": "false",  # a stalled machine must cost time, not messages
    }
    configuration = Configuration.from_values(values)
    turn = Turn()
    turn.limit_seconds = math.inf  # here, too: every turn handles everything
    table = ProcessorTable()
    tables = build_tables(Surroundings(configuration, turn, system_now_ms, Files(), None, Extensions()))
    await tables.store.load()
    try:
        async with open_client(ClientSettings()) as client, trio.open_nursery() as nursery:
            register(build_serving(tables, 10_911, client), table, ProcessorTable())
            path = HotPath(tables, turn, table, nursery)
            if any(workload.kind == "pull" for workload in workloads):
                path.connect(4)
                path.run(reads(Workload("", "send", JSON, 4, 64, requests=STORED_FOR_PULLS, tags=TAGS)))
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
        return trio.run(for_each, workloads, look, root)


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
