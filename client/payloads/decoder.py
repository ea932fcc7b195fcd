"""Setting the values of messages: the part of reading typed messages that may wait.

One fetch at a time for each decoder: all messages that wait for the same schema find it there.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

from triomq.client.core.errors import WrongPayload
from triomq.client.payloads.serializer import Serializer
from triomq.protocol.message import MessageExt

V = TypeVar("V")


class Decoder(Generic[V]):
    """One serializer, as one consumer or one request uses it."""

    def __init__(self, serializer: Serializer[V]) -> None:
        self._serializer = serializer
        self._fetching = trio.Lock()

    async def decode(self, message: MessageExt[V]) -> None:
        """Set the value of a message. Raises WrongPayload, with the serializer's name, when its body is wrong; anything
        else when that is not known yet."""
        serializer, body = self._serializer, message.body
        try:
            if not serializer.is_ready_for(body):
                async with self._fetching:
                    if not serializer.is_ready_for(body):
                        await trio.to_thread.run_sync(serializer.fetch, body)
            message.value = serializer.decode(body)
        except (ValueError, RecursionError) as error:
            raise WrongPayload(f"{type(serializer).__name__}: {str(error) or type(error).__name__}") from error
