"""Errors that prevent the start of a daemon, and the exit codes of its process.

StartError      the operator must change something outside of the program; printed as one line, no traceback
"""

import os
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of both daemons. 1, 253 and 255 are those of RocketMQ (its -3 and -1) for the same events."""

    STOPPED = 0
    USAGE = 1
    STOPPED_LATE = 3  # the stop exceeded its deadline, and the process ended itself
    DISK_SILENT = 4  # the disk did not respond during the stop, and the process ended itself
    REFUSED = 253  # configuration or data that the daemon does not start with
    FAILED = 255  # could not start (port taken, ...) or failed while running


class StartError(Exception):
    """The daemon cannot start. The text names the problem, its place and the remedy."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def listen_error(address: str, port: int, error: OSError, *, key: str = "listenPort") -> StartError:
    """Return the error for a port that cannot be bound; `key` is the setting that selects another port."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StartError(
        f"cannot listen on {address or '*'}:{port}: {reason}; stop the process that uses it, or set {key}",
        ExitCode.FAILED,
    )
