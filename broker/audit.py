"""Audit: one log line for each change by administration: who, from where, what, before and after.

    topic changed account=operator remote=10.0.0.7:4711 code=17 topic=Orders before="{'perm': 6}" after="{'perm': 4}"

`before` and `after` hold what differs; None stands for what did not exist. Values of secrets are masked. A line is
written where the change is made, with no await between, so it shows this change even when another one is in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
import structlog

from triomq.daemon.secret_names import is_secret
from triomq.protocol.command import RemotingCommand
from triomq.remoting.connection import Connection

log = structlog.get_logger("triomq.broker.audit")

Who = Callable[[Connection, RemotingCommand], str]
"""Returns the account of a request whose access was checked."""
State = Mapping[str, object] | msgspec.Struct | None

_MISSING: Final = object()


class Audit:
    """Writes the audit lines of one broker. Without access control `who` is None, and nobody's name is known."""

    def __init__(self, who: Who | None = None) -> None:
        self._who = who

    def account(self, connection: Connection, request: RemotingCommand) -> str:
        """Return who sends a request. A request that changes accounts has to ask before it does."""
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
        account = account or self.account(connection, request)
        changes: dict[str, object] = {}
        if before is not None or after is not None:
            changes["before"], changes["after"] = differences(before, after)
        log.info(act, account=account, remote=connection.remote.text, code=request.code, **subject, **changes)


UNNAMED: Final = Audit()
"""The audit of a part that was built without one."""


def differences(before: State, after: State) -> tuple[dict[str, object] | None, dict[str, object] | None]:
    """Return the members of two states that differ, with secrets masked; None for a state that does not exist."""
    old, new = _members(before), _members(after)
    if old is None or new is None:
        return _masked(old, old), _masked(new, new)
    names = [name for name in {**old, **new} if old.get(name, _MISSING) != new.get(name, _MISSING)]
    return _masked(old, names), _masked(new, names)


def _masked(state: Mapping[str, object] | None, names: Iterable[str] | None) -> dict[str, object] | None:
    if state is None or names is None:
        return None
    return {name: "***" if is_secret(name) and state[name] else state[name] for name in names if name in state}


def _members(state: State) -> dict[str, object] | None:
    """Return the members of a state, a record's under their names on the wire."""
    if isinstance(state, msgspec.Struct):
        return {field.encode_name: getattr(state, field.name) for field in msgspec.structs.fields(state)}
    return None if state is None else dict(state)
