"""Errors of calls to a peer.

RemotingError
├── ConnectFailed       no connection could be made; nothing was sent
├── ConnectionClosed    the connection ended; what was sent may or may not have been handled
├── RemotingTimeout     no answer in time; the connection survives, what was sent may have been handled
└── TooManyRequests     the bound on unanswered requests is reached; nothing was sent
"""

from __future__ import annotations


class RemotingError(Exception):
    """Base of everything that a call to a peer raises."""


class ConnectFailed(RemotingError):
    """No connection to the address could be made."""


class ConnectionClosed(RemotingError):
    """The connection was closed before the answer came."""


class RemotingTimeout(RemotingError):
    """The answer did not come in time."""


class TooManyRequests(RemotingError):
    """More requests are unanswered on this connection than its limit allows."""
