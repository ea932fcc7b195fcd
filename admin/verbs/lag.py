"""lag: how far groups are behind, in messages and in time."""

from __future__ import annotations

from triomq.admin.cluster_view import (
    add_in_flight,
    backlog,
    behind_ms,
    group_behind_ms,
    group_names,
    members,
    now_ms,
    progress,
    responding_masters,
)
from triomq.admin.errors import NotFound
from triomq.admin.java_text import iso_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.cluster_view import QueueKey
    from triomq.admin.run import Run


def lag(run: Run) -> None:
    if run.has("GROUP"):
        _one(run, run.get("GROUP"))
    else:
        _all(run)


def _one(run: Run, group: str) -> None:
    masters = responding_masters(run)
    rows = progress(run, group, run.get("topic") or None, masters=masters)
    if not rows:
        run.finish()  # the offsets may be at the broker that did not respond
        raise NotFound(f"group {group!r} has no offsets: it has read nothing yet, it broadcasts, or its name is wrong")
    add_in_flight(run, {group: rows}, masters)
    now = now_ms()
    items: list[dict[str, Any]] = [
        {
            "group": group,
            "topic": topic,
            "brokerName": name,
            "queueId": number,
            "backlog": backlog(row),
            "inFlight": row.get("inFlight"),
            "ready": row.get("ready"),
            "behindMs": behind_ms(run, (topic, name, number), row, now),
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
        **_pop_columns(items),
        "behindMs": "BEHIND MS",
        "consumerOffset": "OFFSET",
        "brokerOffset": "END",
        "lastTime": "LAST READ",
    }
    run.out.table(columns, items[: run.number("first", len(items))])


def _all(run: Run) -> None:
    now = now_ms()
    items: list[dict[str, Any]] = []
    masters = responding_masters(run)
    topic = run.get("topic") or None
    progress_of = {group: progress(run, group, topic, masters=masters) for group in group_names(run, masters)}
    add_in_flight(run, progress_of, masters)
    for group, rows in progress_of.items():
        waiting = sum(map(backlog, rows.values()))
        if not rows or waiting < run.number("atLeast", 0):
            continue
        items.append(
            {
                "group": group,
                "backlog": waiting,
                "inFlight": _sum(rows, "inFlight"),
                "ready": _sum(rows, "ready"),
                "behindMs": group_behind_ms(run, rows, now),
                "members": len(members(run, group, masters)),
                "topics": sorted({queue[0] for queue in rows}),
            }
        )
    items.sort(key=lambda item: (-item["backlog"], -(item["behindMs"] or 0), item["group"]))
    columns = {
        "group": "GROUP",
        "backlog": "BACKLOG",
        **_pop_columns(items),
        "behindMs": "BEHIND MS",
        "members": "MEMBERS",
    }
    run.out.table(columns, items[: run.number("first", len(items))])


def _sum(rows: dict[QueueKey, dict[str, Any]], name: str) -> int | None:
    """Return the sum over the queues from which a group receives single messages (POP); None if there is none."""
    found = [row[name] for row in rows.values() if name in row]
    return sum(found) if found else None


def _pop_columns(items: list[dict[str, Any]]) -> dict[str, str]:
    """Return the columns that only POP has something in."""
    return {"inFlight": "IN FLIGHT", "ready": "READY"} if any(item["ready"] is not None for item in items) else {}
