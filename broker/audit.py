"""The audit of a broker: one log line for each change by administration (see daemon/audit.py). A line is written where
the change is made, with no await between, so it shows this change even when another one is in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from triomq.daemon.audit import audit_line
from triomq.protocol.command import RemotingCommand
from triomq.remoting.connection import Connection

log = structlog.get_logger("triomq.broker.audit")

Who = Callable[[Connection, RemotingCommand], str]
"""Returns the account of a request whose access was checked."""
ACCOUNT: Final = "account"
VIA: Final = "via"
"""Notes of a connection inside the broker: who acts through it, and by what."""
State = Mapping[str, object] | msgspec.Struct | None


class Audit:
    """Writes the audit lines of one broker. Without access control `who` is None, and nobody's name is known."""

    def __init__(self, who: Who | None = None) -> None:
        self._who = who

    def account(self, connection: Connection, request: RemotingCommand) -> str:
        """Return who sends a request. A request that changes accounts has to ask before it does."""
        known = connection.notes.get(ACCOUNT)
        if known is not None:
            return known
        return self._who(connection, request) if self._who is not None else "(no access control)"

    def done(
        self,
        connection: Connection,
        request: RemotingCommand,
        act: str,
        *,
        account: str | None = None,
        before: State = None,
        after: State = None,
        **subject: object,
    ) -> None:
        """Note that a request changed something. `subject` names it; `before` and `after` are its states."""
        line = audit_line(members(before), members(after))
        account = account or self.account(connection, request)
        via = {VIA: connection.notes[VIA]} if VIA in connection.notes else {}
        log.info(act, account=account, remote=connection.remote.text, code=request.code, **via, **subject, **line)


UNNAMED: Final = Audit()
"""The audit of a part that was built without one."""


def members(state: State) -> Mapping[str, object] | None:
    """Return the members of a state, a record's under their names on the wire."""
    if isinstance(state, msgspec.Struct):
        return {field.encode_name: getattr(state, field.name) for field in msgspec.structs.fields(state)}
    return state
