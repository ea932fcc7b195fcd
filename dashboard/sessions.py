"""Sessions: who is logged in, in memory only.

A session is a random token in a cookie; this table has its digest, so that a dump of the memory opens no session. It
ends after `LONGEST_SECONDS`, after `IDLE_SECONDS` without a request, when its account is gone or has another secret,
and when `MOST_SESSIONS` newer ones are there. An address with `MOST_FAILURES` failed logins in a minute has to wait.

Only the event loop touches it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

LONGEST_SECONDS: Final = 8 * 3600.0
IDLE_SECONDS: Final = 30 * 60.0
MOST_SESSIONS: Final = 1000
MOST_FAILURES: Final = 5
FAILURE_SECONDS: Final = 60.0
MOST_ADDRESSES: Final = 1000
_TOKEN_BYTES: Final = 32
_NETWORK_BITS: Final = 64
"""Of an IPv6 address: one host has a whole network of this size."""


class Viewer(Protocol):
    """Who looks at the pages. `stamp` changes with the secret of the account."""

    @property
    def name(self) -> str: ...

    @property
    def is_admin(self) -> bool: ...

    @property
    def stamp(self) -> str: ...

    def may_read(self, topic: str) -> bool:
        """Return whether the messages of a topic may be shown."""

    def may_read_group(self, group: str) -> bool:
        """Return whether the progress of a consumer group may be shown."""


class Accounts(Protocol):
    """The accounts of the daemon."""

    def log_in(self, name: str, secret: str) -> Viewer | None:
        """Return the viewer if the secret is right, after the same time for every wrong one."""

    def viewer(self, name: str) -> Viewer | None:
        """Return the viewer of an account as it is now; None if there is none."""


@dataclass(slots=True)
class Session:
    """`csrf` must come with every change that the session makes. `previews` are what it may confirm: a name that was
    given out -> a digest of what it is for."""

    name: str
    stamp: str
    csrf: str
    began: float
    last_seen: float
    previews: dict[str, bytes] = field(default_factory=dict)


class Sessions:
    """See the module's docstring. `clock` returns seconds that only grow."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def begin(self, viewer: Viewer) -> str:
        """Return the token of a new session."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        now = self._clock()
        while len(self._sessions) >= MOST_SESSIONS:
            self._sessions.popitem(last=False)
        csrf = secrets.token_urlsafe(_TOKEN_BYTES)
        self._sessions[_digest(token)] = Session(viewer.name, viewer.stamp, csrf, now, now)
        return token

    def find(self, token: str, accounts: Accounts) -> tuple[Session, Viewer] | None:
        """Return the session of a token and its viewer as the account is now; None if it has ended."""
        key = _digest(token)
        session = self._sessions.get(key)
        if session is None:
            return None
        now = self._clock()
        viewer = accounts.viewer(session.name)
        is_over = now - session.began > LONGEST_SECONDS or now - session.last_seen > IDLE_SECONDS
        if is_over or viewer is None or viewer.stamp != session.stamp:
            del self._sessions[key]
            return None
        session.last_seen = now
        return session, viewer

    def end(self, token: str) -> None:
        self._sessions.pop(_digest(token), None)

    def must_wait(self, address: str) -> bool:
        """Return whether an address has failed too often within the last minute."""
        long_ago = self._clock() - FAILURE_SECONDS
        recent = [moment for moment in self._failures.get(_place(address), ()) if moment > long_ago]
        return len(recent) >= MOST_FAILURES

    def failed(self, address: str) -> None:
        """Note a failed login."""
        place = _place(address)
        moments = self._failures.pop(place, [])
        self._failures[place] = [*moments, self._clock()][-MOST_FAILURES:]
        while len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()


def _place(address: str) -> str:
    """Return what failures count for: an IPv4 address, or the network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((int(parsed), _NETWORK_BITS), strict=False))
