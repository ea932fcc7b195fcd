"""version: which builds a cluster consists of. RocketMQ's daemons tell the version of their protocol alone."""

from __future__ import annotations

from triomq import __version__
from triomq.admin import bodies
from triomq.admin.cluster_view import broker_table
from triomq.admin.errors import AdminError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from triomq.admin.run import Run

GET_BROKER_RUNTIME_INFO = 28
GET_NAMESRV_CONFIG = 319
COLUMNS = {
    "kind": "KIND",
    "name": "NAME",
    "brokerId": "ID",
    "address": "ADDRESS",
    "product": "PRODUCT",
    "version": "VERSION",
    "protocol": "PROTOCOL",
    "error": "ERROR",
}


def version(run: Run) -> None:
    from triomq.protocol.json_frame import VERSION

    own = {"product": "TrioMQ", "productVersion": __version__}
    items = [_item("tool", "mqadmin", own, _protocol(VERSION))]
    items += [_name_server(run, address) for address in run.session.required_name_servers()]
    for name, addresses in broker_table(run).items():
        items += [_broker(run, name, address) | {"brokerId": number} for number, address in addresses.items()]
    run.out.table(COLUMNS, items)


def _name_server(run: Run, address: str) -> dict[str, Any]:
    """Ask a NameServer: product and version are fields of its response, not keys of its configuration."""
    item = _item("namesrv", address, {}, None)
    try:
        response = run.session.call(address, GET_NAMESRV_CONFIG)
        item = _item("namesrv", address, response.fields, _protocol(response.version))
    except AdminError as failure:
        item["error"] = str(failure)
        run.failed(str(failure))
    return item | {"address": address}


def _broker(run: Run, name: str, address: str) -> dict[str, Any]:
    item = _item("broker", name, {}, None)
    try:
        table = bodies.loads(run.session.call(address, GET_BROKER_RUNTIME_INFO).body).get("table", {})
        item = _item("broker", name, table, table.get("brokerVersionDesc"))
    except AdminError as failure:
        item["error"] = str(failure)
        run.failed(str(failure))
    return item | {"address": address}


def _item(kind: str, name: str, told: Mapping[str, str], protocol: str | None) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": name,
        "brokerId": None,
        "address": None,
        "product": told.get("product"),
        "version": told.get("productVersion"),
        "protocol": protocol,
        "error": None,
    }


def _protocol(ordinal: int) -> str | None:
    from triomq.protocol.codes import version_name

    return version_name(ordinal) if ordinal >= 0 else None
