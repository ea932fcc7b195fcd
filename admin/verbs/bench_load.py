"""The load of `bench`: threads that send to and receive from queues of one topic.

Each connection has a thread and a queue. The threads share nothing but counts; the caller waits and shows progress.
"""

from __future__ import annotations

import threading
import time
from time import monotonic

from triomq.admin.errors import AdminError
from triomq.admin.messages import FOUND, TOOLS_GROUP, Queue, pull
from triomq.admin.progress_line import ProgressLine
from triomq.admin.run import Run
from triomq.admin.session import SUCCESS, Refused
from triomq.admin.verbs.bench_figures import Figures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from triomq.admin.session import Session

SEND, RECEIVE, LATENCY, BOTH = "send", "receive", "latency", "both"
# What runs for each word of the command line: one phase after the other, the kinds of one phase at once.
KINDS: dict[str, list[list[str]]] = {
    SEND: [[SEND]],
    RECEIVE: [[SEND], [RECEIVE]],
    BOTH: [[SEND, RECEIVE]],
    LATENCY: [[LATENCY]],
}
MAX_ERRORS = 10  # of one connection, one after the other
EMPTY_SECONDS = 0.01
JOIN_SECONDS = 0.05
HOLD_SECONDS = 5  # for this long the broker may hold a pull
ROUND = "round"  # the property of a message whose latency is measured


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

    def measure(self, phases: list[list[str]]) -> None:
        self.figures = {kind: Figures() for phase in phases for kind in phase}
        for phase in phases:
            self._phase(phase)

    def _phase(self, kinds: list[str]) -> None:
        """Run the threads of some kinds at once, until they are done or the time is over."""
        deadline = monotonic() + self._limits["seconds"]
        works: dict[str, Callable[[Session, int, Figures, float], None]] = {
            SEND: self._send,
            RECEIVE: self._receive,
            LATENCY: self._latency,
        }
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

    def _share(self, number: int) -> int:
        """Return how many messages a connection sends."""
        connections = self._limits["connections"]
        return self._limits["count"] // connections + (number < self._limits["count"] % connections)

    def _fields(self, number: int, properties: str = "") -> dict[str, Any]:
        """Return the header of a message to the queue with this number."""
        return {
            "a": "TOOLS_PRODUCER",
            "b": self._topic,
            "c": "TBW102",
            "d": self._limits["connections"],
            "e": number,
            "f": 0,
            "g": time.time_ns() // 1_000_000,
            "h": 0,
            "i": f"WAIT\x01true\x02{properties}",
            "j": 0,
            "k": False,
            "m": False,
        }

    def _send(self, session: Session, number: int, figures: Figures, deadline: float) -> None:
        """Keep up to `window` requests in flight until the share of this connection is sent."""
        body = b"x" * self._limits["size"]
        _, address = self._places[number]
        in_flight: dict[int, float] = {}  # the number of a request -> when it began
        left = self._share(number)
        failures = 0
        while left or in_flight:
            if self._is_over(deadline) or failures >= MAX_ERRORS:
                left = 0
            try:
                if left and len(in_flight) < self._limits["window"]:
                    left -= 1
                    began = time.perf_counter()
                    in_flight[session.begin(address, 310, self._fields(number), body)] = began
                    continue
                if not in_flight:
                    return
                response = session.next_response(address)
            except AdminError as error:  # the connection is gone, and what was in flight with it
                for _ in range(max(1, len(in_flight))):
                    figures.failed(error)
                failures += 1
                in_flight.clear()
                continue
            begun = in_flight.pop(response.opaque, None)
            if begun is None:
                continue
            if response.code != SUCCESS:
                failures += 1
                figures.failed(Refused(address, response))
                continue
            failures = 0
            figures.done(1, len(body), begun, time.perf_counter())
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

    def _latency(self, session: Session, number: int, figures: Figures, deadline: float) -> None:
        """Send one message after the other; each has arrived when a pull returns it that the broker was holding."""
        _, address = self._places[number]
        body = b"x" * self._limits["size"]
        failures = offset = 0
        with session.another() as puller:
            for number_of_round in range(self._share(number)):
                if self._is_over(deadline) or failures >= MAX_ERRORS:
                    return
                try:
                    pulled = puller.begin(address, 11, self._held_pull(number, offset))
                    began = time.perf_counter()
                    session.call(address, 310, self._fields(number, f"{ROUND}\x01{number_of_round}\x02"), body)
                    offset = self._arrived(puller, number, (pulled, offset, number_of_round), deadline)
                except AdminError as error:
                    failures += 1
                    figures.failed(error)
                    continue
                failures = 0
                figures.done(1, len(body), began, time.perf_counter())

    def _held_pull(self, number: int, offset: int) -> dict[str, Any]:
        return {
            "consumerGroup": TOOLS_GROUP,
            "topic": self._topic,
            "queueId": number,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 6,
            "commitOffset": 0,
            "suspendTimeoutMillis": HOLD_SECONDS * 1000,
            "subscription": "*",
            "subVersion": 0,
            "expressionType": "TAG",
        }

    def _arrived(self, puller: Session, number: int, expected: tuple[int, int, int], deadline: float) -> int:
        """Wait for the message of a round: (number of the pull, its offset, round). Return the next offset."""
        from triomq.protocol.record import iterate_records

        pulled, offset, number_of_round = expected
        _, address = self._places[number]
        while not self._is_over(deadline):
            response = puller.next_response(address, timeout_seconds=HOLD_SECONDS * 2)
            if response.opaque != pulled:
                continue  # to the pull of a round that failed
            offset = int(response.fields.get("nextBeginOffset", offset))
            if response.code == SUCCESS:
                rounds = [message.properties.get(ROUND) for message in iterate_records(response.body)]
                if str(number_of_round) in rounds:
                    return offset
            pulled = puller.begin(address, 11, self._held_pull(number, offset))
        raise AdminError(f"a message to queue {number} at {address} had not arrived when the time was over")
