"""Logging of a library: structlog calls that end in Python's own `logging`, so the application decides what is shown.

Nothing below WARNING appears unless the application asks for it:
logging.getLogger("triomq.client").setLevel(logging.INFO). The connections beneath the client log under
`triomq.remoting` in the same way (remoting/log.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from triomq.client.core.errors import BrokerRefused, BrokerUnknown, BrokerUnreachable, NameServersUnreachable
from triomq.protocol.codes import ResponseCode
from triomq.remoting.log import standard_logger

if TYPE_CHECKING:
    import structlog


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a structured logger over `logging.getLogger(name)`."""
    return standard_logger(name)


def report(log: structlog.stdlib.BoundLogger, event: str, error: Exception, **facts: object) -> None:
    """Log a failure that the client repairs by itself: as a warning, or at DEBUG level when a server was not reached,
    or is no master any more. The client warns of that itself, once and then once a minute (protocol.outage.Outages)."""
    is_absence = isinstance(error, BrokerUnknown | BrokerUnreachable | NameServersUnreachable) or (
        isinstance(error, BrokerRefused) and error.code == ResponseCode.SLAVE_NOT_AVAILABLE
    )
    (log.debug if is_absence else log.warning)(event, error=str(error), **facts)
