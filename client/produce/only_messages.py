"""Methods that take a message, called with something else: other clients take topic and body there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from triomq.client.core.errors import InvalidMessage
from triomq.protocol.message import Message

P = ParamSpec("P")
R = TypeVar("R")


def takes_message(method: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Have an async method raise InvalidMessage, which says what it takes, unless its first argument is a message."""
    name = method.__name__

    @wraps(method)
    async def call(self: Any, message: Any, *others: Any, **options: Any) -> R:
        if not isinstance(message, Message):
            values = " (values of a serializer: send_value(topic, value))" if name == "send" else ""
            raise InvalidMessage(
                f"{name} takes a Message, not {type(message).__name__}: {name}(Message(topic, body)){values}"
            )
        return await method(self, message, *others, **options)  # type: ignore[arg-type]

    return call  # type: ignore[return-value]
