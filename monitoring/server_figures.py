"""Figures that both daemons have: what runs, its connections, turns and memory."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Mapping

from triomq import __version__
from triomq.monitoring.answers import Answers
from triomq.monitoring.exposition import Family, counter, gauge, histogram, labels, one
from triomq.monitoring.histogram import REQUESTS, Histogram
from triomq.protocol.codes import V4_9_7, version_name
from triomq.protocol.speedups import running_build
from triomq.remoting.admission import LIMITS
from triomq.remoting.memory import MemoryBudget
from triomq.remoting.server import RemotingServer
from triomq.remoting.turn import Turn


def build_info(role: str) -> Iterator[Family]:
    """Yield what runs here."""
    text = labels(
        version=__version__,
        python=platform.python_version(),
        compiled=running_build(),
        rocketmq_version=version_name(V4_9_7),
        role=role,
    )
    yield gauge("triomq_build_info", "What runs here; always 1.", [(text, 1)])


def server_families(server: RemotingServer, ports: Mapping[int, str]) -> Iterator[Family]:
    """Yield the connections of a server. `ports` are the names of its ports."""
    opened = Counter[str]()
    for port, count in server.opened.items():
        opened[ports.get(port, "other")] += count
    present = Counter(ports.get(connection.local.port, "other") for connection in server.connections)
    names = sorted({*ports.values(), *opened})
    yield gauge("triomq_connections", "Open connections.", [(labels(port=name), present[name]) for name in names])
    yield counter(
        "triomq_connections_opened_total",
        "Connections that were accepted.",
        [(labels(port=name), opened[name]) for name in names],
    )
    yield counter(
        "triomq_connections_refused_total",
        "Connections that were closed at once because of a limit.",
        [(labels(limit=limit), server.refused_connections[limit]) for limit in LIMITS],
    )


def memory_families(memory: MemoryBudget) -> Iterator[Family]:
    """Yield what peers make the process hold (maxRequestBytes)."""
    yield gauge("triomq_memory_budget_bytes", "What all peers may make the process hold.", one(memory.limit_bytes))
    held = {"tables": memory.tables.held_bytes, "long_frames": memory.granted_bytes, "rest": memory.held_bytes}
    yield gauge(
        "triomq_memory_held_bytes",
        "What peers make the process hold, as it is accounted for.",
        [(labels(part=part), count) for part, count in held.items()],
    )
    yield gauge("triomq_memory_tight", "1 while peers must wait for memory.", one(int(memory.is_tight)))


class TurnFigures:
    """Observes the turns of a server, from its construction on."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._durations = Histogram()
        self._requests = Histogram(REQUESTS)
        self._seen = turn.received_requests
        self.answers = turn.answers = Answers()
        turn.on_end = self._ended

    def _ended(self, seconds: float) -> None:
        turn = self._turn
        requests = turn.received_requests - self._seen
        if requests:
            self._seen = turn.received_requests
            self._requests.observe(requests)
        self._durations.observe(seconds)
        self.answers.turn_ended(seconds)

    def families(self) -> Iterator[Family]:
        turn = self._turn
        meaning = "From the wake-up of the poller to the end of the turn."
        yield histogram("triomq_turn_duration_seconds", meaning, one(self._durations))
        yield histogram("triomq_turn_requests", "Requests that arrived in one turn.", one(self._requests))
        yield counter("triomq_requests_total", "Requests and responses that arrived.", one(turn.received_requests))
        yield counter(
            "triomq_network_bytes_total",
            "Bytes of the protocol.",
            [(labels(direction="in"), turn.received_bytes), (labels(direction="out"), turn.sent_bytes)],
        )
