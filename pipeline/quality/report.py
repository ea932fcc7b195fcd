"""The report: its figures as plain data, which is also its JSON; as text for a terminal; as an HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from triomq.pipeline.quality.consumed import TRACE_COLUMNS, consumed
from triomq.pipeline.quality.figures import HOUR_MS, Figures
from triomq.pipeline.quality.reading import Topics
from triomq.pipeline.quality.scan import (
    COLUMNS,
    LETTER_COLUMNS,
    TopicScan,
    Window,
    add_consumed,
    scan_letters,
    scan_topic,
)
from triomq.protocol.system_topics import DLQ_PREFIX, TRACE_TOPIC
from triomq.spark.jobs.lag import as_time
from triomq.spark.jobs.progress import Progress
from triomq.spark.jobs.report import lines, page

HOURS_SHOWN: Final = 48
"""Hours of a topic in the text for a terminal, the last ones; JSON and HTML have all."""
_UNKNOWN: Final = "-"


def report_of(
    topics: Topics, wanted: tuple[str, ...], window: Window, limit: int, now_ms: int, progress: Progress
) -> dict[str, Any]:
    """Read the topics and return the report, without what limits say. `limit`: see scan_topic."""
    chosen = topics.chosen(wanted)
    known = topics.names()
    notes = []
    traces: Mapping[str, Any] = {}
    if TRACE_TOPIC in known:
        source = topics.source(TRACE_TOPIC, TRACE_COLUMNS)
        traces, left_out = consumed(source, window, limit, progress.advance)
        if left_out:
            notes.append(f"{left_out:,} deliveries in {TRACE_TOPIC} were not looked at (--most-ids)")
    if not traces:
        notes.append(f"when messages were consumed is not known: there are no traces of it in {TRACE_TOPIC}")
    rows = []
    for topic in chosen:
        source = topics.source(topic, COLUMNS)
        found = scan_topic(source, topic, topics.ranges(source, window), window, limit, progress.advance)
        add_consumed(found, traces)
        found.stored = None
        rows.append(topic_item(found, window, now_ms))
        if found.ids_left_out or found.keys_left_out:
            left = f"{found.ids_left_out:,} ids and {found.keys_left_out:,} keys"
            notes.append(f"{topic}: {left} were not compared: name more with --most-ids")
    letters = _letters(topics, chosen, window, is_all=wanted == ("*",), progress=progress)
    backlogs = topics.backlogs(chosen, now_ms)
    if backlogs is None:
        notes.append("backlogs are not known: store files do not have them, and brokers may refuse to say them")
    return {
        "of": topics.place,
        "from": None if not window.begin else _iso(window.begin),
        "to": None if window.end > now_ms else _iso(window.end),
        "topics": rows,
        "groups": _groups(letters, backlogs),
        "notes": notes,
    }


def _letters(
    topics: Topics, chosen: Sequence[str], window: Window, *, is_all: bool, progress: Progress
) -> dict[str, Counter[tuple[str, str]]]:
    """Return group -> dead letters of the chosen topics by topic and reason."""
    found: dict[str, Counter[tuple[str, str]]] = {}
    for name in topics.letters():
        source = topics.source(name, LETTER_COLUMNS)
        counts = scan_letters(source, topics.ranges(source, window), window, progress.advance)
        kept = Counter({which: count for which, count in counts.items() if is_all or which[0] in chosen})
        if kept:
            found[name.removeprefix(DLQ_PREFIX)] = kept
    return found


def topic_item(found: TopicScan, window: Window, now_ms: int) -> dict[str, Any]:
    """Return the figures of a topic, in total and by hour."""
    return {
        "name": found.topic,
        "missing": found.missing,
        "gapCount": found.gap_count,
        "gaps": [
            {"brokerName": gap.broker, "queueId": gap.queue_id, "begin": gap.begin, "end": gap.end}
            for gap in found.gaps
        ],
        "idsLeftOut": found.ids_left_out,
        "keysLeftOut": found.keys_left_out,
        **found.total().item(),
        "fullHours": full_hours(found.hours, window, now_ms),
        "hours": [{"hour": _iso(hour * HOUR_MS), **found.hours[hour].item()} for hour in sorted(found.hours)],
    }


def full_hours(hours: Mapping[int, Figures], window: Window, now_ms: int) -> list[int]:
    """Return the numbers of messages of the hours that lie in the window as a whole and are over. Without a beginning
    the first of them is the one behind that of the first message."""
    first = -(-window.begin // HOUR_MS) if window.begin else min(hours, default=0) + 1
    last = min(window.end, now_ms) // HOUR_MS if hours or window.begin else first
    return [hours[hour].messages if hour in hours else 0 for hour in range(first, last)]


def _groups(
    letters: Mapping[str, Counter[tuple[str, str]]], backlogs: Mapping[str, tuple[int, int]] | None
) -> list[dict[str, Any]]:
    found = []
    for group in sorted({*letters, *(backlogs or {})}):
        counts = letters.get(group, Counter())
        backlog, behind_ms = (backlogs or {}).get(group, (None if backlogs is None else 0, None))
        found.append(
            {
                "name": group,
                "deadLetters": counts.total(),
                "reasons": [
                    {"topic": topic or None, "reason": reason, "messages": count}
                    for (topic, reason), count in counts.most_common()
                ],
                "backlog": backlog,
                "behindMs": behind_ms,
            }
        )
    return found


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_HEAD: Final = ("", "messages", "a second", "bytes", "missing", "same key", "same id", "stored p50", "p99", "max")
_CONSUMED: Final = ("consumed p50", "p99", "max")


def as_text(report: Mapping[str, Any]) -> str:
    """Return the tables of the report, and a line for each broken limit."""
    parts = []
    for topic in report["topics"]:
        parts += [f"topic {topic['name']}", *_columns(table_of(topic)), ""]
        for gap in topic["gaps"][:5]:
            missing = gap["end"] - gap["begin"]
            where = f"{gap['brokerName']} queue {gap['queueId']}"
            parts.append(f"  {where}: {missing:,} missing from offset {gap['begin']}")
    if report["groups"]:
        rows = [("group", "dead letters", "backlog", "behind")]
        rows += [
            (one["name"], _number(one["deadLetters"]), _number(one["backlog"]), _duration(one["behindMs"]))
            for one in report["groups"]
        ]
        parts += [*_columns(rows), ""]
    for group in report["groups"]:
        for one in group["reasons"][:10]:
            of = f" of {one['topic']}" if one["topic"] else ""
            parts.append(f"  {group['name']}: {one['messages']:,} dead letters{of}: {one['reason'][:120]}")
    parts += [f"note: {note}" for note in report["notes"]]
    parts += [f"BROKEN: {one['what']}" for one in report["broken"]]
    return "\n".join(parts) + "\n"


def table_of(topic: Mapping[str, Any], hours: int = HOURS_SHOWN) -> list[tuple[str, ...]]:
    """Return the rows of a topic's table, as text: the head, the last `hours`, and all together."""
    has_traces = bool(topic["storedToConsumedMs"])
    rows = [_HEAD + (_CONSUMED if has_traces else ())]
    shown = topic["hours"][-hours:]
    for one in shown:
        rows.append(_row(one["hour"][:13].replace("T", " ") + "h", one, _UNKNOWN, 3600.0, has_traces=has_traces))
    seconds = 3600.0 * len(topic["hours"])
    rows.append(_row("all", topic, f"{topic['missing']:,}", seconds, has_traces=has_traces))
    return rows


