"""dlq list, show, resend, export: messages that a group gave up on."""

from __future__ import annotations

from triomq.admin.cluster_view import topic_queues
from triomq.admin.errors import NotFound, UsageError
from triomq.admin.message_format import body_text
from triomq.admin.messages import BATCH, FOUND, Queue, message_item, pull
from triomq.admin.output import printable
from triomq.admin.routes import DLQ_PREFIX, RETRY_PREFIX, all_topics
from triomq.admin.verbs.send import CachingSender

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from triomq.admin.run import Run
    from triomq.protocol.message import MessageExt

# What only the stored copy in the dead letter topic has, or what the broker and the sender set again.
DROPPED = {
    "DELAY",
    "REAL_TOPIC",
    "REAL_QID",
    "MIN_OFFSET",
    "MAX_OFFSET",
    "UNIQ_KEY",
    "WAIT",
    "CLUSTER",
    "RECONSUME_TIME",
    "DEAD_LETTER_REASON",
    "DEAD_LETTER_TRIES",
}


def dlq_list(run: Run) -> None:
    items = []
    for topic in sorted(all_topics(run.session)):
        if not topic.startswith(DLQ_PREFIX):
            continue
        queues = topic_queues(run, topic)
        messages = sum([end - first for _, _, _, first, end in queues])
        items.append({"group": topic.removeprefix(DLQ_PREFIX), "topic": topic, "messages": messages})
    items.sort(key=lambda item: -int(str(item["messages"])))
    run.out.table({"group": "GROUP", "messages": "MESSAGES", "topic": "TOPIC"}, items)


def dlq_show(run: Run) -> None:
    columns = {
        "msgId": "ID",
        "originTopic": "TOPIC",
        "storeTime": "GIVEN UP",
        "tries": "TRIES",
        "reason": "REASON",
        "keys": "KEYS",
        "shown": "BODY",
    }
    items = []
    for message in _dead(run, run.number("count", 20)):
        item = _item(message)
        shown = {"reason": printable(str(item["reason"] or ""))[:60], "shown": printable(body_text(message))[:60]}
        items.append({**item, "wholeReason": item["reason"], **shown})
    if run.out.is_text:
        run.out.table(columns, items)
        return
    for item in items:
        item["reason"] = item.pop("wholeReason")
        run.out.item(**{name: value for name, value in item.items() if name != "shown"})


def dlq_export(run: Run) -> None:
    import json

    for message in _dead(run, 2**62):
        item = _item(message)
        run.out.line(json.dumps(item, ensure_ascii=False))
        run.out.item(**item)


def _item(message: MessageExt) -> dict[str, object]:
    tries = message.properties.get("DEAD_LETTER_TRIES", "")
    return {
        **message_item(message),
        # A letter that was given up early counts as one that was tried as often as its group allows.
        "tries": int(tries) if tries.isdecimal() else message.reconsume_times,
        "reason": message.properties.get("DEAD_LETTER_REASON"),
        "originTopic": message.properties.get("RETRY_TOPIC"),
        "originMsgId": message.properties.get("ORIGIN_MESSAGE_ID"),
    }


def dlq_resend(run: Run) -> None:
    """Send into the retry topic of the group: its members alone receive the message, as one of its first topic."""
    if not run.has("all") and not run.has("id"):
        raise UsageError("give --id ID, or --all for every message")
    group = run.get("GROUP")
    wanted = set(run.every("id"))
    sender = CachingSender(run, "TOOLS_PRODUCER")
    items = []
    for message in _dead(run, 2**62):
        origin = message.properties.get("ORIGIN_MESSAGE_ID") or ""
        if wanted and not wanted & {message.msg_id, message.offset_msg_id, origin}:
            continue
        wanted -= {message.msg_id, message.offset_msg_id, origin}
        properties = {name: value for name, value in message.properties.items() if name not in DROPPED}
        properties.setdefault("RETRY_TOPIC", message.topic)
        result = sender.send(RETRY_PREFIX + group, bytes(message.body), properties, flag=message.flag)
        items.append({"originMsgId": message.msg_id, **result.item()})
        if run.has("id") and not wanted:
            break
    for each in sorted(wanted):
        run.failed(f"no dead letter of group {group!r} has the id {each!r}")
    columns = {"originMsgId": "DEAD LETTER", "msgId": "SENT AS", "sendStatus": "STATUS", "brokerName": "BROKER"}
    run.out.table(columns, items)


def _dead(run: Run, limit: int) -> Iterator[MessageExt]:
    """Yield the dead letters of a group that exist now, oldest first, queue by queue."""
    group = run.get("GROUP")
    try:
        queues = topic_queues(run, DLQ_PREFIX + group)
    except NotFound:
        raise NotFound(f"group {group!r} has no dead letters") from None
    for name, number, address, first, end in queues:
        queue = Queue(DLQ_PREFIX + group, name, number, address)
        offset = first
        while offset < end and limit > 0:
            status, following, messages = pull(run, queue, offset, BATCH)
            if status != FOUND or following <= offset:
                break
            offset = following
            for message in messages:
                if message.queue_offset < end and limit > 0:
                    limit -= 1
                    yield message
