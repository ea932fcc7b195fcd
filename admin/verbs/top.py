"""top: brokers, the busiest topics and the groups that are furthest behind, drawn again each second.

What is sent to a topic is the difference of its ends in two pictures, so the first picture has none; --once waits for a
second one. What is read is counted by the brokers, over the last minute: groups store their offsets in jumps.
"""

from __future__ import annotations

import os
import sys

from triomq.admin import bodies
from triomq.admin.cluster_view import (
    add_in_flight,
    backlog,
    broker_table,
    group_behind_ms,
    group_names,
    master_table,
    now_ms,
    progress,
)
from triomq.admin.commands.brokers import first_number
from triomq.admin.errors import AdminError, Unreachable, UsageError
from triomq.admin.output import table_lines
from triomq.admin.verbs.top_rates import Rates, graph, topic_totals
from triomq.protocol.write_times import counts_of, own_number, percentile_ms, sync_p99_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run
    from triomq.admin.verbs.top_rates import Totals

    Items = list[dict[str, Any]]
    Progress = dict[str, dict[tuple[str, str, int], dict[str, Any]]]

MAX_SECONDS = 3600
LINES = 10  # of topics and of groups, where no terminal says how many there is room for
CLEAR, HIDE_CURSOR, SHOW_CURSOR = "\x1b[H\x1b[J", "\x1b[?25l", "\x1b[?25h"
BROKER_COLUMNS = {
    "name": "BROKER",
    "brokerId": "ID",
    "address": "ADDRESS",
    "inTps": "IN/S",
    "outTps": "OUT/S",
    "sendQueue": "SENDS WAITING",
    "pullQueue": "PULLS WAITING",
    "writeP99Ms": "WRITE P99 MS",
    "syncP99Ms": "SYNC P99 MS",
    "loopLagMs": "LOOP LAG MS",
    "diskPercent": "DISK %",
}
TOPIC_COLUMNS = {"name": "TOPIC", "inTps": "IN/S", "outTps": "OUT/S", "messages": "MESSAGES"}
GROUP_COLUMNS = {"name": "GROUP", "backlog": "BACKLOG", "behindMs": "BEHIND MS", "grew": "GREW BY"}
GRAPH = {"graph": "IN/S BEFORE"}


def top(run: Run) -> None:
    interval = run.decimal("interval", 1.0)
    if not 0.1 <= interval <= MAX_SECONDS:
        raise UsageError(f"--interval must be between 0.1 and {MAX_SECONDS} seconds")
    for name in ("topics", "groups"):
        if run.number(name, LINES) < 0:
            raise UsageError(f"--{name} must be at least 0")
    is_once = run.has("once")
    on_terminal = run.out.is_text and sys.stdout.isatty() and not is_once
    rates = Rates()
    earlier: dict[str, int] = {}
    if is_once:
        _measured(run, rates, earlier)
        run.pause(interval)
    try:
        while True:
            parts = _measured(run, rates, earlier)
            if on_terminal:
                _draw(run, *parts, rates)
            else:
                _print(run, *parts)
            if is_once:
                return
            run.pause(interval)
    finally:
        if on_terminal:
            run.out.text(SHOW_CURSOR)


def _measured(run: Run, rates: Rates, earlier: dict[str, int]) -> tuple[Items, Items, Items]:
    """Return brokers, topics and groups. `rates` and `earlier` are those of the last picture, and become this one's."""
    run.session.forget_cluster_info()
    brokers, silent = _brokers(run)
    masters = {name: address for name, address in master_table(run).items() if address not in silent}
    read: Progress = {group: progress(run, group, masters=masters) for group in group_names(run, masters)}
    add_in_flight(run, read, masters)
    topics = rates.items(_totals(run, masters, read))
    groups = _groups(run, read, earlier)
    earlier.clear()
    earlier.update({str(group["name"]): int(group["backlog"]) for group in groups})
    return brokers, topics, groups