def _row(name: str, one: Mapping[str, Any], missing: str, seconds: float, *, has_traces: bool) -> tuple[str, ...]:
    stored = one["bornToStoredMs"] or {}
    rate = f"{one['messages'] / seconds:,.2f}" if seconds else _UNKNOWN
    counts = (f"{one['messages']:,}", rate, f"{one['bytes']:,}", missing)
    repeats = (f"{one['repeatedKeys']:,}", f"{one['repeatedIds']:,}")
    spread = tuple([_duration(stored.get(name)) for name in ("p50", "p99", "max")])
    row = (name, *counts, *repeats, *spread)
    if not has_traces:
        return row
    groups = [group for group in one["storedToConsumedMs"].values() if group]
    slowest: dict[str, int] = max(groups, key=lambda group: group["p99"], default={})
    return row + tuple([_duration(slowest.get(name)) for name in ("p50", "p99", "max")])


def _number(value: int | None) -> str:
    return _UNKNOWN if value is None else f"{value:,}"


def _duration(ms: int | None) -> str:
    return _UNKNOWN if ms is None else as_time(ms)


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]


def as_html(report: Mapping[str, Any]) -> str:
    """Return the whole page."""
    body = [f"<p><code>{escape(report['of'])}</code>, {escape(report['from'] or 'all')} to {report['to'] or 'now'}</p>"]
    if report["broken"]:
        items = "".join(f"<li>{escape(one['what'])}</li>" for one in report["broken"])
        body.append(f"<h2 class=bad>Limits that are broken</h2><ul class=bad>{items}</ul>")
    for topic in report["topics"]:
        body.append(f"<h2>Topic {escape(topic['name'])}</h2>{_html_table(table_of(topic, len(topic['hours'])))}")
        if len(topic["hours"]) > 1:
            body.append(f"<h3>Messages an hour</h3>{lines({'messages': _series(topic)}, 'UTC')}")
            body.append(f"<h3>Latency, p99 in ms</h3>{lines(_latencies(topic), 'UTC')}")
    if report["groups"]:
        rows = [("group", "topic", "dead letters", "reason", "backlog", "behind")]
        for group in report["groups"]:
            state = _number(group["backlog"]), _duration(group["behindMs"])
            for one in group["reasons"] or [{"topic": None, "messages": 0, "reason": ""}]:
                letters = f"{one['messages']:,}", one["reason"]
                rows.append((group["name"], one["topic"] or _UNKNOWN, *letters, *state))
        body.append(f"<h2>Groups</h2>{_html_table(rows)}")
    body += [f"<p>{escape(note)}</p>" for note in report["notes"]]
    return page("Quality of topics", "".join(body))


def _series(topic: Mapping[str, Any]) -> list[tuple[float, float]]:
    return [(_seconds(one["hour"]), float(one["messages"])) for one in topic["hours"]]


def _latencies(topic: Mapping[str, Any]) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for one in topic["hours"]:
        spreads = {"born to stored": one["bornToStoredMs"]}
        spreads |= {f"stored to {group}": spread for group, spread in one["storedToConsumedMs"].items()}
        for name, spread in spreads.items():
            if spread:
                found.setdefault(name, []).append((_seconds(one["hour"]), float(spread["p99"])))
    return found


def _seconds(hour: str) -> float:
    return datetime.fromisoformat(hour).timestamp()


def _html_table(rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th class=n>{escape(text)}</th>" for text in rows[0])
    lines_of = "".join(
        "<tr>" + "".join(f"<td class=n>{escape(text)}</td>" for text in row) + "</tr>" for row in rows[1:]
    )
    return f"<table><tr>{head}</tr>{lines_of}</table>"
