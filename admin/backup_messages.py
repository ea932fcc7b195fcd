"""The messages of a backup, sent into empty queues again."""

from __future__ import annotations

import base64
import binascii
import json

from triomq.admin import backup_file, bodies
from triomq.admin.commands.sending import Sender
from triomq.admin.errors import AdminError, UsageError
from triomq.admin.progress_line import ProgressLine
from triomq.admin.routes import queue_items
from triomq.admin.session import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from triomq.admin.run import Run

    QueueKey = tuple[str, str, int]
    Restored = dict[QueueKey, tuple[int, int]]

# They would delay a message again, or prepare it for a transaction whose producer is gone.
NOT_SENT_AGAIN = {"DELAY", "TRAN_MSG"}
_KINDS = {
    "brokerName": str,
    "queueId": int,
    "queueOffset": int,
    "bornTimestamp": int,
    "flag": int,
    "properties": dict,
    "body": str,
}


class QueueSender(Sender):
    """Sends to `place`, without a route: a new topic may not have one yet."""

    def __init__(self, run: Run) -> None:
        super().__init__(run, "TOOLS_PRODUCER")
        self.place = ("", 0, "")

    def queues(self, topic: str) -> list[tuple[str, int, str]]:
        return [self.place]


def restore_messages(
    run: Run, path: str, topic: str, masters: dict[str, str]
) -> tuple[Restored, list[tuple[str, int, int]]]:
    """Send the messages of a file to the queues they are from. Return (first saved offset, count) of each queue that
    received them, and (broker, queue, number of messages) of each that has messages of its own and was left alone.
    """
    counts: Restored = {}
    for item in _items(path):
        key = (item["brokerName"], topic, item["queueId"])
        first, count = counts.get(key, (item["queueOffset"], 0))
        counts[key] = (first, count + 1)
    full: dict[tuple[str, int], int] = {}
    for name in {key[0] for key in counts}:
        if name not in masters:
            raise UsageError(f"{path}: broker {name!r} is not in the backup")
        for number, end in queue_ends(run, masters[name], topic).items():
            if end and (name, topic, number) in counts:
                full[name, number] = end
    for (name, _, number), (_, count) in counts.items():
        if (name, number) in full:
            text = f"keep queue {number} of topic {topic} at {name}, which has had {full[name, number]} messages"
            run.change("keep", text, lambda: None)
        else:
            text = f"send {count} messages to topic {topic}, broker {name}, queue {number}"
            run.change("sendMessages", text, lambda: None)
    counts = {key: value for key, value in counts.items() if (key[0], key[2]) not in full}
    run.change("sendMessages", f"read them from {path}", lambda: _send_all(run, path, topic, masters, counts))
    return counts, [(name, number, end) for (name, number), end in full.items()]


def _send_all(run: Run, path: str, topic: str, masters: dict[str, str], counts: Restored) -> None:
    sender = QueueSender(run)
    total = sum([count for _, count in counts.values()])
    done = 0
    with ProgressLine(f"restore of topic {topic}") as line:
        for item in _items(path):
            name, number = item["brokerName"], item["queueId"]
            if (name, topic, number) not in counts:
                continue
            sender.place = (name, number, masters[name])
            properties = {key: text for key, text in item["properties"].items() if key not in NOT_SENT_AGAIN}
            result = sender.send(
                topic,
                base64.b64decode(item["body"]),
                properties,
                queue_id=number,
                flag=item["flag"],
                born_ms=item["bornTimestamp"],
            )
            if result.status != "SEND_OK":
                run.failed(f"{result.msg_id}: {result.status}")
            done += 1
            line.show(f"{done} of {total} messages")


def queue_ends(run: Run, address: str, topic: str) -> dict[int, int]:
    """Return the next offset of each queue; nothing for a topic that does not exist, as in a dry run."""
    try:
        table = bodies.loads(run.session.call(address, 202, {"topic": topic}).body).get("offsetTable", {})
    except Refused:
        return {}
    return {number: offsets["maxOffset"] for (_, _, number), offsets in queue_items(table)}


def _items(path: str) -> Iterator[dict[str, Any]]:
    """Yield the messages of a file. Raises UsageError for a line that is something else."""
    try:
        with open(path, "rb") as file:
            number = 0
            while line := file.readline(backup_file.MAX_LINE_BYTES):
                number += 1
                yield _item(line, f"line {number} of {path}")
    except OSError as error:
        raise AdminError(f"cannot read {path}: {error.strerror}") from error


def _item(line: bytes, where: str) -> dict[str, Any]:
    try:
        item = json.loads(line)
        if not isinstance(item, dict) or any(type(item.get(key)) is not kind for key, kind in _KINDS.items()):
            raise ValueError
        base64.b64decode(item["body"], validate=True)
        if any(type(text) is not str for text in item["properties"].values()):
            raise ValueError
    except (ValueError, RecursionError, binascii.Error):
        raise UsageError(f"{where} is not a message: `mqadmin backup --messages` writes them") from None
    return item
