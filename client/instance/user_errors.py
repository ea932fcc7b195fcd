"""Which errors of a function of the application concern one call alone.

SystemExit, GeneratorExit and the outcomes of pytest are no Exception, but a listener that raises them means its
message, not the other clients of the process. What ends the task or the program goes through: a cancellation, Ctrl-C.
"""

from __future__ import annotations

import trio


def concerns_one_call(error: BaseException) -> bool:
    """Return whether a function that raised this has failed, and nothing else has to end."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(concerns_one_call, error.exceptions))
    return not isinstance(error, trio.Cancelled | KeyboardInterrupt)
