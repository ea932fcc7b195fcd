"""Choosing the queue of a message from the queues of its topic, where the application wants to decide. Pure functions.

Round robin, the default, belongs to the route of a topic (`TopicRoute.next_queue`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

from triomq.protocol.java import string_hash
from triomq.protocol.message import Message
from triomq.protocol.message_queue import MessageQueue


class QueueSelector(Protocol):
    """Choose one of the queues (sorted by broker name and id) for a message; any function with these parameters. The
    last one is the caller's own, `selector_argument` of the send (RocketMQ: MessageQueueSelector)."""

    def __call__(self, queues: Sequence[MessageQueue], message: Message, argument: Any, /) -> MessageQueue: ...


def by_hash(queues: Sequence[MessageQueue], message: Message, argument: Any) -> MessageQueue:
    """Return the same queue for the same argument (RocketMQ: SelectMessageQueueByHash).

    Strings hash as in Java, so Java and Python producers of one topic agree.
    """
    if isinstance(argument, str):
        return by_sharding_key(queues, argument)
    return queues[abs(hash(argument)) % len(queues)]


def by_sharding_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """Return the queue of a sharding key: what `by_hash` chooses for a string, without a message."""
    return queues[abs(string_hash(key)) % len(queues)]


def by_random(queues: Sequence[MessageQueue], message: Message, argument: Any) -> MessageQueue:
    """Return any queue (RocketMQ: SelectMessageQueueByRandom)."""
    return random.choice(queues)
