"""What a consumer does with messages whose bodies its serializer cannot read.

Such a message would fail again at each delivery, so it goes to the dead letter topic at once, with the reason. A
serializer that cannot work for now (its schema registry is away) says nothing about the message: that one is delivered
again later. Consumers that poll have no later delivery, so there both wait, and their queue with them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import trio

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.delivery import Delivery
from triomq.client.core.errors import WrongPayload
from triomq.client.core.log import get_logger
from triomq.client.instance.user_errors import concerns_one_call
from triomq.client.payloads.decoder import Decoder
from triomq.protocol.message import MessageExt

log = get_logger("triomq.client.consume")

V = TypeVar("V")

AGAIN_SECONDS = 5.0
"""Pause of a polling consumer before it tries again what did not work."""
WrongMessage = tuple[MessageExt, str]
"""A message whose body is wrong, and why."""


class Payloads(Decoder[V]):
    """The serializer of one consumer."""

    async def sort_out(self, messages: Sequence[MessageExt]) -> tuple[Sequence[MessageExt], Sequence[WrongMessage]]:
        """Set the values of messages; return those whose bodies are right, and the others."""
        right: list[MessageExt] = []
        wrong: list[WrongMessage] = []
        for message in messages:
            try:
                await self.decode(message)
            except WrongPayload as error:
                wrong.append((message, str(error)))
            else:
                right.append(message)
        return right, wrong

    async def keep_right(
        self,
        assigned: AssignedQueue,
        messages: Sequence[MessageExt],
        bury: Callable[[AssignedQueue, MessageExt, str], Awaitable[bool]],
    ) -> list[MessageExt]:
        """Set the values of messages that a poll is to return; take the wrong ones out of the window when `bury` has
        stored them as dead letters. Wait until all of that has worked, or the queue is dropped."""
        right: list[MessageExt] = []
        for message in messages:
            while not assigned.dropped:
                try:
                    await self.decode(message)
                    right.append(message)
                    break
                except WrongPayload as error:
                    if await bury(assigned, message, str(error)):
                        assigned.window.remove([message])
                        break
                except BaseException as error:
                    if not concerns_one_call(error):
                        raise
                    log.warning("serializer failed; its queue waits", queue=str(assigned.queue), error=repr(error))
                await trio.sleep(AGAIN_SECONDS)
        return right

    async def fits(self, delivery: Delivery[Any]) -> bool:
        """Set the value of a message that the application is about to receive; settle it and return False when there
        is none."""
        try:
            await self.decode(delivery.message)
        except WrongPayload as error:
            delivery.dead_letter(str(error))
        except BaseException as error:
            if not concerns_one_call(error):
                delivery.give_back()
                raise
            log.warning("serializer failed; the message is delivered again later", error=repr(error))
            delivery.retry_later()
        else:
            return True
        return False
