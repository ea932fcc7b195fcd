"""trace: what happened to a message, in the order of time: sent, stored, consumed by whom, with what result."""

from __future__ import annotations

from triomq.admin.commands.messages import messages_of_key
from triomq.admin.commands.traces import TRACE_TOPIC, traces_of
from triomq.admin.errors import NotFound
from triomq.admin.java_text import iso_time
from triomq.admin.verbs.message import message_by_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run


def trace(run: Run) -> None:
    msg_id = run.get("ID")
    events: list[dict[str, Any]] = []
    try:
        stored = message_by_id(run, msg_id, run.get("topic"))
        place = f"{stored.topic} {stored.broker_name or stored.store_host}/{stored.queue_id}@{stored.queue_offset}"
        events.append(_event(stored.store_timestamp, "stored", place, str(stored.store_host), "success", None))
    except NotFound:
        pass  # the records may outlive the message
    try:
        records = messages_of_key(run, run.get("traceTopic") or TRACE_TOPIC, msg_id, 64)
    except NotFound:
        records = []
    for record in records:
        for each in traces_of(record, msg_id):
            kind = "sent" if each.kind == "Pub" else "consumed"
            events.append(_event(each.time_ms, kind, each.group, each.client, each.status, each.cost_ms))
    if not events:
        raise NotFound(f"nothing is known of message {msg_id}: it is neither stored nor in topic {TRACE_TOPIC}")
    events.sort(key=lambda event: event["timestamp"])
    columns = {
        "time": "TIME",
        "event": "EVENT",
        "subject": "WHERE OR GROUP",
        "host": "HOST",
        "status": "STATUS",
        "costMs": "MS",
    }
    run.out.table(columns, [{"msgId": msg_id, **event} for event in events])


def _event(moment: int, kind: str, subject: str, host: str, status: str, cost_ms: int | None) -> dict[str, Any]:
    return {
        "timestamp": moment,
        "time": iso_time(moment),
        "event": kind,
        "subject": subject,
        "host": host,
        "status": status,
        "costMs": cost_ms,
    }
