"""Calls that other threads make in the client's thread: a few tasks there make them all, one after the other."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest
import trio
from client_cluster import LIMIT_SECONDS
from client_fakes import NAME_SERVER, FakeCluster

import triomq
from triomq import aio, blocking
from triomq.client.facades import portal as portals
from triomq.client.facades.portal_call import PortalCall

CALLER: ContextVar[str] = ContextVar("CALLER", default="nobody")


@pytest.mark.parametrize("module", [aio, blocking])
def test_a_call_sees_the_context_variables_of_its_own_caller(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    """The portal's tasks make many calls each."""
    FakeCluster.installed(monkeypatch, "T")
    seen: list[str] = []

    class Hook:
        def before_send(self, context: Any) -> None:
            seen.append(CALLER.get())
            CALLER.set("changed by the call")

        def after_send(self, context: Any) -> None:
            pass

    producer = module.Producer("P", name_server=NAME_SERVER, send_hooks=[Hook()])

    async def in_asyncio() -> None:
        async with producer:
            for name in ("a", "b"):
                CALLER.set(name)
                await producer.send(triomq.Message("T", b"body"))
                assert CALLER.get() == name

    if module is aio:
        asyncio.run(in_asyncio())
    else:
        with producer:
            for name in ("a", "b"):
                CALLER.set(name)
                producer.send(triomq.Message("T", b"body"))
                assert CALLER.get() == name
    assert seen == ["a", "b"]


def test_a_call_that_was_cancelled_leaves_the_next_one_alone() -> None:
    portal = portals.acquire()
    try:

        async def task() -> Any:
            await trio.lowlevel.checkpoint()
            return trio.lowlevel.current_task()

        first = portal.run(task)
        assert portal.run(task) is first, "one task makes both calls"
        began, ended = threading.Event(), threading.Event()

        async def wait() -> None:
            began.set()
            try:
                await trio.sleep_forever()
            finally:
                ended.set()

        call: PortalCall[None] = PortalCall(wait, lambda: None)
        portal.begin(call)
        assert began.wait(LIMIT_SECONDS)
        portal.abandon(call)
        assert ended.wait(LIMIT_SECONDS)
        assert first in [portal.run(task) for _ in range(3)], "the task that was cancelled goes on"
    finally:
        portals.release(portal)
