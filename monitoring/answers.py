"""How long requests took, from their arrival to the end of the turn that sends their response.

To note a response must cost a send or a pull as little as possible. What a turn answers at once is therefore only
listed, and counted at the end of the turn, where the clock is read anyway. A request that is answered in a later turn
brings the time at which it entered its pool.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from triomq.monitoring.histogram import Histogram
from triomq.protocol.codes import RequestCode

EDGES_MS: Final[tuple[float, ...]] = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
"""RocketMQ 5's (RemotingMetricsManager)."""

OTHER: Final = -1
"""Peers choose the codes of requests: those that RocketMQ does not have count together."""
_KNOWN: Final = frozenset(map(int, RequestCode))
_HELD: Final = frozenset({int(RequestCode.PULL_MESSAGE)})

Kind = tuple[int, int, bool]
"""Request code, response code, and whether the request was a pull that was held. Bounded by the tables of codes."""


class Answers:
    """The responses that were sent, by kind."""

    def __init__(self) -> None:
        self.times: dict[Kind, Histogram] = {}
        self._at_once: list[Kind] = []

    def at_once(self, request_code: int, response_code: int) -> None:
        """Note a response to a request that came in the same turn."""
        self._at_once.append((request_code, response_code, False))

    def late(self, request_code: int, response_code: int, seconds: float) -> None:
        """Note a response to a request that came this long ago."""
        self._of((request_code, response_code, request_code in _HELD)).observe(seconds * 1000)

    def turn_ended(self, lasted_seconds: float) -> None:
        """Count what was noted since the last turn ended."""
        at_once = self._at_once
        if at_once:
            lasted_ms = lasted_seconds * 1000
            if len(at_once) == 1:
                self._of(at_once[0]).observe(lasted_ms)
            else:
                for kind, count in Counter(at_once).items():
                    self._of(kind).observe_many(lasted_ms, count)
            at_once.clear()

    def _of(self, kind: Kind) -> Histogram:
        found = self.times.get(kind)
        if found is None:
            if kind[0] not in _KNOWN:
                kind = (OTHER, *kind[1:])
            found = self.times.setdefault(kind, Histogram(EDGES_MS))
        return found
