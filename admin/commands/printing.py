"""printMsg, printMsgByQueue, consumeMessage: show the messages of a topic without storing offsets at the broker."""

from __future__ import annotations

import time

from triomq.admin.errors import UsageError
from triomq.admin.messages import (
    FOUND,
    NO_MATCHED_MSG,
    TOOLS_GROUP,
    Queue,
    offset_range,
    print_messages,
    pull,
    queue_of,
    queues_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.run import Run


def print_msg(run: Run) -> None:
    charset = run.get("c", "UTF-8")
    tags = run.get("s", "*")
    with_body = run.flag("d", True)
    begin = run.time("b", 0)
    end = run.time("e", 0)
    for queue in queues_of(run, run.get("t")):
        offset, last = offset_range(run, queue, begin, end)
        run.out.line(f"minOffset={offset}, maxOffset={last}, {queue}")
        while offset < last:
            status, offset, messages = pull(run, queue, offset, tags=tags)
            if status == FOUND:
                print_messages(run, messages, charset=charset, with_body=with_body)
            elif status == NO_MATCHED_MSG:
                run.out.line(f"{queue} no matched msg. status={status}, offset={offset}")
            else:
                run.out.line(f"{queue} print msg finished. status={status}, offset={offset}")
                break
        run.out.line("-" * 56)


def print_msg_by_queue(run: Run) -> None:
    charset = run.get("c", "UTF-8")
    tags = run.get("s", "*")
    queue = queue_of(run, run.get("t"), run.get("a"), run.number("i", 0))
    offset, last = offset_range(run, queue, run.time("b", 0), run.time("e", 0))
    counts: dict[str, int] = {}
    while offset < last:
        status, offset, messages = pull(run, queue, offset, tags=tags)
        if status != FOUND:
            break
        for message in messages:
            if message.tags:
                counts[message.tags] = counts.get(message.tags, 0) + 1
        if run.flag("p"):
            print_messages(run, messages, charset=charset, with_body=run.flag("d"))
    if run.flag("f"):
        for tag, count in sorted(counts.items(), key=lambda pair: -pair[1]):
            run.out.line("Tag: %-30s Count: %s" % (tag, count))
            run.out.item(tag=tag, count=count)


def consume_message(run: Run) -> None:
    topic = run.get("t")
    count = run.number("c", 128)
    if count <= 0:
        raise UsageError("Please input a positive messageNumber!")
    if run.has("i") and not run.has("b"):
        raise UsageError("Please set the brokerName before queueId!")
    if run.has("o") and not run.has("i"):
        raise UsageError("Please set queueId before offset!")
    begin, end = _times(run)
    group = run.get("g") or TOOLS_GROUP
    if run.has("i"):
        queue = queue_of(run, topic, run.get("b"), run.number("i", 0))
        _consume_queue(run, queue, run.number("o", 0), count, (begin, end), group)
        return
    left = count
    for queue in queues_of(run, topic):
        if left == 0:
            return
        first, last = offset_range(run, queue, begin, end)
        if last - first > left:
            run.out.line(f"The older {left} message of the {queue.queue_id} queue will be provided")
            last = first + left - 1
            left = 0
        else:
            left -= last - first + 1
        _consume(run, queue, first, last, group)


def _times(run: Run) -> tuple[int, int]:
    begin = run.time("s", 0)
    end = run.time("e", 0)
    now = int(time.time() * 1000)
    if begin > now:
        raise UsageError("Please set the beginTimestamp before now!")
    if end > now:
        raise UsageError("Please set the endTimestamp before now!")
    if end and begin > end:
        raise UsageError("Please make sure that the beginTimestamp is less than or equal to the endTimestamp")
    return begin, end


def _consume_queue(run: Run, queue: Queue, offset: int, count: int, times: tuple[int, int], group: str) -> None:
    first, last = offset_range(run, queue, *times)
    if offset > last:
        run.out.line(f"{queue} no matched msg, offset={offset}")
        return
    first = max(first, offset)
    if last - first > count:
        run.out.line(f"The oldler {count} message will be provided")  # so it is in 4.9.7
        last = first + count - 1
    _consume(run, queue, first, last, group)


def _consume(run: Run, queue: Queue, offset: int, last: int, group: str) -> None:
    """Print the messages up to `last`, included if it exists."""
    while offset <= last:
        status, offset, messages = pull(run, queue, offset, last - offset + 1, group=group)
        if status == FOUND:
            run.out.line("Consume ok")
            print_messages(run, messages)
        elif status == NO_MATCHED_MSG:
            run.out.line(f"{queue} no matched msg. status={status}, offset={offset}")
        else:
            run.out.line(f"{queue} print msg finished. status={status}, offset={offset}")
            return
