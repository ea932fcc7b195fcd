"""health: whether NameServers and brokers respond. For health checks of containers and load balancers."""

from __future__ import annotations

import time

from triomq.admin.cluster_view import broker_table
from triomq.admin.errors import AdminError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.run import Run

KINDS = ("", "broker", "namesrv")
CRITICAL = 2


def health(run: Run) -> None:
    kind = run.get("KIND")
    if kind not in KINDS:
        raise UsageError(f"ask for broker, namesrv, or for both without a word, not {kind!r}")
    targets: list[tuple[str, str, str, int]] = []
    if kind != "broker":
        targets += [("namesrv", address, address, 106) for address in run.session.required_name_servers()]
    if run.has("address"):
        targets += [("broker", address, address, 28) for address in run.every("address")]
    elif kind != "namesrv":
        targets += [
            ("broker", name if number == 0 else f"{name} (slave {number})", address, 28)
            for name, addresses in broker_table(run).items()
            for number, address in addresses.items()
        ]
    items = [_asked(run, *target) for target in targets]
    brokers = [item for item in items if item["kind"] == "broker"]
    if kind != "namesrv" and not brokers:
        items.append(
            {
                "kind": "broker",
                "name": "-",
                "address": "-",
                "ok": False,
                "milliseconds": 0.0,
                "error": "no broker is registered",
            }
        )
    run.exit_status = 0 if all(item["ok"] for item in items) else CRITICAL
    if run.has("quiet"):
        return
    columns = {"kind": "KIND", "name": "NAME", "address": "ADDRESS", "ok": "OK", "milliseconds": "MS", "error": "ERROR"}
    run.out.table(columns, items)


def _asked(run: Run, kind: str, name: str, address: str, code: int) -> dict[str, object]:
    began = time.monotonic()
    error: str | None = None
    try:
        run.session.call(address, code)
    except AdminError as failure:
        error = str(failure)
    spent = (time.monotonic() - began) * 1000
    return {
        "kind": kind,
        "name": name,
        "address": address,
        "ok": error is None,
        "milliseconds": round(spent, 2),
        "error": error,
    }
