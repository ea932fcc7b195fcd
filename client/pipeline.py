"""Many sends at once through one producer (`Producer.send_many`): some tasks take the messages in turn.

Bounds: as many messages are taken from the iterable as there are tasks; the locks that keep the order of a key are as
many as keys are in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import trio

from triomq.client.results import SendResult
from triomq.protocol.message import Message

if TYPE_CHECKING:
    from triomq.client.producer import Producer


class Pipeline:
    """See the module's text; for one call of `send_many`."""

    def __init__(
        self,
        producer: Producer,
        messages: Iterable[Message],
        sharding_key: Callable[[Message], str] | None,
        timeout_seconds: float | None,
    ) -> None:
        self._producer = producer
        self._left = enumerate(messages)
        self._key = sharding_key
        self._timeout_seconds = timeout_seconds
        self._results: list[SendResult | None] = []
        self._error: Exception | None = None
        self._key_locks: dict[str, tuple[trio.Lock, list[int]]] = {}

    async def run(self, in_flight: int) -> list[SendResult]:
        """The results in the order of the messages. Raises the first failure, when those in flight have ended."""
        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(self._work)
        if self._error is not None:
            raise self._error
        return [result for result in self._results if result is not None]

    async def _work(self) -> None:
        while self._error is None:
            try:
                index, message = next(self._left)
            except StopIteration:
                return
            except Exception as error:  # of the iterable
                self._error = error
                return
            self._results.append(None)
            try:
                self._results[index] = await self._send(message)
            except Exception as error:
                self._error = self._error or error

    async def _send(self, message: Message) -> SendResult:
        if self._key is None:
            return await self._producer.send(message, timeout_seconds=self._timeout_seconds)
        key = self._key(message)
        # The last one to leave takes its lock along.
        lock, users = self._key_locks.setdefault(key, (trio.Lock(), [0]))
        users[0] += 1
        try:
            async with lock:
                return await self._producer.send(message, sharding_key=key, timeout_seconds=self._timeout_seconds)
        finally:
            users[0] -= 1
            if not users[0]:
                del self._key_locks[key]
