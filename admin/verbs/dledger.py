"""dledger members: the groups of brokers that elect their master, as their brokers tell of them."""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.cluster_view import broker_table
from triomq.admin.errors import AdminError, NotFound
from triomq.dledger import status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.run import Run

GET_BROKER_RUNTIME_INFO = 28
CRITICAL = 2


def dledger_members(run: Run) -> None:
    addresses = {address for table in broker_table(run).values() for address in table.values()}
    groups = status.groups_of({address: info for address in sorted(addresses) if (info := _info(run, address))})
    wanted = run.get("GROUP")
    if wanted and wanted not in groups:
        raise NotFound(f"no registered broker is a member of the group {wanted!r}: see dLegerGroup of the brokers")
    items = [
        {"group": group, **found.values()}
        for group, infos in sorted(groups.items())
        if group == wanted or not wanted
        for found in status.statuses(status.peers_of(infos.values()), infos, {})
    ]
    run.exit_status = 0 if all(item["reachable"] and item["leader"] for item in items) else CRITICAL
    run.out.table({"group": "GROUP", **status.COLUMNS}, items)


def _info(run: Run, address: str) -> dict[str, str]:
    try:
        answer = bodies.loads(run.session.call(address, GET_BROKER_RUNTIME_INFO).body)
    except AdminError:
        return {}  # its row says that it is not reachable
    return dict(answer.get("table", {}))
