"""Logging of a library: structlog calls that end in Python's own `logging`, so the application decides what is shown.

Nothing below WARNING appears unless the application asks for it:
logging.getLogger("triomq.client").setLevel(logging.INFO). The connections beneath the client log under
`triomq.remoting` in the same way (remoting/log.py).
"""

from __future__ import annotations

import structlog

from triomq.remoting.log import standard_logger


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a structured logger over `logging.getLogger(name)`."""
    return standard_logger(name)
