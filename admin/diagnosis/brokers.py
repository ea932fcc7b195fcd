"""Brokers: reachable from here, clocks, disks, threads that wait, slaves in step."""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.cluster_view import broker_table, now_ms
from triomq.admin.diagnosis import Finding
from triomq.admin.diagnosis.dledger import examine_members, is_group
from triomq.admin.errors import AdminError, NoResponse
from triomq.admin.session import Refused
from triomq.protocol.findings import (
    BEHIND_BYTES,
    broker_refuses,
    broker_unreachable,
    build_of,
    builds_differ,
    hung,
    no_master,
    no_slave,
    slave_behind,
    versions_differ,
)
from triomq.protocol.runtime_findings import findings_of, is_known_alone, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from triomq.admin.run import Run


def examine_brokers(run: Run) -> Iterator[Finding]:
    versions: dict[str, list[str]] = {}
    builds: dict[str, list[str]] = {}
    for name, addresses in broker_table(run).items():
        tables: dict[int, dict[str, str]] = {}
        for broker_id, address in addresses.items():
            try:
                body = bodies.loads(run.session.call(address, 28).body)
            except NoResponse:
                yield hung(f"broker {name}", name, address)
                continue
            except Refused as refusal:
                yield broker_refuses(name, address, refusal.reason)
                continue
            except AdminError:
                yield broker_unreachable(name, address)
                continue
            tables[broker_id] = body.get("table", {})
            yield from findings_of(name, address, tables[broker_id], now_ms())
            versions.setdefault(tables[broker_id].get("brokerVersionDesc", ""), []).append(address)
            builds.setdefault(build_of(tables[broker_id]), []).append(address)
        if is_group(tables):
            yield from examine_members(name, addresses, tables)
        else:
            yield from _pair(run, name, addresses, tables)
        yield from _behind(name, addresses, tables)
    yield from versions_differ(versions)
    yield from builds_differ(builds)


def _pair(run: Run, name: str, addresses: dict[int, str], tables: dict[int, dict[str, str]]) -> Iterator[Finding]:
    """Examine a master and its slaves."""
    if 0 not in addresses:
        yield no_master(name, "")
        return
    is_known = 0 not in tables or len(addresses) > 1 or is_known_alone(tables[0])
    if not is_known and _role(run, addresses[0]) == "SYNC_MASTER":
        yield no_slave(name, addresses[0])


def _behind(name: str, addresses: dict[int, str], tables: dict[int, dict[str, str]]) -> Iterator[Finding]:
    """Find slaves that lack much of the log."""
    if 0 not in tables:
        return
    end = number(tables[0], "commitLogMaxOffset")
    for broker_id, table in tables.items():
        behind = end - number(table, "commitLogMaxOffset")
        if broker_id and behind > BEHIND_BYTES:
            yield slave_behind(name, broker_id, behind, addresses[broker_id], addresses[0])


def _role(run: Run, address: str) -> str:
    from triomq.protocol.java_properties import parse

    try:
        text = run.session.call(address, 26).body.decode("utf-8", "replace")
    except AdminError:
        return ""
    return parse(text).get("brokerRole", "")
