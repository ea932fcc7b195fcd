"""top: brokers with their rates and disks, and the groups that are furthest behind, drawn again each second."""

from __future__ import annotations

import sys

from triomq.admin.cluster_view import attempt, broker_table, group_names, now_ms, progress
from triomq.admin.commands.brokers import first_number
from triomq.admin.errors import UsageError
from triomq.admin.verbs.lag import behind_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run

MAX_SECONDS = 3600
GROUPS = 10
CLEAR, HIDE_CURSOR, SHOW_CURSOR = "\x1b[H\x1b[J", "\x1b[?25l", "\x1b[?25h"
BROKER_COLUMNS = {
    "name": "BROKER", "brokerId": "ID", "address": "ADDRESS", "inTps": "IN/S", "outTps": "OUT/S",
    "sendQueue": "SENDS WAITING", "pullQueue": "PULLS WAITING", "writeMs": "WRITE MS", "diskPercent": "DISK %",
}  # fmt: skip
GROUP_COLUMNS = {"name": "GROUP", "backlog": "BACKLOG", "behindMs": "BEHIND MS", "grew": "GREW BY"}


def top(run: Run) -> None:
    interval = run.decimal("interval", 1.0)
    if not 0.1 <= interval <= MAX_SECONDS:
        raise UsageError(f"--interval must be between 0.1 and {MAX_SECONDS} seconds")
    limit = run.number("groups", GROUPS)
    on_terminal = run.out.is_text and sys.stdout.isatty() and not run.has("once")
    earlier: dict[str, int] = {}
    try:
        while True:
            run.session.forget_cluster_info()
            brokers, groups = _brokers(run), _groups(run, earlier)
            if on_terminal:
                run.out.text(HIDE_CURSOR + CLEAR)
            run.out.table(BROKER_COLUMNS, brokers)
            run.out.line()
            run.out.table(GROUP_COLUMNS, groups[:limit])
            if run.has("once"):
                return
            earlier = {str(group["name"]): int(group["backlog"]) for group in groups}
            run.pause(interval)
    finally:
        if on_terminal:
            run.out.text(SHOW_CURSOR)


def _brokers(run: Run) -> list[dict[str, Any]]:
    items = []
    for name, addresses in broker_table(run).items():
        for number, address in addresses.items():
            table = (attempt(run, address, 28) or {}).get("table", {})
            items.append(
                {
                    "kind": "broker", "name": name, "brokerId": number, "address": address, "responds": bool(table),
                    "inTps": first_number(table, "putTps"), "outTps": first_number(table, "getTransferedTps"),
                    "sendQueue": int(first_number(table, "sendThreadPoolQueueSize")),
                    "pullQueue": int(first_number(table, "pullThreadPoolQueueSize")),
                    "writeMs": int(first_number(table, "pageCacheLockTimeMills")),
                    "diskPercent": round(first_number(table, "commitLogDiskRatio") * 100, 2),
                }
            )  # fmt: skip
    return items


def _groups(run: Run, earlier: dict[str, int]) -> list[dict[str, Any]]:
    """Return the groups that are behind, the furthest first; `grew` is the change since the last round."""
    now = now_ms()
    items = []
    for group in group_names(run):
        rows = progress(run, group).values()
        backlog = sum([row["brokerOffset"] - row["consumerOffset"] for row in rows])
        if backlog > 0 or group in earlier:
            items.append(
                {
                    "kind": "group", "name": group, "backlog": backlog,
                    "behindMs": max([behind_ms(row, now) for row in rows], default=0),
                    "grew": backlog - earlier[group] if group in earlier else None,
                }
            )  # fmt: skip
    return sorted(items, key=lambda item: -int(str(item["backlog"])))
