"""Audit lines: one for each change by administration: who, from where, what, before and after.

    topic changed account=operator remote=10.0.0.7:4711 code=17 topic=Orders before="{'perm': 6}" after="{'perm': 4}"

`before` and `after` hold what differs; None stands for what did not exist. Values of secrets are masked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from triomq.daemon.secret_names import is_secret

State = Mapping[str, object] | None

_MISSING: Final = object()


def audit_line(before: State, after: State) -> dict[str, object]:
    """Return the members of an audit line that show a change; none if neither state exists."""
    if before is None and after is None:
        return {}
    old, new = differences(before, after)
    return {"before": old, "after": new}


def differences(before: State, after: State) -> tuple[dict[str, object] | None, dict[str, object] | None]:
    """Return the members of two states that differ, with secrets masked; None for a state that does not exist."""
    if before is None or after is None:
        return _masked(before, before), _masked(after, after)
    names = [name for name in {**before, **after} if before.get(name, _MISSING) != after.get(name, _MISSING)]
    return _masked(before, names), _masked(after, names)


def _masked(state: Mapping[str, object] | None, names: Iterable[str] | None) -> dict[str, object] | None:
    if state is None or names is None:
        return None
    return {name: "***" if is_secret(name) and state[name] else state[name] for name in names if name in state}
