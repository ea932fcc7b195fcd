"""bench: a bounded load on a topic of its own, which is deleted at the end: rates, times of requests, errors.

Each connection has a thread and a queue. The threads share nothing but counts; the caller waits and shows progress.
"""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from time import monotonic

from triomq.admin.cluster_view import master_table
from triomq.admin.commands.topics import create_topic
from triomq.admin.errors import AdminError, UsageError
from triomq.admin.messages import FOUND, Queue, pull
from triomq.admin.progress_line import ProgressLine
from triomq.admin.run import Run
from triomq.admin.verbs.bench_figures import Figures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from triomq.admin.session import Session

SEND, RECEIVE, BOTH = "send", "receive", "both"
BOUNDS = {"count": (10_000, 1_000_000), "size": (1024, 4 * 1024 * 1024), "connections": (4, 64),
          "seconds": (30, 3600)}  # fmt: skip
MAX_ERRORS = 10  # of one connection, one after the other
EMPTY_SECONDS = 0.01
JOIN_SECONDS = 0.05
COLUMNS = {"kind": "KIND", "messages": "MESSAGES", "seconds": "SECONDS", "messagesPerSecond": "PER S",
           "mebibytesPerSecond": "MIB/S", "p50Ms": "P50 MS", "p99Ms": "P99 MS", "maxMs": "MAX MS",
           "errors": "ERRORS"}  # fmt: skip


def bench(run: Run) -> None:
    kind = run.get("KIND") or BOTH
    if kind not in (SEND, RECEIVE, BOTH):
        raise UsageError(f"KIND is {SEND}, {RECEIVE} or {BOTH}, not {kind!r}")
    limits = {name: _bounded(run, name) for name in BOUNDS}
    masters = master_table(run)
    if run.has("cluster"):
        names = run.session.broker_names(run.get("cluster"))
        masters = {name: address for name, address in masters.items() if name in names}
    strangers = [address for address in masters.values() if not is_loopback(address)]
    run.ask_consent(strangers, "a load on brokers of another machine")
    topic = f"mqadmin-bench-{os.urandom(6).hex()}"
    load = Load(run.session, topic, masters, limits)
    queues = {"readQueueNums": limits["connections"], "writeQueueNums": limits["connections"]}
    config = {"topicName": topic, **queues, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0,
              "order": False}  # fmt: skip
    try:
        for address in masters.values():
            create_topic(run, address, config)
        text = f"send up to {limits['count']} messages of {limits['size']} bytes through {limits['connections']} "
        run.change("bench", f"{text}connections, for at most {limits['seconds']} s", partial(load.measure, kind))
    finally:
        _delete(run, topic, masters)
    items = [load.figures[name].item(name, limits) for name in load.figures]
    run.out.table(COLUMNS, items)
    if not strangers:
        run.out.line("The brokers are on this machine and share its processors with this measurement.")
    for name, figures in load.figures.items():
        for error, count in figures.errors.items():
            run.failed(f"{name}: {count} times: {error}")


def _bounded(run: Run, name: str) -> int:
    default, most = BOUNDS[name]
    value = run.number(name, default)
    if not 1 <= value <= most:
        raise UsageError(f"--{name} is between 1 and {most}")
    return value


def is_loopback(address: str) -> bool:
    from ipaddress import ip_address

    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _delete(run: Run, topic: str, masters: dict[str, str]) -> None:
    """Delete the topic everywhere; what fails is said and does not keep the rest."""
    places = [(address, 215) for address in masters.values()]
    places += [(address, 216) for address in run.session.required_name_servers()]
    for address, code in places:
        try:
            run.session.call(address, code, {"topic": topic})
        except AdminError as error:
            run.failed(f"topic {topic} was not deleted: {error}")


