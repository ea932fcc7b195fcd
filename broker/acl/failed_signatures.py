"""FailedSignatures: how often an address failed to sign for an account, so that guessing a secret key takes forever.

Each pair of an address (of IPv6 the network, its first 64 bits) and an access key has a debt: a failure adds one, and
each minute takes `limit` away. While the debt is at the limit, requests of that address for that account are refused
without a look at their signatures. A connection that has signed for the account before is not refused, so clients that
share the address with a guesser continue to work.

Touched only on the event loop. Limit: `MAX_PAIRS`; above it the pair whose last failure is the oldest is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from triomq.broker.errors import TooManyFailures
from triomq.protocol.address import HostPort
from triomq.remoting.connection import Connection

log = structlog.get_logger("triomq.broker.acl")

MAX_PAIRS: Final = 10_000
_NETWORK_BYTES: Final = 8
_MINUTE_SECONDS: Final = 60.0

_Pair = tuple[str | bytes, str]


class FailedSignatures:
    """See the module's docstring. `limit` returns the failures per minute, 0 for any number; `clock` returns
    seconds."""

    def __init__(self, limit: Callable[[], int], clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._debts: dict[_Pair, tuple[float, float]] = {}  # pair -> debt at a time, in order of the last failure

    def __len__(self) -> int:
        return len(self._debts)

    def check(self, connection: Connection, access_key: str) -> None:
        """Raise TooManyFailures if this address failed too often for this account."""
        limit = self._limit()
        if not limit or not self._debts or connection.notes.get(self) == access_key:
            return
        debt = self._debt(_pair(connection.remote, access_key), limit)
        if debt > limit - 1:
            seconds = (debt - (limit - 1)) * _MINUTE_SECONDS / limit
            raise TooManyFailures(access_key, connection.remote.ip, seconds)

    def passed(self, connection: Connection, access_key: str) -> None:
        """Note that a signature was right."""
        if connection.notes.get(self) != access_key:
            connection.notes[self] = access_key

    def failed(self, connection: Connection, access_key: str) -> None:
        """Note that a signature was wrong."""
        connection.notes.pop(self, None)
        limit = self._limit()
        if not limit:
            return
        pair = _pair(connection.remote, access_key)
        debt = self._debt(pair, limit) + 1
        self._debts.pop(pair, None)
        if len(self._debts) >= MAX_PAIRS:
            del self._debts[next(iter(self._debts))]
        self._debts[pair] = debt, self._clock()
        if limit - 1 < debt <= limit:
            log.warning("too many failed signatures", remote=connection.remote.text, key=access_key, limit=limit)

    def _debt(self, pair: _Pair, limit: int) -> float:
        debt, since = self._debts.get(pair, (0.0, 0.0))
        return max(0.0, debt - (self._clock() - since) * limit / _MINUTE_SECONDS)


def _pair(remote: HostPort, access_key: str) -> _Pair:
    return (remote.packed[:_NETWORK_BYTES] if remote.is_ipv6 else remote.ip, access_key)
