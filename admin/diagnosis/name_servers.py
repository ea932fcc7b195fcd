"""NameServers: each responds, and all know the same brokers."""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.cluster_view import attempt
from triomq.admin.diagnosis import CRITICAL, Finding
from triomq.admin.errors import AdminError, NoResponse
from triomq.protocol.findings import broker_gone, contested, hung, name_server_down, not_registered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from triomq.admin.run import Run

QUERY_DEPARTED_BROKERS = 30_004


def examine_name_servers(run: Run) -> Iterator[Finding]:
    known: dict[str, set[tuple[str, str]]] = {}
    gone: dict[str, dict[str, Any]] = {}
    contests: dict[tuple[str, int], list[str]] = {}
    for address in run.session.required_name_servers():
        try:
            body = bodies.loads(run.session.call(address, 106).body)
        except NoResponse:
            yield hung("NameServer", address, address)
            continue
        except AdminError:
            yield name_server_down(address)
            continue
        known[address] = {
            (name, each)
            for name, data in body.get("brokerAddrTable", {}).items()
            for each in data["brokerAddrs"].values()
        }
        departed = attempt(run, address, QUERY_DEPARTED_BROKERS) or {}
        for left in departed.get("brokers", []):
            gone.setdefault(left["brokerAddr"], left)
        for one in departed.get("contested", []):
            contests.setdefault((one["brokerName"], one["brokerId"]), one["brokerAddrs"])
    every = set().union(*known.values()) if known else set()
    if known and not every:
        yield Finding(
            CRITICAL,
            "no-broker",
            "cluster",
            "no broker is registered",
            "nobody can send or receive",
            f"start one: `mqbroker -n '{';'.join(run.session.name_servers)}'`",
        )
    for address, left in gone.items():
        if all(address != each for _, each in every):
            yield broker_gone(
                left["brokerName"],
                left["brokerId"],
                address,
                left["seenMsAgo"],
                left.get("topics") or [],
                is_orderly=left["orderly"],
            )
    for (name, number), addresses in contests.items():
        yield contested(name, number, addresses)
    for address, brokers in known.items():
        for name, broker in sorted(every - brokers):
            yield not_registered(name, broker, address)
