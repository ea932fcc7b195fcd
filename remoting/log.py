"""Loggers for code that runs both in the daemons and inside other programs.

Where structlog is configured, by the daemons or by the program, its configuration applies. Where it is not, lines go to
Python's own `logging` under the same name: warnings and worse then appear on standard error unless the program decides
otherwise. (An unconfigured structlog would print everything on standard output.)
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

import structlog


def get_logger(name: str) -> Any:
    """Return a structured logger that checks at each call whether structlog has been configured."""
    return _Logger(name)


class _Logger:
    def __init__(self, name: str) -> None:
        self._structured = structlog.get_logger(name)
        self._standard = standard_logger(name)

    def __getattr__(self, method: str) -> Any:
        return getattr(self._structured if structlog.is_configured() else self._standard, method)


def standard_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a structured logger over `logging.getLogger(name)`, independent of structlog's configuration."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, structlog.processors.format_exc_info, _render],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return logger


def line_text(event: MutableMapping[str, Any]) -> str:
    """Format an event and its values as one line, followed by the traceback if there is one. Empties the mapping."""
    text = str(event.pop("event", ""))
    trace = event.pop("exception", None)
    pairs = " ".join(f"{key}={value!r}" if isinstance(value, str) else f"{key}={value}" for key, value in event.items())
    line = f"{text} [{pairs}]" if pairs else text
    return f"{line}\n{trace}" if trace else line


def _render(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    return line_text(event)
