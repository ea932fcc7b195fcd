"""offsets show, reset, copy, export, import: where groups read next.

Every change goes through the brokers' tables, queue by queue. Members that are online keep offsets of their own and
would overwrite them, so a group with members is only reset to a time, which RocketMQ's brokers pass on to members.
"""

from __future__ import annotations

import json
import sys

from triomq.admin import bodies
from triomq.admin.cluster_view import backlog, group_names, members, offset_of_time, progress, topic_queues, when
from triomq.admin.commands.offsets import set_offset
from triomq.admin.errors import AdminError, NotFound, UsageError
from triomq.admin.messages import NEWEST, Queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, TextIO

    from triomq.admin.cluster_view import QueueKey
    from triomq.admin.run import Run

    Move = tuple[QueueKey, str, int | None, int]  # queue, address, offset before and after

COLUMNS = {
    "group": "GROUP",
    "topic": "TOPIC",
    "brokerName": "BROKER",
    "queueId": "QUEUE",
    "before": "BEFORE",
    "offset": "AFTER",
}
MAX_LINE_BYTES = 1024 * 1024
MAX_LINES = 1_000_000


def _rows(run: Run, group: str) -> dict[QueueKey, dict[str, Any]]:
    rows = progress(run, group, run.get("topic") or None)
    if not rows:
        raise NotFound(f"group {group!r} has no offsets: it has read nothing yet, it broadcasts, or its name is wrong")
    return rows


def offsets_show(run: Run) -> None:
    group = run.get("GROUP")
    ends = {
        (topic, name, number): first
        for topic in sorted({queue[0] for queue in _rows(run, group)})
        for name, number, _, first, _ in topic_queues(run, topic)
    }
    items = [
        {
            "group": group,
            "topic": queue[0],
            "brokerName": queue[1],
            "queueId": queue[2],
            "first": ends.get(queue),
            "offset": row["consumerOffset"],
            "end": row["brokerOffset"],
            "backlog": backlog(row),
        }
        for queue, row in _rows(run, group).items()
    ]
    columns = {
        "topic": "TOPIC",
        "brokerName": "BROKER",
        "queueId": "QUEUE",
        "first": "FIRST",
        "offset": "OFFSET",
        "end": "END",
        "backlog": "BACKLOG",
    }
    run.out.table(columns, items)


# -- reset -------------------------------------------------------------------------------------------------------------


def offsets_reset(run: Run) -> None:
    group = run.get("GROUP")
    topic = run.get("TOPIC")
    target = run.get("to")
    if not target:
        raise UsageError("--to is missing: first, last, a time, an offset, +N or -N")
    read = progress(run, group)
    if not read and not run.has("create") and group not in group_names(run):
        raise NotFound(f"no broker knows group {group!r}; --create gives a new group its offsets")
    present = {queue: row for queue, row in read.items() if queue[0] == topic}
    moves: list[Move] = []
    for name, number, address, first, end in topic_queues(run, topic):
        if run.has("queue") and number != run.number("queue", 0):
            continue
        if run.has("broker") and name != run.get("broker"):
            continue
        row = present.get((topic, name, number))
        before = None if row is None else int(row["consumerOffset"])
        after = _target(run, target, Queue(topic, name, number, address), (first, end), before)
        moves.append(((topic, name, number), address, before, max(first, min(after, end))))
    if not moves:
        raise NotFound(f"topic {topic!r} has no such queue")
    online = members(run, group)
    if online:
        _check_members(run, group, target, sorted(online))
        _reset_members(run, group, topic, target, moves)
    else:
        for queue, address, _, after in moves:
            set_offset(run, address, group, queue[0], queue[2], after)
    run.out.table(COLUMNS, [_moved(group, queue, before, after) for queue, _, before, after in moves])


def _target(run: Run, text: str, queue: Queue, ends: tuple[int, int], before: int | None) -> int:
    if text in ("first", "last"):
        return ends[0] if text == "first" else ends[1]
    if text[0] in "+-" and text[1:].isdecimal():
        if before is None:
            raise UsageError(f"--to {text}: the group has no offset in {queue} to count from")
        return before + int(text)
    if text.isdecimal() and len(text) < 13:
        return int(text)
    return offset_of_time(run, queue, when(text), ends[1])


def _check_members(run: Run, group: str, target: str, online: list[str]) -> None:
    """Raise AdminError for a reset that members do not learn about: they would overwrite the offsets."""
    if run.has("queue") or run.has("broker") or (target.lstrip("+-").isdecimal() and len(target) < 13):
        raise AdminError(
            f"members of group {group!r} are online ({', '.join(online[:3])}) and would overwrite the offsets: "
            "stop them, or reset the whole topic to first, last or a time"
        )


