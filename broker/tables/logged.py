"""Tables of a broker whose changes go through the log of its group (group/table_log.py).

Only the leader changes them, and what it changes is a record of the log before anything behind it depends on it. The
others take the records in the order of the log. Without a group a table has no log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused


class LogOfTable(Protocol):
    """What a table calls when it changes. A member that does not lead writes nothing."""

    @property
    def leads(self) -> bool:
        """Whether this broker may change the table: it leads the group."""

    @property
    def is_settled(self) -> bool:
        """Whether a quorum has what has changed so far."""

    def changed(self, name: str) -> None:
        """Note that an entry was added, changed or removed. It is written soon."""

    def write(self) -> None:
        """Write what has changed so far: messages that are appended from now on lie behind it."""

    async def settled(self) -> None:
        """Wait until a quorum has what has changed so far. Raises NotReplicated."""


def check_leads(log: LogOfTable | None) -> None:
    """Raise RequestRefused if only another member of the group may change the table."""
    if log is not None and not log.leads:
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "another member of the group is its master, or none")


class LoggedTable(Protocol):
    """A table with entries that have names and a JSON text."""

    log: LogOfTable | None

    def logged_names(self) -> Iterable[str]:
        """Return the names of all entries."""

    def logged_entry(self, name: str) -> bytes | None:
        """Return an entry as JSON, None for one that is not there."""

    def take_logged(self, name: str, entry: bytes | None) -> None:
        """Take an entry as the leader has it, or remove it. Raises ValueError if it cannot be read."""
