"""What the runtime information of a member of a group says about it. `dledger.status` has the keys."""

from __future__ import annotations

from collections.abc import Callable

from triomq.broker.assembly.serving import Serving


def group_values(serving: Serving) -> Callable[[], dict[str, str]]:
    """Return the function that returns key -> text; nothing without enableDLegerCommitLog."""
    settings = serving.tables.configuration.group
    tables = serving.tables.group
    if settings is None or tables is None:
        return dict
    from triomq.dledger import status

    def values() -> dict[str, str]:
        group = serving.group
        member = group.member if group is not None else None
        if group is None or member is None:
            return {}
        setup, ledger = settings.setup, tables.made.ledger
        return {
            status.GROUP: setup.group,
            status.SELF: setup.self_id,
            status.PEERS: ";".join(f"{peer}-{address}" for peer, address in setup.members.items()),
            status.ROLE: member.role.value.lower(),
            status.LEADER: member.leader or "",
            status.TERM: str(member.term),
            status.BEGIN: str(ledger.begin_index),
            status.END: str(ledger.end_index),
            status.COMMITTED: str(member.committed),
            status.LACKS: group.lacks_tables() or "",
        }

    return values
