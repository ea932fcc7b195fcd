"""Noticing that a class of the trio client is used outside of trio, which otherwise ends in an error about tokens."""

from __future__ import annotations

import trio

from triomq.client.core.errors import ConfigurationError


def check_in_trio(name: str) -> None:
    """Raise ConfigurationError, with what to use instead of `name`, when no trio program runs in this thread."""
    try:
        trio.lowlevel.current_clock()
    except RuntimeError:
        raise ConfigurationError(
            f"triomq.{name} runs on trio, and no trio program runs in this thread: use the classes of triomq.aio in "
            "asyncio programs, those of triomq.blocking in plain code"
        ) from None
