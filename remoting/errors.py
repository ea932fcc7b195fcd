"""Errors of calls to a peer.

RemotingError
├── ConnectFailed       the connection could not be opened; nothing was sent
├── ConnectionClosed    the connection ended; what was sent may or may not have been handled
├── RemotingTimeout     no response in time; the connection survives, what was sent may have been handled
└── TooManyRequests     the bound on unanswered requests is reached; nothing was sent
"""

from __future__ import annotations


class RemotingError(Exception):
    """Base of all errors of a call to a peer."""


class ConnectFailed(RemotingError):
    """The connection to the address could not be opened."""


class ConnectionClosed(RemotingError):
    """The connection was closed before the response arrived."""


class RemotingTimeout(RemotingError):
    """The response did not arrive in time."""


class TooManyRequests(RemotingError):
    """More requests are unanswered on this connection than its limit allows."""
