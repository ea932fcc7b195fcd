"""Logging of a cluster that runs inside another program: to Python's `logging`, by logger name, not to standard output.

structlog has one configuration per process, and prints if there is none. While a cluster runs in a program that does
not configure structlog, the lines of this project's packages (and only those) go to `logging`; the program's own
structlog calls are unaffected. A program that configures structlog, before or during that time, receives our lines like
its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog

from triomq.daemon.shortage import shortage_fields
from triomq.remoting.log import line_text

OURS = "triomq."  # the prefix of this project's logger names
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "exception": 40, "critical": 50}

_lock = threading.Lock()
_users = 0


@contextmanager
def diverted() -> Iterator[None]:
    """Divert the log while the block runs; blocks of several threads may overlap."""
    global _users
    with _lock:
        if _users == 0 and not structlog.is_configured():
            default = structlog.get_config()
            structlog.configure(
                processors=[_divert, *default["processors"]],
                logger_factory=_factory,
                cache_logger_on_first_use=False,
            )
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and structlog.get_config()["logger_factory"] is _factory:
                structlog.reset_defaults()


def _factory(*args: Any) -> Any:
    if args and isinstance(args[0], str) and args[0].startswith(OURS):
        return logging.getLogger(args[0])
    return structlog.PrintLogger()


def _divert(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if not isinstance(logger, logging.Logger):
        return event
    level = _LEVELS.get(method, logging.ERROR)
    if logger.isEnabledFor(level):
        exc_info = event.pop("exc_info", None)
        error = exc_info if isinstance(exc_info, BaseException) else bool(exc_info)
        shortage = shortage_fields(error) if isinstance(error, BaseException) else None
        event.update(shortage or {})
        logger.log(level, "%s", line_text(event), exc_info=error if shortage is None else None)
    raise structlog.DropEvent
