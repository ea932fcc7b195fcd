"""Loggers for code that runs both in the daemons and inside other programs.

Where structlog is configured, by the daemons or by the program, its configuration applies. Where it is not, lines go to
Python's own `logging` under the same name: warnings and worse then appear on standard error unless the program decides
otherwise. (An unconfigured structlog would print everything on standard output.)

A program that does not use structlog imports it with the first line that is shown: it would be a tenth of the memory
and of the time that the client takes to import.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import structlog

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
}


def get_logger(name: str) -> Any:
    """Return a structured logger that checks at each call whether structlog has been configured."""
    return _Logger(name, heeds_configuration=True)


def standard_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a structured logger over `logging.getLogger(name)`, independent of structlog's configuration."""
    logger: Any = _Logger(name, heeds_configuration=False)
    return logger  # type: ignore[no-any-return]


class _Logger:
    """Becomes a logger of structlog when a line is to be shown."""

    def __init__(self, name: str, *, heeds_configuration: bool) -> None:
        self._name = name
        self._heeds_configuration = heeds_configuration
        self._plain = logging.getLogger(name)
        self._standard: Any = None

    def __getattr__(self, method: str) -> Any:
        structlog = sys.modules.get("structlog") if self._heeds_configuration else None
        if structlog is not None and structlog.is_configured():
            return getattr(structlog.get_logger(self._name), method)
        if method in _LEVELS and not self._plain.isEnabledFor(_LEVELS[method]):
            return _show_nothing
        if self._standard is None:
            self._standard = _over(self._plain)
        return getattr(self._standard, method)


def _show_nothing(event: str, *_: object, **facts: object) -> None:
    """Take the place of a method whose lines are not shown."""


def _over(logger: logging.Logger) -> Any:
    import structlog

    return structlog.wrap_logger(
        logger,
        processors=[structlog.processors.format_exc_info, _render],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def line_text(event: MutableMapping[str, Any]) -> str:
    """Format an event and its values as one line, followed by the traceback if there is one. Empties the mapping."""
    text = str(event.pop("event", ""))
    trace = event.pop("exception", None)
    pairs = " ".join(f"{key}={value!r}" if isinstance(value, str) else f"{key}={value}" for key, value in event.items())
    line = f"{text} [{pairs}]" if pairs else text
    return f"{line}\n{trace}" if trace else line


def _render(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    return line_text(event)
