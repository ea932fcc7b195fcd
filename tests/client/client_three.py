"""One test for the three facades: the scenario is an async function that calls clients through a `Facade`.

In trio and asyncio it awaits their methods; of the blocking facade it calls them in threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from client_cluster import LIMIT_SECONDS

import triomq
from triomq import aio, blocking


class Facade:
    """How a scenario uses one facade; `kinds` is the module with its classes."""

    kinds: Any

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        raise NotImplementedError

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method that waits."""
        return await function(*args, **kwargs)

    def begin(self, function: Callable[..., Awaitable[Any]]) -> Began:
        raise NotImplementedError

    async def wait(self, event: threading.Event) -> None:
        """Wait for an event that any thread sets."""
        raise NotImplementedError

    async def each(self, messages: Any, body: Callable[[Any], Awaitable[None]]) -> None:
        """Loop over a consumer."""
        async for message in messages:
            await body(message)

    @asynccontextmanager
    async def open(self, made: Any) -> AsyncIterator[Any]:
        await self.call(made.start)
        try:
            yield made
        finally:
            await self.call(made.close)

    def handler(self, function: Callable[[Any], None]) -> Callable[[Any], Any]:
        """Return a listener of this facade's usual kind that calls this function."""

        async def handle(message: Any) -> None:
            function(message)

        return handle


class Began:
    """A call that runs beside the scenario."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    async def run(self, function: Callable[..., Awaitable[Any]]) -> None:
        try:
            self.result = await function()
        except Exception as error:
            self.error = error
        finally:
            self.ended.set()


class Trio(Facade):
    kinds = triomq

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            with trio.fail_after(LIMIT_SECONDS):
                async with trio.open_nursery() as self.nursery:
                    await scenario()
                    self.nursery.cancel_scope.cancel()

        trio.run(main)

    def begin(self, function: Callable[..., Awaitable[Any]]) -> Began:
        began = Began()
        self.nursery.start_soon(began.run, function)
        return began

    async def wait(self, event: threading.Event) -> None:
        while not event.is_set():  # noqa: ASYNC110 (of any thread)
            await trio.sleep(0.005)


class Asyncio(Facade):
    kinds = aio

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            self.tasks: list[asyncio.Task[None]] = []
            async with asyncio.timeout(LIMIT_SECONDS):
                await scenario()

        asyncio.run(main())

    def begin(self, function: Callable[..., Awaitable[Any]]) -> Began:
        began = Began()
        self.tasks.append(asyncio.create_task(began.run(function)))
        return began

    async def wait(self, event: threading.Event) -> None:
        while not event.is_set():  # noqa: ASYNC110 (of any thread)
            await asyncio.sleep(0.005)


class Blocking(Trio):
    kinds = blocking

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await trio.to_thread.run_sync(lambda: function(*args, **kwargs), abandon_on_cancel=True)

    async def each(self, messages: Any, body: Callable[[Any], Awaitable[None]]) -> None:
        def loop() -> None:
            for message in messages:
                trio.from_thread.run(body, message)

        await trio.to_thread.run_sync(loop, abandon_on_cancel=True)

    def handler(self, function: Callable[[Any], None]) -> Callable[[Any], Any]:
        return function


THREE = [pytest.param(Trio, id="trio"), pytest.param(Asyncio, id="asyncio"), pytest.param(Blocking, id="blocking")]
