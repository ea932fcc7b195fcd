"""What every framework's test looks at: a topic with one queue, and what its group has left to consume."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from triomq import ConsumeFromWhere, ConsumeRules
from triomq.blocking import Message, Producer, PushConsumer

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
LIMIT_SECONDS = 60.0
CLOSE_SECONDS = ConsumeRules().close_seconds
BODIES = [b"%d" % number for number in range(12)]
MARK = b"the last message"


@dataclass(frozen=True)
class Traffic:
    """A topic with one queue and a group that nobody used before."""

    name_server: str
    topic: str
    group: str
    producing: dict[str, Any] = field(init=False)
    consuming: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        patient = {"name_server": self.name_server, "request_timeout_seconds": LIMIT_SECONDS}
        object.__setattr__(self, "producing", {**patient, "send_timeout_seconds": LIMIT_SECONDS})
        object.__setattr__(self, "consuming", {**patient, "consume_from": FIRST})

    def messages(self) -> list[Message]:
        return [Message(self.topic, body) for body in BODIES]

    def send(self, *bodies: bytes) -> None:
        """Send from plain code."""
        with Producer("given", **self.producing) as producer:
            for body in bodies:
                producer.send(Message(self.topic, body))

    def left(self) -> list[bytes]:
        """Open the group again in plain code, and return what it is given before a message that is sent now: what was
        acknowledged must not be among it. The topic's only queue keeps the order."""
        self.send(MARK)
        found: list[bytes] = []
        with PushConsumer(self.group, **self.consuming) as consumer:
            consumer.subscribe(self.topic)
            while True:
                message = consumer.receive(LIMIT_SECONDS)
                assert message is not None, f"the mark did not arrive, but {found}"
                message.ack()
                if message.body == MARK:
                    return found
                found.append(message.body)


def client_threads() -> list[threading.Thread]:
    """Return the threads of this process's clients."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(("triomq-c", "triomq-p"))]


@contextmanager
def nothing_left() -> Iterator[None]:
    """Check that the block leaves no thread of a client behind, and no coroutine that nobody awaited: where warnings
    are errors, the collection reports those."""
    before = set(client_threads())
    yield
    gc.collect()
    deadline = time.monotonic() + CLOSE_SECONDS
    while (left := set(client_threads()) - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left, f"threads of a closed client: {left}"


def limit_of(tries: int) -> float:
    """Return how long the call with this number may wait: from no time at all to moments that are long enough, so that
    some calls end in every state, and longer ones on a machine that is busy."""
    return 0.0002 * (tries % 40) * (1 + tries // 40)


@contextmanager
def in_time() -> Iterator[None]:
    """Check that the block ends within the time that consumers have for closing."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < CLOSE_SECONDS
