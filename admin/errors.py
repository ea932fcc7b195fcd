"""The errors of a command, each with its exit status.

AdminError
├── UsageError         2   the words on the command line
├── NotFound           3   a topic, group, broker or message that does not exist
├── Unreachable        4   no connection, or no response in time (then NoResponse)
├── NotAllowed         5   an ACL, a permission, a refused configuration key
└── PartlyDone         6   some brokers refused
"""

from __future__ import annotations


class AdminError(Exception):
    """A command failed; the text says what, where, and what to do."""

    exit_status = 1


class UsageError(AdminError):
    exit_status = 2


class NotFound(AdminError):
    exit_status = 3


class Unreachable(AdminError):
    exit_status = 4


class NoResponse(Unreachable):
    """A peer accepted the connection, and has not responded in time."""


class NotAllowed(AdminError):
    exit_status = 5


class PartlyDone(AdminError):
    exit_status = 6
