"""Many sends at once through one producer (`Producer.send_many`): a fixed number of tasks take the messages in turn.

Bounds: each task takes one message at a time from the iterable; there are as many locks, which keep the order of a key,
as keys in flight.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import trio

from triomq.client.core.results import SendResult
from triomq.client.instance.user_errors import concerns_one_call
from triomq.protocol.message import Message

Send = Callable[[Message, str | None], Awaitable[SendResult]]
"""Sends one message, with its sharding key if it has one."""


class Pipeline:
    """See the module's text; for one call of `send_many`."""

    def __init__(
        self,
        send: Send,
        messages: Iterable[Message],
        sharding_key: Callable[[Message], str] | None,
    ) -> None:
        self._send = send
        self._left = enumerate(messages)
        self._key = sharding_key
        self._results: list[SendResult | None] = []
        self._error: BaseException | None = None
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
            except BaseException as error:  # of the iterable
                if not concerns_one_call(error):
                    raise
                self._error = error
                return
            self._results.append(None)
            try:
                in_order = self._send(message, None) if self._key is None else self._send_in_order(message, self._key)
                self._results[index] = await in_order
            except BaseException as error:
                if not concerns_one_call(error):
                    raise
                self._error = self._error or error

    async def _send_in_order(self, message: Message, key_of: Callable[[Message], str]) -> SendResult:
        key = key_of(message)
        # The last send with this key removes the lock.
        lock, users = self._key_locks.setdefault(key, (trio.Lock(), [0]))
        users[0] += 1
        try:
            async with lock:
                return await self._send(message, key)
        finally:
            users[0] -= 1
            if not users[0]:
                del self._key_locks[key]
