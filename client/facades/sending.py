"""Sends that call the application: its iterables, generators, selectors and serializers run where it called, in its
thread or task. In the client's thread they would hold up all clients, and objects of a thread would be elsewhere.

Each is a generator for both facades: it yields calls of the core, `(method, args, kwargs)`, and gets their results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from triomq.client.core.results import SendResult
from triomq.client.produce.producer import Producer
from triomq.protocol.message import Message

CoreCall: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
Steps: TypeAlias = Generator[CoreCall, Any, Any]

PART_MESSAGES = 512
PART_SECONDS = 0.02
"""A part that goes to the core together: at most this number of messages, or what comes in this time."""


def parts(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Yield the messages in parts, as they come. What the iterable raises comes behind what it has given before."""
    left = iter(messages)
    has_more = True
    while has_more:
        part: list[Message] = []
        error: BaseException | None = None
        has_more = False
        deadline = time.monotonic() + PART_SECONDS
        try:
            for message in left:
                part.append(message)
                if len(part) == PART_MESSAGES or time.monotonic() >= deadline:
                    has_more = True
                    break
        except Exception as raised:
            error = raised
        if part:
            yield part
        if error is not None:
            raise error


def send_many(core: Producer[Any], messages: Iterable[Message], **options: Any) -> Steps:
    key_of = options.pop("sharding_key", None)
    results: list[SendResult] = []
    for part in parts(messages):
        if key_of is not None:
            keys = {id(message): key_of(message) for message in part}
            options["sharding_key"] = lambda message, keys=keys: keys[id(message)]
        results += yield core.send_many, (part,), options
    if not results:
        yield core.send_many, ([],), options  # checks the options, and that it is open
    return results


def send_batch(core: Producer[Any], messages: Iterable[Message], **options: Any) -> Steps:
    results = yield core.send_batch, (list(messages),), options
    return results


def selects(options: Mapping[str, Any]) -> bool:
    """Return whether a send has a selector to call."""
    return options.get("selector") is not None


def send(core: Producer[Any], message: Message, **options: Any) -> Steps:
    return _send_selected(core, core.send, message, options)


def send_oneway(core: Producer[Any], message: Message, **options: Any) -> Steps:
    return _send_selected(core, core.send_oneway, message, options)


def _send_selected(core: Producer[Any], send: Callable[..., Any], message: Message, options: dict[str, Any]) -> Steps:
    is_right = isinstance(message, Message) and options.get("queue") is None and options.get("sharding_key") is None
    if is_right:  # else the core says what is wrong
        limit = {"timeout_seconds": options.get("timeout_seconds")}
        queues = yield core._queues_to_send, (message,), limit
        options["queue"] = options.pop("selector")(queues, message, options.pop("selector_argument", None))
    result = yield send, (message,), options
    return result


def send_value(core: Producer[Any], topic: str, value: Any, **options: Any) -> Steps:
    of_send: dict[str, Any] = {
        name: options.pop(name) for name in ("sharding_key", "timeout_seconds") if name in options
    }
    result = yield core.send, (core.message(topic, value, **options),), of_send
    return result


def reply_value(core: Producer[Any], asked: Any, value: Any, *, tags: str | None = None) -> Steps:
    result = yield core.send, (core._reply(asked, value, tags=tags),), {}
    return result
