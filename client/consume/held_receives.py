"""Receives that brokers hold, and that may outlive the calls that sent them.

There is no request that takes a held one back: when its caller is cancelled, the next messages still go to it. So the
next call that wants the same waits for it instead of asking again. What it brings when nobody waits is unclaimed.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from triomq.client.core.errors import ClientClosed
from triomq.client.core.log import get_logger, report
from triomq.client.core.received_message import ReceivedMessage
from triomq.client.instance.client import Client

log = get_logger("triomq.client.simple")


class Request(NamedTuple):
    """How to send one receive, and what becomes of messages that nobody waits for."""

    send: Callable[[], Awaitable[list[ReceivedMessage]]]
    unclaimed: Callable[[list[ReceivedMessage]], Awaitable[None]]


@dataclass(eq=False, slots=True)
class _Held:
    """One receive. Neither messages nor an error when it is done: the client was closed."""

    wanted: Hashable
    request: Request
    done: trio.Event = field(default_factory=trio.Event)
    messages: list[ReceivedMessage] | None = None
    error: Exception | None = None


class HeldReceives:
    """The receives of one consumer. They run for as long as the client is open."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._left: list[_Held] = []
        """Those that nobody waits for."""

    async def receive(self, wanted: Hashable, seconds: float, request: Callable[[], Request]) -> list[ReceivedMessage]:
        """Send a request and return what it brings; or what an earlier one brings within `seconds` that wanted the same
        and that nobody waits for. Raises what sending raises, ClientClosed."""
        # The broker has to be asked by a call that cannot wait.
        held = next((each for each in self._left if each.wanted == wanted), None) if seconds > 0 else None
        if held is not None:
            self._left.remove(held)
        else:
            held, seconds = _Held(wanted, request()), math.inf
            self._client.start_soon(self._run, held)
        with trio.move_on_after(seconds) as scope:
            try:
                await held.done.wait()
            except trio.Cancelled:
                self._leave(held)
                raise
        if scope.cancelled_caught:
            return []
        if held.error is not None:
            raise held.error
        if held.messages is None:
            raise ClientClosed("the client was closed while a receive waited")
        return held.messages

    async def _run(self, held: _Held) -> None:
        try:
            held.messages = await held.request.send()
        except Exception as error:
            held.error = error  # raised by the call that waits
        finally:
            held.done.set()
            if is_left := held in self._left:
                self._left.remove(held)
        if is_left:
            await self._give_up(held)

    def _leave(self, held: _Held) -> None:
        if not held.done.is_set():
            self._left.append(held)
        elif self._client.is_open:  # the answer and the cancellation came at once
            self._client.start_soon(self._give_up, held)

    async def _give_up(self, held: _Held) -> None:
        if held.error is not None:
            report(log, "a receive failed that nobody waits for", held.error)
        elif held.messages:
            try:
                await held.request.unclaimed(held.messages)
            except Exception:
                log.exception("messages of a cancelled receive not given back")
