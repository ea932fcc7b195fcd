"""The clients of a run: of each kind a process that sends and one that consumes, in a namespace of their own.

A sender sends files of a few lines, one after the other; its acknowledgements are kept. A command that fails or hangs
is given up, and the next one begins: its lines that were not acknowledged may or may not arrive. A process that hangs
is replaced.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from chaos_checks import Numbers, OrderedGroup, Told, body_of, read_body
from chaos_cluster import TOPIC
from interop_processes import Child

LINES = 40
READY_SECONDS = 60
SEND_SECONDS = 120
RETRY_SECONDS = 1.0
SEND_TIMEOUT_MS = 8000
ORDERED = "python"
"""The kind whose consumer is an ordered one, and reports brokers."""
Event = dict[str, Any]


class Process:
    """A driver (tests/interop/README.md). Its events go to `hear`, one at a time, and none is kept."""

    _numbers = count(1)

    def __init__(self, argv: list[str], directory: Path, hear: Callable[[Event], None]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "HOME": str(directory)}
        self._hear = hear
        self._ready = threading.Event()
        self._over: dict[str, threading.Event] = {}
        self.child = Child(argv, log_path=directory / "output.log", env=environment, piped=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.child.stdout:
            event = json.loads(line)
            if event["event"] == "ready":
                self._ready.set()
                continue
            self._hear(event)
            if event["event"] in ("done", "failed"):
                self._over.pop(event["id"]).set()
        for over in list(self._over.values()):
            over.set()

    def begin(self, command: str, **options: object) -> tuple[str, threading.Event]:
        """Start a command. Return its id, and an event that is set when it is over. Raises OSError."""
        if not self._ready.wait(READY_SECONDS):
            raise TimeoutError(f"not ready within {READY_SECONDS} s: {self.child.log_tail()}")
        number = str(next(self._numbers))
        over = self._over[number] = threading.Event()
        words = [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), str(value))]
        self.tell("\t".join([number, command, *words]))
        return number, over

    def tell(self, line: str) -> None:
        self.child.stdin.write(line.encode() + b"\n")
        self.child.stdin.flush()

    def end(self) -> None:
        self.child.end(signal.SIGKILL)
        self._reader.join(10)


class Sender:
    """Sends numbered messages of one kind of client until it is stopped. Only its thread changes what it keeps, except
    for `told`, to which the reader of the process appends."""

    def __init__(self, kind: str, argv: list[str], directory: Path, name_servers: list[str], pause_ms: int) -> None:
        self.kind = kind
        self.told: list[Told] = []
        self.statuses: dict[str, int] = {}
        self.failed = 0
        self.replaced = 0
        self.last_error = ""
        self._argv = argv
        self._directory = directory
        self._name_servers = name_servers
        self._pause_ms = pause_ms
        self._first = 0
        self._command = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        process = self._process()
        while not self._stop.is_set():
            failures = self.failed + self.replaced
            try:
                number, over = self._send(process)
            except OSError as error:  # it ended, or never became ready
                over, number = threading.Event(), ""
                self.last_error = str(error)
            deadline = time.monotonic() + SEND_SECONDS
            while number and time.monotonic() < deadline and not over.wait(0.5):
                if self._stop.is_set() and number:
                    with contextlib.suppress(OSError):
                        process.tell(f"{number}\tstop")
                    over.wait(30)
                    break
            if not over.is_set() or process.child.process.poll() is not None:
                process.end()
                if not self._stop.is_set():
                    self.replaced += 1
                    process = self._process()
            self._first += LINES
            if self.failed + self.replaced > failures:
                self._stop.wait(RETRY_SECONDS)
        process.end()

    def _process(self) -> Process:
        return Process(self._argv, self._directory, self._hear)

    def _send(self, process: Process) -> tuple[str, threading.Event]:
        file = self._directory / "lines.txt"
        file.write_bytes(b"".join(body_of(self.kind, self._first + line) for line in range(LINES)))
        number, over = process.begin(
            "send-lines",
            namesrv=";".join(self._name_servers),
            topic=TOPIC,
            file=file,
            group=f"chaos_producer_{self.kind}",
            keys=f"{self.kind}-{self._first}",
            pause_ms=self._pause_ms,
            timeout_ms=SEND_TIMEOUT_MS,
        )
        return number, over

    def _hear(self, event: Event) -> None:
        if event["event"] == "sent":
            self.statuses[event["status"]] = self.statuses.get(event["status"], 0) + 1
            number, queue_id = self._first + event["line"], event.get("queue")
            queue_id = None if queue_id is None else int(queue_id)
            self.told.append(Told(number, int(event["queue_offset"]), event.get("broker"), queue_id))
        elif event["event"] == "failed":
            self.failed += 1
            self.last_error = event["error"]

    def stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        self._thread.join(SEND_SECONDS)


class Receiver:
    """A group with one consumer. `received` has what it got of each sender."""

    def __init__(self, kind: str, argv: list[str], directory: Path, name_servers: list[str]) -> None:
        self.kind = kind
        self.received: dict[str, Numbers] = {}
        self.copies = 0
        self.replaced = 0
        self.problems: list[str] = []
        self.ordered = OrderedGroup() if kind == ORDERED else None
        self._argv = argv
        self._directory = directory
        self._name_servers = name_servers
        self._changing = threading.Lock()
        self._process = self._begin()

    def _begin(self) -> Process:
        process = Process(self._argv, self._directory, self._hear)
        process.begin(
            "receive",
            namesrv=";".join(self._name_servers),
            topic=TOPIC,
            group=f"chaos_group_{self.kind}",
            mode="orderly" if self.ordered is not None else "push",
        )
        return process

    def look(self) -> None:
        """Start another consumer if this one has ended."""
        if self._process.child.process.poll() is not None:
            self.replace()

    def replace(self) -> None:
        self._process.end()
        self.replaced += 1
        self._process = self._begin()

    def end(self) -> None:
        self._process.end()

    def _hear(self, event: Event) -> None:
        if event["event"] == "failed":
            self.problems.append(f"consumer {self.kind} failed: {event['error']}")
        if event["event"] != "message":
            return
        body = base64.b64decode(event["body"])
        read = read_body(body)
        with self._changing:
            if read is None:
                self.problems.append(f"consumer {self.kind} got {body[:60]!r}, which nobody sent")
                return
            numbers = self.received.setdefault(read[0], Numbers())
            self.copies += read[1] in numbers
            numbers.add(read[1])
            if self.ordered is not None:
                self.ordered.got((event["broker"], event["queue"]), event["queue_offset"])
