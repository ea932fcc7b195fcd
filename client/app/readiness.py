"""Which consumers of an open application have their queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import trio

from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.core.errors import OperationTimeout
from triomq.remoting.virtual_time import line

LOOK_SECONDS = 0.01


class Members:
    """The consumers of an application that has opened, each with what to call its handler."""

    def __init__(self) -> None:
        self._members: list[tuple[str, PushConsumer[Any]]] = []

    def add(self, name: str, consumer: Any) -> None:
        """`consumer`: a `triomq.PushConsumer` or a `triomq.aio.PushConsumer`."""
        self._members.append((name, getattr(consumer, "_core", consumer)))

    @staticmethod
    def missing(consumer: PushConsumer[Any]) -> list[str]:
        return consumer.topics_without_queues()

    async def ready(self, timeout_seconds: float, missing: Callable[[PushConsumer[Any]], list[str]]) -> None:
        """Wait until no topic is `missing` to any consumer. Raises OperationTimeout. In asyncio the consumers run in
        another thread, which has nothing to wait on; so this looks from time to time."""
        in_trio = trio.lowlevel.in_trio_run()
        sleep = trio.sleep if in_trio else asyncio.sleep
        now = trio.current_time if in_trio else asyncio.get_running_loop().time
        ends = now() + timeout_seconds
        while lines := [self._line(*each, topics) for each in self._members if (topics := missing(each[1]))]:
            if now() >= ends:
                raise OperationTimeout(
                    f"not ready after {timeout_seconds:g} s: {'; '.join(lines)}. A topic that does not exist has none: "
                    "create it, or send to it first"
                )
            await sleep(LOOK_SECONDS)

    @staticmethod
    def _line(name: str, consumer: PushConsumer[Any], topics: list[str]) -> str:
        return line(name, map(consumer.client.namespace.unwrap, topics))
