"""Why a daemon does not start, and what the shell that called it gets to see.

    StartError      something outside the program must be put right first; one line for the operator, no traceback
"""

import os
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of both daemons. 1, 253 and 255 are those of RocketMQ (its -3 and -1) for the same events."""

    STOPPED = 0
    USAGE = 1
    STOPPED_LATE = 3  # asked to stop, not done within the deadline: killed itself
    REFUSED = 253  # configuration or data that the daemon will not start with
    FAILED = 255  # could not start (port taken, ...) or failed while running


class StartError(Exception):
    """The daemon cannot start; the text says what is wrong, where, and what to do."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def listen_error(address: str, port: int, error: OSError, *, key: str = "listenPort") -> StartError:
    """What to say when a port cannot be taken; `key` is the setting that would choose another one."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StartError(
        f"cannot listen on {address or '*'}:{port}: {reason}; stop what holds it, or set {key}", ExitCode.FAILED
    )
