"""tail: the messages of a topic, in the order of their store times, without leaving a trace: no offset is stored.

Each queue is read in batches. Only one batch of each queue is in memory, and of a topic's last messages only the number
asked for.
"""

from __future__ import annotations

import heapq
import re

from triomq.admin.cluster_view import offset_of_time, progress, topic_queues, when
from triomq.admin.errors import NotFound, UsageError
from triomq.admin.message_format import body_text, formatted, parse_format
from triomq.admin.messages import BATCH, FOUND, NO_MATCHED_MSG, OFFSET_ILLEGAL, Queue, message_item, pull
from triomq.admin.output import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from triomq.admin.run import Run
    from triomq.protocol.message import MessageExt

    Sieve = Callable[[MessageExt], bool]

LAST = 10
MAX_LAST = 10_000
POLL_SECONDS = 0.2
SQL = "SQL92"


class Reader:
    """One queue: `offset` is the next to read, `end` the first that is not read now."""

    def __init__(self, queue: Queue, offset: int, end: int) -> None:
        self.queue = queue
        self.offset = offset
        self.end = end

    def messages(self, run: Run, tags: str, sql: str) -> Iterator[MessageExt]:
        """Return the messages up to `end`, batch by batch."""
        while self.offset < self.end:
            kind = {"tags": sql, "kind": SQL} if sql else {"tags": tags}
            status, following, found = pull(run, self.queue, self.offset, BATCH, **kind)
            if status not in (FOUND, NO_MATCHED_MSG, OFFSET_ILLEGAL) or following <= self.offset:
                return
            end = self.end
            self.offset = following
            for message in found:
                if message.queue_offset < end:
                    yield message


def tail(run: Run) -> None:
    if run.has("sql") and run.has("tag"):
        raise UsageError("give --sql or --tag, not both")
    if run.has("from") and run.has("group"):
        raise UsageError("give --from or --group, not both: each says where to begin")
    parts = parse_format(run.get("format")) if run.has("format") else None
    sieve = _sieve(run)
    limit = run.number("count", -1)
    readers = _readers(run, run.get("TOPIC"))
    last = _last_count(run)
    shown = 0
    while True:
        merged = _merged(run, readers)
        chosen: Iterator[MessageExt] = (message for message in merged if sieve(message))
        if last is not None:
            chosen, last = iter(_newest(chosen, last)), None
        for message in chosen:
            if shown == limit:
                return
            shown += 1
            _show(run, message, parts)
        if not run.has("follow") or shown == limit:
            return
        run.pause(POLL_SECONDS)
        for reader in readers:
            reader.end = 2**62


def _show(run: Run, message: MessageExt, parts: list[str | Callable[[MessageExt], str]] | None) -> None:
    if parts is not None:
        run.out.text(formatted(parts, message))
    else:
        place = f"{message.broker_name}/{message.queue_id}@{message.queue_offset}"
        words = [message.tags and f"[{message.tags}]", message.properties.get("KEYS"), body_text(message)]
        line = " ".join([word for word in words if word])
        run.out.line(f"{run.out.painted(place, 'bold')} {printable(line)}")
    run.out.item(**message_item(message))


def _merged(run: Run, readers: list[Reader]) -> Iterator[MessageExt]:
    tags, sql = run.get("tag") or "*", run.get("sql")
    return heapq.merge(
        *[reader.messages(run, tags, sql) for reader in readers],
        key=lambda message: (message.store_timestamp, message.broker_name, message.queue_id, message.queue_offset),
    )


def _newest(messages: Iterator[MessageExt], count: int) -> list[MessageExt]:
    from collections import deque

    return list(deque(messages, maxlen=count))


# -- where to begin ----------------------------------------------------------------------------------------------------


def _last_count(run: Run) -> int | None:
    """Return N of --from -N, which is also the default without --group."""
    if run.has("group"):
        return None
    text = run.get("from") or ("last" if run.has("follow") else f"-{LAST}")
    if not (text.startswith("-") and text[1:].isdecimal()):
        return None
    count = int(text[1:])
    if not 0 < count <= MAX_LAST:
        raise UsageError(f"--from -N shows between 1 and {MAX_LAST} messages")
    return count


def _readers(run: Run, topic: str) -> list[Reader]:
    text = run.get("from") or ("last" if run.has("follow") else f"-{LAST}")
    read = progress(run, run.get("group"), topic) if run.has("group") else {}
    if run.has("group") and not read:
        raise NotFound(f"group {run.get('group')!r} has no offsets in topic {topic!r}")
    found = []
    for name, number, address, first, end in topic_queues(run, topic, may_be_slaves=True):
        if run.has("broker") and name != run.get("broker"):
            continue
        if run.has("queue") and number != run.number("queue", 0):
            continue
        queue = Queue(topic, name, number, address)
        if run.has("group"):
            begin = read.get((topic, name, number), {}).get("consumerOffset", end)
        else:
            begin = _begin(run, text, queue, first, end)
        found.append(Reader(queue, max(first, min(begin, end)), end))
    if not found:
        raise NotFound(f"topic {topic!r} has no such queue")
    return found


def _begin(run: Run, text: str, queue: Queue, first: int, end: int) -> int:
    if text == "first":
        return first
    if text == "last":
        return end
    if text.startswith("-") and text[1:].isdecimal():
        # Where messages are filtered, the last that fit may be anywhere.
        is_filtered = any(run.has(name) for name in ("tag", "sql", "key", "grep", "property"))
        return first if is_filtered else end - int(text[1:])
    if text.isdecimal() and len(text) < 13:
        return int(text)
    return offset_of_time(run, queue, when(text), end)


# -- which messages ----------------------------------------------------------------------------------------------------


def _sieve(run: Run) -> Sieve:
    key = run.get("key")
    wanted = dict(_pair(text) for text in run.every("property"))
    try:
        pattern = re.compile(run.get("grep")) if run.has("grep") else None
    except re.error as error:
        raise UsageError(f"--grep is not a regular expression: {error}") from None

    def fits(message: MessageExt) -> bool:
        if key and key not in (message.properties.get("KEYS") or "").split(" "):
            return False
        if pattern is not None and not pattern.search(body_text(message)):
            return False
        return all(message.properties.get(name) == value for name, value in wanted.items())

    return fits


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"--property must be NAME=VALUE, not {text!r}")
    return name, value
