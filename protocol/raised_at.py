"""Where an error was raised, for a line without a traceback."""

from __future__ import annotations

from types import TracebackType


def raised_at(traceback: TracebackType | None) -> str | None:
    """Return the function that raised, as module.function; None without a traceback."""
    if traceback is None:
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    frame = traceback.tb_frame
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}"