class Load:
    """`figures` are those of each kind, in the order of `measure`."""

    def __init__(self, session: Session, topic: str, masters: dict[str, str], limits: dict[str, int]) -> None:
        self._session = session
        self._topic = topic
        self._limits = limits
        self._places = [list(masters.items())[n % len(masters)] for n in range(limits["connections"])]
        self._stop = threading.Event()
        self._sent = [0] * limits["connections"]  # each has one writer
        self._is_sending = True
        self.figures: dict[str, Figures] = {}

    def measure(self, kind: str) -> None:
        self.figures[SEND] = Figures()
        if kind != SEND:
            self.figures[RECEIVE] = Figures()
        for phase in [[SEND, RECEIVE]] if kind == BOTH else [[SEND], [RECEIVE]] if kind == RECEIVE else [[SEND]]:
            self._phase(phase)

    def _phase(self, kinds: list[str]) -> None:
        """Run the threads of some kinds at once, until they are done or the time is over."""
        deadline = monotonic() + self._limits["seconds"]
        works: dict[str, Callable[[Session, int, Figures, float], None]] = {SEND: self._send, RECEIVE: self._receive}
        threads = {
            kind: [
                threading.Thread(target=self._with_session, args=(works[kind], number, kind, deadline), daemon=True)
                for number in range(self._limits["connections"])
            ]
            for kind in kinds
        }
        try:
            for each in threads.values():
                for thread in each:
                    thread.start()
            with ProgressLine("bench") as line:
                for kind in kinds:
                    for thread in threads[kind]:
                        while thread.is_alive():
                            thread.join(JOIN_SECONDS)
                            line.show(", ".join([f"{name} {self.figures[name].count}" for name in kinds]))
                    self._is_sending = self._is_sending and kind != SEND
        finally:
            self._stop.set()
            for each in threads.values():
                for thread in each:
                    thread.join()
            self._stop.clear()

    def _with_session(self, work: Callable[..., None], number: int, kind: str, deadline: float) -> None:
        with self._session.another() as session:
            work(session, number, self.figures[kind], deadline)

    def _is_over(self, deadline: float) -> bool:
        return self._stop.is_set() or monotonic() >= deadline

    def _send(self, session: Session, number: int, figures: Figures, deadline: float) -> None:
        connections = self._limits["connections"]
        wanted = self._limits["count"] // connections + (number < self._limits["count"] % connections)
        body = b"x" * self._limits["size"]
        _, address = self._places[number]
        failures = 0
        for _ in range(wanted):
            if self._is_over(deadline) or failures >= MAX_ERRORS:
                return
            now = time.time_ns() // 1_000_000
            fields: dict[str, Any] = {
                "a": "TOOLS_PRODUCER", "b": self._topic, "c": "TBW102", "d": connections, "e": number, "f": 0,
                "g": now, "h": 0, "i": "WAIT\x01true\x02", "j": 0, "k": False, "m": False,
            }  # fmt: skip
            began = time.perf_counter()
            try:
                session.call(address, 310, fields, body)
            except AdminError as error:
                failures += 1
                figures.failed(error)
                continue
            failures = 0
            figures.done(1, len(body), began, time.perf_counter())
            self._sent[number] += 1

    def _receive(self, session: Session, number: int, figures: Figures, deadline: float) -> None:
        name, address = self._places[number]
        queue, run = Queue(self._topic, name, number, address), Run(session, {}, None)  # type: ignore[arg-type]
        offset = failures = 0
        while not self._is_over(deadline) and failures < MAX_ERRORS:
            if offset >= self._sent[number]:
                if not self._is_sending:
                    return
                self._stop.wait(EMPTY_SECONDS)
                continue
            began = time.perf_counter()
            try:
                status, _, messages = pull(run, queue, offset)
            except AdminError as error:
                failures += 1
                figures.failed(error)
                continue
            failures = 0
            if status != FOUND:
                self._stop.wait(EMPTY_SECONDS)  # the broker adds to the queue a moment after its response
                continue
            offset += len(messages)
            figures.done(len(messages), sum([len(each.body) for each in messages]), began, time.perf_counter())
