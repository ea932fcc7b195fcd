"""send: messages from the command line, a file or standard input."""

from __future__ import annotations

import sys
import time

from triomq.admin.commands.sending import Sender
from triomq.admin.errors import AdminError, UsageError
from triomq.admin.java_text import string_hash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from triomq.admin.run import Run

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_DELAY_LEVEL = 18
RESERVED = {"KEYS", "TAGS", "DELAY", "WAIT", "UNIQ_KEY"}


class CachingSender(Sender):
    """Asks for the queues of the topic once."""

    def __init__(self, run: Run, group: str) -> None:
        super().__init__(run, group)
        self._found: dict[str, list[tuple[str, int, str]]] = {}

    def queues(self, topic: str) -> list[tuple[str, int, str]]:
        if topic not in self._found:
            self._found = {topic: super().queues(topic)}
        return self._found[topic]


def send(run: Run) -> None:
    topic = run.get("TOPIC")
    properties = _properties(run)
    queue_id = run.number("queue", -1)
    if queue_id >= 0 and not run.has("broker"):
        raise UsageError("--queue needs --broker: each broker has a queue of this number")
    rate = run.decimal("rate", 0.0)
    if rate < 0:
        raise UsageError("--rate must be messages a second")
    sender = CachingSender(run, "TOOLS_PRODUCER")
    began = time.monotonic()
    for sent, body in enumerate(_bodies(run)):
        broker = run.get("broker")
        if run.has("orderBy"):
            queues = sender.queues(topic)
            broker, queue_id, _ = queues[string_hash(run.get("orderBy")) % len(queues)]
        if rate and sent:
            _keep_pace(began + sent / rate)
        result = sender.send(topic, body, dict(properties), broker_name=broker, queue_id=queue_id)
        if result.status != "SEND_OK":
            run.failed(f"{result.msg_id}: {result.status}")
        try:
            run.out.line(f"{result.msg_id} {result.broker_name}/{result.queue_id}@{result.queue_offset}")
            run.out.item(**result.item())
        except BrokenPipeError:  # as with `| head -1`: the rest is sent nevertheless
            run.out.lose_reader()


def _keep_pace(moment: float) -> None:
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)  # a command line waits as long as its option says


def _properties(run: Run) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in run.every("property"):
        name, separator, value = text.partition("=")
        if not separator or not name or name in RESERVED:
            raise UsageError(f"--property must be NAME=VALUE and not one of {', '.join(sorted(RESERVED))}: {text!r}")
        found[name] = value
    if run.has("key"):
        found["KEYS"] = " ".join(run.every("key"))
    if run.has("tag"):
        found["TAGS"] = run.get("tag")
    level = run.number("delay", 0)
    if not 0 <= level <= MAX_DELAY_LEVEL:
        raise UsageError(f"--delay is a level between 1 and {MAX_DELAY_LEVEL}")
    if level:
        found["DELAY"] = str(level)
    for name, value in found.items():
        if {"\x01", "\x02"} & set(name + value):
            raise UsageError(f"the property {name!r} has a character that ends properties")
    return found


def _bodies(run: Run) -> Iterator[bytes]:
    """Yield each body: BODY, a file, or standard input; with --lines each line is one."""
    if run.has("BODY") and run.get("BODY") != "-" and run.has("file"):
        raise UsageError("give BODY or --file, not both")
    count = run.number("count", 1)
    if count < 1:
        raise UsageError("--count must be at least 1")
    if run.has("lines"):
        yield from _lines(run)
        return
    body = _whole(run)
    for _ in range(count):
        yield body


def _whole(run: Run) -> bytes:
    if run.has("BODY") and run.get("BODY") != "-":
        return run.raw("BODY").encode()
    if not run.has("file"):
        body = sys.stdin.buffer.read(MAX_BODY_BYTES + 1)
    else:
        try:
            with open(run.get("file"), "rb") as file:
                body = file.read(MAX_BODY_BYTES + 1)
        except OSError as error:
            raise AdminError(f"cannot read {run.get('file')}: {error.strerror}") from error
    if len(body) > MAX_BODY_BYTES:
        raise UsageError(f"a body has at most {MAX_BODY_BYTES} bytes")
    return body


def _lines(run: Run) -> Iterator[bytes]:
    if run.has("BODY") and run.get("BODY") != "-":
        raise UsageError("--lines reads standard input or --file")
    if not run.has("file"):
        yield from _lines_of(sys.stdin.buffer)
        return
    try:
        with open(run.get("file"), "rb") as stream:
            yield from _lines_of(stream)
    except OSError as error:
        raise AdminError(f"cannot read {run.get('file')}: {error.strerror}") from error


def _lines_of(stream: BinaryIO) -> Iterator[bytes]:
    while line := stream.readline(MAX_BODY_BYTES + 1):
        if len(line) > MAX_BODY_BYTES:
            raise UsageError(f"a body has at most {MAX_BODY_BYTES} bytes")
        yield line.removesuffix(b"\n")
