"""lag: how far groups are behind, in messages and in time."""

from __future__ import annotations

from triomq.admin.cluster_view import backlog, group_names, members, now_ms, progress
from triomq.admin.errors import NotFound
from triomq.admin.java_text import iso_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run


def lag(run: Run) -> None:
    if run.has("GROUP"):
        _one(run, run.get("GROUP"))
    else:
        _all(run)


def behind_ms(row: dict[str, Any], now: int) -> int:
    """Return the age of the last message that the group has read, if there are later ones; 0 without a backlog."""
    last = row.get("lastTimestamp", 0)
    return max(0, now - last) if backlog(row) > 0 and last > 0 else 0


def _one(run: Run, group: str) -> None:
    rows = progress(run, group, run.get("topic") or None)
    if not rows:
        raise NotFound(f"group {group!r} has no offsets: it has read nothing yet, it broadcasts, or its name is wrong")
    now = now_ms()
    items: list[dict[str, Any]] = [
        {
            "group": group,
            "topic": topic,
            "brokerName": name,
            "queueId": number,
            "backlog": backlog(row),
            "behindMs": behind_ms(row, now),
            "brokerOffset": row["brokerOffset"],
            "consumerOffset": row["consumerOffset"],
            "lastTimestamp": row.get("lastTimestamp", 0),
            "lastTime": iso_time(row.get("lastTimestamp", 0)),
        }
        for (topic, name, number), row in rows.items()
    ]
    items.sort(key=lambda item: -item["backlog"])
    columns = {
        "topic": "TOPIC",
        "brokerName": "BROKER",
        "queueId": "QUEUE",
        "backlog": "BACKLOG",
        "behindMs": "BEHIND MS",
        "consumerOffset": "OFFSET",
        "brokerOffset": "END",
        "lastTime": "LAST READ",
    }
    run.out.table(columns, items[: run.number("first", len(items))])


def _all(run: Run) -> None:
    now = now_ms()
    items: list[dict[str, Any]] = []
    for group in group_names(run):
        rows = progress(run, group, run.get("topic") or None)
        waiting = sum(map(backlog, rows.values()))
        if not rows or waiting < run.number("atLeast", 0):
            continue
        items.append(
            {
                "group": group,
                "backlog": waiting,
                "behindMs": max([behind_ms(row, now) for row in rows.values()]),
                "members": len(members(run, group)),
                "topics": sorted({queue[0] for queue in rows}),
            }
        )
    items.sort(key=lambda item: (-item["backlog"], -item["behindMs"], item["group"]))
    columns = {"group": "GROUP", "backlog": "BACKLOG", "behindMs": "BEHIND MS", "members": "MEMBERS"}
    run.out.table(columns, items[: run.number("first", len(items))])