def _totals(run: Run, masters: dict[str, str], read: Progress) -> Totals:
    readers: dict[str, set[str]] = {}
    for group, rows in read.items():
        for topic, _, _ in rows:
            readers.setdefault(topic, set()).add(group)
    return topic_totals(run, list(masters.values()), readers)


# -- on the screen -----------------------------------------------------------------------------------------------------


def _print(run: Run, brokers: Items, topics: Items, groups: Items) -> None:
    run.out.table(BROKER_COLUMNS, brokers)
    run.out.line()
    run.out.table(TOPIC_COLUMNS, topics[: run.number("topics", LINES)])
    run.out.line()
    run.out.table(GROUP_COLUMNS, groups[: run.number("groups", LINES)])


def _draw(run: Run, brokers: Items, topics: Items, groups: Items, rates: Rates) -> None:
    """Fill the terminal, and no more of it than it has."""
    size = os.get_terminal_size(sys.stdout.fileno())
    columns, lines = size.columns or 80, size.lines or 24  # a terminal may not know its size
    room = max(1, (lines - len(brokers) - 6) // 2)
    topics = topics[: run.number("topics", room)]
    groups = groups[: run.number("groups", room)]
    pictures = [{**item, "graph": graph(rates.history(item["name"]), sys.stdout.encoding)} for item in topics]
    shown = [
        *_table(BROKER_COLUMNS, brokers),
        "",
        *_table({**TOPIC_COLUMNS, **GRAPH}, pictures),
        "",
        *_table(GROUP_COLUMNS, groups),
    ]
    run.out.text(HIDE_CURSOR + CLEAR + "\n".join([line[:columns] for line in shown[: lines - 1]]) + "\n")


def _table(columns: dict[str, str], items: Items) -> list[str]:
    return table_lines(list(columns.values()), [[item.get(name) for name in columns] for item in items])


# -- what there is -----------------------------------------------------------------------------------------------------


def _brokers(run: Run) -> tuple[Items, set[str]]:
    """Return the brokers, and the addresses of those that cannot be reached: they are not asked for anything else."""
    items, silent = [], set()
    for name, addresses in broker_table(run).items():
        for number, address in addresses.items():
            table = {}
            try:
                table = bodies.loads(run.session.call(address, 28).body).get("table", {})
            except Unreachable:
                silent.add(address)
            except AdminError:
                pass  # its line has no numbers
            items.append(
                {
                    "kind": "broker",
                    "name": name,
                    "brokerId": number,
                    "address": address,
                    "responds": bool(table),
                    "inTps": first_number(table, "putTps"),
                    "outTps": first_number(table, "getTransferedTps"),
                    "sendQueue": int(first_number(table, "sendThreadPoolQueueSize")),
                    "pullQueue": int(first_number(table, "pullThreadPoolQueueSize")),
                    "writeMs": int(first_number(table, "pageCacheLockTimeMills")),
                    "writeP99Ms": percentile_ms(counts_of(table), 99),
                    "syncP99Ms": sync_p99_ms(table),
                    "loopLagMs": own_number(table, "eventLoopLagMax"),
                    "diskPercent": round(first_number(table, "commitLogDiskRatio") * 100, 2),
                }
            )
    return items, silent


def _groups(run: Run, read: Progress, earlier: dict[str, int]) -> Items:
    """Return the groups that are behind, the furthest first; `grew` is the change since the last picture."""
    now = now_ms()
    items = []
    for group, table in read.items():
        waiting = sum(map(backlog, table.values()))
        if waiting > 0 or group in earlier:
            items.append(
                {
                    "kind": "group",
                    "name": group,
                    "backlog": waiting,
                    "behindMs": group_behind_ms(run, table, now),
                    "grew": waiting - earlier[group] if group in earlier else None,
                }
            )
    return sorted(items, key=lambda item: -int(str(item["backlog"])))