def _reset_members(run: Run, group: str, topic: str, target: str, moves: list[Move]) -> None:
    """Have the brokers tell the members (INVOKE_BROKER_TO_RESET_OFFSET), which works for times only. A broker refuses
    it while a queue has no stored offset, as with members that began a moment ago; such a queue gets its new one first.
    """
    stored: dict[str, dict[str, int]] = {}
    for (_, _, number), address, _, after in moves:
        if address not in stored:
            table = bodies.loads(run.session.call(address, 43).body).get("offsetTable", {})
            stored[address] = table.get(f"{topic}@{group}", {})
        if str(number) not in stored[address]:
            set_offset(run, address, group, topic, number, after)
    moment = {"first": 0, "last": NEWEST}.get(target)
    fields = {"topic": topic, "group": group, "timestamp": when(target) if moment is None else moment, "isForce": True}
    for address in stored:
        run.session.call(address, 222, fields, timeout_seconds=15)


def _moved(group: str, queue: QueueKey, before: int | None, after: int) -> dict[str, Any]:
    return {
        "group": group,
        "topic": queue[0],
        "brokerName": queue[1],
        "queueId": queue[2],
        "before": before,
        "offset": after,
    }


# -- copy, export, import ----------------------------------------------------------------------------------------------


def offsets_copy(run: Run) -> None:
    source = run.get("FROM")
    target = run.get("TO")
    wanted = {queue: row["consumerOffset"] for queue, row in _rows(run, source).items()}
    prefix = f"%RETRY%{source}"
    _set_all(run, target, {queue: offset for queue, offset in wanted.items() if queue[0] != prefix})


def offsets_export(run: Run) -> None:
    group = run.get("GROUP")
    for queue, row in _rows(run, group).items():
        item = {
            "group": group,
            "topic": queue[0],
            "brokerName": queue[1],
            "queueId": queue[2],
            "offset": row["consumerOffset"],
        }
        run.out.line(json.dumps(item, ensure_ascii=False))
        run.out.item(**item)


def offsets_import(run: Run) -> None:
    by_group: dict[str, dict[QueueKey, int]] = {}
    for item in _imported(run.get("FILE")):
        group = run.get("group") or item["group"]
        by_group.setdefault(group, {})[item["topic"], item["brokerName"], item["queueId"]] = item["offset"]
    if not by_group:
        raise UsageError(f"{run.get('FILE')} has no offsets")
    for group, wanted in by_group.items():
        _set_all(run, group, wanted)


def _imported(path: str) -> Iterator[dict[str, Any]]:
    """Return the items of what `offsets export` wrote. Raises UsageError for a line that is something else."""
    try:
        if path == "-":
            yield from _items_of(sys.stdin, "standard input")
            return
        with open(path, encoding="utf-8") as file:
            yield from _items_of(file, path)
    except (OSError, UnicodeDecodeError) as error:
        raise AdminError(f"cannot read {path}: {error}") from error


def _items_of(file: TextIO, name: str) -> Iterator[dict[str, Any]]:
    kinds = {"group": str, "topic": str, "brokerName": str, "queueId": int, "offset": int}
    for number in range(1, MAX_LINES + 1):
        line = file.readline(MAX_LINE_BYTES)
        if not line:
            return
        try:
            item = json.loads(line)
        except ValueError:
            item = None
        if not isinstance(item, dict) or any(type(item.get(key)) is not kind for key, kind in kinds.items()):
            raise UsageError(f"line {number} of {name} is not an offset: `mqadmin offsets export` writes them")
        yield item
    raise UsageError(f"{name} has more than {MAX_LINES} lines")


def _set_all(run: Run, group: str, wanted: dict[QueueKey, int]) -> None:
    online = members(run, group)
    if online:
        names = ", ".join(sorted(online)[:3])
        raise AdminError(f"members of group {group!r} are online ({names}) and would overwrite the offsets: stop them")
    present = progress(run, group)
    moved = []
    for topic in sorted({queue[0] for queue in wanted}):
        places = {(topic, name, number): address for name, number, address, _, _ in topic_queues(run, topic)}
        for queue, offset in wanted.items():
            if queue[0] != topic:
                continue
            if queue not in places:
                run.failed(f"topic {topic!r} has no queue {queue[2]} at broker {queue[1]!r}")
                continue
            set_offset(run, places[queue], group, topic, queue[2], offset)
            row = present.get(queue)
            moved.append(_moved(group, queue, None if row is None else row["consumerOffset"], offset))
    run.out.table(COLUMNS, moved)
