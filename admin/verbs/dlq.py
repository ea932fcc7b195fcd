"""dlq list, show, resend, export: messages that a group gave up on."""

from __future__ import annotations

from triomq.admin.cluster_view import topic_queues
from triomq.admin.dead_letters import copy_of
from triomq.admin.errors import NotFound, UsageError
from triomq.admin.message_format import body_text
from triomq.admin.messages import BATCH, FOUND, Queue, message_item, pull
from triomq.admin.output import printable
from triomq.admin.routes import DLQ_PREFIX, RETRY_PREFIX, all_topics
from triomq.admin.session import Refused
from triomq.admin.verbs.send import CachingSender
from triomq.protocol import dead_letters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from triomq.admin.run import Run
    from triomq.protocol.message import MessageExt

RESENT_BEFORE = "RESENT_BEFORE"
"""The status of a letter that is not sent, since it was."""


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
        "resent": "RESENT",
        "reason": "REASON",
        "keys": "KEYS",
        "shown": "BODY",
    }
    items = []
    for message, address in _dead(run, run.number("count", 20)):
        item = _item(run, message, address)
        shown = {
            "reason": printable(str(item["reason"] or ""))[:60],
            "shown": printable(body_text(message))[:60],
            "resent": "yes" if item["resentAs"] else "",
        }
        items.append({**item, "wholeReason": item["reason"], **shown})
    if run.out.is_text:
        run.out.table(columns, items)
        return
    for item in items:
        item["reason"] = item.pop("wholeReason")
        run.out.item(**{name: value for name, value in item.items() if name not in ("shown", "resent")})


def dlq_export(run: Run) -> None:
    import json

    for message, address in _dead(run, 2**62):
        item = _item(run, message, address)
        run.out.line(json.dumps(item, ensure_ascii=False))
        run.out.item(**item)


def _item(run: Run, message: MessageExt, address: str) -> dict[str, object]:
    copy = copy_of(run, message, address)
    return {
        **message_item(message),
        "tries": dead_letters.tries_of(message.properties, message.reconsume_times),
        "reason": message.properties.get(dead_letters.REASON),
        "originTopic": message.properties.get("RETRY_TOPIC"),
        "originMsgId": message.properties.get("ORIGIN_MESSAGE_ID"),
        "resentAs": copy.offset_msg_id if copy is not None else None,
    }


def dlq_resend(run: Run) -> None:
    """Send into the retry topic of the group: its members alone receive the message, as one of its first topic."""
    if not run.has("all") and not run.has("id"):
        raise UsageError("give --id ID, or --all for every message")
    wanted = set(run.every("id"))
    sender = CachingSender(run, "TOOLS_PRODUCER")
    items = []
    for message, address in _dead(run, 2**62):
        names = {message.msg_id, message.offset_msg_id, message.properties.get("ORIGIN_MESSAGE_ID") or ""}
        if wanted and not wanted & names:
            continue
        wanted -= names
        try:
            items.append({"originMsgId": message.msg_id, **_resent(run, sender, message, address)})
        except (Refused, NotFound) as error:
            run.failed(f"{message.msg_id}: {error}")
        if run.has("id") and not wanted:
            break
    for each in sorted(wanted):
        run.failed(f"no dead letter of group {run.get('GROUP')!r} has the id {each!r}")
    columns = {"originMsgId": "DEAD LETTER", "msgId": "SENT AS", "sendStatus": "STATUS", "brokerName": "BROKER"}
    run.out.table(columns, items)


def _resent(run: Run, sender: CachingSender, letter: MessageExt, address: str) -> dict[str, Any]:
    """Send a dead letter at its own broker, which so has the mark, unless it was sent before."""
    group = run.get("GROUP")
    copy = None if run.has("again") else copy_of(run, letter, address)
    if copy is not None:
        return {
            "sendStatus": RESENT_BEFORE,
            "msgId": copy.msg_id,
            "offsetMsgId": copy.offset_msg_id,
            "topic": copy.topic,
            "brokerName": copy.broker_name,
            "queueId": copy.queue_id,
            "queueOffset": copy.queue_offset,
        }
    properties = dead_letters.copy_properties(letter.properties, group, letter.offset_msg_id)
    broker_name = letter.broker_name or ""
    body = bytes(letter.body)
    return sender.send(RETRY_PREFIX + group, body, properties, broker_name=broker_name, flag=letter.flag).item()


def _dead(run: Run, limit: int) -> Iterator[tuple[MessageExt, str]]:
    """Yield the dead letters of a group that exist now, oldest first, queue by queue, and the address of their
    broker."""
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
                    yield message, address
