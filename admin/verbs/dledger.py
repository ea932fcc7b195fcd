"""dledger members, transfer, replace: groups of brokers that elect their master, as their brokers tell of them."""

from __future__ import annotations

import time
from contextlib import suppress

from triomq.admin import bodies
from triomq.admin.cluster_view import broker_table
from triomq.admin.errors import AdminError, NotFound, UsageError
from triomq.admin.session import Refused
from triomq.dledger import exchange, handover, status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from triomq.admin.run import Run

    Infos = Mapping[str, Mapping[str, str]]

GET_BROKER_RUNTIME_INFO = 28
UPDATE_BROKER_CONFIG = 25
NO_PERMISSION = 16
NOBODY = "-"
LOOK_SECONDS = 1.0
CRITICAL = 2


def dledger_members(run: Run) -> None:
    groups = _groups(run)
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


def dledger_transfer(run: Run) -> None:
    """Let a member lead, and wait until it does."""
    member = run.get("MEMBER")
    _transfer(run, _group(run), member)
    _tell(run, "transfer", member, f"leads {run.get('GROUP')} now")


def dledger_replace(run: Run) -> None:
    """Go through the exchange of a member: hand over where that is due, and say what has to be done by hand."""
    old, new = run.get("OLD"), run.get("NEW")
    leaving = None if old == NOBODY else old
    coming = None if new == NOBODY else _address(new)
    infos = _group(run)
    try:
        wanted = exchange.new_peers(status.peers_of(infos.values()), leaving, coming)
    except ValueError as error:
        raise UsageError(str(error)) from None
    _tell(run, "write", "", f"dLegerPeers={exchange.peers_text(wanted)} into the configuration of all members")
    last, deadline = None, time.monotonic() + run.number("within", 3600)
    while time.monotonic() < deadline:
        run.session.forget_cluster_info()
        infos = _groups(run).get(run.get("GROUP"), {})  # of a group of one nobody is there while it restarts
        by_member = {info.get(status.SELF, ""): info for info in infos.values()}
        step = exchange.next_step(by_member, wanted, leaving, coming[0] if coming is not None else None)
        if step != last:
            _tell(run, step.act, step.member, step.text)
        last = step
        if step.act == "done":
            return
        if step.act == "transfer":
            with suppress(Refused):  # it has just started: the next look finds it nearer
                _transfer(run, infos, step.member)
        time.sleep(LOOK_SECONDS)
    raise AdminError(f"not done in time; last: {last.act if last is not None else ''}. Call it again to continue")


def _tell(run: Run, act: str, member: str, text: str) -> None:
    if run.out.is_text:
        run.out.line(" ".join(filter(None, (act, member, text))))
    else:
        run.out.item(act=act, member=member, text=text)


def _transfer(run: Run, infos: Infos, member: str) -> None:
    """Have the leader hand over, and return when the member leads."""
    try:
        planned = handover.plan(infos, member)
    except handover.NoHandover as error:
        raise NotFound(str(error)) from None
    try:
        run.session.call(planned.address, UPDATE_BROKER_CONFIG, body=planned.body)
    except Refused as error:
        if error.code != NO_PERMISSION:
            raise
        raise AdminError(f"{error}; `python -m triomq.dledger transfer` hands over on a member's host") from None


def _group(run: Run) -> Infos:
    wanted = run.get("GROUP")
    groups = _groups(run)
    if wanted not in groups:
        raise NotFound(f"no registered broker is a member of the group {wanted!r}: see dLegerGroup of the brokers")
    return groups[wanted]


def _address(text: str) -> tuple[str, str]:
    """Return id and address of a new member, "n3-HOST:PORT"."""
    member, _, address = text.partition("-")
    host, _, port = address.rpartition(":")
    if not member or not host or not port.isdigit():
        raise UsageError(f"{text!r} is no member: give ID-HOST:PORT as in dLegerPeers, or {NOBODY!r}")
    return member, address


def _groups(run: Run) -> dict[str, dict[str, Mapping[str, str]]]:
    addresses = {address for table in broker_table(run).values() for address in table.values()}
    return status.groups_of({address: info for address in sorted(addresses) if (info := _info(run, address))})


def _info(run: Run, address: str) -> dict[str, str]:
    try:
        answer = bodies.loads(run.session.call(address, GET_BROKER_RUNTIME_INFO).body)
    except AdminError:
        return {}  # its row says that it is not reachable
    return dict(answer.get("table", {}))
